package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// oldest is the first version of etcd whose answers to progress requests can be relied on: before it, an answer could
// overtake events that belong below its revision (etcd's issue 15220).
var oldest = [3]int{3, 5, 13}

const (
	// dialTimeout is for one look at one member: a connection, TLS and a first answer. It leaves time for a lost packet to be
	// sent again twice (after one and three seconds).
	dialTimeout = 5 * time.Second
	// connectPause is between two tries to reach the cluster: it costs etcd nothing, and people who start both at once wait
	// for no more than that.
	connectPause = 500 * time.Millisecond
	// connectReport is how often the log says what Connect waits for: for people who look at it meanwhile.
	connectReport = 10 * time.Second
	// keepAliveTime and keepAliveTimeout tell a connection that is gone without a word: after both, its requests fail.
	// etcd closes connections whose pings come more often than every five seconds, or come while there is no stream.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
	// maxSendBytes lets etcd say what is too large, instead of the client, whose own bound is 2 MiB: more than any etcd
	// takes that isn't told to take more.
	maxSendBytes = 64 << 20
)

// refused is an error that another try wouldn't change.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func refuse(format string, args ...any) error { return refused{fmt.Errorf(format, args...)} }

// Connect returns a client of the cluster, whose keys, watches and leases all are below the prefix. It waits until the
// cluster answers a linearizable read, for Timeout, or with Wait until ctx ends. It doesn't wait for what waiting doesn't
// change: a version of etcd that is too old, a certificate that isn't trusted, a user that isn't let in, members of
// two clusters. Whether the prefix is ours is for Claim to say. The caller closes the client.
func Connect(ctx context.Context, o Options) (*clientv3.Client, error) {
	return connect(ctx, o, func(context.Context, *clientv3.Client) error { return nil })
}

// connect is Connect with what else must succeed. That is tried again with the rest, unless it's refused.
func connect(ctx context.Context, o Options, begin func(context.Context, *clientv3.Client) error) (*clientv3.Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if !o.On() {
		return nil, errors.New("--etcd-servers names no cluster")
	}
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	password, err := o.password()
	if err != nil {
		return nil, err
	}
	if o.inTheClear() {
		o.log().Warn("--etcd-servers has http:// to another machine: everything that is stored can be read and changed on the way; use https", "servers", o.Servers)
	}
	c := connector{options: o, tls: config, password: password, log: o.log(), begin: begin}
	return c.connect(ctx)
}

// connector is what one Connect needs.
type connector struct {
	options  Options
	tls      *tls.Config
	password string
	log      *slog.Logger
	begin    func(context.Context, *clientv3.Client) error // what a client is for
}

func (c *connector) connect(ctx context.Context) (*clientv3.Client, error) {
	if !c.options.Wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(c.options.Timeout, DefaultTimeout))
		defer cancel()
	}
	reported := time.Now()
	var last error
	for {
		client, err := c.try(ctx)
		var no refused
		switch {
		case err == nil:
			return client, nil
		case errors.As(err, &no):
			return nil, fmt.Errorf("etcd: %w", err)
		case last == nil || ctx.Err() == nil:
			last = err // otherwise it says no more than that the time is up
		}
		if time.Since(reported) > connectReport {
			reported = time.Now()
			c.log.Warn("waiting for etcd", "servers", c.options.Servers, "error", last)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("etcd can't be reached (--etcd-timeout): %w", last)
		case <-time.After(connectPause):
		}
	}
}

// try looks at every member and makes a client, if one answers.
func (c *connector) try(ctx context.Context) (*clientv3.Client, error) {
	var last error
	reached := 0
	for _, server := range c.options.Servers {
		err := c.probe(ctx, server)
		switch {
		case err == nil:
			reached++
		case errors.As(err, new(refused)):
			return nil, err
		default:
			last = err
		}
	}
	if reached == 0 {
		return nil, last
	}
	var dial []grpc.DialOption
	if way := c.options.Way; way != nil {
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return way(ctx, "tcp", address) }))
	}
	client, err := clientv3.New(clientv3.Config{
		DialOptions: dial,
		Endpoints:   c.options.Servers, TLS: c.tls, Username: c.options.Username, Password: c.password,
		DialTimeout: dialTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallSendMsgSize: maxSendBytes, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, credentials("log in", err)
	}
	err = c.check(ctx, client)
	if err == nil {
		err = c.begin(ctx, client)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// What a connection over HTTP/2 begins with: the client's preface and its empty settings. The server's first
// frame is of the type settings, too. Source: RFC 9113, section 3.4.
const (
	preface       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	frameHeader   = 9
	frameType     = 3
	frameSettings = 4
)

// probe tells why a member can't be talked to. etcd's client keeps the reason to itself, and tries again instead.
func (c *connector) probe(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	u, err := url.Parse(server)
	if err != nil {
		return refused{err}
	}
	dial := new(net.Dialer).DialContext
	if c.options.Way != nil {
		dial = c.options.Way
	}
	conn, err := dial(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	if c.tls != nil {
		config := c.tls.Clone()
		config.ServerName, config.NextProtos = u.Hostname(), []string{"h2"}
		conn = tls.Client(conn, config)
	}
	if _, err := io.WriteString(conn, preface); err != nil {
		return ofTLS(server, err)
	}
	var header [frameHeader]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return ofTLS(server, err)
	}
	if header[frameType] != frameSettings {
		return refuse("%s isn't the client URL of an etcd: it answers %q", server, header)
	}
	return nil
}

// ofTLS marks the errors that are about certificates: they stay.
func ofTLS(server string, err error) error {
	var remote *net.OpError
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(x509.UnknownAuthorityError)):
		return refuse("%s: its certificate isn't trusted (--etcd-cafile): %w", server, err)
	case errors.As(err, new(tls.RecordHeaderError)):
		return refuse("%s doesn't speak TLS: %w", server, err)
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert
		return refuse("%s doesn't let this client in (--etcd-certfile, --etcd-keyfile): %w", server, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s closes the connection, as it does when one side speaks TLS and the other doesn't: %w", server, err)
	}
	return fmt.Errorf("%s: %w", server, err)
}

// credentials marks the errors that are about the user: they stay.
func credentials(what string, err error) error {
	for _, is := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionNotGranted} {
		if errors.Is(err, is) {
			return refuse("%s: %w (--etcd-username, --etcd-password-file, --etcd-prefix)", what, err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// check looks at what answers: versions, one cluster, and whether the prefix can be read. Then it binds the client to
// the prefix.
func (c *connector) check(ctx context.Context, client *clientv3.Client) error {
	var cluster uint64
	var last error
	for _, server := range c.options.Servers {
		s, err := c.status(ctx, client, server)
		switch {
		case errors.As(err, new(refused)):
			return err
		case err != nil:
			last = err
			continue
		}
		if !supported(s.Version) {
			return refuse("%s has version %s: %d.%d.%d or newer is needed, because progress requests aren't safe before", server, s.Version, oldest[0], oldest[1], oldest[2])
		}
		if id := s.Header.ClusterId; cluster != 0 && id != cluster {
			return refuse("--etcd-servers names two clusters: %s has the id %x, and those before it %x", server, id, cluster)
		}
		cluster = s.Header.ClusterId
	}
	if cluster == 0 {
		return last
	}
	prefix := c.options.prefix()
	client.KV = kv.Through(bounded, namespace.NewKV(client.KV, prefix))
	client.Watcher = namespace.NewWatcher(client.Watcher, prefix)
	client.Lease = namespace.NewLease(client.Lease, prefix)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := client.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()); err != nil {
		return credentials("read "+prefix, err)
	}
	return nil
}

func (c *connector) status(ctx context.Context, client *clientv3.Client, server string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s, err := client.Status(ctx, server)
	if err != nil {
		return nil, credentials(server, err)
	}
	return s, nil
}

// supported tells whether a version, as "3.5.13", is one that this client may use.
func supported(version string) bool {
	number, _, _ := strings.Cut(version, "-")
	parts := strings.Split(number, ".")
	if len(parts) != len(oldest) {
		return false
	}
	for i, least := range oldest {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < least {
			return false
		}
		if n > least {
			return true
		}
	}
	return true
}
