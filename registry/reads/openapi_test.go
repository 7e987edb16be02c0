package reads

import (
	"encoding/json"
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
)

// TestOpenAPIOfDefinitions: what is published is what upstream's steps make, all of them, of a copy. What objects are checked by stays as it is.
func TestOpenAPIOfDefinitions(t *testing.T) {
	for _, text := range []string{
		`{"type":"object"}`,
		`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}}`,
		`{"type":"object","required":["a","c"],"properties":{
			"a":{"type":"object","nullable":true,"properties":{"b":{"type":"integer","default":3}}},"c":{"type":"string"},
			"d":{"x-kubernetes-int-or-string":true},
			"e":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]},
			"f":{"x-kubernetes-int-or-string":true,"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]},{"pattern":"^1"}]},
			"g":{"x-kubernetes-int-or-string":true,"anyOf":[{"pattern":"^2"}],"allOf":[{"pattern":"^3"}]},
			"h":{"type":"array","items":{"x-kubernetes-int-or-string":true}},
			"i":{"type":"object","additionalProperties":{"x-kubernetes-int-or-string":true,"nullable":true}},
			"j":{"type":"array","nullable":true,"items":{"type":"string"}},
			"k":{"type":"object","oneOf":[{"required":["l"]}],"not":{"required":["m"]},"properties":{"l":{"type":"string"},"m":{"type":"string"}}},
			"n":{"type":"object","default":{"o":1,"gone":2},"properties":{"o":{"type":"integer"}}}}}`,
		`{"type":"object","properties":{
			"a":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
			"b":{"type":"array","items":{"type":"object","x-kubernetes-embedded-resource":true,"required":["kind"],"properties":{"c":{"type":"string"}}}},
			"d":{"type":"object","additionalProperties":{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"f":{"type":"string"}}}}}}}}`,
	} {
		v1 := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal([]byte(text), v1); err != nil {
			t.Fatal(err)
		}
		given := v1.DeepCopy()
		e := &registry.Endpoint{Names: registry.Names{Group: "example.com", Version: "v1", Kind: "Thing"}}
		e.Schema = schema.New(v1)
		structural, err := e.Schema.Structural()
		if err != nil {
			t.Fatal(err)
		}
		before := structural.DeepCopy()
		for _, version := range []openAPIVersion{openAPIv2, openAPIv3} {
			root, schemas, err := Of(e).openAPI(version)
			if err != nil {
				t.Fatal(err)
			}
			got := schemas[root]
			delete(got.Extensions, groupVersionKind)
			s := before.DeepCopy()
			open := s.XPreserveUnknownFields
			s = s.Unfold()
			if version == openAPIv2 {
				s = openapiv2.ToStructuralOpenAPIV2(s)
			}
			want := s.ToKubeOpenAPI()
			addObjectFields(want)
			addEmbedded(want, version)
			if gotText, wantText := jsonOf(t, got), jsonOf(t, want); gotText != wantText && !(open && version == openAPIv2 && gotText == `{"type":"object"}`) {
				t.Errorf("in version %d %s is\n%s\nwant\n%s", version, text, gotText, wantText)
			}
		}
		if !reflect.DeepEqual(structural, before) {
			t.Errorf("the schema by which objects are checked has changed: %s", text)
		}
		if !reflect.DeepEqual(v1, given) {
			t.Errorf("the definition has changed: %s", text)
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
