package selectors_test

import (
	"errors"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

func ExampleParseLabels() {
	s, err := selectors.ParseLabels("tier in (front, edge), !legacy, size > 3")
	if err != nil {
		fmt.Println(err)
		return
	}
	web := selectors.SetOf(map[string]string{"tier": "front", "size": "5"})
	old := selectors.SetOf(map[string]string{"tier": "front", "size": "5", "legacy": ""})
	fmt.Println(s)
	fmt.Println(s.Matches(web), s.Matches(old))
	// Output:
	// !legacy,size>3,tier in (edge,front)
	// true false
}

func ExampleParseError() {
	_, err := selectors.ParseLabels("tier in (front, back")
	var parseError *selectors.ParseError
	if errors.As(err, &parseError) {
		fmt.Println(parseError)
		fmt.Println(parseError.Pos)
	}
	// Output:
	// unable to parse requirement: found the end at position 20, expected ',' or ')'
	// 20
}

func ExampleLabelSelector_Term() {
	s, _ := selectors.ParseLabels("tier in (front, edge), app = shop, !legacy")
	key, values, ok := s.Term()
	fmt.Println(key, values, ok)
	// Output:
	// app [shop] true
}

// An object is whatever can name its fields' values.
type pod struct{ name, phase string }

func (p pod) Field(label string) string {
	switch label {
	case "metadata.name":
		return p.name
	case "status.phase":
		return p.phase
	}
	return ""
}

func ExampleParseFields() {
	s, err := selectors.ParseFields("status.phase!=Running,metadata.name==web")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s, s.Names())
	fmt.Println(s.Matches(pod{"web", "Pending"}), s.Matches(pod{"web", "Running"}))
	// Output:
	// metadata.name=web,status.phase!=Running [metadata.name status.phase]
	// true false
}

func ExampleFieldSelector_Without() {
	s, _ := selectors.ParseFields("metadata.name=web,spec.color=red")
	name, _ := s.Exact("metadata.name") // one object, found by its key
	fmt.Println(name, "with", s.Without("metadata.name"))
	// Output:
	// web with spec.color=red
}

func ExampleSet_All() {
	for key, value := range selectors.SetOf(map[string]string{"tier": "front", "app": "shop"}).All() {
		fmt.Println(key, value)
	}
	// Output:
	// app shop
	// tier front
}
