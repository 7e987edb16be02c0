package registry

import (
	"sync"
	"testing"
)

// TestDefinitionsWhileClosing: a definition that is written while the registry ends, as controllers may do, isn't served
// any more, and opens nothing that nobody would close.
func TestDefinitionsWhileClosing(t *testing.T) {
	s := start(t, "", Options{})
	var last sync.WaitGroup
	for range 4 {
		last.Go(func() {
			for range 100 {
				s.definitions.sync()
			}
		})
	}
	s.definitions.close()
	before := s.Catalog()
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(widgetCRD)))
	last.Wait()
	if s.Catalog() != before {
		t.Error("the catalog changed after the end")
	}
}
