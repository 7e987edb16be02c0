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
	"strings"
	"sync/atomic"
	"time"
)

// secondAddress is where the second client comes from. The first comes from 127.0.0.1.
const secondAddress = "127.0.0.2"

// neighbours measures how long one client's requests take, alone and beside another one at another address that holds what
// both share, in each of the ways there are. The server must speak plain HTTP on the loopback.
func neighbours(f *flag.FlagSet) measure {
	held := f.Int("held", 400, "requests of the first client that hold something")
	count := f.Int("n", 2000, "gets, and as many writes of a lease, of the second client in each case")
	large := f.Int("objects", 2000, "objects in the lists that the first client doesn't read")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.objects(plain, *large)
		if err != nil {
			return err
		}
		second := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(secondAddress)}}).DialContext}}
		defer second.CloseIdleConnections()
		const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
		if err := ask(ctx, second, "POST", b.url+leases, `{"metadata":{"name":"bench"}}`); err != nil {
			return err
		}
		one := k.path() + "/" + objects[0].name
		for _, c := range []struct{ how, request string }{
			{how: "alone"},
			{"no body", "PATCH " + one + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/merge-patch+json\r\nContent-Length: 100\r\n\r\n{"},
			{"no reading", "GET " + k.path() + " HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		} {
			release, err := b.hold(ctx, c.how, c.request, *held)
			if err != nil {
				return err
			}
			var refused atomic.Int64
			var figures pairs
			for _, r := range []struct{ name, method, url, body string }{
				{"get", "GET", b.url + one, ""}, {"lease", "PATCH", b.url + leases + "/bench", `{"spec":{"leaseTransitions":1}}`},
			} {
				took, err := parallel(1, *count, func(int) error {
					err := ask(ctx, second, r.method, r.url, r.body)
					if errors.Is(err, errRefused) {
						refused.Add(1)
						return nil
					}
					return err
				})
				if err != nil {
					release()
					return err
				}
				figures = append(figures, r.name+"_p50_ms", percentile(took, 50), r.name+"_p99_ms", percentile(took, 99))
			}
			release()
			b.report(pairs{"first", c.how}, append(figures, "refused", refused.Load()))
		}
		return nil
	}
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
	const settled = time.Second // what they begin is held by then
	time.Sleep(settled)
	return release, nil
}

var errRefused = errors.New("refused with 429")

// ask makes a request of the second client.
func ask(ctx context.Context, client *http.Client, method, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := client.Do(r)
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
