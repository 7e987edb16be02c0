package discovery

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// TestOpenAPIKept: what is kept stays within its bound, and each document is built once while it's kept.
func TestOpenAPIKept(t *testing.T) {
	o := newDocuments()
	builds := 0
	get := func(path, hash string, size int) {
		t.Helper()
		doc, err := o.get(t.Context(), key{path, form.JSON, hash}, packed(t.Context(), func(to io.Writer) error {
			builds++
			noise := make([]byte, size) // can't be compressed
			for i := range noise {
				noise[i] = byte(rand.Uint32())
			}
			_, err := to.Write(noise)
			return err
		}))
		if err != nil || doc.Size != size {
			t.Fatalf("%d bytes, %v", doc.Size, err)
		}
		held := 0
		for _, kept := range o.kept {
			held += len(kept.body)
		}
		if held != o.size || held > maxKept {
			t.Fatalf("%d bytes are kept, and %d are known, of at most %d", held, o.size, maxKept)
		}
	}
	get("first", "1", 1<<10)
	get("first", "1", 1<<10)
	if builds != 1 {
		t.Errorf("one document was built %d times", builds)
	}
	get("first", "2", 1<<10)
	if len(o.kept) != 1 {
		t.Errorf("%d documents are kept, of which one is outdated", len(o.kept))
	}
	for i := range 6 {
		get(fmt.Sprint(i), "1", maxKept/4)
		get("first", "2", 1<<10) // in use
	}
	if builds != 8 {
		t.Errorf("%d documents were built, want 8: the one in use was dropped", builds)
	}
	get("large", "1", maxKept+1)
	if builds != 9 || len(o.kept) == 0 {
		t.Error("a document that is too large to be kept drops the others")
	}
}
