package discovery

import (
	"context"
	"errors"
	"io"
	"testing"
)

// TestOpenAPIBuildEnds: neither a build nor the wait for another one's outlasts the request.
func TestOpenAPIBuildEnds(t *testing.T) {
	o := newDocuments()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := o.get(ctx, key{path: "a"}, packed(ctx, func(to io.Writer) error {
		if _, err := io.WriteString(to, "a part"); err != nil {
			t.Error(err)
		}
		cancel()
		_, err := io.WriteString(to, "another")
		return err
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the build went on after its request, and ended with %v", err)
	}
	if !o.building.TryAcquire(1) { // somebody else's
		t.Fatal("the build that failed still builds")
	}
	if _, err := o.get(ctx, key{path: "a"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ended with %v", err)
	}
	o.building.Release(1)
	if _, err := o.get(t.Context(), key{path: "a"}, packed(t.Context(), func(to io.Writer) error { return nil })); err != nil {
		t.Errorf("the next build: %v", err)
	}
}

func packed(ctx context.Context, write func(to io.Writer) error) func() (*Document, error) {
	return func() (*Document, error) { return pack(ctx, "", write) }
}
