package wire

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// BenchmarkSinks writes batches of events to a client that takes them, as chunks of HTTP/1.1 and as messages of a WebSocket.
func BenchmarkSinks(b *testing.B) {
	event := append(append([]byte(`{"type":"ADDED","object":{"text":"`), bytes.Repeat([]byte("x"), 1<<10)...), "\"}}\n"...)
	for _, events := range []int{1, 50} {
		batch := append(make([]byte, watchstream.Headroom), bytes.Repeat(event, events)...)
		for name, header := range map[string]string{
			"chunks":   "",
			"messages": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		} {
			b.Run(fmt.Sprintf("events=%d/%s", events, name), func(b *testing.B) {
				done := make(chan struct{})
				s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					defer close(done)
					writeBatches(b, rw, r, batch)
				}))
				defer s.Close()
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n%s\r\n", header)
				io.Copy(io.Discard, conn) // until the server closes
				<-done
			})
		}
	}
}

// writeBatches takes the connection of a request over and writes the batch as often as the benchmark wants.
func writeBatches(b *testing.B, w http.ResponseWriter, r *http.Request, batch []byte) {
	begin := takeOver
	if IsWebSocket(r) {
		begin = upgrade
	}
	to, err := begin(w, r, &chunkSink{deadline: deadline{timeout: time.Minute}, Outlet: outlet()})
	if err != nil {
		b.Error(err)
		return
	}
	defer to.cutOff()
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if err := to.Write(batch); err != nil {
			b.Error(err)
			return
		}
	}
}
