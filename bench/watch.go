package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// watch is an open watch, on a connection of its own that costs this process little.
type watch struct {
	conn  net.Conn
	lines *bufio.Reader
}

// refused is a watch's answer that isn't 200.
type refused struct {
	code  int
	after time.Duration // Retry-After
}

func (r refused) Error() string { return fmt.Sprintf("a watch is answered with %d", r.code) }

// watch opens one of a kind's changes after a version. It returns when the server has answered; the error may be
// refused.
func (s *server) watch(k kind, after int64) (*watch, error) {
	return s.watchWith(k, fmt.Sprintf("resourceVersion=%d", after))
}

// watchWith is watch with other parameters.
func (s *server) watchWith(k kind, query string) (*watch, error) {
	return s.watchAt(k.path() + "?watch=true&" + query)
}

// watchMerged opens a watch of a kind and two of Kubernetes' on one stream.
func (s *server) watchMerged(k kind, after int64) (*watch, error) {
	return s.watchAt(fmt.Sprintf("/apiserver-lite/v1/watch?resource=%s.bench.example.com&resource=configmaps&resource=secrets&namespace=%s&resourceVersion=%d", k.plural, k.namespace, after))
}

// watchAt opens a watch at a path, with its query.
func (s *server) watchAt(path string) (*watch, error) {
	conn, host, err := s.dial()
	if err != nil {
		return nil, err
	}
	authorization := ""
	if s.token != "" {
		authorization = "Authorization: Bearer " + s.token + "\r\n"
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n%s\r\n", path, host, authorization)
	conn.SetReadDeadline(time.Now().Add(patience))
	buffer := bufio.NewReaderSize(conn, 1<<10)
	if err := readHeader(buffer); err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetReadDeadline(time.Time{})
	return &watch{conn, bufio.NewReaderSize(httputil.NewChunkedReader(buffer), 2<<10)}, nil
}

// dial opens a connection to the server.
func (s *server) dial() (conn net.Conn, host string, err error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, "", err
	}
	switch u.Scheme {
	case "http":
		conn, err = net.DialTimeout("tcp", u.Host, patience)
	case "https":
		conn, err = tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", u.Host, s.tls())
	default:
		err = fmt.Errorf("watches take a URL that begins with http:// or https://, not %s", s.url)
	}
	return conn, u.Host, err
}

func readHeader(from *bufio.Reader) error {
	reader := textproto.NewReader(from)
	line, err := reader.ReadLine()
	if err != nil {
		return err
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(line, " ")
	code, err := strconv.Atoi(rest[:min(3, len(rest))])
	if err != nil {
		return fmt.Errorf("a watch is answered with %q", line)
	}
	if code != 200 {
		seconds, _ := strconv.Atoi(header.Get("Retry-After"))
		return refused{code, time.Duration(seconds) * time.Second}
	}
	return nil
}

// watchPatiently is watch, again and again as long as the answer is 429. It returns how often that was.
func (s *server) watchPatiently(k kind, after int64) (w *watch, busy int, err error) {
	for end := time.Now().Add(patience); ; busy++ {
		var answer refused
		w, err = s.watch(k, after)
		if !errors.As(err, &answer) || answer.code != http.StatusTooManyRequests || time.Now().After(end) {
			return w, busy, err
		}
		time.Sleep(max(answer.after, 100*time.Millisecond))
	}
}

// watches opens so many.
func (s *server) watches(k kind, count int, after int64) ([]*watch, error) {
	return openAll(count, func() (*watch, error) { return s.watch(k, after) })
}

// openAll opens so many watches, some at once.
func openAll(count int, open func() (*watch, error)) ([]*watch, error) {
	all := make([]*watch, count)
	_, err := parallel(64, count, func(i int) (err error) {
		all[i], err = open()
		return err
	})
	if err != nil {
		closeAll(all)
	}
	return all, err
}

func (w *watch) close() {
	if w != nil {
		w.conn.Close()
	}
}

func closeAll(watches []*watch) {
	for _, w := range watches {
		w.close()
	}
}

// next returns the version of the next event. The error may be refused.
func (w *watch) next() (int64, error) {
	line, err := w.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		start := bytes.Clone(line)
		if line, err = w.lines.ReadBytes('\n'); err == nil {
			line = append(start, line...)
		}
	}
	if err != nil {
		return 0, err
	}
	var event struct {
		Type   string
		Object struct{ Code int }
	}
	if bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) && json.Unmarshal(line, &event) == nil {
		return 0, refused{code: event.Object.Code} // as kube-apiserver says that history is gone
	}
	if version := versionIn(line); version > 0 {
		return version, nil
	}
	return 0, fmt.Errorf("an event without a version: %.300s", line)
}

// arrival is an event that came.
type arrival struct {
	version int64
	at      time.Time
}

// collect reads so many events. The error says why there were fewer.
func (w *watch) collect(count int) ([]arrival, error) {
	got := make([]arrival, 0, count)
	for len(got) < count {
		version, err := w.next()
		if err != nil {
			return got, fmt.Errorf("after %d of %d events: %w", len(got), count, err)
		}
		got = append(got, arrival{version, time.Now()})
	}
	return got, nil
}

// missed tells what is wrong with the events that came, which must be the updates, in their order; nil if nothing is.
func missed(got []arrival, all []written) error {
	for i, update := range all {
		if i == len(got) {
			return fmt.Errorf("%d events of %d came", i, len(all))
		}
		if got[i].version != update.version {
			return fmt.Errorf("event %d has version %d, want %d", i, got[i].version, update.version)
		}
	}
	return nil
}

// descriptors is how many watches this process can open, and leaves some for the rest.
func descriptors() int {
	const rest = 500
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return rest
	}
	return max(1, int(files.Cur)-rest)
}
