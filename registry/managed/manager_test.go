package managed_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

// step is a write: "apply", "force" or "update", the manager's name, and where it goes to ("/status", "v2").
// The body is what is applied, or all of the object's fields but metadata's.
type step struct {
	do, body string
	err      string // part of the error; a write that fails changes nothing
}

// stage is an object and the managers of its kind.
type stage struct {
	t        *testing.T
	live     map[string]any
	managers map[string]*managed.Manager
	always   bool
}

func newStage(t *testing.T, types *managed.Types) *stage {
	return &stage{t: t, managers: map[string]*managed.Manager{
		"":        managed.New(gvk, "", types, []string{"status"}, nil),
		"/status": managed.New(gvk, "status", types, []string{"metadata", "spec"}, nil),
		"v2":      managed.New(gvkV2, "", types, []string{"status"}, nil),
	}}
}

func (s *stage) run(steps ...step) {
	s.t.Helper()
	for i, step := range steps {
		if err := s.write(step); !matches(err, step.err) {
			s.t.Fatalf("step %d, %s: error is %v, want one with %q", i, step.do, err, step.err)
		}
	}
}

func matches(err error, want string) bool {
	if want == "" || err == nil {
		return want == "" && err == nil
	}
	return strings.Contains(err.Error(), want)
}

func (s *stage) write(step step) error {
	words := append(strings.Fields(step.do), "")
	verb, name, where := words[0], words[1], words[2]
	apiVersion := "example.com/v1"
	if where == "v2" {
		apiVersion = "example.com/v2"
	}
	m, live := s.managers[where], s.live
	if live != nil {
		live = maps.Clone(live)
		live["apiVersion"] = apiVersion
	}
	if verb == "update" {
		next := object(s.t, apiVersion, step.body)
		s.live = m.Update(live, next, name, s.always)
		return nil
	}
	applied := config(s.t, step.body)
	applied["apiVersion"] = apiVersion
	next, err := m.Apply(live, applied, name, verb == "force")
	if err == nil {
		s.live = next
	}
	return err
}

// rest returns the object without apiVersion, kind and metadata.
func (s *stage) rest() string {
	rest := maps.Clone(s.live)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(rest, name)
	}
	return toJSON(s.t, rest)
}

// owners prints managedFields: who, how, in which version, and what.
func (s *stage) owners() (lines []string) { return owners(s.t, s.live) }

func owners(t testing.TB, obj map[string]any) (lines []string) {
	t.Helper()
	for _, e := range entries(obj) {
		set := &fieldpath.Set{}
		if err := set.FromJSON(strings.NewReader(toJSON(t, e["fieldsV1"]))); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%v %v %v:", e["manager"], e["operation"], strings.TrimPrefix(e["apiVersion"].(string), "example.com/"))
		if e["subresource"] != nil {
			line = fmt.Sprintf("%v/%v %v %v:", e["manager"], e["subresource"], e["operation"], strings.TrimPrefix(e["apiVersion"].(string), "example.com/"))
		}
		set.Iterate(func(p fieldpath.Path) { line += " " + p.String() })
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func entries(obj map[string]any) (list []map[string]any) {
	meta, _ := obj["metadata"].(map[string]any)
	all, _ := meta["managedFields"].([]any)
	for _, e := range all {
		list = append(list, e.(map[string]any))
	}
	return list
}

func TestMerge(t *testing.T) {
	tests := []struct {
		name   string
		start  string // an object that was never applied; none if empty
		steps  []step
		want   string // the object at the end
		owners []string
	}{
		{
			name:   "create on apply",
			steps:  []step{{do: "apply alice", body: "spec: {size: 3}"}},
			want:   `{"spec":{"size":3}}`,
			owners: []string{"alice Apply v1: .spec.size"},
		},
		{
			name: "labels, annotations, finalizers and owners are metadata's own lists and maps",
			steps: []step{
				{do: "apply alice", body: `metadata: {name: a, namespace: b, labels: {x: "1"}, finalizers: [a.b/c], ownerReferences: [{apiVersion: v1, kind: K, name: o, uid: u}]}`},
				{do: "apply bob", body: `metadata: {name: a, namespace: b, labels: {z: "1"}, finalizers: [d.e/f], ownerReferences: [{apiVersion: v1, kind: K, name: o, uid: w}]}`},
			},
			want: `{}`,
			owners: []string{
				`alice Apply v1: .metadata.finalizers[="a.b/c"] .metadata.labels.x .metadata.ownerReferences[uid="u"]`,
				`bob Apply v1: .metadata.finalizers[="d.e/f"] .metadata.labels.z .metadata.ownerReferences[uid="w"]`,
			},
		},
		{
			name:   "an object that was never applied",
			start:  "spec: {size: 1, color: red}",
			steps:  []step{{do: "apply alice", body: "spec: {size: 1}"}},
			want:   `{"spec":{"color":"red","size":1}}`,
			owners: []string{"alice Apply v1: .spec.size", "before-first-apply Update v1: .spec .spec.color .spec.size"},
		},
		{
			name:  "conflict with what was there before",
			start: "spec: {size: 1, color: red}",
			steps: []step{{do: "apply alice", body: "spec: {size: 2}",
				err: `Apply failed with 1 conflict: conflict with "before-first-apply" using example.com/v1`}},
			want: `{"spec":{"color":"red","size":1}}`,
		},
		{
			name: "list as map: items have their own owners",
			steps: []step{
				{do: "apply alice", body: "spec: {ports: [{port: 80, protocol: TCP, name: http}]}"},
				{do: "apply bob", body: "spec: {ports: [{port: 443, protocol: TCP, name: https}]}"},
				{do: "apply alice", body: "spec: {ports: [{port: 80, protocol: TCP, name: web}]}"},
			},
			want: `{"spec":{"ports":[{"name":"web","port":80,"protocol":"TCP"},{"name":"https","port":443,"protocol":"TCP"}]}}`,
			owners: []string{
				`alice Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].name .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="TCP"].protocol`,
				`bob Apply v1: .spec.ports[port=443,protocol="TCP"] .spec.ports[port=443,protocol="TCP"].name .spec.ports[port=443,protocol="TCP"].port .spec.ports[port=443,protocol="TCP"].protocol`,
			},
		},
		{
			name: "a key that is missing has its default",
			steps: []step{
				{do: "apply alice", body: "spec: {ports: [{port: 80, protocol: TCP}]}"},
				{do: "apply bob", body: "spec: {ports: [{port: 80, name: http}]}"},
			},
			want: `{"spec":{"ports":[{"name":"http","port":80,"protocol":"TCP"}]}}`,
			owners: []string{
				`alice Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="TCP"].protocol`,
				`bob Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].name .spec.ports[port=80,protocol="TCP"].port`,
			},
		},
		{
			name: "an item goes with its last owner",
			steps: []step{
				{do: "apply alice", body: "spec: {ports: [{port: 80, protocol: TCP}, {port: 81, protocol: TCP}]}"},
				{do: "apply bob", body: "spec: {ports: [{port: 81, protocol: TCP}]}"},
				{do: "apply alice", body: "spec: {ports: []}"},
			},
			want:   `{"spec":{"ports":[{"port":81,"protocol":"TCP"}]}}`,
			owners: []string{`bob Apply v1: .spec.ports[port=81,protocol="TCP"] .spec.ports[port=81,protocol="TCP"].port .spec.ports[port=81,protocol="TCP"].protocol`},
		},
		{
			name: "set",
			steps: []step{
				{do: "apply alice", body: "spec: {tags: [a, b]}"},
				{do: "apply bob", body: "spec: {tags: [b, c]}"},
				{do: "apply alice", body: "spec: {tags: [a]}"},
			},
			want:   `{"spec":{"tags":["a","b","c"]}}`,
			owners: []string{`alice Apply v1: .spec.tags[="a"]`, `bob Apply v1: .spec.tags[="b"] .spec.tags[="c"]`},
		},
		{
			name: "atomic list",
			steps: []step{
				{do: "apply alice", body: "spec: {args: [a]}"},
				{do: "apply bob", body: "spec: {args: [a, b]}", err: `conflict with "alice": .spec.args`},
				{do: "force bob", body: "spec: {args: [a, b]}"},
			},
			want:   `{"spec":{"args":["a","b"]}}`,
			owners: []string{"bob Apply v1: .spec.args"},
		},
		{
			name: "atomic map",
			steps: []step{
				{do: "apply alice", body: `spec: {unit: {a: "1"}}`},
				{do: "apply bob", body: `spec: {unit: {b: "1"}}`, err: `conflict with "alice": .spec.unit`},
				{do: "apply alice", body: `spec: {unit: {b: "2"}}`},
			},
			want:   `{"spec":{"unit":{"b":"2"}}}`,
			owners: []string{"alice Apply v1: .spec.unit"},
		},
		{
			name: "granular map",
			steps: []step{
				{do: "apply alice", body: `spec: {limits: {cpu: "1"}}`},
				{do: "apply bob", body: `spec: {limits: {memory: "1"}}`},
				{do: "apply alice", body: `spec: {limits: {disk: "1"}}`},
			},
			want:   `{"spec":{"limits":{"disk":"1","memory":"1"}}}`,
			owners: []string{"alice Apply v1: .spec.limits.disk", "bob Apply v1: .spec.limits.memory"},
		},
		{
			name: "force takes over",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
				{do: "force bob", body: "spec: {size: 2}"},
			},
			want:   `{"spec":{"color":"red","size":2}}`,
			owners: []string{"alice Apply v1: .spec.color", "bob Apply v1: .spec.size"},
		},
		{
			name: "what a manager no longer applies goes",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
				{do: "apply alice", body: "spec: {size: 1}"},
			},
			want:   `{"spec":{"size":1}}`,
			owners: []string{"alice Apply v1: .spec.size"},
		},
		{
			name: "what another applies too stays",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
				{do: "apply bob", body: "spec: {color: red}"},
				{do: "apply alice", body: "spec: {size: 1}"},
			},
			want:   `{"spec":{"color":"red","size":1}}`,
			owners: []string{"alice Apply v1: .spec.size", "bob Apply v1: .spec.color"},
		},
		{
			name: "two who share a field are both in conflict with a third",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1}"},
				{do: "apply bob", body: "spec: {size: 1}"},
				{do: "apply carol", body: "spec: {size: 2}", err: "Apply failed with 2 conflicts: conflicts with \"alice\":\n- .spec.size\nconflicts with \"bob\":\n- .spec.size"},
				{do: "apply bob", body: "spec: {}"},
				{do: "apply alice", body: "spec: {size: 2}"},
			},
			want:   `{"spec":{"size":2}}`,
			owners: []string{"alice Apply v1: .spec.size", "bob Apply v1: .spec"},
		},
		{
			name: "update after apply takes what it changes",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
				{do: "update bob", body: "spec: {size: 2, color: red}"},
				{do: "apply alice", body: "spec: {size: 1, color: red}", err: `conflict with "bob" using example.com/v1: .spec.size`},
			},
			want:   `{"spec":{"color":"red","size":2}}`,
			owners: []string{"alice Apply v1: .spec.color", "bob Update v1: .spec.size"},
		},
		{
			name: "update removes what was applied",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
				{do: "update bob", body: "spec: {size: 1}"},
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
			},
			want:   `{"spec":{"color":"red","size":1}}`,
			owners: []string{"alice Apply v1: .spec.color .spec.size"},
		},
		{
			name: "updates of one manager add up",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1}"},
				{do: "update bob", body: "spec: {size: 1, color: red}"},
				{do: "update bob", body: "spec: {size: 1, color: red, tags: [a]}"},
			},
			want:   `{"spec":{"color":"red","size":1,"tags":["a"]}}`,
			owners: []string{"alice Apply v1: .spec.size", `bob Update v1: .spec.color .spec.tags .spec.tags[="a"]`},
		},
		{
			name: "apply and update of one name are two managers",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1}"},
				{do: "update alice", body: "spec: {size: 2}"},
				{do: "apply alice", body: "spec: {size: 3}", err: `conflict with "alice" using example.com/v1: .spec.size`},
			},
			want:   `{"spec":{"size":2}}`,
			owners: []string{"alice Update v1: .spec.size"},
		},
		{
			name: "status belongs to its subresource",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1}\nstatus: {phase: x}"},
				{do: "update bob /status", body: "spec: {size: 1}\nstatus: {phase: up}"},
				{do: "apply carol /status", body: "status: {conditions: [{type: Ready, status: 'True'}]}"},
				{do: "apply dave /status", body: "status: {phase: down}", err: `conflict with "bob" with subresource "status" using example.com/v1: .status.phase`},
				{do: "apply dave /status", body: "metadata: {name: a, labels: {x: l}}\nspec: {size: 1}"},
			},
			want: `{"spec":{"size":1},"status":{"conditions":[{"status":"True","type":"Ready"}],"phase":"up"}}`,
			owners: []string{
				"alice Apply v1: .spec.size",
				"bob/status Update v1: .status.phase",
				`carol/status Apply v1: .status.conditions[type="Ready"] .status.conditions[type="Ready"].status .status.conditions[type="Ready"].type`,
			},
		},
		{
			name: "an update of the main resource doesn't take the status in another version",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1}"},
				{do: "update bob /status", body: "spec: {size: 1}\nstatus: {phase: up}"},
				{do: "update carol v2", body: "spec: {size: 2}\nstatus: {phase: other}"},
			},
			want:   `{"spec":{"size":2},"status":{"phase":"other"}}`,
			owners: []string{"bob/status Update v1: .status .status.phase", "carol Update v2: .spec.size"},
		},
		{
			name: "an applier moves to another version",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1, color: red}"},
				{do: "apply bob", body: "spec: {tags: [a]}"},
				{do: "apply alice v2", body: "spec: {size: 2}"},
				{do: "apply bob", body: "spec: {size: 3}", err: `conflict with "alice": .spec.size`},
			},
			want:   `{"spec":{"size":2,"tags":["a"]}}`,
			owners: []string{"alice Apply v2: .spec.size", `bob Apply v1: .spec.tags[="a"]`},
		},
		{
			name: "updates in two versions are two entries",
			steps: []step{
				{do: "apply alice", body: "spec: {size: 1}"},
				{do: "update bob", body: "spec: {size: 1, color: red}"},
				{do: "update bob v2", body: "spec: {size: 1, color: red, tags: [a]}"},
				{do: "update carol v2", body: "spec: {size: 1, color: blue, tags: [a]}"},
			},
			want:   `{"spec":{"color":"blue","size":1,"tags":["a"]}}`,
			owners: []string{"alice Apply v1: .spec.size", `bob Update v2: .spec.tags .spec.tags[="a"]`, "carol Update v2: .spec.color"},
		},
		{
			name: "integer or string",
			steps: []step{
				{do: "apply alice", body: "spec: {port: http}"},
				{do: "apply bob", body: "spec: {port: 80}", err: ".spec.port"},
				{do: "force bob", body: "spec: {port: 80}"},
			},
			want:   `{"spec":{"port":80}}`,
			owners: []string{"bob Apply v1: .spec.port"},
		},
		{
			name: "embedded resource",
			steps: []step{
				{do: "apply alice", body: "spec: {template: {apiVersion: v1, kind: Pod, metadata: {labels: {a: x}, finalizers: [f.g/h]}, spec: {x: 1}}}"},
				{do: "apply bob", body: "spec: {template: {metadata: {labels: {b: x}, finalizers: [i.j/k]}, spec: {more: 2}}}"},
			},
			want: `{"spec":{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"finalizers":["f.g/h","i.j/k"],"labels":{"a":"x","b":"x"}},"spec":{"more":2,"x":1}}}}`,
			owners: []string{
				`alice Apply v1: .spec.template.apiVersion .spec.template.kind .spec.template.spec .spec.template.metadata.finalizers[="f.g/h"] .spec.template.metadata.labels.a .spec.template.spec.x`,
				`bob Apply v1: .spec.template.spec .spec.template.metadata.finalizers[="i.j/k"] .spec.template.metadata.labels.b .spec.template.spec.more`,
			},
		},
		{
			name: "unknown fields: maps merge, lists don't",
			steps: []step{
				{do: "apply alice", body: "spec: {free: {a: {b: 1}, list: [1, 2]}}"},
				{do: "apply bob", body: "spec: {free: {a: {c: 1}}}"},
				{do: "apply bob", body: "spec: {free: {list: [1]}}", err: `conflict with "alice": .spec.free.list`},
			},
			want:   `{"spec":{"free":{"a":{"b":1,"c":1},"list":[1,2]}}}`,
			owners: []string{"alice Apply v1: .spec.free.a .spec.free.list .spec.free.a.b", "bob Apply v1: .spec.free.a .spec.free.a.c"},
		},
		{
			name: "null is a value",
			steps: []step{
				{do: "apply alice", body: "spec: {note: hello, size: 1}"},
				{do: "apply alice", body: "spec: {note: null, size: 1}"},
			},
			want:   `{"spec":{"note":null,"size":1}}`,
			owners: []string{"alice Apply v1: .spec.note .spec.size"},
		},
		{
			name: "whole subtree as null",
			steps: []step{
				{do: "apply alice", body: "spec: {limits: {a: x}, size: 1}"},
				{do: "apply alice", body: "spec: {limits: null, size: 1}"},
			},
			want:   `{"spec":{"limits":null,"size":1}}`,
			owners: []string{"alice Apply v1: .spec.limits .spec.size"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, things(t))
			if test.start != "" {
				s.live = object(t, "example.com/v1", test.start)
			}
			s.run(test.steps...)
			if got := s.rest(); got != test.want {
				t.Errorf("object is\n%s, want\n%s", got, test.want)
			}
			if got := s.owners(); !slices.Equal(got, test.owners) {
				t.Errorf("owners are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.owners, "\n"))
			}
		})
	}
}

func TestConflict(t *testing.T) {
	s := newStage(t, things(t))
	s.run(step{do: "apply alice", body: "spec: {size: 1, tags: [a]}"}, step{do: "update bob", body: "spec: {size: 1, color: red}"})
	err := s.write(step{do: "apply carol", body: "spec: {size: 2, color: blue}"})
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("error is %T %v, want a Status", err, err)
	}
	got := status.Status()
	if got.Code != 409 || got.Reason != metav1.StatusReasonConflict {
		t.Errorf("status is %d %s, want 409 Conflict", got.Code, got.Reason)
	}
	want := `[{"reason":"FieldManagerConflict","message":"conflict with \"alice\"","field":".spec.size"},` +
		`{"reason":"FieldManagerConflict","message":"conflict with \"bob\" using example.com/v1","field":".spec.color"}]`
	causes := got.Details.Causes
	slices.SortFunc(causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Message, b.Message) })
	if toJSON(t, causes) != want {
		t.Errorf("causes are\n%s, want\n%s", toJSON(t, causes), want)
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		name, live, applied string
		code                int32
		err                 string
	}{
		{"another version", "", "{apiVersion: example.com/v2, kind: Thing, metadata: {name: a}}", 400, `must have apiVersion "example.com/v1" and kind "Thing", got "example.com/v2" and "Thing"`},
		{"another kind", "", "{apiVersion: example.com/v1, kind: Other, metadata: {name: a}}", 400, `got "example.com/v1" and "Other"`},
		{"no kind", "", "{metadata: {name: a}}", 400, "invalid object type"},
		{"nothing", "", "{}", 400, "invalid object type"},
		{"managedFields", "", "{apiVersion: example.com/v1, kind: Thing, metadata: {managedFields: [{manager: x}]}}", 400, "metadata.managedFields must be nil"},
		{"empty managedFields", "", "{apiVersion: example.com/v1, kind: Thing, metadata: {managedFields: []}}", 400, "metadata.managedFields must be nil"},
		{"metadata is a list", "", "{apiVersion: example.com/v1, kind: Thing, metadata: []}", 400, "metadata of the applied configuration must be an object"},
		{"key twice", "", "{apiVersion: example.com/v1, kind: Thing, spec: {ports: [{port: 80}, {port: 80, protocol: TCP}]}}", 500, `duplicate entries for key [port=80,protocol="TCP"]`},
		{"key missing", "", "{apiVersion: example.com/v1, kind: Thing, status: {conditions: [{status: x}]}}", 500, `.status.conditions: element 0: associative list with keys has an element that omits all key fields ["type"]`},
		{"twice in a set", "", "{apiVersion: example.com/v1, kind: Thing, spec: {tags: [a, a]}}", 500, `.spec.tags: duplicate entries for key [="a"]`},
		{"unknown field", "", "{apiVersion: example.com/v1, kind: Thing, spec: {sise: 1}}", 500, ".spec.sise: field not declared in schema"},
		{"wrong type", "", "{apiVersion: example.com/v1, kind: Thing, spec: {size: big}}", 500, ".spec.size: expected numeric"},
		{"live doesn't fit", "spec: {size: big}", "{apiVersion: example.com/v1, kind: Thing, spec: {color: red}}", 500, "failed to convert new object"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var live map[string]any
			if test.live != "" {
				live = object(t, "example.com/v1", test.live)
			}
			_, err := managed.New(gvk, "", things(t), nil, nil).Apply(live, tree(t, test.applied), "alice", true)
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("error is %T %v, want a Status", err, err)
			}
			if s := status.Status(); s.Code != test.code || !strings.Contains(s.Message, test.err) {
				t.Errorf("status is %d %q, want %d with %q", s.Code, s.Message, test.code, test.err)
			}
		})
	}
}

func TestUntracked(t *testing.T) {
	const valid = "metadata: {name: a, uid: u, managedFields: [{manager: x, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {f:spec: {}}}]}"
	tests := []struct {
		name       string
		live, next string // live is empty for a create
		always     bool
		owners     []string
	}{
		{"create", "", "spec: {size: 1}", false, nil},
		{"create, always", "", "spec: {size: 1}", true, []string{"bob Update v1: .spec .spec.size"}},
		{"update", "spec: {size: 1}", "spec: {size: 2}", false, nil},
		{"update, always", "spec: {size: 1}", "spec: {size: 2}", true, nil},
		{"create with a record", "", valid + "\nspec: {size: 1}", false, []string{"bob Update v1: .spec .spec.size"}},
		{"create with an unreadable record", "", "metadata: {name: a, managedFields: [{manager: 1}]}\nspec: {size: 1}", false, nil},
		{"create with an invalid record", "", "metadata: {name: a, managedFields: [{manager: x}]}\nspec: {size: 1}", false, nil},
		{"create with an invalid record, always", "", "metadata: {name: a, managedFields: [{manager: x}]}\nspec: {size: 1}", true, []string{"bob Update v1: .spec .spec.size"}},
		{"create with an empty entry", "", "metadata: {name: a, managedFields: [{}]}\nspec: {size: 1}", false, nil},
		{"update with a record", "spec: {size: 1}", valid + "\nspec: {size: 2}", false, []string{"bob Update v1: .spec.size", "x Update v1: .spec"}},
		{"update with an empty entry", "spec: {size: 1}", "metadata: {name: a, uid: u, managedFields: [{}]}\nspec: {size: 2}", false, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var live map[string]any
			if test.live != "" {
				live = object(t, "example.com/v1", test.live)
			}
			next := tree(t, "apiVersion: example.com/v1\nkind: Thing\n"+test.next)
			if next["metadata"] == nil {
				next["metadata"] = map[string]any{"name": "a"}
			}
			before := toJSON(t, next)
			got := managed.New(gvk, "", things(t), nil, nil).Update(live, next, "bob", test.always)
			if toJSON(t, next) != before {
				t.Errorf("Update changed its argument to\n%s", toJSON(t, next))
			}
			if o := owners(t, got); !slices.Equal(o, test.owners) {
				t.Errorf("owners are %q, want %q", o, test.owners)
			}
			if _, ok := got["metadata"].(map[string]any)["managedFields"]; ok && test.owners == nil {
				t.Errorf("metadata has managedFields: %s", toJSON(t, got))
			}
		})
	}
}

func TestClientSetsManagedFields(t *testing.T) {
	const one = "[{manager: x, operation: Apply, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {'f:spec': {'f:size': {}}}}]"
	alice := []string{"alice Apply v1: .spec.size"}
	tests := []struct {
		name, where, managedFields string
		owners                     []string
	}{
		{"left out", "", "null", alice},
		{"not a list", "", "{a: 1}", alice},
		{"unreadable", "", "[{manager: x}]", alice},
		{"unreadable fields", "", "[{manager: x, operation: Apply, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {'k:x': {}}}]", alice},
		{"other", "", one, []string{"x Apply v1: .spec.size"}},
		{"other, through a subresource", "/status", one, alice},
		{"empty list", "", "[]", nil},
		{"empty entry", "", "[{}]", nil},
		{"empty entry through a subresource", "/status", "[{}]", alice},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, things(t))
			s.run(step{do: "apply alice", body: "metadata: {name: a, uid: u}\nspec: {size: 1}"})
			next := tree(t, toJSON(t, s.live))
			next["metadata"].(map[string]any)["managedFields"] = tree(t, "m: "+test.managedFields)["m"]
			s.live = s.managers[test.where].Update(s.live, next, "bob", false)
			if got := s.owners(); !slices.Equal(got, test.owners) {
				t.Errorf("owners are %q, want %q", got, test.owners)
			}
			s.run(step{do: "update bob", body: "spec: {size: 2}"})
			if got := s.owners(); test.owners == nil && got != nil {
				t.Errorf("after a reset an update begins a record: %q", got)
			}
		})
	}
}

// TestTimes shows when entries get a new time, and that writes which change nothing else are none.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, things(t))
		times := func() string {
			var all []string
			for _, e := range entries(s.live) {
				all = append(all, fmt.Sprintf("%v %v", e["manager"], e["time"]))
			}
			slices.Sort(all)
			return strings.Join(all, ", ")
		}
		unchanged := func(steps ...step) {
			t.Helper()
			before := toJSON(t, s.live)
			time.Sleep(time.Minute)
			s.run(steps...)
			if got := toJSON(t, s.live); got != before {
				t.Errorf("%s changed the object from\n%s to\n%s", steps[0].do, before, got)
			}
		}
		apply := step{do: "apply alice", body: "metadata: {name: a, namespace: b, uid: u}\nspec: {size: 1, ports: [{port: 80}]}"}
		s.run(apply)
		if want := "alice 2000-01-01T00:00:00Z"; times() != want {
			t.Errorf("after an apply times are %q, want %q", times(), want)
		}
		unchanged(apply)
		unchanged(step{do: "force alice", body: apply.body})
		unchanged(step{do: "update bob", body: "spec: {size: 1, ports: [{port: 80}]}"})

		time.Sleep(time.Minute)
		s.run(step{do: "update bob", body: "spec: {size: 1, ports: [{port: 80}], color: red}"})
		if want := "alice 2000-01-01T00:00:00Z, bob 2000-01-01T00:04:00Z"; times() != want {
			t.Errorf("after an update times are %q, want %q", times(), want)
		}
		unchanged(apply)
		unchanged(step{do: "update carol", body: "spec: {size: 1, ports: [{port: 80}], color: red}"})

		s.run(step{do: "apply alice", body: "spec: {size: 2, ports: [{port: 80}]}"})
		if want := "alice 2000-01-01T00:06:00Z, bob 2000-01-01T00:04:00Z"; times() != want {
			t.Errorf("after another apply times are %q, want %q", times(), want)
		}
	})
}

func TestKeepTimes(t *testing.T) {
	const text = "{metadata: {name: a, managedFields: [{manager: x, time: %q, fieldsV1: {%s: {}}}]}, spec: {size: %d}}"
	live := tree(t, fmt.Sprintf(text, "1", "f:a", 1))
	tests := []struct {
		name, next string
		want       bool
	}{
		{"time", fmt.Sprintf(text, "2", "f:a", 1), true},
		{"fields", fmt.Sprintf(text, "2", "f:b", 1), false},
		{"object", fmt.Sprintf(text, "2", "f:a", 2), false},
		{"metadata", "{metadata: {name: b, managedFields: [{manager: x, time: '2', fieldsV1: {f:a: {}}}]}, spec: {size: 1}}", false},
		{"no record", "{metadata: {name: a}, spec: {size: 1}}", false},
		{"no metadata", "{spec: {size: 1}}", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			next := tree(t, test.next)
			managed.KeepTimes(live, next)
			if got := toJSON(t, next) == toJSON(t, live); got != test.want {
				t.Errorf("became live: %t, want %t:\n%s", got, test.want, toJSON(t, next))
			}
		})
	}
	managed.KeepTimes(nil, map[string]any{})
}

// TestManyUpdaters shows that the eldest of more than ten updaters become one.
func TestManyUpdaters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, things(t))
		s.run(step{do: "apply alice", body: "spec: {size: 1}"})
		body := "spec: {size: 1, limits: {"
		for i := range 12 {
			time.Sleep(time.Second)
			body += fmt.Sprintf("l%d: x, ", i)
			s.run(step{do: fmt.Sprintf("update m%d", i), body: body + "}}"})
		}
		got := s.owners()
		if len(got) != 11 {
			t.Fatalf("there are %d entries, want alice's and 10 others:\n%s", len(got), strings.Join(got, "\n"))
		}
		if want := "ancient-changes Update v1: .spec.limits .spec.limits.l0 .spec.limits.l1 .spec.limits.l2"; got[1] != want {
			t.Errorf("the eldest are %q, want %q", got[1], want)
		}
	})
}

// TestVersions shows conversion: size in v1 is length in v2.
func TestVersions(t *testing.T) {
	types := managed.NewTypes(func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		managed.Define(definitions, gvk, parseSchema(t, "{type: object, properties: {size: {type: integer}, color: {type: string}}}"))
		managed.Define(definitions, gvkV2, parseSchema(t, "{type: object, properties: {length: {type: integer}, color: {type: string}}}"))
		return definitions, nil
	})
	convert := func(obj map[string]any, apiVersion string) (map[string]any, error) {
		obj = maps.Clone(obj)
		from, to := "size", "length"
		if apiVersion == "example.com/v1" {
			from, to = to, from
		}
		if v, ok := obj[from]; ok {
			obj[to] = v
			delete(obj, from)
		}
		obj["apiVersion"] = apiVersion
		return obj, nil
	}
	v1, v2 := managed.New(gvk, "", types, nil, convert), managed.New(gvkV2, "", types, nil, convert)
	at := func(apiVersion, text string) map[string]any {
		return tree(t, "{apiVersion: example.com/"+apiVersion+", kind: Thing, metadata: {name: a}, "+text+"}")
	}
	live, err := v1.Apply(nil, at("v1", "size: 1, color: red"), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	live, _ = convert(live, "example.com/v2")
	if _, err = v2.Apply(live, at("v2", "length: 2"), "bob", false); !matches(err, `conflict with "alice": .size`) {
		t.Errorf("apply in v2: error is %v, want a conflict about the field's name in v1", err)
	}
	live, err = v2.Apply(live, at("v2", "length: 3"), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := toJSON(t, live["length"])+" "+strings.Join(owners(t, live), "; "), "3 alice Apply v2: .length"; got != want || live["color"] != nil {
		t.Errorf("after an apply in v2: %s, color %v, want %s and no color", got, live["color"], want)
	}
}

// TestLostVersion shows what an entry of a version that is gone does: it ends applies to a custom resource, as in
// kube-apiserver, and other writes leave the record as it was. That of a Go type is forgotten.
func TestLostVersion(t *testing.T) {
	build := func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		managed.Define(definitions, gvk, parseSchema(t, thing))
		return definitions, nil
	}
	record := []string{"alice Apply v1: .spec.size", "bob Update v2: .spec.color"}
	for name, test := range map[string]struct {
		types *managed.Types
		err   string
		want  []string
	}{
		"custom resource": {managed.NewTypes(build), "request to convert CR to an invalid group/version: example.com/v2", record},
		"Go type": {managed.NewGoTypes(func(string) map[string]any { return map[string]any{} }, build), "",
			[]string{"alice Apply v1: .spec.size", "carol Apply v1: .spec.color", "dave Update v1: .spec.tags .spec.tags[=\"a\"]"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, things(t))
			s.run(step{do: "apply alice", body: "spec: {size: 1}"}, step{do: "update bob v2", body: "spec: {size: 1, color: red}"})
			s.managers[""] = managed.New(gvk, "", test.types, nil, nil)
			s.run(step{do: "apply carol", body: "spec: {color: blue}", err: test.err})
			s.run(step{do: "update dave", body: "spec: {size: 1, color: blue, tags: [a]}"})
			if got := s.owners(); !slices.Equal(got, test.want) {
				t.Errorf("owners are %q, want %q", got, test.want)
			}
		})
	}
}

// TestAnotherTypes shows that an owner of a map owns it whole once it's atomic.
func TestAnotherTypes(t *testing.T) {
	s := newStage(t, things(t))
	s.run(step{do: "apply alice", body: "spec: {limits: {a: x}}"})
	types := managed.NewTypes(func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		managed.Define(definitions, gvk, parseSchema(t, strings.Replace(thing, "additionalProperties:", "x-kubernetes-map-type: atomic\n        additionalProperties:", 1)))
		return definitions, nil
	})
	s.managers[""] = managed.New(gvk, "", types, nil, nil)
	s.run(step{do: "apply bob", body: "spec: {limits: {b: x}}", err: `conflict with "alice": .spec.limits`},
		step{do: "apply alice", body: "spec: {limits: {c: x}}"})
	if got, want := s.owners(), []string{"alice Apply v1: .spec.limits"}; !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q", got, want)
	}
}

// TestKubectl shows how kubectl's client-side apply becomes a server-side one.
func TestKubectl(t *testing.T) {
	s := newStage(t, things(t))
	s.live = tree(t, `
apiVersion: example.com/v1
kind: Thing
metadata:
  name: a
  uid: u
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":1}}
spec: {size: 1, color: red}
`)
	before := toJSON(t, s.live)
	first := s.live
	s.run(step{do: "apply kubectl", body: "spec: {color: blue}", err: `conflict with "before-first-apply"`})
	s.run(step{do: "apply kubectl", body: "spec: {size: 2}"})
	if toJSON(t, first) != before {
		t.Errorf("the live object was changed to\n%s", toJSON(t, first))
	}
	annotation := s.live["metadata"].(map[string]any)["annotations"].(map[string]any)["kubectl.kubernetes.io/last-applied-configuration"]
	if want := `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":2}}` + "\n"; annotation != want {
		t.Errorf("the annotation is\n%v, want\n%s", annotation, want)
	}
}

// TestDepth shows that objects which nest too deeply to be merged are written without a record.
func TestDepth(t *testing.T) {
	nest := func(levels int) string {
		return "spec: {free: " + strings.Repeat("{a: ", levels) + "1" + strings.Repeat("}", levels) + "}"
	}
	s := newStage(t, things(t))
	s.run(step{do: "apply alice", body: nest(498)}, step{do: "apply alice", body: nest(498)})
	want := s.owners()
	s.run(step{do: "apply bob", body: nest(499), err: "the applied configuration nests deeper than 500 levels"},
		step{do: "update bob", body: nest(499)},
		step{do: "apply bob", body: "spec: {size: 1}", err: "the object nests deeper than 500 levels"})
	if got := s.owners(); !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q as before", got, want)
	}
}

// TestFailingTypes shows that writes go on when types can't be made, and keep the record.
func TestFailingTypes(t *testing.T) {
	s := newStage(t, things(t))
	s.run(step{do: "apply alice", body: "spec: {size: 1}"})
	want := s.owners()
	calls := 0
	broken := managed.NewTypes(func() (map[string]*spec.Schema, error) {
		calls++
		return nil, fmt.Errorf("no schema today")
	})
	s.managers[""] = managed.New(gvk, "", broken, nil, nil)
	s.run(step{do: "update bob", body: "spec: {size: 2}"}, step{do: "apply bob", body: "spec: {size: 2}", err: "no schema today"})
	if got := s.owners(); !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q as before", got, want)
	}
	if calls != 1 {
		t.Errorf("types were built %d times, want once", calls)
	}
}

func TestDeduced(t *testing.T) {
	s := newStage(t, deduced())
	s.run(
		step{do: "apply alice", body: "spec: {a: {b: 1}, list: [1]}"},
		step{do: "apply bob", body: "spec: {a: {c: 1}}"},
		step{do: "apply bob", body: "spec: {a: {c: 1}, list: [1, 2]}", err: ".spec.list"},
		step{do: "apply alice", body: "spec: {list: [1]}"},
	)
	if got, want := s.rest(), `{"spec":{"a":{"c":1},"list":[1]}}`; got != want {
		t.Errorf("object is %s, want %s", got, want)
	}
}

func TestResultIsIndependent(t *testing.T) {
	m := managed.New(gvk, "", things(t), nil, nil)
	live := object(t, "example.com/v1", "spec: {unit: {a: x}, limits: {a: x}}")
	applied := config(t, "spec: {args: [a], free: {x: {y: [1]}}}")
	before := toJSON(t, live) + toJSON(t, applied)
	for _, again := range []bool{false, true} {
		next, err := m.Apply(live, applied, "alice", false)
		if err != nil {
			t.Fatal(err)
		}
		if again {
			live = next
			before = toJSON(t, live) + toJSON(t, applied)
			if next, err = m.Apply(live, applied, "alice", false); err != nil {
				t.Fatal(err)
			}
		}
		overwrite(next["spec"])
		next["metadata"].(map[string]any)["name"] = "other"
		if after := toJSON(t, live) + toJSON(t, applied); after != before {
			t.Errorf("changes of the result are in what it was made from:\n%s, was\n%s", after, before)
		}
	}
}

func overwrite(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			overwrite(value)
			v[key] = "x"
		}
	case []any:
		for i, value := range v {
			overwrite(value)
			v[i] = "x"
		}
	}
}

func TestManagerName(t *testing.T) {
	tests := []struct{ name, fieldManager, userAgent, want string }{
		{"given", "alice", "kubectl/v1.37", "alice"},
		{"agent", "", "kubectl/v1.37 (linux/amd64)", "kubectl"},
		{"agent without a slash", "", "curl", "curl"},
		{"no agent", "", "", ""},
		{"slash first", "", "/x", ""},
		{"not printable", "", "a\x00b\u200bc/1", "abc"},
		{"too long", "", strings.Repeat("a", 200), strings.Repeat("a", 128)},
		{"cut between characters", "", strings.Repeat("a", 127) + "äb", strings.Repeat("a", 127)},
		{"invalid UTF-8", "", "a\xffb", "a\ufffdb"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := managed.ManagerName(test.fieldManager, test.userAgent); got != test.want {
				t.Errorf("name is %q, want %q", got, test.want)
			}
		})
	}
}

// TestConcurrentUse has a manager used by many from the first moment.
func TestConcurrentUse(t *testing.T) {
	types := things(t)
	main, status := managed.New(gvk, "", types, []string{"status"}, nil), managed.New(gvk, "status", types, nil, nil)
	errs := make(chan error)
	for i := range 8 {
		go func() {
			m := main
			if i%2 == 0 {
				m = status
			}
			live, err := m.Apply(nil, tree(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {size: 1}}"), "alice", false)
			if err == nil {
				m.Update(live, tree(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {size: 2}}"), "bob", false)
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
