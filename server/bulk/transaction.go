package bulk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/server/stack"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

const (
	// MaxOperations is how many operations a transaction may have: as many as etcd's default for one of its own.
	MaxOperations = 128
	// MaxTransactionBytes is how large a transaction may be as it's sent, and what it writes.
	MaxTransactionBytes = transaction.MaxBytes
)

// Transaction is the operations that came in one request.
type Transaction struct {
	operations []operation
	query      string // of each operation's request
	dryRun     bool
	namespace  string // of what names none
	from       *http.Request
}

// operation is one of a transaction, as it's sent. One of its members is set.
type operation struct {
	Create json.RawMessage `json:"create,omitempty"`
	Update json.RawMessage `json:"update,omitempty"`
	Apply  json.RawMessage `json:"apply,omitempty"`
	Patch  *patched        `json:"patch,omitempty"`
	Delete *deleted        `json:"delete,omitempty"`
	Check  *checked        `json:"check,omitempty"`
	// Subresource is what an update or an apply is about, "" for the object.
	Subresource string `json:"subresource,omitempty"`
}

// named says which object an operation is about.
type named struct {
	Resource  string `json:"resource"`  // configmaps, widgets.example.com or widgets.v1.example.com
	Namespace string `json:"namespace"` // defaults to the request's, and that to "default"
	Name      string `json:"name"`
}

type patched struct {
	named       `json:",inline"`
	Subresource string          `json:"subresource"`
	Type        string          `json:"type"` // merge, json, strategic or apply, or a media type
	Body        json.RawMessage `json:"body"`
}

type deleted struct {
	named   `json:",inline"`
	Options json.RawMessage `json:"options"` // DeleteOptions
}

// checked is what has to be so before the transaction.
type checked struct {
	named           `json:",inline"`
	ResourceVersion string `json:"resourceVersion"`
	Absent          bool   `json:"absent"`
	CEL             string `json:"cel"` // of the variable object

	program cel.Program // CEL, once valid has compiled it
}

// media are the media types of patches by their short names.
var media = map[string]string{
	"merge": string(types.MergePatchType), "json": string(types.JSONPatchType), "strategic": string(types.StrategicMergePatchType), "apply": applyMedia,
}

// ParseTransaction reads a transaction, which is JSON. Its errors are a Status of 400, 413 or 422.
func ParseTransaction(r *http.Request, query url.Values, text []byte) (*Transaction, error) {
	t := &Transaction{namespace: cmp.Or(query.Get("namespace"), metav1.NamespaceDefault), from: r, dryRun: query.Get("dryRun") != ""}
	t.query = passedOn(query, "dryRun", "fieldManager", "fieldValidation", "force")
	if len(text) > MaxTransactionBytes {
		return nil, registry.Refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the transaction has %d bytes, and etcd takes %d in one request: make several of it", len(text), MaxTransactionBytes))
	}
	operations, n, err := operationsOf(text)
	switch {
	case n > MaxOperations:
		return nil, registry.Refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("operation %d is one too many: a transaction may have %d, and this one has %d", MaxOperations, MaxOperations, n))
	case err != nil:
		return nil, badOperation(text, err)
	case n == 0:
		return nil, registry.BadRequest("the transaction has no operations")
	}
	t.operations = operations
	for i := range t.operations {
		if err := t.operations[i].valid(); err != nil {
			return nil, registry.BadRequest("operation %d: %v", i, err)
		}
	}
	return t, nil
}

// operationsOf reads the operations of a transaction, and counts them: of too many nothing else is of use. The objects stay where they are
// in the text. What isn't as it's to be is decoded, which takes longer, for the error.
func operationsOf(text []byte) (operations []operation, n int, err error) {
	s, sound, found := jsonscan.Scanner{Data: text}, true, false
	whole := s.Members(func(name []byte) {
		sound = sound && string(name) == "operations" && !found
		found = true
		sound = s.Elements(func() {
			if n++; n > MaxOperations {
				s.Skip()
				return
			}
			var o operation
			sound = o.scan(&s) && sound
			operations = append(operations, o)
		}) && sound
	})
	if n > MaxOperations || whole && sound && s.Err() == nil && s.AtEnd() {
		return operations, n, nil
	}
	var sent struct {
		Operations []operation `json:"operations"`
	}
	err = strictly(text, &sent)
	return sent.Operations, len(sent.Operations), err
}

// scan reads the operation that comes next. It returns false if encoding/json has to judge.
func (o *operation) scan(s *jsonscan.Scanner) (sound bool) {
	sound = true
	return s.Members(func(name []byte) {
		value := slices.Clip(s.Skip())
		switch string(name) {
		case "create":
			o.Create = value
		case "update":
			o.Update = value
		case "apply":
			o.Apply = value
		case "patch":
			sound = o.Patch == nil && strictly(value, &o.Patch) == nil && sound
		case "delete":
			sound = o.Delete == nil && strictly(value, &o.Delete) == nil && sound
		case "check":
			sound = o.Check == nil && strictly(value, &o.Check) == nil && sound
		case "subresource":
			sound = strictly(value, &o.Subresource) == nil && sound
		default: // other letters in a name mean the same, and one that isn't known is refused
			sound = false
		}
	}) && sound
}

// badOperation says which operation it is that made a transaction undecodable, if it's one.
func badOperation(text []byte, err error) error {
	var sent struct {
		Operations []json.RawMessage `json:"operations"`
	}
	if strictly(text, &sent) == nil {
		for i, text := range sent.Operations {
			if err := strictly(text, &operation{}); err != nil {
				return registry.BadRequest("operation %d: %v", i, err)
			}
		}
	}
	return registry.BadRequest("the body of the request isn't a transaction, as {\"operations\": [{\"create\": {…}}]} is: %v", err)
}

// strictly decodes what may have no members that nobody knows.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return object.Undecodable(err)
	}
	if d.More() {
		return errors.New("something follows it")
	}
	return nil
}

// valid tells what is wrong with an operation, whatever is stored.
func (o *operation) valid() error {
	set := 0
	for _, is := range []bool{o.Create != nil, o.Update != nil, o.Apply != nil, o.Patch != nil, o.Delete != nil, o.Check != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("it has %d of create, update, apply, patch, delete and check, and must have one", set)
	case o.Subresource != "" && o.Update == nil && o.Apply == nil:
		return errors.New("only an update or an apply has a subresource besides: a patch has it inside")
	case o.Patch != nil && media[o.Patch.Type] == "" && !slices.Contains(slices.Collect(maps.Values(media)), o.Patch.Type):
		return fmt.Errorf("its type is %q, and must be merge, json, strategic or apply", clip.Text(o.Patch.Type))
	case o.Patch != nil && o.Patch.Body == nil:
		return errors.New("the patch has no body")
	case o.Check != nil:
		return o.Check.valid()
	}
	return nil
}

func (c *checked) valid() (err error) {
	set := 0
	for _, is := range []bool{c.ResourceVersion != "", c.Absent, c.CEL != ""} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("the check has %d of resourceVersion, absent and cel, and must have one", set)
	}
	if c.CEL == "" {
		return nil
	}
	c.program, err = compile(c.CEL)
	return err
}

// Host is what a transaction needs of the server.
type Host struct {
	Find  Find
	Named func(ctx context.Context, resource string) (*registry.Endpoint, error)
	Serve Serve
	Store storage.Store
}

// Answer is what a transaction that was written is answered with.
type Answer struct {
	metav1.TypeMeta
	ResourceVersion string   // of the transaction; "" if nothing was written
	Results         []result // of each operation, in order
}

// JSON returns the answer as JSON. Objects are that already, and aren't gone through again.
func (a *Answer) JSON() []byte {
	size := 128
	for _, res := range a.Results {
		size += len(res.Object) + 64
	}
	to := fmt.Appendf(make([]byte, 0, size), `{"kind":%q,"apiVersion":%q,`, a.Kind, a.APIVersion)
	if a.ResourceVersion != "" {
		to = fmt.Appendf(to, `"resourceVersion":%q,`, a.ResourceVersion)
	}
	to = append(to, `"results":[`...)
	for i, res := range a.Results {
		if i > 0 {
			to = append(to, ',')
		}
		object := res.Object
		res.Object = nil
		rest, err := json.Marshal(res) // {"code":201} and what else there is
		if err != nil {
			panic(err) // numbers and strings always encode
		}
		if to = append(append(to, '\n'), rest...); len(object) > 0 {
			to = append(append(append(to[:len(to)-1], `,"object":`...), object...), '}')
		}
	}
	return append(to, "\n]}\n"...)
}

// Do does the operations, and writes all that they do as one. The error is a Status, and nothing is written then, unless it says that
// the outcome isn't known; others are the store's.
func (t *Transaction) Do(ctx context.Context, h Host) (*Answer, error) {
	for {
		pinned, _ := h.Store.Pin(ctx)
		a, err := t.try(pinned, h)
		if !errors.Is(err, storage.ErrReplaced) || ctx.Err() != nil {
			return a, err
		}
	}
}

// try is Do, but for resets: storage.ErrReplaced says that everything was replaced meanwhile.
func (t *Transaction) try(ctx context.Context, h Host) (*Answer, error) {
	results := make([]result, len(t.operations))
	serves := make([]transaction.Serve, len(t.operations))
	var mu sync.Mutex // guards last
	last := map[string]int{}
	for i := range t.operations {
		serves[i] = func(ctx context.Context, op *transaction.Operation) bool {
			stack.Grow(t.from) // now, while there is nothing on it that would be copied
			results[i] = t.safely(ctx, h, &t.operations[i], op)
			if key := op.Key(); key != "" { // of several operations on one object, the last has it: it's written once
				mu.Lock()
				defer mu.Unlock()
				before, ok := last[key]
				if ok {
					results[min(before, i)].Object = nil
				}
				last[key] = max(before, i)
			}
			return results[i].Code < http.StatusBadRequest
		}
	}
	out := transaction.Run(ctx, h.Store.Commit, serves, t.dryRun)
	switch {
	case out.Failed >= 0:
		return nil, t.refusal(out.Failed, results[out.Failed])
	case out.Err != nil:
		return nil, failed(out.Err, results)
	}
	a := &Answer{TypeMeta: metav1.TypeMeta{Kind: "TransactionResult", APIVersion: "apiserver-lite/v1"}, Results: results}
	if out.Revision > 0 {
		a.ResourceVersion = out.Revision.String()
	}
	return a, nil
}

// InTurn waits until it's the turn of the operation that a request is, if it's one of a transaction. The error is a Status.
func InTurn(r *http.Request) error {
	if err := transaction.Of(r.Context()).InTurn(); err != nil {
		return registry.Refusal(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	}
	return nil
}

// safely does one operation. What panics besides its request, which sees to that by itself, is a failure of the operation.
func (t *Transaction) safely(ctx context.Context, h Host, o *operation, op *transaction.Operation) (res result) {
	defer func() {
		if cause := recover(); cause != nil {
			res = refused(fmt.Errorf("panic: %v", cause))
		}
	}()
	return t.serve(ctx, h, o, op)
}

// serve does one operation.
func (t *Transaction) serve(ctx context.Context, h Host, o *operation, op *transaction.Operation) result {
	r, body, e, err := t.request(ctx, h, o)
	if err != nil {
		return refused(err)
	}
	for {
		var got recorder
		warnings := h.Serve(&got, r, body)
		res := got.result(warnings)
		if o.Check == nil {
			return res
		}
		if res, again := o.Check.judge(ctx, e, t.namespaceOf(o.Check.named), res, op); !again {
			return res
		}
	}
}

func (t *Transaction) namespaceOf(n named) string { return cmp.Or(n.Namespace, t.namespace) }

// request makes the request that an operation would have been alone.
func (t *Transaction) request(ctx context.Context, h Host, o *operation) (*http.Request, []byte, *registry.Endpoint, error) {
	switch {
	case o.Patch != nil:
		p := o.Patch
		_, at, err := t.place(ctx, h, p.named, p.Subresource)
		if err != nil {
			return nil, nil, nil, err
		}
		r, err := newRequest(ctx, t.from, http.MethodPatch, at, cmp.Or(media[p.Type], p.Type), t.query, p.Body)
		return r, p.Body, nil, err
	case o.Delete != nil:
		_, at, err := t.place(ctx, h, o.Delete.named, "")
		if err != nil {
			return nil, nil, nil, err
		}
		r, err := newRequest(ctx, t.from, http.MethodDelete, at, "application/json", t.query, o.Delete.Options)
		return r, o.Delete.Options, nil, err
	case o.Check != nil:
		e, at, err := t.place(ctx, h, o.Check.named, "")
		if err != nil {
			return nil, nil, nil, err
		}
		r, err := newRequest(ctx, t.from, http.MethodGet, at, "", "", nil)
		return r, nil, e, err
	}
	body := o.Create
	for _, other := range []json.RawMessage{o.Update, o.Apply} {
		if other != nil {
			body = other
		}
	}
	l := &List{namespace: t.namespace, from: t.from, query: t.query, apply: o.Apply != nil || o.Update != nil}
	r, err := l.request(ctx, h.Find, body)
	if err != nil {
		return nil, nil, nil, err
	}
	if o.Update != nil {
		r.Method = http.MethodPut
		r.Header.Set("Content-Type", "application/json")
	}
	if o.Subresource != "" {
		if err := fits(o.Subresource); err != nil {
			return nil, nil, nil, err
		}
		r.URL.Path += "/" + o.Subresource
		r.RequestURI = r.URL.RequestURI()
	}
	return r, body, nil, nil
}

// place returns the path of an object. Of a kind that isn't served it's where that would be.
func (t *Transaction) place(ctx context.Context, h Host, n named, subresource string) (*registry.Endpoint, []string, error) {
	e, err := h.Named(ctx, n.Resource)
	if err != nil && !errors.Is(err, registry.ErrNotServed) {
		return nil, nil, err
	}
	exact, of := schema.ParseResourceArg(n.Resource)
	at := Place{of.WithVersion("v1"), true}
	if e != nil {
		at = Place{e.Path(), e.Namespaced}
	} else if exact != nil {
		at.Resource = *exact
	}
	path := append(at.path(t.namespaceOf(n)), n.Name)
	if subresource != "" {
		path = append(path, subresource)
	}
	return e, path, nil
}

// refusal is the answer to a transaction of which an operation failed.
func (t *Transaction) refusal(failed int, res result) error {
	s := *res.Status
	s.Message = fmt.Sprintf("operation %d (%s): %s", failed, t.operations[failed].what(), s.Message)
	if s.Reason != metav1.StatusReasonTimeout { // whose message says what may have happened to a single write
		s.Message += "; nothing of the transaction was written"
	}
	details := metav1.StatusDetails{}
	if s.Details != nil {
		details = *s.Details
	}
	details.Causes = append(slices.Clip(details.Causes), metav1.StatusCause{Type: "FailedOperation", Field: fmt.Sprintf("operations[%d]", failed), Message: t.operations[failed].what()})
	s.Details = &details
	return &apierrors.StatusError{ErrStatus: s}
}

// what names an operation.
func (o *operation) what() string {
	switch {
	case o.Create != nil:
		return "create"
	case o.Update != nil:
		return "update"
	case o.Apply != nil:
		return "apply"
	case o.Patch != nil:
		return "patch of " + o.Patch.String()
	case o.Delete != nil:
		return "delete of " + o.Delete.String()
	}
	return "check of " + o.Check.String()
}

func (n named) String() string {
	return clip.Text(strings.TrimPrefix(n.Resource+" "+n.Namespace+"/"+n.Name, "/"))
}

// failed is the answer to a transaction that the store didn't write. Each operation has what that means for it: the first one's is told.
func failed(err error, results []result) error {
	if errors.Is(err, storage.ErrReplaced) {
		return err
	}
	if errors.Is(err, storage.ErrTooLarge) {
		return registry.Refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the transaction is larger than what etcd takes at once, with what each operation depends on: make several of it ("+err.Error()+")")
	}
	for _, res := range results {
		if res.Status != nil {
			return &apierrors.StatusError{ErrStatus: *res.Status}
		}
	}
	return err
}
