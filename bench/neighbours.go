package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// secondAddress is where the second client comes from. The first comes from 127.0.0.1.
const secondAddress = "127.0.0.2"

// What the clients are called by with --users, and the tokens of a file for --token-auth-file.
const (
	firstToken, secondToken = "token-of-the-first-user", "token-of-the-second-user"
	userTokens              = firstToken + ",ann,1\n" + secondToken + ",bob,2\n"
)

// neighbours measures how long one client's requests take, alone and beside another one that holds what both share, in each of
// the ways there are. They have two addresses, or are two users. The server must speak plain HTTP on the loopback.
func neighbours(f *flag.FlagSet) measure {
	held := f.Int("held", 400, "requests of the first client that hold something")
	count := f.Int("n", 2000, "gets, and as many writes of a lease, of the second client in each case")
	large := f.Int("objects", 2000, "objects in the lists that the first client doesn't read")
	users := f.Bool("users", false, "the two are users at one address")
	return func(ctx context.Context, b *bench) error {
		authorization := ""
		second := &second{http: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(secondAddress)}}).DialContext}}
		if *users {
			without := b.args
			defer func() { b.args, b.token = without, "" }()
			if err := b.restartWithUsers(ctx); err != nil {
				return err
			}
			authorization = "Authorization: Bearer " + firstToken + "\r\n"
			second.http, second.token = &http.Transport{}, secondToken
		}
		defer second.http.CloseIdleConnections()
		k, objects, err := b.createObjects(plain, *large)
		if err != nil {
			return err
		}
		const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
		if err := second.ask(ctx, "POST", b.url+leases, `{"metadata":{"name":"bench"}}`); err != nil {
			return err
		}
		one := k.path() + "/" + objects[0].name
		for _, c := range []struct{ how, request string }{
			{how: "alone"},
			{"no body", "PATCH " + one + " HTTP/1.1\r\nHost: localhost\r\n" + authorization + "Content-Type: application/merge-patch+json\r\nContent-Length: 100\r\n\r\n{"},
			{"no reading", "GET " + k.path() + " HTTP/1.1\r\nHost: localhost\r\n" + authorization + "\r\n"},
		} {
			release, err := b.hold(ctx, c.how, c.request, *held)
			if err != nil {
				return err
			}
			figures, err := second.figures(ctx, b.url+one, b.url+leases+"/bench", *count)
			release()
			if err != nil {
				return err
			}
			b.report(pairs{"first", c.how, "users", *users}, figures)
		}
		return nil
	}
}

// restartWithUsers makes the server tell users apart. What the scenario itself asks for is then the first one's.
func (b *bench) restartWithUsers(ctx context.Context) error {
	if b.binary == "" || !b.restarts() {
		return errRestart
	}
	tokens := filepath.Join(b.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(userTokens), 0o600); err != nil {
		return err
	}
	b.args, b.token = b.args+" --token-auth-file="+tokens, firstToken
	_, err := b.restart(ctx)
	return err
}

// hold opens connections with a request each, of which nothing more is sent or read, until release.
func (b *bench) hold(ctx context.Context, how, request string, n int) (release func(), err error) {
	var open []net.Conn
	release = func() {
		for _, c := range open {
			c.Close()
		}
	}
	if request == "" {
		return release, nil
	}
	at, err := url.Parse(b.url)
	if err != nil {
		return nil, err
	}
	for range n {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
		if err != nil {
			release()
			return nil, fmt.Errorf("the first client, %s: %w", how, err)
		}
		open = append(open, c)
		if _, err := io.WriteString(c, request); err != nil {
			release()
			return nil, fmt.Errorf("the first client, %s: %w", how, err)
		}
	}
	b.rest() // what they began is held by then
	return release, nil
}

var errRefused = errors.New("refused with 429")

// second is the second client.
type second struct {
	http  *http.Transport
	token string // "" where users aren't told apart
}

// figures are how long its gets of an object take, and its writes of a lease, one after the other, and how many are refused.
func (s *second) figures(ctx context.Context, object, lease string, count int) (figures pairs, err error) {
	refused := 0
	for _, r := range []struct{ name, method, url, body string }{
		{"get", "GET", object, ""}, {"lease", "PATCH", lease, `{"spec":{"leaseTransitions":%d}}`},
	} {
		took, err := parallel(1, count, func(i int) error {
			body := r.body
			if body != "" {
				body = fmt.Sprintf(body, i)
			}
			err := s.ask(ctx, r.method, r.url, body)
			if errors.Is(err, errRefused) {
				refused++
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, r.name+"_p50_ms", percentile(took, 50), r.name+"_p99_ms", percentile(took, 99))
	}
	return append(figures, "refused", refused), nil
}

// ask makes a request.
func (s *second) ask(ctx context.Context, method, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", mergePatch)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.http.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode == http.StatusTooManyRequests:
		return errRefused
	case res.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("%s %s: %s: %.200s", method, url, res.Status, text)
	}
	return nil
}
