package traffic_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server/traffic"
)

// TestLog: a point at once and one each interval, of counts how fast they grow; and no more than a quarter of an hour of them.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count, gauge atomic.Int64
		count.Store(100)
		gauge.Store(7)
		l := traffic.New([]traffic.Series{
			{Name: "count", Value: func() float64 { return float64(count.Load()) }, PerSecond: true},
			{Name: "gauge", Value: func() float64 { return float64(gauge.Load()) }},
		}, func(context.Context) ([]string, error) { return nil, nil })
		if p := l.Page(t.Context()); p.Times == nil || p.Series["count"] == nil || p.Replicas != nil {
			t.Errorf("a page without points is %+v", p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		begun := time.Now()
		synctest.Wait()
		count.Store(110)
		gauge.Store(8)
		time.Sleep(traffic.Interval)
		synctest.Wait()
		count.Store(5) // it began anew
		time.Sleep(traffic.Interval)
		synctest.Wait()
		p := l.Page(t.Context())
		if !slices.Equal(p.Series["count"], []float64{0, 2, 0}) || !slices.Equal(p.Series["gauge"], []float64{7, 8, 8}) {
			t.Errorf("the points are %v", p.Series)
		}
		if !slices.Equal(p.Times, []int64{begun.Unix(), begun.Unix() + 5, begun.Unix() + 10}) {
			t.Errorf("the times are %v", p.Times)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		p = l.Page(t.Context())
		if n := len(p.Times); n != 180 || len(p.Series["gauge"]) != n || p.Times[n-1]-p.Times[0] != 895 {
			t.Errorf("after an hour there are %d points", n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestReplicas: a page has the replicas as of an interval ago at most, of which the first one acts, and an empty list while it isn't known which there are.
func TestReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		names := func(context.Context) ([]string, error) { asked++; return []string{"b:1", "a:1"}, nil }
		l := traffic.New(nil, func(ctx context.Context) ([]string, error) { return names(ctx) })
		if got, want := l.Page(t.Context()).Replicas, []traffic.Replica{{Name: "b:1", Acts: true}, {Name: "a:1"}}; !slices.Equal(got, want) {
			t.Errorf("the replicas are %v, want %v", got, want)
		}
		if l.Page(t.Context()); asked != 1 {
			t.Errorf("the store was asked %d times at once", asked)
		}
		time.Sleep(traffic.Interval)
		names = func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }
		if got := l.Page(t.Context()).Replicas; got == nil || len(got) > 0 {
			t.Errorf("the replicas are %v while nobody knows them", got)
		}
	})
}

// TestClients: a page has the clients of the last interval, the busiest first, and no more than 20 of them.
func TestClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := traffic.New(nil, func(context.Context) ([]string, error) { return nil, nil })
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		synctest.Wait()
		for range 10 {
			l.Request("often")
		}
		for i := range 1000 {
			l.Request(fmt.Sprintf("one of many %d", i))
		}
		l.Request(strings.Repeat("long", 1000))
		time.Sleep(traffic.Interval)
		synctest.Wait()
		clients := l.Page(t.Context()).Clients
		if len(clients) != 20 || clients[0] != (traffic.Client{UserAgent: "often", Requests: 2}) || clients[1].Requests != .2 {
			t.Errorf("the clients are %+v", clients)
		}
		time.Sleep(traffic.Interval)
		synctest.Wait()
		if clients := l.Page(t.Context()).Clients; len(clients) != 0 {
			t.Errorf("after an interval without requests: %+v", clients)
		}
		cancel()
		synctest.Wait()
	})
}
