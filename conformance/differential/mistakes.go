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

// field is the place without those in lists: the field of the schema that it's of.
func (p at) field() string { return places.ReplaceAllString(p.String(), "[]") }

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

// mistakes makes requests with one mistake each, all as dry runs: nothing is stored but the object that updates are tried on.
type mistakes struct {
	*maker
	object  map[string]any  // without one
	target  string          // the role of the object that updates are tried on
	creates bool            // updates aren't tried
	sparing bool            // nor is a field of a type that was tried in another place
	method  string          // with which the object is tried
	path    string          // likewise
	prefix  string          // of families
	tried   map[string]bool // fields, by their places without those in lists: each is tried once
}

func (k kind) mistakesScenario() scenario {
	m := mistakes{maker: newMaker(k, "-mistakes"), target: "full", method: "POST", tried: map[string]bool{}}
	m.path = m.maker.path
	if !k.namespaced {
		m.target = "target" // full is the other scenario's
	}
	m.after = k.name()
	m.object = m.full("mistake")
	if m.can("update") {
		m.send("setup/object", "POST", m.path, text(m.full(m.target)))
	}
	m.metadata()
	m.typeMeta()
	if k.plural == "horizontalpodautoscalers" {
		m.inAnnotations()
	}
	if m.schema != nil { // whatever else it has, in the order of the schema's names
		m.walk(at{}, m.schema, m.object)
		m.moreFields()
		m.everything()
	}
	m.twice()
	m.texts()
	m.inOtherEncodings()
	m.subresourceMistakes()
	return m.scenario
}

// inAnnotations tries what version 1 of an autoscaler has in annotations, and what can't be read there.
func (m *mistakes) inAnnotations() {
	for _, name := range []string{"metrics", "current-metrics", "conditions", "behavior"} {
		for _, value := range []string{"", "x", "[]", "{}", `[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}}]`, `[{"type":"AbleToScale","status":"True"},{"type":5}]`, `{"scaleUp":{"selectPolicy":"Min"}}`, `{"scaleUp":{"policies":[{"type":"Pods","value":1,"periodSeconds":5}]}}`, `{"scaleUp":{"selectPolicy":5}}`} {
			p := at{"metadata", "annotations", "autoscaling.alpha.kubernetes.io/" + name}
			m.create("annotation "+value, p.String(), set(m.object, p, value), "")
			m.update("annotation update "+value, p.String(), set(m.object, p, value))
		}
	}
}

// moreFields tries the fields that the further objects have besides.
func (m *mistakes) moreFields() {
	n := *m
	n.creates, n.sparing = true, true
	for _, word := range slices.Sorted(maps.Keys(m.sample.More)) {
		n.object = m.maker.object("mistake", m.sample.More[word], nil)
		n.walk(at{}, m.schema, n.object)
	}
}

// create tries to create a tree.
func (m *mistakes) create(family, detail string, tree any, query string) {
	m.send(m.prefix+family+"/"+detail, m.method, m.path+"?dryRun=All"+query, text(tree))
}

// update tries to make a tree of the object that's there.
func (m *mistakes) update(family, detail string, tree any) {
	if m.can("update") && !m.creates {
		tree = set(tree, at{"metadata", "name"}, m.objectName(m.target))
		m.send(family+"/"+detail, "PUT", m.maker.at(m.target)+"?dryRun=All", text(tree))
	}
}

// try tries to create the object with another value at a place.
func (m *mistakes) try(family string, p at, value any) {
	m.create(family, p.String(), set(m.object, p, value), "")
}

// tryUpdate tries to update it to that.
func (m *mistakes) tryUpdate(family string, p at, value any) {
	m.update(family, p.String(), set(m.object, p, value))
}

// metadata is what all kinds have.
func (m *mistakes) metadata() {
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
		tree := set(m.object, append(at{"metadata"}, w.where...), w.value)
		m.create("mistake metadata", w.name, tree, "")
		if w.where[0] != "name" {
			m.update("mistake metadata update", w.name, tree)
		}
	}
}

func (m *mistakes) typeMeta() {
	m.create("mistake metadata", "none", set(m.object, at{"metadata"}, gone{}), "")
	m.create("mistake metadata", "null", set(m.object, at{"metadata"}, nil), "")
	m.create("mistake metadata", "list", set(m.object, at{"metadata"}, []any{}), "")
	for _, name := range []string{"apiVersion", "kind"} {
		m.create("mistake type meta", "no "+name, set(m.object, at{name}, gone{}), "")
		m.create("mistake type meta", "empty "+name, set(m.object, at{name}, ""), "")
		m.create("mistake type meta", name+" is a number", set(m.object, at{name}, 5), "")
	}
}

// everything sends each field that the schema has.
func (m *mistakes) everything() {
	all, ok := everyField(m.schema, 0, map[string]int{}).(map[string]any)
	if !ok {
		return
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		all[name] = m.object[name]
	}
	m.create("mistake everything", "strict", all, "&fieldValidation=Strict")
	for _, as := range []string{asYAML, asProtobuf} {
		m.add(step{name: "mistake everything/" + as, method: "POST", path: m.path + "?dryRun=All", body: text(all), as: as})
	}
	m.update("mistake everything", "update", all)
}

// raw sends a text as it is.
func (m *mistakes) raw(name, query, body, contentType string) {
	s := step{name: m.prefix + name, method: m.method, path: m.path + "?dryRun=All" + query, body: body}
	if contentType != "" {
		s.header = map[string]string{"Content-Type": contentType}
	}
	m.add(s)
}

// twice says what JSON can say twice.
func (m *mistakes) twice() {
	body := text(m.object)
	for _, name := range []string{"kind", "metadata", "spec", "data"} {
		marker := `"` + name + `":`
		if i := strings.Index(body, marker); i >= 0 {
			for _, validation := range []string{"Strict", "Warn", "Ignore"} {
				m.raw("mistake duplicate/"+name+" "+validation, "&fieldValidation="+validation, body[:i]+marker+`null,`+body[i:], asJSON)
			}
		}
	}
}

// texts are bodies that aren't one object, or not in the encoding that they say.
func (m *mistakes) texts() {
	body := text(m.object)
	inMetadata := func(member string) string { return strings.Replace(body, `"metadata":{`, `"metadata":{`+member+`,`, 1) }
	for _, t := range []struct{ name, query, body, contentType string }{
		{"array", "", "[" + body + "]", asJSON},
		{"byte order mark", "", "\ufeff" + body, asJSON},
		{"case of names", "", strings.Replace(body, `"metadata"`, `"Metadata"`, 1), asJSON},
		{"cut", "", body[:len(body)-3], asJSON},
		{"deep", "", inMetadata(`"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200)), asJSON},
		{"large number", "", inMetadata(`"generation":1e400`), asJSON},
		{"null", "", "null", asJSON},
		{"number", "", "5", asJSON},
		{"trailing", "", body + "{}", asJSON},
		{"YAML tabs", "", "a:\n\t- b", asYAML},
		{"YAML twice", "&fieldValidation=Strict", "kind: A\nkind: B\n", asYAML},
		{"two YAML documents", "", "kind: A\n---\nkind: B\n", asYAML},
		{"two YAML documents, the first of them right", "", body + "\n---\n{}\n", asYAML},
		{"YAML with its marks", "", "%YAML 1.1\n---\n" + body + "\n...\n", asYAML},
		{"YAML with an anchor", "", "x: &a 1\n" + "y: *a\n", asYAML},
		{"protobuf", "", "k8s\x00nothing", asProtobuf},
		{"CBOR", "", "\xd9\xd9\xf7\xa0", "application/cbor"},
		{"charset", "", body, "application/json; charset=latin1"},
		{"no type", "", body, ""},
	} {
		if t.name == "YAML with an anchor" && m.plural == "limitranges" {
			continue // which need nothing, not even a name: upstream takes it
		}
		m.raw("mistake text/"+t.name, t.query, t.body, t.contentType)
	}
}

// walk tries each field below a place that wasn't tried before, those that are there and those that the schema knows besides.
func (m *mistakes) walk(p at, s *schema, value any) {
	s = s.resolve()
	if s == nil || len(p) > deepest {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		m.walkMembers(p, s, v)
	case []any:
		first := m.isFirst(p.field() + " is a list")
		if len(v) > 0 && first {
			m.tryField(p.child(0), s.Items.resolve(), v[0])
			m.walk(p.child(0), s.Items, v[0])
			m.try("mistake element twice", p, append(slices.Clone(v), v[0]))
			m.tryUpdate("immutable fewer", p, v[1:])
			m.tryUpdate("immutable more", p, append(slices.Clone(v), everyField(s.Items, deepest, map[string]int{})))
		}
		if first {
			m.try("mistake empty list", p, []any{})
			m.tryUpdate("mistake empty list update", p, []any{})
		}
		for i, element := range v {
			m.walk(p.child(i), s.Items, element)
		}
	}
}

// isFirst tells whether something wasn't tried before.
func (m *mistakes) isFirst(what string) bool {
	first := !m.tried[what]
	m.tried[what] = true
	return first
}

// walkMembers is what walk does with an object.
func (m *mistakes) walkMembers(p at, s *schema, v map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if isApart(p, name) {
			continue
		}
		sub := s.Properties[name]
		if sub == nil {
			sub = s.Additional
		}
		if sub == nil {
			continue // free
		}
		ofType := m.isFirst(s.named + " has " + name)
		if m.isFirst(p.child(name).field()) && (ofType || !m.sparing) {
			m.tryField(p.child(name), sub.resolve(), v[name])
		}
		m.walk(p.child(name), sub, v[name])
	}
	if ofType := m.isFirst(s.named + " is an object"); m.isFirst(p.field()+" is an object") && (ofType || !m.sparing) {
		m.duplicate(p, v)
		if len(p) > 0 && s.Properties != nil {
			m.create("mistake unknown", p.String(), set(m.object, p.child("unknown"), 1), "&fieldValidation=Strict")
			m.create("mistake unknown warned", p.String(), set(m.object, p.child("unknown"), 1), "")
		}
	}
	if m.sample.Template && slices.Contains(p, any("template")) {
		return // the rest of a pod's template is tried with Pod
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		_, there := v[name]
		field, ofType := p.child(name).field(), m.isFirst(s.named+" has no "+name)
		if !there && !isApart(p, name) && !m.tried[field] && m.isFirst(field+" is absent") && (ofType || !m.sparing) {
			m.tryAbsent(p.child(name), s.Properties[name])
		}
	}
}

// isApart tells whether a field of a place isn't walked: what all kinds have is tried apart from the schema.
func isApart(p at, name string) bool {
	return len(p) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name)
}

// tryField makes each mistake with a field that is there.
func (m *mistakes) tryField(p at, s *schema, value any) {
	m.try("mistake missing", p, gone{})
	m.tryUpdate("mistake missing update", p, gone{})
	m.try("mistake null", p, nil)
	m.try("mistake type", p, otherType(value))
	m.tryWords(p, s)
	switch v := value.(type) {
	case string:
		m.try("mistake empty", p, "")
		m.try("mistake long", p, strings.Repeat("a", longer))
		m.try("mistake word", p, bad)
		m.tryUpdate("immutable", p, v+"x")
	case float64:
		m.try("mistake negative", p, -1)
		m.try("mistake zero", p, 0)
		m.try("mistake large", p, tooLong)
		m.try("mistake fraction", p, 1.5)
		m.tryUpdate("immutable", p, v+1)
	case bool:
		m.try("mistake other", p, !v)
		m.tryUpdate("immutable", p, !v)
	}
}

// tryAbsent sets a field that the object leaves out.
func (m *mistakes) tryAbsent(p at, s *schema) {
	s = s.resolve()
	if s == nil {
		return
	}
	m.tryWords(p, s)
	switch s.Type {
	case "string":
		m.try("absent word", p, bad)
		m.try("absent name", p, "a")
		m.try("absent type", p, 5)
		m.tryUpdate("absent update", p, "a")
	case "integer", "number":
		m.try("absent negative", p, -1)
		m.try("absent one", p, 1)
		m.try("absent type", p, "a")
		m.tryUpdate("absent update", p, 1)
	case "boolean":
		m.try("absent true", p, true)
		m.try("absent type", p, "a")
		m.tryUpdate("absent update", p, true)
	case "array":
		m.try("absent empty element", p, []any{everyField(s.Items, deepest, map[string]int{})})
		m.try("absent type", p, "a")
		m.try("absent every field", p, []any{everyField(s.Items, 0, map[string]int{})})
		m.tryUpdate("absent update", p, []any{everyField(s.Items, 0, map[string]int{})})
	case "object":
		m.try("absent empty", p, map[string]any{})
		m.try("absent type", p, "a")
		m.try("absent every field", p, everyField(s, 0, map[string]int{}))
		m.tryUpdate("absent update", p, everyField(s, 0, map[string]int{}))
	default: // an int or a string, or anything
		m.try("absent word", p, bad)
		m.try("absent negative", p, -1)
		m.try("absent type", p, map[string]any{"a": 1})
	}
}

// otherType is a value that no field has that has the first one.
func otherType(v any) any {
	if _, ok := v.(string); ok {
		return map[string]any{"a": 1}
	}
	return "a"
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
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			all[name] = everyField(s.Properties[name], level+1, above)
		}
		return all
	case s.Additional != nil:
		return map[string]any{"key": everyField(s.Additional, level+1, above)}
	}
	return map[string]any{}
}
