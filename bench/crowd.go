package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// crowd has watches over HTTP/2, many on a connection, which see nothing until one event comes to all of them, while a client writes something else.
func crowd(f *flag.FlagSet) measure {
	counts := f.String("watches", "5000,100000", "numbers of watches; of one user, or of one address, the server takes some 98,000")
	streams := f.Int("streams", 1000, "watches on a connection")
	events := f.Int("events", 5, "events that come to all, one after the other has come")
	return func(ctx context.Context, b *bench) error {
		return b.eachAnew(ctx, *counts, func(n int) error { return b.crowdOf(n, *streams, *events) })
	}
}

func (b *bench) crowdOf(n, streams, events int) error {
	k, from, err := b.primed()
	if err != nil {
		return err
	}
	if _, err := b.writesFor(b.settling, nil); err != nil { // they open a connection and wake what sleeps
		return err
	}
	alone, err := b.writesFor(time.Second, nil)
	if err != nil {
		return err
	}
	before := b.settled()
	c := &crowded{ready: make(chan error, 1), failed: make(chan error, 1)}
	defer c.close()
	begin := time.Now()
	for left := n; left > 0; left -= streams {
		if err := c.open(b.server, fmt.Sprintf("%s?watch=true&resourceVersion=%d", k.path(), from), min(left, streams)); err != nil {
			return err
		}
	}
	opened, after := time.Since(begin), b.settled()
	beside := make(chan []time.Duration, 1)
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		took, err := b.writesFor(patience, stop)
		failed <- err
		beside <- took
	}()
	took, err := c.eventsForAll(b, k, n, events)
	close(stop)
	if err := errors.Join(err, <-failed); err != nil {
		return err
	}
	meanwhile := <-beside
	b.report(pairs{"watches", n, "streams", streams}, pairs{"open_s", opened.Seconds(), "before_mb", before, "after_mb", after,
		"kb_per_watch", (after - before) * 1024 / float64(n), "all_p50_ms", percentile(took, 50), "all_max_ms", percentile(took, 100),
		"peak_mb", b.peak(), "write_p50_ms", percentile(meanwhile, 50), "write_alone_p50_ms", percentile(alone, 50)})
	return nil
}

// writesFor creates ConfigMaps one after the other, for so long or until stop is closed. It returns how long each took.
func (b *bench) writesFor(d time.Duration, stop <-chan struct{}) (took []time.Duration, err error) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-stop:
			return took, nil
		default:
		}
		begin := time.Now()
		if _, err := b.expect("POST", "/api/v1/namespaces/default/configmaps", "application/json",
			[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"beside-"}}`), 201); err != nil {
			return took, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// crowded is open watches over HTTP/2.
type crowded struct {
	conns   []net.Conn
	readers sync.WaitGroup
	opened  atomic.Int64 // watches that were answered
	events  atomic.Int64 // that came, of all watches
	want    atomic.Int64 // of opened, and then of events
	ready   chan error   // has an element when there are as many as wanted
	failed  chan error   // has the first error for which a connection ended
}

// open opens watches of a path on a connection of their own, and waits until all are answered.
func (c *crowded) open(s *server, path string, n int) error {
	conn, host, err := s.dialHTTP2(len(c.conns))
	if err != nil {
		return err
	}
	c.conns = append(c.conns, conn)
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	const window = 1 << 30 // bytes, so that nothing waits for this process
	errs := []error{framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}), framer.WriteWindowUpdate(0, window)}
	c.readers.Go(func() { c.tell(c.read(framer)) })
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	const together = 100 // requests, so that none waits for a seat
	for i := range n {
		block.Reset()
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: host}, {Name: ":path", Value: path},
			{Name: "authorization", Value: "Bearer " + s.token}} {
			errs = append(errs, encoder.WriteField(field))
		}
		errs = append(errs, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
		if sent := i + 1; sent%together == 0 || sent == n {
			c.want.Store(c.opened.Load() + int64(sent-i/together*together))
			_, err := out.WriteTo(conn)
			if err = errors.Join(append(errs, err)...); err != nil {
				return err
			}
			if err := c.wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// dialHTTP2 opens a connection on which HTTP/2 is spoken, where there's no TLS without asking. Where the server is on this machine, connections come
// from eight addresses in turn, as one may not have all watches.
func (s *server) dialHTTP2(i int) (net.Conn, string, error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, "", err
	}
	d := &net.Dialer{Timeout: patience}
	if u.Hostname() == "127.0.0.1" {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%8))}
	}
	if u.Scheme == "http" {
		conn, err := d.Dial("tcp", u.Host)
		return conn, u.Host, err
	}
	config := s.tls()
	config.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(d, "tcp", u.Host, config)
	return conn, u.Host, err
}

// read counts what comes, until the connection ends.
func (c *crowded) read(framer *http2.Framer) error {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); status != "200" {
				return fmt.Errorf("a watch is answered with %s", status)
			}
			if c.opened.Add(1) == c.want.Load() {
				c.tell(nil)
			}
		case *http2.DataFrame:
			if n := bytes.Count(frame.Data(), []byte("\n")); n > 0 && c.events.Add(int64(n)) == c.want.Load() {
				c.tell(nil)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return fmt.Errorf("a watch ended: %v", frame)
		}
	}
}

func (c *crowded) tell(err error) {
	to := c.ready
	if err != nil {
		to = c.failed
	}
	select {
	case to <- err:
	default:
	}
}

func (c *crowded) wait() error {
	select {
	case err := <-c.failed:
		return err
	case <-c.ready:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%d watches are answered and %d events have come after %v, of %d", c.opened.Load(), c.events.Load(), patience, c.want.Load())
	}
}

// eventsForAll writes an object as often as there are to be events, and returns after which time the last watch had each.
func (c *crowded) eventsForAll(b *bench, k kind, n, events int) (took []time.Duration, err error) {
	for i := range events {
		c.want.Store(int64(n) * int64(i+1))
		begin := time.Now()
		if _, err := b.expect("PATCH", k.path()+"/g0", mergePatch, fmt.Appendf(nil, `{"spec":{"count":%d}}`, i+1), 200); err != nil {
			return nil, err
		}
		if err := c.wait(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

func (c *crowded) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
	c.readers.Wait()
}
