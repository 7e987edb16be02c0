package audit_test

import (
	"context"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/audit"
)

// TestAnnotateNothing: annotating a request that isn't audited does nothing, and costs no memory.
func TestAnnotateNothing(t *testing.T) {
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() { audit.Annotate(ctx, "key", "value") }); n > 0 {
		t.Errorf("an annotation without an event takes %v allocations, want none", n)
	}
	if audit.FromContext(ctx) != nil {
		t.Error("a request has a record that nobody gave it")
	}
}
