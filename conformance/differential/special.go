package main

import "slices"

// bootstrap lists all that the server made for itself, before anything else is there.
func bootstrap(kinds []kind) scenario {
	sc := scenario{name: "bootstrap", alone: true}
	for _, k := range kinds {
		if slices.Contains(k.verbs, "list") {
			sc.add(step{name: "bootstrap/" + k.name(), method: "GET", path: root(k.group, k.version) + "/" + k.plural})
			sc.add(step{name: "bootstrap table/" + k.name(), method: "GET", path: root(k.group, k.version) + "/" + k.plural, header: map[string]string{"Accept": asTable}})
		}
	}
	return sc
}

// scenarios are those of one kind.
func (k kind) scenarios() []scenario {
	all := []scenario{k.verbsScenario()}
	if slices.Contains(k.verbs, "create") {
		all = append(all, k.mistakesScenario())
	}
	return all
}
