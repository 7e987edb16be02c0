package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// BenchmarkManagerStart measures from the start of the server's process, on an empty directory, until a manager of
// controller-runtime has three informers that are synced. What it must reach: 200 ms.
func BenchmarkManagerStart(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	for b.Loop() {
		s := start(b)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		manager, err := ctrl.NewManager(s.config(), ctrl.Options{Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
		if err != nil {
			b.Fatal(err)
		}
		for _, kind := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &coordinationv1.Lease{}} {
			if _, err := manager.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
				b.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- manager.Start(ctx) }()
		if !manager.GetCache().WaitForCacheSync(ctx) {
			b.Fatal("the caches don't sync")
		}
		b.StopTimer()
		cancel()
		<-done
		s.stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(time.Millisecond)/float64(b.N), "ms/start")
}
