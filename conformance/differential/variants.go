package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tryWords tries each word of an enumeration, and what may be wrong with a quantity, or with a number or a percentage.
func (m *mistakes) tryWords(p at, s *schema) {
	if s == nil {
		return
	}
	for _, word := range s.Enum {
		m.try("word "+word, p, word)
		m.tryUpdate("word update "+word, p, word)
	}
	switch {
	case s.isQuantity():
		for _, quantity := range []any{"-1", "0", "0.5", "1m", "1.5Gi", "1e3", "1e400", "1 ", 7, -7} {
			m.try(fmt.Sprintf("quantity %v", quantity), p, quantity)
		}
		m.tryUpdate("immutable quantity", p, "77")
	case s.Format == "int-or-string":
		for _, n := range []any{"-1", "-5%", "0%", "101%", "1.5%", "5", -1, 70000} {
			m.try(fmt.Sprintf("number or text %v", n), p, n)
		}
		m.tryUpdate("immutable number or text", p, 77)
	}
}

// duplicate gives one of the members of an object twice.
func (m *mistakes) duplicate(p at, members map[string]any) {
	names := slices.Sorted(maps.Keys(members))
	names = slices.DeleteFunc(names, func(name string) bool { return isApart(p, name) })
	if len(names) == 0 {
		return
	}
	const last = "~" // the name that comes after all others
	body := strings.Replace(text(set(m.object, p.child(last), members[names[0]])), `"`+last+`":`, fmt.Sprintf("%q:", names[0]), 1)
	where := p.child(names[0]).String()
	m.raw("mistake twice/"+where, "&fieldValidation=Strict", body, asJSON)
	m.raw("mistake twice warned/"+where, "", body, asJSON)
	if len(p) < 2 {
		m.raw("mistake twice as YAML/"+where, "&fieldValidation=Strict", body, asYAML)
	}
}

// inOtherEncodings sends some of the mistakes of each family as YAML and as protobuf, where that can say them.
func (m *mistakes) inOtherEncodings() {
	const some = 4
	seen := map[string]int{}
	for _, s := range slices.Clone(m.scenario.steps) {
		_, isKind := serializable(s.body)
		if family := s.family(); s.as == asJSON && s.method == "POST" && !strings.HasPrefix(family, "setup") {
			if seen[family]++; seen[family] > some {
				continue
			}
			s.name, s.as = "as YAML "+s.name, asYAML
			m.add(s)
			if s.name, s.as = "as protobuf "+strings.TrimPrefix(s.name, "as YAML "), asProtobuf; isKind {
				m.add(s)
			}
		}
	}
}

// subresourceMistakes are those in the bodies of subresources: in what they change of the object, or in what is POSTed there.
func (m *mistakes) subresourceMistakes() {
	for _, sub := range m.subresources {
		n := *m
		n.creates, n.tried, n.prefix, n.path = true, map[string]bool{}, sub.name+" ", m.maker.at(m.target)+"/"+sub.name
		if body, posted := m.sample.Post[sub.name]; posted {
			n.method, n.object = "POST", changed(map[string]any{}, m.fill(body, m.objectName(m.target), 3))
			apiVersion, _ := body["apiVersion"].(string)
			kind, _ := body["kind"].(string)
			group, version, ok := strings.Cut(apiVersion, "/")
			if !ok {
				group, version = "", apiVersion
			}
			if m.schema != nil {
				n.walk(at{}, m.schema.document.kind(group, version, kind), n.object)
			}
			continue
		}
		parts := []map[string]any{m.sample.Put[sub.name]}
		if sub.name == "status" && m.sample.Status != nil {
			parts = []map[string]any{{"status": m.sample.Status}}
			for _, word := range slices.Sorted(maps.Keys(m.sample.Statuses)) {
				parts = append(parts, map[string]any{"status": m.sample.Statuses[word]})
			}
		}
		for _, part := range parts {
			if m.schema != nil && part != nil && slices.Contains(sub.verbs, "update") {
				n.partMistakes(part)
				n.sparing = true
			}
		}
	}
}

// partMistakes are those in a part of the object that a subresource changes.
func (m *mistakes) partMistakes(part map[string]any) {
	object := set(m.full(m.target), at{"metadata", "name"}, m.objectName(m.target))
	part = changed(map[string]any{}, m.fill(part, m.objectName(m.target), 3))
	m.method, m.object = "PUT", overlaid(object, part).(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(part)) {
		if s := m.schema.resolve().Properties[name]; s != nil && part[name] != nil {
			if m.isFirst(name) {
				m.tryField(at{name}, s.resolve(), part[name])
			}
			m.walk(at{name}, s, part[name])
		}
	}
}

// overlaid is a tree with what a part of it has, of lists element by element.
func overlaid(tree, part any) any {
	switch p := part.(type) {
	case map[string]any:
		if old, ok := tree.(map[string]any); ok {
			for name, inside := range p {
				tree = set(tree, at{name}, overlaid(old[name], inside))
			}
			return tree
		}
	case []any:
		if old, ok := tree.([]any); ok {
			for i, inside := range p {
				if i < len(old) {
					inside = overlaid(old[i], inside)
				}
				tree = set(tree, at{i}, inside)
			}
			return tree
		}
	}
	return part
}
