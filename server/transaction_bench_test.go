//go:build unix

package server_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// BenchmarkTransactions is what objects of 1 KB take, on disk: created one by one, and in transactions of so many. CPU is that of the
// whole process, clients included. ns/op is an object's share.
func BenchmarkTransactions(b *testing.B) {
	for _, tc := range []struct{ clients, together int }{{1, 1}, {1, 100}, {64, 1}, {64, 10}} {
		b.Run(fmt.Sprintf("clients=%d/together=%d", tc.clients, tc.together), func(b *testing.B) {
			s := servertest.New(b, func(s *server.Server) { s.Data.Ephemeral = false })
			data := `"},"data":{"k":"` + strings.Repeat("x", 900) + `"}}`
			object := func(i int64) string {
				return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c` + strconv.FormatInt(i, 10) + data
			}
			var next atomic.Int64
			send := func() bool {
				from := next.Add(int64(tc.together)) - int64(tc.together)
				if from >= int64(b.N) {
					return false
				}
				if tc.together == 1 {
					r, text := s.Do(http.MethodPost, configMaps, object(from))
					if r.StatusCode != http.StatusCreated {
						b.Error(text)
					}
					return true
				}
				operations := make([]string, tc.together)
				for i := range operations {
					operations[i] = `{"create":` + object(from+int64(i)) + `}`
				}
				r, text := s.Do(http.MethodPost, bulk.TransactionsPath, `{"operations":[`+strings.Join(operations, ",")+`]}`)
				if r.StatusCode != http.StatusOK {
					b.Error(text)
				}
				return true
			}
			before := cpuTime(b)
			b.ResetTimer()
			var all sync.WaitGroup
			for range tc.clients {
				all.Go(func() {
					for send() {
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/object")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}
