package dropin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// etcdFlags is what the names of flags begin with that are about an etcd cluster.
const etcdFlags = "etcd-"

const (
	// storeTimeout is how long somebody must listen at --etcd-servers: a test may start both programs at once.
	storeTimeout = 30 * time.Second
	// storePause is between two looks.
	storePause = 50 * time.Millisecond
	// storeAnswer is how long the stand-in has for its answer. On a busy machine it needs most of it.
	storeAnswer = 10 * time.Second
	// maxVersion bounds what is read of an answer, in bytes.
	maxVersion = 4 << 10
)

// ChooseStore finds out where the data is, and returns it in words for the log. Where our stand-in for etcd answers at
// --etcd-servers, and without that flag, the store is inside and goes with the process, and the flags about an etcd cluster
// are among the Unused. Any other address is that of a cluster, which keeps the data.
func (a *APIServer) ChooseStore(ctx context.Context) (string, error) {
	s := &a.Server
	if s.Etcd.On() {
		inside, err := standsIn(ctx, s.Etcd.Servers)
		switch {
		case err != nil:
			return "", err
		case !inside:
			s.Data.Ephemeral = false
			return "in etcd at " + strings.Join(s.Etcd.Servers, ",") + " below " + s.Etcd.Prefix, nil
		}
	}
	a.Unused = append(a.Unused, a.etcd...)
	slices.Sort(a.Unused)
	s.Etcd = (&server.Server{}).Etcd // none
	return "inside, and goes with the process", nil
}

// standsIn tells whether our stand-in is the first that answers at one of the URLs. It waits until somebody does.
func standsIn(ctx context.Context, servers []string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	client := &http.Client{Timeout: storeAnswer, Transport: &http.Transport{DisableKeepAlives: true}}
	var last error
	for {
		for _, server := range servers {
			inside, err := isStandIn(ctx, client, server)
			if err == nil {
				return inside, nil
			}
			last = err
		}
		select {
		case <-time.After(storePause):
		case <-ctx.Done():
			return false, fmt.Errorf("--etcd-servers: nobody answers: %w", last)
		}
	}
}

// isStandIn tells whether our stand-in answers at a URL. Its error says that nobody listens there. Whatever is no answer of ours
// is for the store to try, which says what is wrong with it.
func isStandIn(ctx context.Context, client *http.Client, server string) (bool, error) {
	if u, err := url.Parse(server); err != nil || u.Scheme != "http" { // it has no certificate
		return false, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/version", nil)
	if err != nil {
		return false, nil
	}
	res, err := client.Do(req)
	var op *net.OpError
	switch {
	case ctx.Err() != nil || errors.As(err, &op) && op.Op == "dial":
		return false, err
	case err != nil:
		return false, nil
	}
	defer res.Body.Close()
	var version map[string]any
	if err := json.NewDecoder(io.LimitReader(res.Body, maxVersion)).Decode(&version); err != nil {
		return false, nil
	}
	return version[standInField] == true, nil
}
