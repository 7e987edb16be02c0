package wire

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// TestHTTP2StreamOutlivesAnswers: the time that net/http gives an ordinary answer doesn't end a stream.
func TestHTTP2StreamOutlivesAnswers(t *testing.T) {
	later, written := make(chan struct{}), make(chan error, 1) // capacity 1: the test may have failed before
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sink, err := openHTTP2(w, outlet(), time.Minute)
		if err == nil {
			<-later
			err = sink.Write(append(make([]byte, watchstream.Headroom), "event\n"...))
		}
		written <- err
	}))
	const answerTimeout = 100 * time.Millisecond
	server.Config.WriteTimeout = answerTimeout
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	time.AfterFunc(3*answerTimeout, func() { close(later) }) // that it passes is what this is about
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); line != "event\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if err := <-written; err != nil { // before the client leaves
		t.Error(err)
	}
}
