package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// gearSpec and gearStatus are what an object of 1 KB has.
type gearSpec struct {
	Model    string   `json:"model"`
	Teeth    int      `json:"teeth"`
	Ratio    float64  `json:"ratio"`
	Enabled  bool     `json:"enabled"`
	Notes    string   `json:"notes"`
	Places   []string `json:"places"`
	Supplier struct {
		Name    string `json:"name"`
		Country string `json:"country"`
	} `json:"supplier"`
}

type gearStatus struct {
	Phase   string `json:"phase"`
	Message string `json:"message"`
}

// ourGear is the type for our client, theirGear that for client-go.
type ourGear struct {
	client.Meta
	Spec   gearSpec   `json:"spec"`
	Status gearStatus `json:"status"`
}

type theirGear struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              gearSpec   `json:"spec"`
	Status            gearStatus `json:"status"`
}

func (g *theirGear) DeepCopyObject() apiruntime.Object {
	c := *g
	c.ObjectMeta = *g.ObjectMeta.DeepCopy()
	return &c
}

type theirGearList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []theirGear `json:"items"`
}

func (l *theirGearList) DeepCopyObject() apiruntime.Object { c := *l; return &c }

// gearText is an object whose number and version are filled in: seven digits each.
const (
	numberMark  = "NNNNNNN"
	versionMark = "VVVVVVV"
	firstNumber = 1000000
)

var gearText = []byte(`{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"gear-NNNNNNN","namespace":"default","uid":"0c6ff1a4-7b5c-4f0a-9a39-00000NNNNNNN","resourceVersion":"VVVVVVV","generation":1,"creationTimestamp":"2026-11-21T18:00:00Z","labels":{"app.kubernetes.io/name":"gears","app.kubernetes.io/part-of":"clock","tier":"front"},"annotations":{"example.com/owner":"workshop"}},"spec":{"model":"M-NNNNNNN","teeth":40,"ratio":1.25,"enabled":true,"notes":"` +
	strings.Repeat("a gear of the large clock; ", 12) + `","places":["left","right","middle"],"supplier":{"name":"Gears and Sons","country":"Switzerland"}},"status":{"phase":"Ready","message":"turning"}}`)

// gears makes objects: first so many that are new, in a list or as ADDED, then updates of them.
type gears struct {
	objects, updates int
}

func (g gears) last() string { return fmt.Sprint(firstNumber + g.objects + g.updates) }

// append appends object i's state of a version.
func (g gears) append(dst []byte, i, version int) []byte {
	start := len(dst)
	dst = append(dst, gearText...)
	number := fmt.Append(nil, firstNumber+i)
	for rest := dst[start:]; ; {
		at := bytes.Index(rest, []byte(numberMark))
		if at < 0 {
			break
		}
		copy(rest[at:], number)
		rest = rest[at:]
	}
	copy(dst[start+bytes.Index(dst[start:], []byte(versionMark)):], fmt.Append(nil, version))
	return dst
}

// RoundTrip answers from memory, without a network.
func (g gears) RoundTrip(q *http.Request) (*http.Response, error) {
	query := q.URL.Query()
	body := &gearBody{ctx: q.Context(), gears: g}
	switch {
	case query.Get("watch") == "":
		body.step = body.list
	case query.Get("sendInitialEvents") == "true":
		body.step = body.initial
	default:
		body.step = body.update
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: q, Body: body}, nil
}

// gearBody makes a body while it's read.
type gearBody struct {
	gears
	ctx  context.Context
	step func(dst []byte) []byte // appends the next piece; nil at the end
	at   int
	buf  []byte
	rest []byte
}

func (b *gearBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		if b.step == nil {
			return 0, io.EOF
		}
		if b.buf = b.step(b.buf[:0]); len(b.buf) == 0 { // a watch with nothing more to give
			<-b.ctx.Done()
			return 0, b.ctx.Err()
		}
		b.rest = b.buf
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *gearBody) Close() error { return nil }

func (b *gearBody) list(dst []byte) []byte {
	if b.at == 0 {
		dst = fmt.Appendf(dst, `{"kind":"GearList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"},"items":[`, firstNumber+b.objects)
	} else {
		dst = append(dst, ',')
	}
	dst = b.append(dst, b.at, firstNumber+b.at)
	if b.at++; b.at == b.objects {
		dst = append(dst, `]}`...)
		b.step = nil
	}
	return dst
}

func (b *gearBody) initial(dst []byte) []byte {
	dst = append(b.append(append(dst, `{"type":"ADDED","object":`...), b.at, firstNumber+b.at), "}\n"...)
	if b.at++; b.at == b.objects {
		dst = fmt.Appendf(dst, `{"type":"BOOKMARK","object":{"kind":"Gear","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", firstNumber+b.objects)
		b.at, b.step = 0, b.update
	}
	return dst
}

func (b *gearBody) update(dst []byte) []byte {
	if b.at == b.updates {
		return dst
	}
	b.at++
	return append(b.append(append(dst, `{"type":"MODIFIED","object":`...), b.at%b.objects, firstNumber+b.objects+b.at), "}\n"...)
}

// BenchmarkCache fills a cache with 100,000 objects of 1 KB and takes as many updates: ours, and client-go's informers. It
// reports CPU time per event and memory per object. Its answers come from memory, and making them costs each the same.
func BenchmarkCache(b *testing.B) {
	g := gears{100_000, 100_000}
	if testing.Short() {
		g = gears{100, 100}
	}
	config := &rest.Config{Host: "http://memory", Transport: g, QPS: -1}
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gears"}
	for _, kind := range []struct {
		name  string
		start func(context.Context) func() bool
	}{
		{"making the answers", func(context.Context) func() bool {
			body := &gearBody{gears: g}
			body.step = body.initial
			for buf := make([]byte, 0, 4096); ; {
				if buf = body.step(buf[:0]); len(buf) == 0 {
					return func() bool { return true }
				}
			}
		}},
		{"ours, typed", func(ctx context.Context) func() bool { return startOurs[ourGear](ctx, b, g) }},
		{"ours, Object", func(ctx context.Context) func() bool { return startOurs[client.Object](ctx, b, g) }},
		{"client-go, dynamic", func(ctx context.Context) func() bool {
			c, err := dynamic.NewForConfig(config)
			if err != nil {
				b.Fatal(err)
			}
			informer := dynamicinformer.NewFilteredDynamicInformer(c, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
			return startTheirs(ctx, informer, g)
		}},
		{"client-go, typed", func(ctx context.Context) func() bool {
			return startTheirs(ctx, cache.NewSharedIndexInformer(typedListWatch(b, config), &theirGear{}, 0, cache.Indexers{}), g)
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				cpu, heap := used()
				ctx, cancel := context.WithCancel(context.Background())
				done := kind.start(ctx)
				for !done() {
					time.Sleep(time.Millisecond) // a condition that nobody tells us of
				}
				cpuAfter, heapAfter := used()
				b.ReportMetric(float64((cpuAfter-cpu).Nanoseconds())/float64(g.objects+g.updates), "cpu-ns/event")
				b.ReportMetric(float64(heapAfter-heap)/float64(g.objects), "B/object")
				done() // keeps the cache until here
				cancel()
			}
		})
	}
}

// used returns the process's CPU time, and then its heap after a collection.
func used() (cpu time.Duration, heap int64) {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cpu, int64(m.HeapAlloc)
}

// startOurs fills a cache of ours, and returns what tells whether it has everything.
func startOurs[T any](ctx context.Context, b *testing.B, g gears) func() bool {
	c, err := client.New("http://memory", client.Options{HTTP: &http.Client{Transport: g}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	mine, err := client.StartCache(ctx, client.Resource[T](c, "example.com/v1", "gears"))
	if err != nil {
		b.Fatal(err)
	}
	return func() bool { return mine.Version() == g.last() && mine.Len() == g.objects }
}

// startTheirs does so with an informer.
func startTheirs(ctx context.Context, informer cache.SharedIndexInformer, g gears) func() bool {
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	key := fmt.Sprintf("default/gear-%d", firstNumber+g.updates%g.objects)
	return func() bool {
		object, ok, _ := informer.GetStore().GetByKey(key)
		return ok && object.(metav1.Object).GetResourceVersion() == g.last()
	}
}

// typedListWatch is what a generated client would give.
func typedListWatch(b *testing.B, config *rest.Config) cache.ListerWatcher {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	scheme := apiruntime.NewScheme()
	scheme.AddKnownTypeWithName(gv.WithKind("Gear"), &theirGear{})
	scheme.AddKnownTypeWithName(gv.WithKind("GearList"), &theirGearList{})
	metav1.AddToGroupVersion(scheme, gv)
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	return cache.NewListWatchFromClient(c, "gears", metav1.NamespaceAll, fields.Everything())
}
