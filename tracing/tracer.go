package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"sigs.k8s.io/yaml"
)

const (
	// scope names what the spans are of.
	scope = "github.com/apiserver-lite/apiserver-lite"
	// million is what rates of samples are parts of.
	million = 1_000_000
	// flushTimeout is how long a stop waits for the collector. What it hasn't taken by then is lost.
	flushTimeout = 2 * time.Second
	// failureInterval is how far two lines of the log are apart that say that spans couldn't be sent.
	failureInterval = time.Minute
	// group is the API group of the file.
	group = "apiserver.config.k8s.io"
)

// Options say whether requests are traced. With the zero value none are.
type Options struct {
	// ConfigFile is a file with a TracingConfiguration of apiserver.config.k8s.io: where the collector is, which takes OTLP over gRPC
	// (localhost:4317 by default), and how many of a million requests are traced. A request whose client traces it is traced in any
	// case, if its user is of system:masters or system:monitoring. It's read once, at the start.
	ConfigFile string
}

// AddFlags adds kube-apiserver's flag for the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.ConfigFile, "tracing-config-file", "", "file with a TracingConfiguration: which requests are traced, and which collector gets the traces over OTLP")
}

// Config is what a file says.
type Config struct {
	metav1.TypeMeta                 `json:",inline"`
	tracingapi.TracingConfiguration `json:",inline"`
}

// Read reads the file; without one it returns nil. Errors name the flag, and what of the file is wrong.
func Read(o Options) (*Config, error) {
	if o.ConfigFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file %s: %w", o.ConfigFile, err)
	}
	return c, nil
}

// parse reads what a file says.
func parse(text []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, err
	}
	if c.Kind != "TracingConfiguration" {
		return nil, fmt.Errorf("kind is %q, and must be TracingConfiguration", c.Kind)
	}
	if !slices.Contains([]string{group + "/v1alpha1", group + "/v1beta1", group + "/v1"}, c.APIVersion) {
		return nil, fmt.Errorf("apiVersion is %q, and must be %s/v1, v1beta1 or v1alpha1", c.APIVersion, group)
	}
	return c, tracingapi.ValidateTracingConfiguration(&c.TracingConfiguration, nil, nil).ToAggregate()
}

// Tracer sends the spans of requests to a collector. A nil Tracer traces nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	to       *exporter
	perMil   int32 // requests of a million that are traced by themselves
}

// New returns a Tracer; nil for nil. dial leads to the collector; nil: directly. Whether there is a collector shows when there's something to send: the
// log says so if not.
func New(c *Config, dial func(ctx context.Context, network, address string) (net.Conn, error), log *slog.Logger) (*Tracer, error) {
	if c == nil {
		return nil, nil
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()} // as kube-apiserver: the collector is meant to be beside it
	if c.Endpoint != nil {
		options = append(options, otlptracegrpc.WithEndpoint(*c.Endpoint))
	}
	if dial != nil {
		options = append(options, otlptracegrpc.WithDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, "tcp", address)
		})))
	}
	to, err := otlptracegrpc.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	t := &Tracer{to: &exporter{SpanExporter: to, log: log}}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(t.to),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Begin has chosen
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "apiserver"), attribute.String("service.instance.id", "apiserver-lite-"+uuid.NewString()))),
	)
	if c.SamplingRatePerMillion != nil {
		t.perMil = *c.SamplingRatePerMillion
	}
	return t, nil
}

// Close sends what is left, for at most flushTimeout, and ends the connection.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	late := time.AfterFunc(flushTimeout, t.to.giveUp)
	defer late.Stop()
	if err := t.provider.Shutdown(context.Background()); err != nil { // it ends when the exports have
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}

// propagator reads and writes the headers traceparent, tracestate and baggage.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// headerParent is net/http's form of traceparent.
const headerParent = "Traceparent"

// About is what a trace says of its request.
type About struct {
	*http.Request
	Namespace, Name string // that its path has; "" for none
	AuditID         string
	Begun           time.Time // when it came
	User            user.Info
}

// Begin returns the context of a request, of which q is: with a span, if the request is traced. What a client says of a trace goes on to
// webhooks in any case.
func (t *Tracer) Begin(ctx context.Context, q *Request, a About) context.Context {
	ctx = NewContext(ctx, q)
	var parent trace.SpanContext
	trusted := false
	if len(a.Header[headerParent]) > 0 {
		ctx = propagator.Extract(ctx, propagation.HeaderCarrier(a.Header))
		parent = trace.SpanContextFromContext(ctx)
		trusted = slices.ContainsFunc(a.User.GetGroups(), func(g string) bool { return g == user.SystemPrivilegedGroup || g == user.MonitoringGroup })
	}
	if t == nil || !t.samples(parent, trusted) {
		return ctx
	}
	route := routeOf(a.URL.Path, a.Namespace, a.Name)
	options := []trace.SpanStartOption{
		trace.WithTimestamp(a.Begun), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", a.Method), attribute.String("http.route", route), attribute.String("url.path", a.URL.Path),
			attribute.String("http.target", a.URL.RequestURI()), attribute.String("user_agent.original", a.UserAgent()),
			attribute.String("client.address", a.RemoteAddr), attribute.String("audit-id", a.AuditID),
		),
	}
	if parent.IsValid() && !trusted {
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	ctx, q.span = t.provider.Tracer(scope).Start(ctx, a.Method+" "+route, options...)
	return ctx
}

// samples tells whether a request is traced.
func (t *Tracer) samples(parent trace.SpanContext, trusted bool) bool {
	if parent.IsValid() && trusted {
		return parent.IsSampled()
	}
	return t.perMil > 0 && rand.Int32N(million) < t.perMil
}

// Inject adds to the headers of a call which trace it's part of, if it is.
func Inject(ctx context.Context, header http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		propagator.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// routeOf is a path without the names in it: the names of a resource's path are {:namespace} and {:name}, as kube-apiserver writes them.
func routeOf(path, namespace, name string) string {
	if namespace != "" {
		path = strings.Replace(path, "/namespaces/"+namespace, "/namespaces/{:namespace}", 1)
	}
	if name != "" {
		if i := strings.LastIndex(path, "/"+name); i >= 0 {
			path = path[:i] + "/{:name}" + path[i+1+len(name):]
		}
	}
	return path
}

// exporter logs what can't be sent, instead of handing it to the one handler of errors that a process has.
type exporter struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu     sync.Mutex // guards the following
	logged time.Time
	cancel context.CancelFunc // of the export under way
	gone   bool               // nothing is sent any more
}

// giveUp ends the export under way, and those that come.
func (e *exporter) giveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	if e.cancel != nil {
		e.cancel()
	}
}

// begin returns the context of an export, which ends with giveUp. There's one at a time.
func (e *exporter) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx, e.cancel = context.WithCancel(ctx)
	if e.gone {
		e.cancel()
	}
	return ctx, e.cancel
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := e.begin(ctx)
	defer cancel()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && time.Since(e.logged) > failureInterval {
		e.logged = time.Now()
		e.log.Warn("traces couldn't be sent to the collector, and are lost", "spans", len(spans), "error", err)
	}
	return nil
}
