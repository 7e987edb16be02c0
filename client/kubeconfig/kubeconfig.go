// Package kubeconfig makes a client of a kubeconfig file, the file in which kubectl finds its servers and users.
//
// It's apart from package client because it needs a YAML library. It reads what kubectl reads, but for basic authentication,
// auth providers, impersonation and proxies, which are errors. Files that it names are read again when they're replaced, as
// client.Options says.
//
// A user with a plug-in (exec) has its command run: when the client is made, when what it printed expires, and after an answer
// of 401. Unlike kubectl's it has no standard input, a minute at most, and a MiB for what it prints, and its standard error is shown
// only if it fails.
// One goroutine at a time runs it, and nobody waits for it beyond his own context. Package client's comment has the locks.
package kubeconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// Open returns a client for a context of the file: for the current one if context is "". The path may be a list of files,
// as in KUBECONFIG, of which the first that has something wins; those that aren't there are left out.
//
// What the options say wins over the file: an authority, a namespace, and a credential (a token or a certificate), which
// replaces the file's user.
func Open(path, context string, o client.Options) (*client.Client, error) {
	all, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c, err := all.open(context, o)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return c, nil
}

// config is the parts of a kubeconfig file that are used.
type config struct {
	CurrentContext string         `json:"current-context"`
	Contexts       []namedContext `json:"contexts"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster   string `json:"cluster"`
		User      string `json:"user"`
		Namespace string `json:"namespace"`
	} `json:"context"`
}

type namedCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		Server             string `json:"server"`
		CA                 string `json:"certificate-authority"`
		CAData             []byte `json:"certificate-authority-data"`
		InsecureSkipVerify bool   `json:"insecure-skip-tls-verify"`
		ServerName         string `json:"tls-server-name"`
		ProxyURL           string `json:"proxy-url"`
		Extensions         []struct {
			Name      string          `json:"name"`
			Extension json.RawMessage `json:"extension"`
		} `json:"extensions"`
	} `json:"cluster"`
	directory string // of the file, which its paths are relative to
}

type namedUser struct {
	Name string `json:"name"`
	User struct {
		Token        string   `json:"token"`
		TokenFile    string   `json:"tokenFile"`
		Cert         string   `json:"client-certificate"`
		CertData     []byte   `json:"client-certificate-data"`
		Key          string   `json:"client-key"`
		KeyData      []byte   `json:"client-key-data"`
		Username     string   `json:"username"`
		AuthProvider any      `json:"auth-provider"`
		Impersonate  string   `json:"as"`
		Exec         *command `json:"exec"`
	} `json:"user"`
	directory string
}

// load reads the files of a list and puts them together.
func load(path string) (*config, error) {
	var all config
	found := false
	for _, file := range filepath.SplitList(path) {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && len(filepath.SplitList(path)) > 1 {
			continue
		}
		if err != nil {
			return nil, err
		}
		var one config
		if err := yaml.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		found = true
		directory := filepath.Dir(file)
		all.CurrentContext = cmp.Or(all.CurrentContext, one.CurrentContext)
		for i := range one.Clusters {
			one.Clusters[i].directory = directory
		}
		for i := range one.Users {
			one.Users[i].directory = directory
		}
		all.Contexts = append(all.Contexts, one.Contexts...)
		all.Clusters = append(all.Clusters, one.Clusters...)
		all.Users = append(all.Users, one.Users...)
	}
	if !found {
		return nil, fmt.Errorf("there is no file at %q", path)
	}
	return &all, nil
}

// find returns the first element with that name.
func find[T any](all []T, what, name string, nameOf func(T) string) (T, error) {
	for _, one := range all {
		if nameOf(one) == name {
			return one, nil
		}
	}
	var none T
	return none, fmt.Errorf("there is no %s %q", what, name)
}

func (all *config) open(context string, o client.Options) (*client.Client, error) {
	context = cmp.Or(context, all.CurrentContext)
	if context == "" {
		return nil, errors.New("there is no current-context, and none was asked for")
	}
	at, err := find(all.Contexts, "context", context, func(c namedContext) string { return c.Name })
	if err != nil {
		return nil, err
	}
	cluster, err := find(all.Clusters, "cluster", at.Context.Cluster, func(c namedCluster) string { return c.Name })
	if err != nil {
		return nil, err
	}
	var user namedUser
	if at.Context.User != "" {
		if user, err = find(all.Users, "user", at.Context.User, func(u namedUser) string { return u.Name }); err != nil {
			return nil, err
		}
	}
	o.Namespace = cmp.Or(o.Namespace, at.Context.Namespace)
	if cluster.Cluster.ProxyURL != "" {
		return nil, fmt.Errorf("cluster %q: proxy-url isn't supported; set HTTPS_PROXY", cluster.Name)
	}
	cluster.fill(&o)
	if err := user.fill(&o, &cluster); err != nil {
		return nil, fmt.Errorf("user %q: %w", user.Name, err)
	}
	return client.New(cluster.Cluster.Server, o)
}

// fill says how to know the server, unless the options say so.
func (c *namedCluster) fill(o *client.Options) {
	o.ServerName = cmp.Or(o.ServerName, c.Cluster.ServerName)
	if len(o.CA) > 0 || o.CAFile != "" {
		return
	}
	o.InsecureSkipVerify = c.Cluster.InsecureSkipVerify
	o.CA, o.CAFile = given(c.directory, c.Cluster.CA, c.Cluster.CAData)
}

// fill says who the user is, unless the options say so.
func (u *namedUser) fill(o *client.Options, cluster *namedCluster) error {
	if o.Token != "" || o.TokenFile != "" || o.GetToken != nil || len(o.Cert) > 0 || o.CertFile != "" || o.GetCert != nil {
		return nil
	}
	switch {
	case u.User.Username != "":
		return errors.New("basic authentication isn't supported")
	case u.User.AuthProvider != nil:
		return errors.New("auth-provider isn't supported; use exec")
	case u.User.Impersonate != "":
		return errors.New("impersonation isn't supported")
	}
	o.Token = u.User.Token
	if u.User.TokenFile != "" { // which wins, as for kubectl
		o.Token, o.TokenFile = "", relative(u.directory, u.User.TokenFile)
	}
	o.Cert, o.CertFile = given(u.directory, u.User.Cert, u.User.CertData)
	o.Key, o.KeyFile = given(u.directory, u.User.Key, u.User.KeyData)
	if u.User.Exec == nil || o.Token != "" || o.TokenFile != "" || len(o.Cert) > 0 || o.CertFile != "" { // as kubectl decides
		return nil
	}
	return u.User.Exec.fill(o, u.directory, cluster)
}

// given returns what was given in the file, or else the path that was.
func given(directory, path string, data []byte) ([]byte, string) {
	if len(data) > 0 || path == "" {
		return data, ""
	}
	return nil, relative(directory, path)
}

func relative(directory, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(directory, path)
}
