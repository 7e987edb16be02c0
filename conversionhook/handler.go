package conversionhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

const (
	path       = "/convert"
	healthPath = "/healthz"
)

const (
	// maxFile bounds a file of definitions, in bytes.
	maxFile = 16 << 20
	// maxReview bounds a request. kube-apiserver sends all objects of a list, or of a page of it, in one.
	maxReview = 64 << 20
	// maxReviews bounds how many requests are worked for at once. Others wait.
	maxReviews = 16
)

// handler answers ConversionReviews.
type handler struct {
	rules atomic.Pointer[map[schema.GroupKind]*ruleset.Rules]
	seats chan struct{} // capacity maxReviews: full while as many are worked for. Never closed
}

func newHandler() *handler { return &handler{seats: make(chan struct{}, maxReviews)} }

// read reads the definitions of files. One without rules is an error, because nobody would convert its objects.
func (h *handler) read(files []string) error {
	all := map[schema.GroupKind]*ruleset.Rules{}
	for _, file := range files {
		text, err := readFile(file)
		if err != nil {
			return err
		}
		before := len(all)
		if err := document.Split(bytes.NewReader(text), func(line int, text []byte) error {
			if err := readDefinition(all, text); err != nil {
				return fmt.Errorf("%s, line %d: %w", file, line, err)
			}
			return nil
		}); err != nil {
			return err
		}
		if len(all) == before {
			return fmt.Errorf("%s has no CustomResourceDefinition", file)
		}
	}
	h.rules.Store(&all)
	return nil
}

// readDefinition adds the rules of a document, unless that's of another kind.
func readDefinition(to map[schema.GroupKind]*ruleset.Rules, text []byte) error {
	var what metav1.TypeMeta
	if err := yaml.Unmarshal(text, &what); err != nil {
		return err
	}
	if what.Kind != "CustomResourceDefinition" || what.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
		return nil
	}
	d := &crd.Definition{}
	if err := yaml.Unmarshal(text, d); err != nil {
		return err
	}
	kind := schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}
	if _, annotated := ruleset.Of(d); !annotated {
		return fmt.Errorf("%s has no annotation %s", d.Name, ruleset.Annotation)
	}
	if to[kind] != nil {
		return fmt.Errorf("%s is defined twice", kind)
	}
	crd.Default(d)
	crd.NoteStored(d)
	if errs := crd.Validate(context.Background(), d, nil); len(errs) > 0 {
		return fmt.Errorf("%s: %w", d.Name, errs.ToAggregate())
	}
	rules, errs := ruleset.New(d)
	if len(errs) > 0 {
		return fmt.Errorf("%s: %w", d.Name, errs.ToAggregate())
	}
	to[kind] = rules
	return nil
}

// review is what is read of a ConversionReview.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		UID               string            `json:"uid"`
		DesiredAPIVersion string            `json:"desiredAPIVersion"`
		Objects           []json.RawMessage `json:"objects"`
	} `json:"request"`
}

// answer is what is said to a ConversionReview.
type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID              string            `json:"uid"`
	ConvertedObjects []json.RawMessage `json:"convertedObjects"`
	Result           result            `json:"result"`
}

type result struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

var reviewVersion = apiextensionsv1.SchemeGroupVersion.String()

// ServeHTTP answers a review, or a probe. What can't be read is answered 400; what can't be converted is a failure of the review.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == healthPath:
		fmt.Fprint(w, "ok")
		return
	case r.URL.Path != path:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a ConversionReview must be posted", http.StatusMethodNotAllowed)
		return
	}
	select {
	case h.seats <- struct{}{}:
		defer func() { <-h.seats }()
	case <-r.Context().Done():
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("the review is larger than %d bytes", maxReview), http.StatusRequestEntityTooLarge)
		return
	}
	var in review
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err == nil && (in.APIVersion != reviewVersion || in.Kind != "ConversionReview" || in.Request == nil) {
		err = fmt.Errorf("it must be a ConversionReview of %s with a request, and is a %q of %q: see conversionReviewVersions of the definition", reviewVersion, clip.Text(in.Kind), clip.Text(in.APIVersion))
	}
	if err != nil {
		http.Error(w, "the review can't be read: "+clip.Text(err.Error()), http.StatusBadRequest)
		return
	}
	out := answer{APIVersion: reviewVersion, Kind: "ConversionReview", Response: response{UID: in.Request.UID, Result: result{Status: "Success"}}}
	if out.Response.ConvertedObjects, err = h.convert(r.Context(), in.Request.DesiredAPIVersion, in.Request.Objects); err != nil {
		out.Response.ConvertedObjects, out.Response.Result = []json.RawMessage{}, result{"Failure", clip.Text(err.Error())}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client may have left
}

// convert converts objects to a version, all or none.
func (h *handler) convert(ctx context.Context, apiVersion string, objects []json.RawMessage) ([]json.RawMessage, error) {
	group, to, _ := strings.Cut(apiVersion, "/")
	out := make([]json.RawMessage, len(objects))
	for i, raw := range objects {
		decoded, _, err := jsontree.Decode(raw)
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", i, err)
		}
		object, _ := decoded.(map[string]any)
		kind, _ := object["kind"].(string)
		from, _ := object["apiVersion"].(string)
		own, version, _ := strings.Cut(from, "/")
		rules := (*h.rules.Load())[schema.GroupKind{Group: group, Kind: kind}]
		if rules == nil || own != group {
			return nil, fmt.Errorf("object %d is a %q of %q, for whose conversion to %q no file has a definition", i, kind, from, apiVersion)
		}
		if err = rules.Convert(ctx, object, version, to); err == nil {
			out[i], err = jsontree.Append(nil, object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", nameOf(object), err)
		}
	}
	return out, nil
}

// nameOf names an object for messages.
func nameOf(object map[string]any) string {
	name, namespace := document.NameOf(object), document.NamespaceOf(object)
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
