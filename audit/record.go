package audit

import "sync"

// Record is what is noted about one request. A nil Record notes nothing.
type Record struct {
	mu          sync.Mutex // guards annotations
	annotations map[string]string
}

// Annotate adds an annotation, see the function Annotate.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.annotations == nil {
		r.annotations = map[string]string{}
	}
	if _, ok := r.annotations[key]; !ok {
		r.annotations[key] = value
	}
}
