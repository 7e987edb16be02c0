package ruleset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// The sides of a rule: the fields that it names of the pair's first version, and of the second one.
const (
	first  = 0
	second = 1
)

var sideNames = [2]string{"from", "to"}

// direction is which way a conversion goes, and the number of the side that it takes from.
type direction int

const (
	forth direction = first
	back  direction = second
)

// rule is one rule between two versions, both ways.
type rule struct {
	at    *field.Path // in the annotation
	name  string
	sides [2][]path   // once it's in a block, from the innermost list on
	about [2][]string // those paths, as messages have them

	// make makes values of one side of those of the other. self is the object as it was, of a rule that is early.
	make func(c *conversion, d direction, self map[string]any, in, out []any) error

	early     bool              // it needs the object as it was
	whole     bool              // values stay as they are, so that both schemas must keep the same
	fills     bool              // it puts values only where nothing is, as defaults do
	keeps     bool              // it takes nothing: the default of a field that both versions have
	value     any               // what a default puts
	valueSize int               // of a default, in memory, or of the separators
	by        map[string]string // what a map makes of values
	types     [2][]string       // of the fields of both sides as the schemas have them; "" where nothing is known
}

// size is how many bytes a rule can make besides what it takes: names, and the values that it has.
func (r *rule) size() int {
	n := 0
	for _, paths := range r.sides {
		for _, p := range paths {
			n += len(p.key())
		}
	}
	longest := 0
	for from, to := range r.by {
		longest = max(longest, len(from), len(to))
	}
	return n + longest + r.valueSize
}

// slots returns the places of a rule's values, and those of the rules after it.
func (r *rule) slots(values []any, d direction) (in, out, rest []any) {
	n, m := len(r.sides[d]), len(r.sides[1-d])
	return values[:n], values[n : n+m], values[n+m:]
}

// convert makes values.
func (r *rule) convert(c *conversion, d direction, self map[string]any, in, out []any) error {
	if err := r.make(c, d, self, in, out); err != nil {
		return r.failed(c, d, err)
	}
	return nil
}

// failed says why the rule can't make values.
func (r *rule) failed(c *conversion, d direction, err error) error {
	if ended := c.ctx.Err(); ended != nil {
		return ended
	}
	about := append(slices.Clone(r.about[d]), r.about[1-d]...)[0]
	return &Error{From: c.from, To: c.to, Rule: strings.TrimPrefix(r.at.String(), root.String()), Field: about, Err: err}
}

// anyPath returns one of the rule's paths.
func (r *rule) anyPath() path { return append(slices.Clone(r.sides[first]), r.sides[second]...)[0] }

// rename is move within an object.
func (r *rule) rename() *field.Error {
	from, to := r.sides[first][0], r.sides[second][0]
	if n := len(from) - 1; len(to) != len(from) || !slices.Equal(from[:n], to[:n]) {
		return field.Invalid(r.at.Child("to"), to.String(), fmt.Sprintf("must be beside %s, and only the last name another: move goes elsewhere", from))
	}
	return r.move()
}

// move brings a value to another place. In an annotation it's JSON, unless it's text.
func (r *rule) move() *field.Error {
	r.whole = r.sides[first][0].isAnnotation() == r.sides[second][0].isAnnotation()
	annotates := forth // the direction, of a rule that isn't whole
	if r.sides[first][0].isAnnotation() {
		annotates = back
	}
	r.make = func(_ *conversion, d direction, _ map[string]any, in, out []any) (err error) {
		out[0] = in[0]
		if r.whole || in[0] == absent {
			return nil
		}
		if d == annotates {
			out[0], err = r.annotate(d, in[0])
		} else {
			out[0], err = r.unannotate(1-d, in[0])
		}
		return err
	}
	return nil
}

// annotate makes the text of an annotation from the value of a field.
func (r *rule) annotate(side direction, v any) (any, error) {
	if text, ok := v.(string); ok && r.types[side][0] == "string" {
		return text, nil
	}
	text, err := jsontree.Append(nil, v)
	return string(text), err
}

// unannotate makes the value of a field from the text of an annotation.
func (r *rule) unannotate(side direction, v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("an annotation must be text, and is %s", kindOf(v))
	}
	if r.types[side][0] == "string" {
		return text, nil
	}
	value, _, err := jsontree.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("the annotation must have the JSON of %s", r.about[side][0])
	}
	return value, nil
}

// setDefault gives a field to objects that come from a version that doesn't have it.
func (r *rule) setDefault(raw json.RawMessage) *field.Error {
	if len(r.sides[first])+len(r.sides[second]) != 1 {
		return field.Invalid(r.at, "", "must have either from, a field of the first version, or to, one of the second")
	}
	value, err := decoded(raw)
	if err != nil || value == nil {
		return field.Required(r.at.Child("value"), "what the field gets where it's absent")
	}
	if _, text := value.(string); !text && r.anyPath().isAnnotation() {
		return field.Invalid(r.at.Child("value"), clip.Text(string(raw)), "must be text, because it's for an annotation")
	}
	r.fills, r.value, r.valueSize = true, value, sizeOf(value)
	r.make = func(_ *conversion, _ direction, _ map[string]any, _, out []any) error {
		if len(out) > 0 {
			out[0] = runtime.DeepCopyJSONValue(value)
		}
		return nil
	}
	return nil
}

// mapValues puts other values in the place of some. Others stay.
func (r *rule) mapValues(values map[string]string) *field.Error {
	reverse := make(map[string]string, len(values))
	for _, from := range slices.Sorted(maps.Keys(values)) {
		to := values[from]
		if other, twice := reverse[to]; twice {
			return field.Invalid(r.at.Child("values"), to, fmt.Sprintf("must be of one value, because there's a way back, and it's of %q and of %q", other, from))
		}
		reverse[to] = from
	}
	r.by = values
	by := [2]map[string]string{values, reverse}
	r.make = func(_ *conversion, d direction, _ map[string]any, in, out []any) error {
		out[0] = in[0]
		if text, ok := in[0].(string); ok {
			if to, ok := by[d][text]; ok {
				out[0] = to
			}
		}
		return nil
	}
	return nil
}

// split makes parts of a text, and the text of its parts. The text is on a side.
func (r *rule) split(separator string, whole direction) *field.Error {
	if separator == "" {
		return field.Required(r.at.Child("separator"), "what is between the parts")
	}
	if len(r.sides[1-whole]) < 2 {
		return field.Invalid(r.at.Child(sideNames[1-whole]), len(r.sides[1-whole]), "must be at least two parts")
	}
	r.valueSize = len(separator) * len(r.sides[1-whole])
	r.make = func(_ *conversion, d direction, _ map[string]any, in, out []any) (err error) {
		if d != whole {
			out[0], err = r.joined(in, separator)
			return err
		}
		for i := range out {
			out[i] = absent
		}
		if in[0] == absent {
			return nil
		}
		text, ok := in[0].(string)
		if !ok {
			return fmt.Errorf("%s must be text, and is %s", r.about[whole][0], kindOf(in[0]))
		}
		for i := range out {
			part, rest, more := text, "", false
			if i < len(out)-1 {
				part, rest, more = strings.Cut(text, separator)
			}
			if out[i], err = r.part(1-whole, i, part); err != nil || !more {
				return err
			}
			text = rest
		}
		return nil
	}
	return nil
}

// part makes the value of a part's field.
func (r *rule) part(side direction, i int, text string) (any, error) {
	if r.types[side][i] != "integer" {
		return text, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s must be an integer, and would be %q", r.about[side][i], clip.Text(text))
	}
	return n, nil
}

// joined makes the text of its parts. The last ones may be absent.
func (r *rule) joined(parts []any, separator string) (any, error) {
	for len(parts) > 0 && parts[len(parts)-1] == absent {
		parts = parts[:len(parts)-1]
	}
	if len(parts) == 0 {
		return absent, nil
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		switch v := part.(type) {
		case string:
			texts[i] = v
		case int64:
			texts[i] = strconv.FormatInt(v, 10)
		case absentValue:
		default:
			return nil, fmt.Errorf("a part must be text or an integer, and is %s", kindOf(v))
		}
	}
	return strings.Join(texts, separator), nil
}
