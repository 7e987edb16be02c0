package writes

import (
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// TestDefinitionsWhileClosing: a definition that is written while the registry ends, as controllers may do, isn't served
// any more, and opens nothing that nobody would close.
func TestDefinitionsWhileClosing(t *testing.T) {
	s := start(t, "", registry.Options{})
	var last sync.WaitGroup
	for range 4 {
		last.Go(func() {
			for range 100 {
				s.Definitions.Sync()
			}
		})
	}
	s.Definitions.Close()
	before := s.Catalog()
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(widgetCRD)))
	last.Wait()
	if s.Catalog() != before {
		t.Error("the catalog changed after the end")
	}
}
