package wire

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// outlet is one for events that are lines.
func outlet() Outlet {
	return Outlet{
		Framing: &Framing{Media: "application/json", Count: func(p []byte) int { return bytes.Count(p, []byte{'\n'}) }, Messages: bytes.Lines},
		Events:  prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}), Sent: new(atomic.Int64),
	}
}

// TestStreamEndsInTime has a client that takes a little now and then, which is enough to go on, but not when
// the server is going away.
func TestStreamEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, client := net.Pipe()
		sink := chunkSink{conn: conn, chunked: true, Outlet: outlet(),
			deadline: deadline{set: conn.SetWriteDeadline, timeout: time.Minute},
		}
		var reader sync.WaitGroup
		reader.Go(func() {
			sip := make([]byte, sinkPiece)
			for {
				time.Sleep(endTimeout - time.Millisecond)
				if _, err := client.Read(sip); err != nil {
					return
				}
			}
		})
		const before = time.Hour // of sips, under a write deadline of a minute
		time.AfterFunc(before, sink.end)
		start := time.Now()
		var err error
		for err == nil {
			err = sink.Write(make([]byte, watchstream.Headroom+10*sinkPiece))
		}
		if took := time.Since(start); took < before || took > before+endTimeout {
			t.Errorf("it ended %v after the beginning with %v, want %v to %v", took, err, before, before+endTimeout)
		}
		conn.Close()
		reader.Wait()
	})
}
