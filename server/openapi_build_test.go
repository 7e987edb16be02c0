package server

import (
	"context"
	"errors"
	"io"
	"testing"
)

// TestOpenAPIBuildEnds: neither a build nor the wait for another one's outlasts the request.
func TestOpenAPIBuildEnds(t *testing.T) {
	o := newOpenAPI()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := o.get(ctx, openAPIKey{path: "a"}, func(to io.Writer) error {
		if _, err := io.WriteString(to, "a part"); err != nil {
			t.Error(err)
		}
		cancel()
		_, err := io.WriteString(to, "another")
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the build went on after its request, and ended with %v", err)
	}
	o.building <- struct{}{} // somebody else's
	if _, err := o.get(ctx, openAPIKey{path: "a"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ended with %v", err)
	}
	o.building.leave()
	if _, err := o.get(t.Context(), openAPIKey{path: "a"}, func(to io.Writer) error { return nil }); err != nil {
		t.Errorf("the next build: %v", err)
	}
}
