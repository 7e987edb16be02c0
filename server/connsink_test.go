package server

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// TestStreamEndsInTime has a client that takes a little now and then, which is enough to go on, but not when
// the server is going away.
func TestStreamEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, client := net.Pipe()
		sink := connSink{framing: &framingJSON,
			conn: conn, chunked: true, sent: new(atomic.Int64), events: prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}),
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
