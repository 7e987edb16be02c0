package etcd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// A join, step by step. The joiner connects to a member, and goes on only if the member's certificate was signed by the
// authority whose fingerprint the token has. It sends the token's secret and its own address. The member adds it to
// etcd's membership as a learner, and answers with the authority, its key included, and the members. The joiner saves
// the authority and makes its own certificate. Then etcd starts, and gets the data from the leader.

const (
	// joinTimeout is how long a join is tried: etcd refuses some for now, and the member may not be up yet. joinPause is
	// between two tries: what etcd waits for, the start of another member, takes longer.
	joinTimeout = time.Minute
	joinPause   = 500 * time.Millisecond
	// joinAttempt bounds one try at the member: the answer comes when a majority knows the new member, and an election takes
	// a second. The joiner waits longer, joinWait, so that it gets the member's reason.
	joinAttempt = 5 * time.Second
	joinWait    = 2 * joinAttempt
	// joinBytes bounds what a joiner sends, a secret and an address of at most maxAddressBytes, and what it takes of a
	// refusal.
	joinBytes = 4 << 10
	// answerBytes bounds what a joiner takes: two keys of a kilobyte, and a name and some URLs for each member.
	answerBytes = 256 << 10
)

// joinRequest is what a joiner sends.
type joinRequest struct {
	Secret  string `json:"secret"`
	Address string `json:"address"` // its --cluster-listen
}

// joinAnswer is what it gets.
type joinAnswer struct {
	Cluster types.ID     `json:"cluster"`
	Members []joinMember `json:"members"` // with the joiner
	Cert    []byte       `json:"cert"`    // the authority's, as PEM
	Key     []byte       `json:"key"`     // its key
}

type joinMember struct {
	Name string   `json:"name"`
	URLs []string `json:"urls"`
}

func decodeAnswer(r io.Reader, into any) error {
	b, err := io.ReadAll(io.LimitReader(r, answerBytes+1))
	if err == nil && len(b) > answerBytes {
		err = errors.New("the answer is too long")
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// serveJoin answers a join. A client that hasn't the secret learns nothing but that.
func (c *cluster) serveJoin(w http.ResponseWriter, r *http.Request) {
	var q joinRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, joinBytes))
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil || !c.token.sameSecret(q.Secret) {
		c.port.refuse(w, r, "a join hasn't the secret of join-token", "the token is wrong")
		return
	}
	welcome(r)
	if err := checkAddress(q.Address); err != nil {
		http.Error(w, fmt.Sprintf("the address %q %v", q.Address, err), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), joinAttempt)
	defer cancel()
	answer, err := c.admit(ctx, q.Address)
	switch {
	case errors.Is(err, errIsMember):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		c.log.Info("a join has to be tried again", "member", q.Address, "error", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		c.log.Info("let a member in", "member", q.Address)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // a joiner that is gone tries again
	}
}

var errIsMember = errors.New("is a member already: remove it first, or start it with the data directory that it has")

// admit adds a member as a learner. One that was added, and never started, may come again.
func (c *cluster) admit(ctx context.Context, address string) (a joinAnswer, err error) {
	local := c.local.Load()
	if local == nil || c.lost.Load() != nil {
		return a, errors.New("the member isn't ready yet")
	}
	if local.ClusterVersion() == nil { // a member that starts before that takes the cluster for an incompatible one, and ends
		return a, errors.New("the cluster hasn't decided on its version yet")
	}
	select {
	case c.admitting <- struct{}{}:
		defer func() { <-c.admitting }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	if err := local.LinearizableReadNotify(ctx); err != nil {
		return a, err
	}
	members := local.Cluster().Members()
	there := slices.IndexFunc(members, func(m *membership.Member) bool { return slices.Contains(m.PeerURLs, urlAt(address)) })
	switch {
	case there < 0:
		if err := c.add(ctx, address); err != nil {
			return a, err
		}
	case members[there].Name != "": // etcd notes the name when the member starts
		return a, fmt.Errorf("%s %w", address, errIsMember)
	}
	return c.answer(address)
}

func (c *cluster) add(ctx context.Context, address string) error {
	if !c.state.Shared { // before anybody has the data: from now on this directory isn't all of the store
		c.state.Shared = true
		if err := c.dir.saveCluster(c.state); err != nil {
			c.state.Shared = false
			return err
		}
	}
	urls, err := types.NewURLs([]string{urlAt(address)})
	if err != nil {
		return err
	}
	now := time.Now()
	_, err = c.local.Load().AddMember(ctx, *membership.NewMemberAsLearner("", urls, "", &now))
	return err
}

func (c *cluster) answer(address string) (a joinAnswer, err error) {
	local := c.local.Load()
	a.Cluster = local.Cluster().ID()
	for _, m := range local.Cluster().Members() {
		name := cmp.Or(m.Name, m.ID.String())
		if slices.Contains(m.PeerURLs, urlAt(address)) {
			name = address
		}
		a.Members = append(a.Members, joinMember{name, m.PeerURLs})
	}
	a.Cert = c.authority.certPEM()
	a.Key, err = c.authority.keyPEM()
	return a, err
}

// peers is the form in which etcd wants the members.
func (a joinAnswer) peers() string {
	var all []string
	for _, m := range a.Members {
		for _, u := range m.URLs {
			all = append(all, m.Name+"="+u)
		}
	}
	return strings.Join(all, ",")
}

// notYet is the error of a join that may succeed later.
type notYet struct{ error }

// join makes the directory a member's. It tries again for joinTimeout, unless it's refused for good.
func (c *cluster) join(ctx context.Context) error {
	t, err := c.o.joinToken(c.log)
	if err != nil {
		return fmt.Errorf("--join-token-file: %w", err)
	}
	giveUp, waiting := time.Now().Add(joinTimeout), false
	for {
		answer, err := c.askToJoin(ctx, t)
		if err == nil {
			return c.joined(t, answer)
		}
		if !errors.As(err, &notYet{}) || time.Now().After(giveUp) {
			return fmt.Errorf("--join %s: %w", c.o.Join, err)
		}
		if !waiting {
			waiting = true
			c.log.Info("the join is tried again", "member", c.o.Join, "for", joinTimeout, "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(joinPause):
		}
	}
}

// askToJoin makes one request. Its connection trusts only the authority that the token names.
func (c *cluster) askToJoin(ctx context.Context, t joinToken) (a joinAnswer, err error) {
	body, err := json.Marshal(joinRequest{Secret: t.secret, Address: c.o.Listen})
	if err != nil {
		return a, err
	}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: t.trust()} // as etcd reaches the members
	defer tr.CloseIdleConnections()
	client := &http.Client{Timeout: joinWait, Transport: tr, CheckRedirect: noRedirect}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, urlAt(c.o.Join)+joinPath, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	res, err := client.Do(r)
	if errors.Is(err, errOtherAuthority) {
		return a, fmt.Errorf("another cluster answers there than the one that %s is for: %w", c.o.JoinTokenFile, errOtherAuthority)
	}
	if err != nil {
		return a, notYet{err}
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		err := decodeAnswer(res.Body, &a)
		return a, err
	case http.StatusForbidden:
		return a, fmt.Errorf("refused: the cluster doesn't know the token in %s; take join-token from the data directory of a member", c.o.JoinTokenFile)
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, joinBytes))
	if res.StatusCode == http.StatusServiceUnavailable {
		return a, notYet{fmt.Errorf("not now: %s", strings.TrimSpace(string(text)))}
	}
	return a, fmt.Errorf("refused: %s", strings.TrimSpace(string(text)))
}

var errOtherAuthority = errors.New("its certificate authority has another fingerprint than the token")

// trust is a configuration that accepts a server only if the authority with the token's fingerprint signed its
// certificate. The name isn't compared: who has such a certificate is a member, however it's reached.
func (t joinToken) trust() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection does it: there's no pool of authorities before the join
		VerifyConnection: func(state tls.ConnectionState) error {
			certs := state.PeerCertificates
			at := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return sha256.Sum256(c.Raw) == t.authority })
			if at < 1 {
				return errOtherAuthority
			}
			roots := x509.NewCertPool()
			roots.AddCert(certs[at])
			if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
				return errOtherAuthority
			}
			return nil
		},
	}
}

// joined saves what the member answered. The state comes last: from then on the directory belongs to the cluster.
func (c *cluster) joined(t joinToken, a joinAnswer) error {
	authority, err := parseAuthority(a.Cert, a.Key)
	if err != nil || authority.fingerprint() != t.authority || a.Cluster == 0 || len(a.Members) < 2 {
		return fmt.Errorf("--join %s: the answer isn't that of a member", c.o.Join)
	}
	c.authority, c.token, c.peers = authority, t, a.peers()
	c.state = clusterState{Cluster: a.Cluster, Shared: true}
	if err := errors.Join(c.dir.saveAuthority(authority), c.dir.saveToken(t)); err != nil {
		return err
	}
	return c.dir.saveCluster(c.state)
}
