package audit

import "context"

// contextKey is the key of a request's Record in its context.
type contextKey struct{}

// NewContext returns a context whose requests are noted in record.
func NewContext(ctx context.Context, record *Record) context.Context {
	return context.WithValue(ctx, contextKey{}, record)
}

// FromContext returns the Record of the request that ctx belongs to, or nil if it isn't audited.
func FromContext(ctx context.Context) *Record {
	record, _ := ctx.Value(contextKey{}).(*Record)
	return record
}

// The annotations that say what was decided about a request: "allow" or "forbid", and why.
const (
	Decision = "authorization.k8s.io/decision"
	Reason   = "authorization.k8s.io/reason"
)

// Annotate adds an annotation to the events of the request that ctx belongs to, for instance why it was admitted. It does
// nothing if the request isn't audited. A key that is there already keeps its first value. It may be called from many
// goroutines at once.
func Annotate(ctx context.Context, key, value string) { FromContext(ctx).Annotate(key, value) }

// AnnotateBody is Annotate for what tells as much as a request's body, for instance a patch: only events that may have the body
// get it, and it's left out where bodies are because the event is too large.
func AnnotateBody(ctx context.Context, key, value string) { FromContext(ctx).AnnotateBody(key, value) }
