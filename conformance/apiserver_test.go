package conformance

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// patience is how long a test waits for what must happen, on a machine that does much else.
const patience = 5 * time.Minute

var (
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// apiserver is a server process.
type apiserver struct {
	t       testing.TB
	args    []string
	dataDir string
	urlFile string
	url     string
	token   string    // empty: plain HTTP, for everyone
	caFile  string    // of the certificate that comes with the token
	cmd     *exec.Cmd // nil while stopped
	banner  printed
	log     bytes.Buffer
}

// printed is what a process has printed. It can be read while more comes.
type printed struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// startEphemeral starts a server that keeps nothing, and stops it when the test ends.
func startEphemeral(t testing.TB) *apiserver {
	return start(t, "--ephemeral")
}

// startSecure starts a server with TLS, and thus HTTP/2, that asks for a token.
func startSecure(t testing.TB) *apiserver { return startSecureWith(t) }

// startSecureWith is startSecure with further arguments.
func startSecureWith(t testing.TB, args ...string) *apiserver {
	t.Helper()
	const token = "secret-of-this-test"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, append([]string{"--tls", "--token-file", file}, args...)...)
	s.token, s.caFile = token, filepath.Join(s.dataDir, "tls.crt")
	return s
}

// start starts a server on a directory of its own.
func start(t testing.TB, args ...string) *apiserver {
	t.Helper()
	dir := t.TempDir()
	s := &apiserver{t: t, urlFile: filepath.Join(dir, "url"), dataDir: filepath.Join(dir, "data")}
	s.args = append([]string{"--data-dir", s.dataDir, "--url-file", s.urlFile, "--exit-with-parent"}, args...)
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log.String())
		}
	})
	s.start("127.0.0.1:0")
	return s
}

func (s *apiserver) start(listen string) {
	s.t.Helper()
	s.cmd = exec.Command(apiserverBinary, append(s.args, "--listen", listen)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.banner, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the server writes its URL", func(context.Context) bool {
		text, err := os.ReadFile(s.urlFile)
		s.url = strings.TrimSpace(string(text))
		return err == nil
	})
}

// stop ends the server as ctrl-C does.
func (s *apiserver) stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ends with %v", err)
	}
	s.cmd = nil
}

// restart stops the server and starts it again where it was.
func (s *apiserver) restart() {
	s.t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.stop()
	s.start(u.Host)
}

// config is how client-go reaches the server, without its brake on requests.
func (s *apiserver) config() *rest.Config {
	return &rest.Config{Host: s.url, QPS: -1, BearerToken: s.token, TLSClientConfig: rest.TLSClientConfig{CAFile: s.caFile}}
}

// recorded is config with a record of the requests.
func (s *apiserver) recorded() (*rest.Config, *record) {
	config, r := s.config(), &record{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			r.add(request)
			response, err := next.RoundTrip(request)
			if err == nil {
				r.proto.Store(int32(response.ProtoMajor))
			}
			return response, err
		})
	})
	return config, r
}

// record is which requests a client sent.
type record struct {
	proto atomic.Int32 // major version of HTTP in the last answer

	mu       sync.Mutex // guards requests
	requests []*http.Request
}

func (r *record) add(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

// matching returns the sent requests of a method for a path whose query has all the given values.
func (r *record) matching(method, path string, query url.Values) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range r.requests {
		fits := request.Method == method && request.URL.Path == path
		for name, values := range query {
			fits = fits && request.URL.Query().Get(name) == values[0]
		}
		if fits {
			found = append(found, request.URL.String())
		}
	}
	return found
}

// paths returns the paths that were asked for, in their order.
func (r *record) paths() (paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range r.requests {
		paths = append(paths, request.URL.Path)
	}
	return paths
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dynamic returns a dynamic client.
func (s *apiserver) dynamic() dynamic.Interface {
	s.t.Helper()
	return dynamicFor(s.t, s.config())
}

func dynamicFor(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// define creates the definition of widgets, which are served from then on.
func (s *apiserver) define() {
	s.t.Helper()
	if _, err := s.dynamic().Resource(definitions).Create(s.t.Context(), widgetDefinition(s.t), metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func widgetDefinition(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	readYAML(t, "testdata/widgets.yaml", &obj.Object)
	return obj
}

func typedDefinition(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	readYAML(t, "testdata/widgets.yaml", crd)
	return crd
}

func readYAML(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// widget is an object for the dynamic client.
func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"tier": "front"}},
		"spec":       map[string]any{"size": size, "color": "red"},
	}}
}

// eventually waits until check holds.
func eventually(t testing.TB, what string, check func(context.Context) bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also for cleaning up
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return check(ctx), nil
	})
	if err != nil {
		t.Fatalf("waiting in vain until %s", what)
	}
}
