package discovery

import (
	"context"
	"errors"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// TestDocumentsWaitEnds: who waits for documents that another request builds waits no longer than its own request lasts.
func TestDocumentsWaitEnds(t *testing.T) {
	catalog := &registry.Catalog{Hash: "1"}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name string
		// occupy begins a build of another request's, and returns what ends it.
		occupy func() (end func(), get func(context.Context) error)
	}{
		{"discovery", func() (func(), func(context.Context) error) {
			d := newDocuments()
			d.building.TryAcquire(1)
			return func() { d.building.Release(1) }, func(ctx context.Context) error {
				_, err := d.get(ctx, key{path: Groups, of: catalog.Hash}, func() (*Document, error) { return Plain(nil), nil })
				return err
			}
		}},
		{"hashes of OpenAPI documents", func() (func(), func(context.Context) error) {
			o := newHashes("")
			o.hashing.TryAcquire(1)
			return func() { o.hashing.Release(1) }, func(ctx context.Context) error {
				_, _, err := o.of(ctx, catalog)
				return err
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			end, get := tc.occupy()
			if err := get(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("the wait ended with %v", err)
			}
			end()
			if err := get(t.Context()); err != nil {
				t.Errorf("the next request: %v", err)
			}
			if err := get(gone); err != nil {
				t.Errorf("what is built already: %v", err)
			}
		})
	}
}
