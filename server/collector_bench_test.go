package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// manyDependents is how many objects the benchmarks below delete, and clientsAtOnce how many clients do that.
const manyDependents, clientsAtOnce = 10_000, 16

// sized is how many things a benchmark has: so many, or a tenth of them with -short, by which benchmarks are run only so that none rots.
func sized(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// BenchmarkCollect is what it takes until all dependents of an owner are gone, or left without it, that is deleted by each
// policy, and until as many objects are gone that clients delete one by one. All are on disk.
//
//	go test ./server -run xxx -bench Collect -benchtime 3x
func BenchmarkCollect(b *testing.B) {
	onDisk := func(s *server.Server) { s.Data.Ephemeral = false }
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		b.Run(policy, func(b *testing.B) {
			w := newCollectedBench(b, onDisk)
			for b.Loop() {
				b.StopTimer()
				w.PostYAML(w.path, `{"apiVersion":"collected.example.com/v1","kind":"Thing","metadata":{"name":"owner"}}`)
				ref := reference("Thing", "owner", value(w.Get(w.path+"/owner"), "metadata.uid"))
				w.createMany(`"ownerReferences":[` + strings.TrimSuffix(ref, "}") + `,"blockOwnerDeletion":true}],`)
				w.Quiescent()
				b.StartTimer()
				w.Do("DELETE", w.path+"/owner?propagationPolicy="+policy, "")
				w.Quiescent()
				b.StopTimer()
				if policy == "Orphan" {
					w.Do("DELETE", w.path, "")
				}
				b.StartTimer()
			}
			w.report()
		})
	}
	b.Run("clients", func(b *testing.B) {
		w := newCollectedBench(b, onDisk)
		for b.Loop() {
			b.StopTimer()
			w.createMany("")
			b.StartTimer()
			w.all(func(i int) { w.Do("DELETE", fmt.Sprintf("%s/t%d", w.path, i), "") })
		}
		w.report()
	})
}

// BenchmarkCollectorIdle is how much CPU the process takes while nothing happens and many objects are owned.
func BenchmarkCollectorIdle(b *testing.B) {
	w := newCollectedBench(b)
	w.PostYAML(w.path, `{"apiVersion":"collected.example.com/v1","kind":"Thing","metadata":{"name":"owner"}}`)
	w.createMany(`"ownerReferences":[` + reference("Thing", "owner", value(w.Get(w.path+"/owner"), "metadata.uid")) + `],`)
	w.Quiescent()
	before, began := cpuTime(b), time.Now()
	for b.Loop() {
		time.Sleep(100 * time.Millisecond) // which is what is measured
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/time.Since(began).Seconds(), "cpu-µs/s")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type collectedBench struct {
	*servertest.Server
	b    *testing.B
	path string
}

func newCollectedBench(b *testing.B, options ...func(*server.Server)) collectedBench {
	w := collectedBench{servertest.New(b, options...), b, "/apis/collected.example.com/v1/namespaces/default/things"}
	w.PostYAML(definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"things.collected.example.com"},"spec":{"group":"collected.example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	return w
}

// createMany creates many objects with something in their metadata.
func (w collectedBench) createMany(metadata string) {
	w.all(func(i int) {
		body := fmt.Sprintf(`{"apiVersion":"collected.example.com/v1","kind":"Thing","metadata":{%s"name":"t%d"}}`, metadata, i)
		if res, answer := w.Do("POST", w.path, body, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
			w.b.Error(answer)
		}
	})
}

// all calls do for each of many objects, from as many goroutines as there are clients.
func (w collectedBench) all(do func(i int)) {
	var clients sync.WaitGroup
	for c := range clientsAtOnce {
		clients.Go(func() {
			for i := c; i < sized(manyDependents); i += clientsAtOnce {
				do(i)
			}
		})
	}
	clients.Wait()
}

func (w collectedBench) report() {
	w.b.ReportMetric(float64(sized(manyDependents)*w.b.N)/w.b.Elapsed().Seconds(), "objects/s")
}
