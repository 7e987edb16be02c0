package ruleset

import (
	"encoding/json"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// Annotation is where a definition has its rules, as YAML or JSON.
const Annotation = "apiserver-lite/conversion"

// MaxRules is how many rules a definition may have. With the 256 KiB that Kubernetes gives an object's annotations it bounds
// what checking them takes.
const MaxRules = 500

// MaxPairs is how many pairs of versions a definition may have. Checking one walks through both schemas.
const MaxPairs = 50

// pairText is a pair of versions as the annotation has it.
type pairText struct {
	Versions []string   `json:"versions"`
	Rules    []ruleText `json:"rules"`
}

// ruleText is a rule as the annotation has it: one of its members.
type ruleText struct {
	Rename  *moveText    `json:"rename,omitempty"`
	Move    *moveText    `json:"move,omitempty"`
	Default *defaultText `json:"default,omitempty"`
	Map     *mapText     `json:"map,omitempty"`
	Split   *splitText   `json:"split,omitempty"`
	Join    *joinText    `json:"join,omitempty"`
	CEL     *celText     `json:"cel,omitempty"`
}

type moveText struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// defaultText has From for a field of the first version, or To for one of the second.
type defaultText struct {
	From  string          `json:"from,omitempty"`
	To    string          `json:"to,omitempty"`
	Value json.RawMessage `json:"value"`
}

type mapText struct {
	From   string            `json:"from"`
	To     string            `json:"to"`
	Values map[string]string `json:"values"`
}

type splitText struct {
	From      string   `json:"from"`
	To        []string `json:"to"`
	Separator string   `json:"separator"`
}

type joinText struct {
	From      []string `json:"from"`
	To        string   `json:"to"`
	Separator string   `json:"separator"`
}

type celText struct {
	From  texts `json:"from"`
	To    texts `json:"to"`
	Forth texts `json:"forth"`
	Back  texts `json:"back"`
}

// texts are several, or one without brackets.
type texts []string

func (t *texts) UnmarshalJSON(raw []byte) error {
	if strings.HasPrefix(string(raw), `"`) {
		*t = texts{""}
		return json.Unmarshal(raw, &(*t)[0])
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// parse reads the annotation.
func parse(text string) ([]pairText, error) {
	var pairs []pairText
	var root yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(text), &root); err == nil {
		if err := checkAnchors(&root); err != nil {
			return nil, err
		}
	}
	if err := yaml.UnmarshalStrict([]byte(text), &pairs); err != nil {
		return nil, fmt.Errorf("must be a list of pairs of versions with their rules: %s", clip.Text(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	return pairs, nil
}

// checkAnchors refuses anchors: 30 KB of text with aliases of one can be gigabytes.
func checkAnchors(n *yamlv3.Node) error {
	if n.Anchor != "" {
		return fmt.Errorf("line %d: anchors (&%.40s) are not supported: write the value out", n.Line, n.Anchor)
	}
	for _, child := range n.Content {
		if err := checkAnchors(child); err != nil {
			return err
		}
	}
	return nil
}

// rule reads a rule that is at a place of the annotation.
func (t *ruleText) rule(at *field.Path) (*rule, *field.Error) {
	var made []*rule
	var failed *field.Error
	add := func(name string, from, to []string, make func(r *rule) *field.Error) {
		r := &rule{at: at.Child(name), name: name}
		made = append(made, r)
		for side, paths := range [][]string{from, to} {
			for i, text := range paths {
				p, err := parsePath(text)
				if err != nil && failed == nil {
					failed = field.Invalid(r.at.Child(sideNames[side]), paths[i], err.Error())
				}
				r.sides[side] = append(r.sides[side], p)
			}
		}
		if failed == nil {
			failed = make(r)
		}
	}
	if m := t.Rename; m != nil {
		add("rename", []string{m.From}, []string{m.To}, (*rule).rename)
	}
	if m := t.Move; m != nil {
		add("move", []string{m.From}, []string{m.To}, (*rule).move)
	}
	if d := t.Default; d != nil {
		from, to := given(d.From), given(d.To)
		add("default", from, to, func(r *rule) *field.Error { return r.setDefault(d.Value) })
	}
	if m := t.Map; m != nil {
		add("map", []string{m.From}, []string{m.To}, func(r *rule) *field.Error { return r.mapValues(m.Values) })
	}
	if s := t.Split; s != nil {
		add("split", []string{s.From}, s.To, func(r *rule) *field.Error { return r.split(s.Separator, first) })
	}
	if j := t.Join; j != nil {
		add("join", j.From, []string{j.To}, func(r *rule) *field.Error { return r.split(j.Separator, second) })
	}
	if c := t.CEL; c != nil {
		add("cel", c.From, c.To, func(r *rule) *field.Error { return r.cel(c.Forth, c.Back) })
	}
	if len(made) != 1 {
		return nil, field.Invalid(at, len(made), "must be exactly one of rename, move, default, map, split, join and cel")
	}
	return made[0], failed
}

func given(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// decoded reads a value of the annotation as objects have it.
func decoded(raw json.RawMessage) (any, error) {
	v, _, err := jsontree.Decode(raw)
	return v, err
}
