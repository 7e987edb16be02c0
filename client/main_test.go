package client_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// patience is how long a test waits for what must happen. A model takes half a minute, and ten times as long on a machine that
// does much else.
const patience = 5 * time.Minute

// Widget is of testdata/crds/widgets.yaml.
type Widget struct {
	client.Meta
	Spec   WidgetSpec   `json:"spec,omitzero"`
	Status WidgetStatus `json:"status,omitzero"`
}

type WidgetSpec struct {
	Color string `json:"color,omitempty"`
	Size  int    `json:"size,omitempty"`
}

type WidgetStatus struct {
	Phase string `json:"phase,omitempty"`
}

func widget(name string, size int) *Widget {
	return &Widget{Meta: client.Named(name), Spec: WidgetSpec{Size: size}}
}

// resize sets the size of a widget that exists.
func resize(ctx context.Context, widgets client.Collection[Widget], name string, size int) (*Widget, error) {
	return client.Update(ctx, widgets, name, func(w *Widget) error { w.Spec.Size = size; return nil })
}

// noLeaks checks when the test ends, after the other clean-ups that begin later, that the test's goroutines are gone.
func noLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// define starts a server with widgets.
func define(t *testing.T, options ...func(*server.Server)) *servertest.Server {
	t.Helper()
	noLeaks(t)
	s := servertest.New(t, options...)
	definition, err := os.ReadFile("../testdata/crds/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(definition))
	return s
}

// connect returns a client that is closed with the test.
func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// collection returns the widgets of the default namespace.
func collection(t *testing.T, url string) client.Collection[Widget] {
	t.Helper()
	return client.Resource[Widget](connect(t, url), "example.com/v1", "widgets").In("default")
}

// bounded returns a context that ends the test's waiting.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test if there's an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
