package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/flowcontrol"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
)

// BenchmarkSeat is what fair queuing costs a request of a user that needn't wait: it's classified, and takes a seat and
// gives it back. It reports the process's CPU time; kube-apiserver's queues take 9 us.
func BenchmarkSeat(b *testing.B) {
	h := &handler{gate: gate{identity: &identity{on: true}}, capacity: newCapacity(flowcontrol.New(600, nil), nil)}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps/a", nil)
	ctx, cancel := context.WithTimeout(registry.WithUser(r.Context(), &user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}), time.Hour)
	defer cancel()
	r = r.WithContext(ctx)
	w := &response{ResponseWriter: httptest.NewRecorder(), capacity: h.capacity, Grounds: access.Grounds{Asks: access.AttributesOf(r)}}
	cpu := func() int64 {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	b.ReportAllocs()
	before := cpu()
	for b.Loop() {
		if err := h.takeSeat(w, r, inflight.Read, 1); err != nil {
			b.Fatal(err)
		}
		w.leaveSeat()
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}
