package managed_test

import (
	"encoding/json"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

// FuzzApply applies whatever to whatever. Nothing may panic, errors are Statuses, and who applies the same
// again changes nothing and is in conflict with nobody.
func FuzzApply(f *testing.F) {
	const head = `"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}`
	const record = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","managedFields":[{"manager":"bob","operation":"Update",` +
		`"apiVersion":"example.com/v2","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:ports":{"k:{\"port\":80}":{}},"f:tags":{"v:\"a\"":{}},"f:args":{"i:1":{}}}}}]}}`
	for _, live := range []string{`null`, `{}`, `{` + head + `,"spec":{"size":1,"tags":["a","a"],"ports":[{"port":80},{"port":80}]}}`, record, `{"metadata":[]}`,
		`{"metadata":{"managedFields":[{"operation":"Apply","apiVersion":"x","fieldsType":"FieldsV1","fieldsV1":"x"}]}}`} {
		for _, applied := range []string{`{}`, `{` + head + `}`, `{` + head + `,"spec":{"size":1,"tags":["a"],"ports":[{"port":80}],"free":{"a":[{"b":null}]}}}`,
			`{` + head + `,"spec":null}`, `{` + head + `,"spec":{"limits":{},"args":[],"unit":null,"template":{"metadata":null}}}`,
			`{"apiVersion":"example.com/v1","kind":"Thing","metadata":null}`} {
			f.Add([]byte(live), []byte(applied), false)
			f.Add([]byte(live), []byte(applied), true)
		}
	}
	types := map[string]*managed.Types{"things": things(f), "deduced": deduced()}
	f.Fuzz(func(t *testing.T, live, applied []byte, force bool) {
		var before, config map[string]any
		if json.Unmarshal(live, &before) != nil || json.Unmarshal(applied, &config) != nil {
			return // there are no trees to merge
		}
		integers(before)
		integers(config)
		for name, types := range types {
			for _, subresource := range []string{"", "status"} {
				m := managed.New(gvk, subresource, types, []string{"status"}, nil)
				wasLive, wasConfig := toJSON(t, before), toJSON(t, config)
				m.Update(before, config, "alice", true)
				m.Update(config, before, "alice", true)
				once := applyAny(t, m, before, config, force)
				if toJSON(t, before) != wasLive || toJSON(t, config) != wasConfig {
					t.Fatalf("%s: what was given has changed", name)
				}
				if once == nil {
					continue
				}
				twice := applyAny(t, m, once, config, false)
				if twice == nil || toJSON(t, twice) != toJSON(t, once) {
					t.Errorf("%s: applied again:\n%s, was\n%s", name, toJSON(t, twice), toJSON(t, once))
				}
			}
		}
	})
}

// applyAny returns nil if the configuration was refused.
func applyAny(t *testing.T, m *managed.Manager, live, config map[string]any, force bool) map[string]any {
	next, err := m.Apply(live, config, "alice", force)
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		t.Fatalf("error is %T %v, want a Status", err, err)
	}
	return next
}
