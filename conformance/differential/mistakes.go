package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Values that are wrong for most fields.
const (
	longer  = 300           // characters: more than names, labels and most texts may have
	tooLong = 3_000_000_000 // more than an int32 holds
	bad     = "Bad Value!"  // no name, no label, no word of any enumeration
	deepest = 12            // levels of a schema that are walked
)

// at is a place in an object: names of members and indexes of elements.
type at []any

func (p at) String() string {
	var b strings.Builder
	for _, e := range p {
		switch e := e.(type) {
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(e)
		case int:
			fmt.Fprintf(&b, "[%d]", e)
		}
	}
	return b.String()
}

func (p at) child(e any) at { return append(slices.Clone(p), e) }

// set returns a copy of a tree in which the value at a place is another one; gone removes it.
func set(tree any, p at, value any) any {
	if len(p) == 0 {
		return value
	}
	switch name := p[0].(type) {
	case string:
		members, _ := tree.(map[string]any)
		members = maps.Clone(members)
		if members == nil {
			members = map[string]any{}
		}
		if _, remove := value.(gone); remove && len(p) == 1 {
			delete(members, name)
		} else {
			members[name] = set(members[name], p[1:], value)
		}
		return members
	case int:
		elements, _ := tree.([]any)
		elements = slices.Clone(elements)
		for len(elements) <= name {
			elements = append(elements, map[string]any{})
		}
		if _, remove := value.(gone); remove && len(p) == 1 {
			return slices.Delete(elements, name, name+1)
		}
		elements[name] = set(elements[name], p[1:], value)
		return elements
	}
	return tree
}

// gone is the value that removes a field.
type gone struct{}

// mistakesScenario sends one mistake at a time, all as dry runs: nothing is stored but the object that updates are tried on.
func (k kind) mistakesScenario() scenario {
	m := newMaker(k, "-mistakes")
	m.after = k.name()
	target := "full" // what updates are tried on
	if !k.namespaced {
		target = "target" // full is the other scenario's
	}
	object := m.full("mistake")
	updates := m.can("update")
	if updates {
		m.post("setup/object", m.path, text(m.full(target)))
	}
	full := m.path + "/" + m.objectName(target)
	create := func(family, detail string, tree any, query string) {
		m.add(step{name: family + "/" + detail, method: "POST", path: m.path + "?dryRun=All" + query, body: text(tree), as: asJSON})
	}
	update := func(family, detail string, tree any) {
		if updates {
			tree = set(tree, at{"metadata", "name"}, m.objectName(target))
			m.add(step{name: family + "/" + detail, method: "PUT", path: full + "?dryRun=All", body: text(tree), as: asJSON})
		}
	}

	// Of metadata, which all kinds have.
	for _, w := range []struct {
		name  string
		where at
		value any
	}{
		{"no name", at{"name"}, gone{}}, {"empty name", at{"name"}, ""}, {"long name", at{"name"}, strings.Repeat("a", longer)}, {"capital", at{"name"}, "Abc"}, {"slash", at{"name"}, "a/b"}, {"dot", at{"name"}, "."}, {"percent", at{"name"}, "a%b"}, {"underscore", at{"name"}, "a_b"}, {"64 characters", at{"name"}, strings.Repeat("a", 64)}, {"254 characters", at{"name"}, strings.Repeat("a", 254)},
		{"dashes", at{"name"}, "-a-"}, {"digits", at{"name"}, "0"}, {"dotted", at{"name"}, "a.b"}, {"name is a number", at{"name"}, 5},
		{"other namespace", at{"namespace"}, "another"}, {"empty namespace", at{"namespace"}, ""},
		{"generateName", at{"generateName"}, "Bad_"}, {"long generateName", at{"generateName"}, strings.Repeat("g", longer)},
		{"label key", at{"labels", "a b"}, "c"}, {"label prefix", at{"labels", "A_/b"}, "c"}, {"label value", at{"labels", "a"}, "b c"}, {"long label value", at{"labels", "a"}, strings.Repeat("a", 64)}, {"long label key", at{"labels", strings.Repeat("a", 64)}, "a"}, {"label is a number", at{"labels", "a"}, 1}, {"labels are a list", at{"labels"}, []any{"a"}}, {"label is null", at{"labels", "a"}, nil},
		{"annotation key", at{"annotations", "a b"}, "c"}, {"long annotation", at{"annotations", "a"}, strings.Repeat("a", 300_000)}, {"annotation is an object", at{"annotations", "a"}, map[string]any{}},
		{"finalizer", at{"finalizers"}, []any{"a b"}}, {"plain finalizer", at{"finalizers"}, []any{"plain"}}, {"finalizer twice", at{"finalizers"}, []any{"example.com/a", "example.com/a"}}, {"both finalizers", at{"finalizers"}, []any{"orphan", "foregroundDeletion"}}, {"empty finalizer", at{"finalizers"}, []any{""}},
		{"owner", at{"ownerReferences"}, []any{map[string]any{}}}, {"owner without uid", at{"ownerReferences"}, []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}}}, {"owner is an event", at{"ownerReferences"}, []any{map[string]any{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"}}},
		{"two controllers", at{"ownerReferences"}, []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": true}, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "2", "controller": true}}},
		{"owner twice", at{"ownerReferences"}, []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}}},
		{"resourceVersion", at{"resourceVersion"}, "5"}, {"uid", at{"uid"}, "33333333-3333-3333-3333-333333333333"}, {"generation", at{"generation"}, 9}, {"negative generation", at{"generation"}, -9}, {"deletionTimestamp", at{"deletionTimestamp"}, "2020-01-01T00:00:00Z"}, {"creationTimestamp", at{"creationTimestamp"}, "2020-01-01T00:00:00Z"}, {"creationTimestamp is a word", at{"creationTimestamp"}, "soon"}, {"selfLink", at{"selfLink"}, "/a"},
		{"managedFields", at{"managedFields"}, []any{map[string]any{"manager": "a", "operation": "Update", "apiVersion": m.apiVersion(), "fieldsType": "FieldsV1", "fieldsV1": map[string]any{}}}}, {"managedFields wrong", at{"managedFields"}, []any{map[string]any{"operation": "Be"}}},
		{"unknown", at{"unknown"}, 1},
	} {
		place := append(at{"metadata"}, w.where...)
		create("mistake metadata", w.name, set(object, place, w.value), "")
		if w.where[0] != "name" {
			update("mistake metadata update", w.name, set(object, place, w.value))
		}
	}
	create("mistake metadata", "none", set(object, at{"metadata"}, gone{}), "")
	create("mistake metadata", "null", set(object, at{"metadata"}, nil), "")
	create("mistake metadata", "list", set(object, at{"metadata"}, []any{}), "")
	for _, name := range []string{"apiVersion", "kind"} {
		create("mistake type meta", "no "+name, set(object, at{name}, gone{}), "")
		create("mistake type meta", "empty "+name, set(object, at{name}, ""), "")
		create("mistake type meta", name+" is a number", set(object, at{name}, 5), "")
	}

	// Whatever else it has, in the order of the schema's names.
	if m.schema != nil {
		m.walk(object, at{}, m.schema, object, create, update)
		everything, _ := everyField(m.schema, 0, map[string]int{}).(map[string]any)
		if everything != nil {
			everything = set(everything, at{"apiVersion"}, m.apiVersion()).(map[string]any)
			everything = set(everything, at{"kind"}, m.kind.kind).(map[string]any)
			everything = set(everything, at{"metadata"}, object["metadata"]).(map[string]any)
			create("mistake everything", "strict", everything, "&fieldValidation=Strict")
			for _, as := range []string{asYAML, asProtobuf} {
				m.add(step{name: "mistake everything/" + as, method: "POST", path: m.path + "?dryRun=All", body: text(everything), as: as})
			}
			update("mistake everything", "update", everything)
		}
	}

	// What JSON can say twice.
	body := text(object)
	for _, name := range []string{"kind", "metadata", "spec", "data"} {
		marker := `"` + name + `":`
		if i := strings.Index(body, marker); i >= 0 {
			twice := body[:i] + marker + `null,` + body[i:]
			for _, validation := range []string{"Strict", "Warn", "Ignore"} {
				m.add(step{name: "mistake duplicate/" + name + " " + validation, method: "POST", path: m.path + "?dryRun=All&fieldValidation=" + validation, body: twice, header: map[string]string{"Content-Type": asJSON}})
			}
		}
	}
	for name, raw := range map[string]string{"trailing": body + "{}", "array": "[" + body + "]", "number": "5", "null": "null", "cut": body[:len(body)-3], "byte order mark": "\ufeff" + body, "case of names": strings.Replace(body, `"metadata"`, `"Metadata"`, 1), "large number": strings.Replace(body, `"metadata":{`, `"metadata":{"generation":1e400,`, 1), "deep": strings.Replace(body, `"metadata":{`, `"metadata":{"x":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`,`, 1)} {
		m.steps = append(m.steps, step{name: "mistake text/" + name, method: "POST", path: m.path + "?dryRun=All", body: raw, header: map[string]string{"Content-Type": asJSON}})
	}
	slices.SortStableFunc(m.steps[len(m.steps)-9:], func(a, b step) int { return strings.Compare(a.name, b.name) })
	m.add(step{name: "mistake text/YAML tabs", method: "POST", path: m.path + "?dryRun=All", body: "a:\n\t- b", header: map[string]string{"Content-Type": asYAML}},
		step{name: "mistake text/YAML twice", method: "POST", path: m.path + "?dryRun=All&fieldValidation=Strict", body: "kind: A\nkind: B\n", header: map[string]string{"Content-Type": asYAML}},
		step{name: "mistake text/two YAML documents", method: "POST", path: m.path + "?dryRun=All", body: "kind: A\n---\nkind: B\n", header: map[string]string{"Content-Type": asYAML}},
		step{name: "mistake text/protobuf", method: "POST", path: m.path + "?dryRun=All", body: "k8s\x00nothing", header: map[string]string{"Content-Type": asProtobuf}},
		step{name: "mistake text/CBOR", method: "POST", path: m.path + "?dryRun=All", body: "\xd9\xd9\xf7\xa0", header: map[string]string{"Content-Type": "application/cbor"}},
		step{name: "mistake text/charset", method: "POST", path: m.path + "?dryRun=All", body: body, header: map[string]string{"Content-Type": "application/json; charset=latin1"}},
		step{name: "mistake text/no type", method: "POST", path: m.path + "?dryRun=All", body: body})
	return m.scenario
}

// walk tries each field below a place, those that are there and those that the schema knows besides.
func (m *maker) walk(object map[string]any, p at, s *schema, value any, create func(family, detail string, tree any, query string), update func(family, detail string, tree any)) {
	s = s.resolve()
	if s == nil || len(p) > deepest {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if len(p) == 0 && (name == "apiVersion" || name == "kind" || name == "metadata" || name == "status") {
				continue
			}
			sub := s.Properties[name]
			if sub == nil {
				sub = s.Additional
			}
			if sub == nil {
				continue // free
			}
			m.tryField(object, p.child(name), v[name], create, update)
			m.walk(object, p.child(name), sub, v[name], create, update)
		}
		if len(p) > 0 && s.Properties != nil {
			create("mistake unknown", p.String(), set(object, p.child("unknown"), 1), "&fieldValidation=Strict")
			create("mistake unknown warned", p.String(), set(object, p.child("unknown"), 1), "")
		}
		if m.sample.Template && slices.Contains(p, any("template")) {
			return // the rest of a pod's template is tried with Pod
		}
		for _, name := range sortedKeys(s.Properties) {
			if _, there := v[name]; there || len(p) == 0 && (name == "apiVersion" || name == "kind" || name == "metadata" || name == "status") {
				continue
			}
			m.tryAbsent(object, p.child(name), s.Properties[name], create, update)
		}
	case []any:
		if len(v) > 0 {
			m.tryField(object, p.child(0), v[0], create, update)
			m.walk(object, p.child(0), s.Items, v[0], create, update)
			create("mistake element twice", p.String(), set(object, p, append(slices.Clone(v), v[0])), "")
		}
		create("mistake empty list", p.String(), set(object, p, []any{}), "")
		update("mistake empty list update", p.String(), set(object, p, []any{}))
	}
}

// tryField makes each mistake with a field that is there.
func (m *maker) tryField(object map[string]any, p at, value any, create func(family, detail string, tree any, query string), update func(family, detail string, tree any)) {
	where := p.String()
	create("mistake missing", where, set(object, p, gone{}), "")
	update("mistake missing update", where, set(object, p, gone{}))
	create("mistake null", where, set(object, p, nil), "")
	create("mistake type", where, set(object, p, otherType(value)), "")
	switch v := value.(type) {
	case string:
		create("mistake empty", where, set(object, p, ""), "")
		create("mistake long", where, set(object, p, strings.Repeat("a", longer)), "")
		create("mistake word", where, set(object, p, bad), "")
		update("immutable", where, set(object, p, v+"x"))
	case float64:
		create("mistake negative", where, set(object, p, -1), "")
		create("mistake zero", where, set(object, p, 0), "")
		create("mistake large", where, set(object, p, tooLong), "")
		create("mistake fraction", where, set(object, p, 1.5), "")
		update("immutable", where, set(object, p, v+1))
	case bool:
		create("mistake other", where, set(object, p, !v), "")
		update("immutable", where, set(object, p, !v))
	}
}

// tryAbsent sets a field that the object leaves out.
func (m *maker) tryAbsent(object map[string]any, p at, s *schema, create func(family, detail string, tree any, query string), update func(family, detail string, tree any)) {
	where := p.String()
	s = s.resolve()
	if s == nil {
		return
	}
	switch s.Type {
	case "string":
		create("absent word", where, set(object, p, bad), "")
		create("absent name", where, set(object, p, "a"), "")
		create("absent type", where, set(object, p, 5), "")
		update("absent update", where, set(object, p, "a"))
	case "integer", "number":
		create("absent negative", where, set(object, p, -1), "")
		create("absent one", where, set(object, p, 1), "")
		create("absent type", where, set(object, p, "a"), "")
		update("absent update", where, set(object, p, 1))
	case "boolean":
		create("absent true", where, set(object, p, true), "")
		create("absent type", where, set(object, p, "a"), "")
		update("absent update", where, set(object, p, true))
	case "array":
		create("absent empty element", where, set(object, p, []any{everyField(s.Items, deepest, map[string]int{})}), "")
		create("absent type", where, set(object, p, "a"), "")
		create("absent every field", where, set(object, p, []any{everyField(s.Items, 0, map[string]int{})}), "")
	case "object":
		create("absent empty", where, set(object, p, map[string]any{}), "")
		create("absent type", where, set(object, p, "a"), "")
		create("absent every field", where, set(object, p, everyField(s, 0, map[string]int{})), "")
	default: // an int or a string, or anything
		create("absent word", where, set(object, p, bad), "")
		create("absent negative", where, set(object, p, -1), "")
		create("absent type", where, set(object, p, map[string]any{"a": 1}), "")
	}
}

// otherType is a value that no field has that has the first one.
func otherType(v any) any {
	switch v.(type) {
	case string:
		return map[string]any{"a": 1}
	case map[string]any:
		return "a"
	case []any:
		return "a"
	}
	return "a" // a number, a truth
}

// everyField is an object with each field of a schema, whose values fit the schema and little else. Below a level, and in circles, it's empty.
func everyField(s *schema, level int, above map[string]int) any {
	s = s.resolve()
	if s == nil {
		return map[string]any{}
	}
	if s.named != "" {
		if above[s.named] > 0 {
			return map[string]any{}
		}
		above[s.named]++
		defer func() { above[s.named]-- }()
	}
	switch s.Type {
	case "string":
		switch s.Format {
		case "date-time":
			return "2020-01-01T00:00:00Z"
		case "byte":
			return "AQID"
		}
		return "value"
	case "integer", "number":
		return 7
	case "boolean":
		return true
	case "array":
		if level >= deepest {
			return []any{}
		}
		return []any{everyField(s.Items, level+1, above)}
	}
	switch {
	case len(s.OneOf) > 0: // a quantity, or an int or a string
		return "5"
	case level >= deepest:
		return map[string]any{}
	case s.Properties != nil:
		all := map[string]any{}
		for _, name := range sortedKeys(s.Properties) {
			all[name] = everyField(s.Properties[name], level+1, above)
		}
		return all
	case s.Additional != nil:
		return map[string]any{"key": everyField(s.Additional, level+1, above)}
	}
	return map[string]any{}
}
