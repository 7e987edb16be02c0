package schema_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/schema"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestVerdictsLikeUpstream sends objects of many schemas through the server, created and then updated, and
// compares with what Kubernetes' own packages make of them: whether they're accepted, what is wrong with them,
// and what is stored.
func TestVerdictsLikeUpstream(t *testing.T) {
	t.Parallel()
	const pairs = 50 // of each schema
	s := servertest.New(t)
	var created, updated, refused int
	for i, name := range slices.Sorted(maps.Keys(schema.Schemas(t))) {
		v1 := schema.Schemas(t)[name]
		d := differ{t: t, server: s, oracle: schema.NewOracle(t, v1), plural: fmt.Sprintf("things%d", i), kind: fmt.Sprintf("Thing%d", i)}
		d.define(v1)
		g := &schema.Generator{Rand: rand.New(rand.NewPCG(11, uint64(i)))}
		for n := range pairs {
			obj := withoutMeta(g.Object(v1))
			stored, errs := d.write("POST", d.path(), fmt.Sprintf("o%d", n), obj, nil)
			if len(errs) > 0 {
				refused++
				continue
			}
			created++
			next := runtime.DeepCopyJSON(obj)
			g.Mutate(v1, next)
			if _, errs = d.write("PUT", d.path()+"/"+fmt.Sprintf("o%d", n), fmt.Sprintf("o%d", n), withoutMeta(next), stored); len(errs) > 0 {
				refused++
			} else {
				updated++
			}
		}
	}
	t.Logf("%d created, %d updated, %d refused", created, updated, refused)
	if created < 50 || updated < 20 || refused < 50 {
		t.Error("the comparison says little")
	}
}

func withoutMeta(object map[string]any) map[string]any {
	for _, own := range []string{"apiVersion", "kind", "metadata"} {
		delete(object, own)
	}
	return object
}

// differ compares one definition's objects.
type differ struct {
	t            *testing.T
	server       *servertest.Server
	oracle       *schema.Oracle
	plural, kind string
}

func (d *differ) define(v1 *apiextensionsv1.JSONSchemaProps) {
	d.t.Helper()
	definition, err := json.Marshal(&apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: d.plural + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: d.plural, Kind: d.kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: v1},
			}},
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if res, answer := d.server.Do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(definition), "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
		d.t.Fatalf("%s: %s", res.Status, answer)
	}
}

func (d *differ) path() string { return "/apis/example.com/v1/" + d.plural }

// write sends an object and compares the answer with the oracle's. old is the object as it's stored, whole.
func (d *differ) write(method, path, name string, content, old map[string]any) (stored map[string]any, errs field.ErrorList) {
	d.t.Helper()
	metadata := map[string]any{"name": name}
	if old != nil {
		metadata["resourceVersion"] = old["metadata"].(map[string]any)["resourceVersion"]
	}
	sent := d.whole(content, metadata)
	body, err := json.Marshal(sent)
	if err != nil {
		d.t.Fatal(err)
	}
	// What upstream makes of the same bytes.
	var want map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &want); err != nil {
		d.t.Fatal(err)
	}
	want = withoutMeta(want)
	_, shapeErr := d.oracle.Shape(want)
	named := map[string]any{"name": name}
	var before map[string]any
	if old != nil {
		before = d.whole(withoutMeta(runtime.DeepCopyJSON(old)), named)
	}
	if shapeErr == nil {
		errs = d.oracle.Validate(d.t, d.whole(want, named), before)
	}
	res, answer := d.server.Do(method, path, string(body), "Content-Type", "application/json")
	switch {
	case shapeErr != nil:
		if res.StatusCode != http.StatusBadRequest {
			d.t.Fatalf("%s of %s: %s %s, upstream can't read it: %v", method, body, res.Status, answer, shapeErr)
		}
		return nil, field.ErrorList{field.Invalid(nil, nil, shapeErr.Error())}
	case len(errs) > 0:
		d.sameCauses(method, body, res, answer, errs)
		return nil, errs
	case res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusOK:
		d.t.Fatalf("%s of %s, old %v: %s %s, upstream accepts it", method, body, before, res.Status, answer)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(answer), &stored); err != nil {
		d.t.Fatal(err)
	}
	if got := withoutMeta(runtime.DeepCopyJSON(stored)); !reflect.DeepEqual(got, want) {
		d.t.Fatalf("%s of %s stores\n%v, upstream\n%v", method, body, got, want)
	}
	return stored, nil
}

func (d *differ) whole(content, metadata map[string]any) map[string]any {
	whole := maps.Clone(content)
	whole["apiVersion"], whole["kind"], whole["metadata"] = "example.com/v1", d.kind, metadata
	return whole
}

// sameCauses compares the causes of a refusal: reason, field and message.
func (d *differ) sameCauses(method string, body []byte, res *http.Response, answer string, errs field.ErrorList) {
	d.t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(answer), &status); err != nil || res.StatusCode != http.StatusUnprocessableEntity || status.Details == nil {
		d.t.Fatalf("%s of %s: %s %s, upstream refuses it: %v", method, body, res.Status, answer, errs)
	}
	var got, want []string
	for _, c := range status.Details.Causes {
		got = append(got, fmt.Sprintf("%s %s: %s", c.Type, c.Field, c.Message))
	}
	for _, e := range errs {
		want = append(want, fmt.Sprintf("%s %s: %s", string(e.Type), e.Field, e.ErrorBody()))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.t.Fatalf("%s of %s has causes\n%s\nupstream\n%s", method, body, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
