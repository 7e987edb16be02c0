package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// MaxBody is the largest body that an event has, in bytes: that of the largest request. Larger answers are left out.
const MaxBody = 3 << 20

// bodies says which bodies a request's events have.
type bodies struct{ request, response bool }

// bodiesOf returns the bodies that a level asks for. Those that are or hold tokens aren't noted at any level.
func bodiesOf(a authorizer.Attributes, level auditinternal.Level) bodies {
	if !a.IsResourceRequest() || holdsTokens(a) {
		return bodies{}
	}
	return bodies{request: !level.Less(auditinternal.LevelRequest), response: !level.Less(auditinternal.LevelRequestResponse)}
}

func holdsTokens(a authorizer.Attributes) bool {
	return a.GetResource() == "tokenreviews" || a.GetResource() == "serviceaccounts" && a.GetSubresource() == "token"
}

// WantsResponse tells whether the events have the answer's body.
func (r *Record) WantsResponse() bool { return r != nil && r.bodies.response }

// Request notes a request's body, which is JSON. It must not change any more. What it says of the object's name completes the
// reference to the object, at any level.
func (r *Record) Request(document []byte) {
	if r == nil || len(document) == 0 {
		return
	}
	var named struct {
		Metadata struct {
			Name            string    `json:"name"`
			Namespace       string    `json:"namespace"`
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	isObject := json.Unmarshal(document, &named) == nil // a list of operations isn't
	if !isObject && !json.Valid(document) {
		return
	}
	if r.omitManagedFields {
		document = withoutManagedFields(document)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ref, m := r.event.ObjectRef, named.Metadata; isObject && ref != nil {
		fill(&ref.Name, m.Name)
		fill(&ref.Namespace, m.Namespace)
		fill(&ref.UID, m.UID)
		fill(&ref.ResourceVersion, m.ResourceVersion)
	}
	if r.bodies.request {
		r.event.RequestObject = body(document)
	}
}

func fill[T ~string](field *T, value T) {
	*field = cmp.Or(*field, value)
}

// Response notes an answer's body, which is JSON. It must not change any more.
func (r *Record) Response(document []byte) {
	if !r.WantsResponse() {
		return
	}
	if len(document) > MaxBody {
		r.Annotate(truncated, "true")
		return
	}
	if r.omitManagedFields {
		document = withoutManagedFields(document)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseObject = body(document)
}

// NoResponse notes that the answer's body is left out because it's too large.
func (r *Record) NoResponse() {
	if r.WantsResponse() {
		r.Annotate(truncated, "true")
	}
}

// withoutManagedFields returns an object, or a list, without metadata.managedFields. It returns anything else as it is.
func withoutManagedFields(document []byte) []byte {
	if !bytes.Contains(document, []byte(`"managedFields"`)) {
		return document
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var tree map[string]any
	if decoder.Decode(&tree) != nil {
		return document
	}
	drop(tree)
	items, _ := tree["items"].([]any)
	for _, item := range items {
		drop(item)
	}
	rows, _ := tree["rows"].([]any) // of a Table
	for _, row := range rows {
		if row, ok := row.(map[string]any); ok {
			drop(row["object"])
		}
	}
	smaller, err := json.Marshal(tree)
	if err != nil {
		return document
	}
	return smaller
}

// drop removes managedFields from an object's tree.
func drop(object any) {
	tree, _ := object.(map[string]any)
	if meta, ok := tree["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
}

// requestURI is a request's URI as events have it. No client of Kubernetes puts a token into it, but browsers' code does.
func requestURI(u *url.URL) string {
	const parameter = "access_token"
	if query := u.Query(); query.Has(parameter) {
		query.Set(parameter, "REDACTED")
		hidden := *u
		hidden.RawQuery = query.Encode()
		u = &hidden
	}
	return u.RequestURI()
}
