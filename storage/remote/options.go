package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// What the fields of Options default to.
const (
	DefaultPrefix = "/apiserver-lite"
	// DefaultTimeout is as long as a cluster whose members start at the same time may take.
	DefaultTimeout = 30 * time.Second
	// DefaultCompactionInterval is kube-apiserver's.
	DefaultCompactionInterval = 5 * time.Minute
)

// Options say where an etcd cluster is and how to get in. The zero value names none.
type Options struct {
	// Servers are the client URLs of the members, as "https://10.0.0.1:2379", all of one cluster and either all with http
	// or all with https.
	Servers []string

	// CAFile is a PEM file with the authorities that the members' certificates are checked by. Defaults to those that the
	// machine trusts. CertFile and KeyFile are what the members are shown, for clusters that ask for it. The key must not
	// be readable for everybody, or writable for group or others.
	CAFile, CertFile, KeyFile string

	// Prefix is what all keys begin with. Defaults to DefaultPrefix.
	Prefix string

	// Username is an etcd user, and PasswordFile a file with its password, whose mode is checked as the key's.
	Username, PasswordFile string

	// Timeout is how long Connect tries to reach the cluster. Defaults to DefaultTimeout. With Wait it tries until its
	// context ends.
	Timeout time.Duration
	Wait    bool

	// CompactionInterval is how often history is compacted. Never compacts nothing. Defaults to DefaultCompactionInterval.
	CompactionInterval time.Duration

	// Way makes connections to the members. Nil: directly.
	Way func(ctx context.Context, network, address string) (net.Conn, error)

	// Transformer, if set, is what values go through on their way to etcd and back.
	Transformer storage.Transformer

	// Log gets what Connect waits for. Defaults to slog.Default().
	Log *slog.Logger
}

// Never is a CompactionInterval that leaves the compaction to somebody else.
const Never time.Duration = -1

func (o *Options) log() *slog.Logger { return cmp.Or(o.Log, slog.Default()) }

// On tells whether the options name a cluster.
func (o *Options) On() bool { return len(o.Servers) > 0 }

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	o.AddKubernetesFlags(set, DefaultPrefix)
	set.StringVar(&o.Username, "etcd-username", "", "user of that cluster")
	set.StringVar(&o.PasswordFile, "etcd-password-file", "", "file with the user's password")
	set.DurationVar(&o.Timeout, "etcd-timeout", DefaultTimeout, "how long the start waits for that cluster")
	set.BoolVar(&o.Wait, "etcd-wait", false, "wait for that cluster as long as it takes")
}

// AddKubernetesFlags adds those flags that kube-apiserver has, too. There the prefix defaults to another one.
func (o *Options) AddKubernetesFlags(set *pflag.FlagSet, prefix string) {
	set.StringSliceVar(&o.Servers, "etcd-servers", nil, "URLs, as https://10.0.0.1:2379, of an etcd cluster that keeps the data instead of a data directory")
	set.StringVar(&o.CAFile, "etcd-cafile", "", "PEM file with the authorities of that cluster's certificates (default those that the machine trusts)")
	set.StringVar(&o.CertFile, "etcd-certfile", "", "PEM file with the certificate to show to that cluster")
	set.StringVar(&o.KeyFile, "etcd-keyfile", "", "PEM file with its key")
	set.StringVar(&o.Prefix, "etcd-prefix", prefix, "what all keys in that cluster begin with")
	o.CompactionInterval = DefaultCompactionInterval
	set.Var((*interval)(&o.CompactionInterval), "etcd-compaction-interval", "how often history older than --history is removed from that cluster; 0 leaves it to somebody else")
}

// interval is the flag of CompactionInterval, in which 0 means Never.
type interval time.Duration

func (i *interval) Type() string { return "duration" }

func (i *interval) String() string {
	if time.Duration(*i) == Never {
		return "0s"
	}
	return time.Duration(*i).String()
}

func (i *interval) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return err
	case d == 0:
		d = Never
	case d < time.Second:
		return errors.New("must be 0 or at least 1s")
	}
	*i = interval(d)
	return nil
}

// Validate tells the first setting that can't work, by the name of its flag. It reads no file.
func (o *Options) Validate() error {
	if !o.On() {
		return o.validateOff()
	}
	scheme := ""
	for _, s := range o.Servers {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
			return fmt.Errorf("--etcd-servers: %q is no URL such as https://10.0.0.1:2379", s)
		}
		if scheme != "" && u.Scheme != scheme {
			return errors.New("--etcd-servers: either all URLs begin with https or none does")
		}
		scheme = u.Scheme
	}
	switch {
	case scheme == "http" && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != ""):
		return errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile need URLs in --etcd-servers that begin with https")
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("--etcd-certfile and --etcd-keyfile need each other")
	case (o.Username == "") != (o.PasswordFile == ""):
		return errors.New("--etcd-username and --etcd-password-file need each other")
	case o.Username != "" && o.inTheClear():
		return errors.New("--etcd-username with http:// to another machine in --etcd-servers: everybody on the way could read the password; use https")
	case o.Timeout < 0:
		return fmt.Errorf("--etcd-timeout must not be negative: %v", o.Timeout)
	}
	if p := o.prefix(); p != path.Clean(p) || !strings.HasPrefix(p, "/") || p == "/" {
		return fmt.Errorf("--etcd-prefix %q doesn't begin with / or isn't a clean path such as %s", o.Prefix, DefaultPrefix)
	}
	return nil
}

// inTheClear tells whether what is sent to a member can be read on the way: over http, and not on this machine.
func (o *Options) inTheClear() bool {
	return slices.ContainsFunc(o.Servers, func(s string) bool {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" {
			return false
		}
		ip, err := netip.ParseAddr(u.Hostname())
		return u.Hostname() != "localhost" && (err != nil || !ip.Unmap().IsLoopback())
	})
}

// validateOff refuses the flags that say something about a cluster when none is named.
func (o *Options) validateOff() error {
	for flag, value := range map[string]string{
		"--etcd-cafile": o.CAFile, "--etcd-certfile": o.CertFile, "--etcd-keyfile": o.KeyFile,
		"--etcd-username": o.Username, "--etcd-password-file": o.PasswordFile,
	} {
		if value != "" {
			return fmt.Errorf("%s needs --etcd-servers", flag)
		}
	}
	return nil
}

// prefix is what keys begin with, without a slash at its end: keys begin with one.
func (o *Options) prefix() string {
	if o.Prefix == "" {
		return DefaultPrefix
	}
	return strings.TrimSuffix(o.Prefix, "/")
}

// tlsConfig reads the files for TLS; nil for http.
func (o *Options) tlsConfig() (*tls.Config, error) {
	if !strings.HasPrefix(o.Servers[0], "https:") {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--etcd-cafile: %s has no certificate in it", o.CAFile)
		}
	}
	if o.CertFile == "" {
		return config, nil
	}
	if err := private.Secret(o.KeyFile, o.log()); err != nil {
		return nil, fmt.Errorf("--etcd-keyfile: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--etcd-certfile and --etcd-keyfile: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// password reads the password; "" for none.
func (o *Options) password() (string, error) {
	if o.PasswordFile == "" {
		return "", nil
	}
	if err := private.Secret(o.PasswordFile, o.log()); err != nil {
		return "", fmt.Errorf("--etcd-password-file: %w", err)
	}
	text, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("--etcd-password-file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("--etcd-password-file: %s is empty", o.PasswordFile)
	}
	return password, nil
}
