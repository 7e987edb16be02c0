package selectors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// fieldMap is an object that is nothing but its selectable fields.
type fieldMap map[string]string

func (f fieldMap) Field(label string) string { return f[label] }

func mustFields(t testing.TB, text string) selectors.FieldSelector {
	t.Helper()
	s, err := selectors.ParseFields(text)
	if err != nil {
		t.Fatalf("ParseFields(%q): %v", text, err)
	}
	return s
}

// manyFields returns a selector of n terms on n fields that any object without these fields matches.
func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "f%d!=x,", i)
	}
	return b.String()
}

// TestParseFields says what each accepted form is canonically. The second column must also parse to itself.
func TestParseFields(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"empty", "", ""},
		{"equals", "metadata.name=web", "metadata.name=web"},
		{"double equals", "metadata.name==web", "metadata.name=web"},
		{"not equals", "metadata.name!=web", "metadata.name!=web"},
		{"empty value", "spec.a=,spec.b!=", "spec.a=,spec.b!="},
		{"trailing comma", "a=b,", "a=b"},
		{"empty terms", ",,a=b,,c=d,", "a=b,c=d"},
		{"only commas", ",,", ""},
		{"sorted and once", "c=1,b!=2,b=3,a=4,c==1", "a=4,b=3,b!=2,c=1"},
		{"contradiction stays", "a=2,a=1", "a=1,a=2"},
		{"white space counts", " a = b , c=d", " a = b , c=d"},
		{"escapes", `a=x\,y\=z\\`, `a=x\,y\=z\\`},
		{"escape before a comma", `a=x\\,b=y`, `a=x\\,b=y`},
		{"field isn't escaped", `a\,b=c,d\=e`, `a\,b=c,d\=e`},
		{"field ends in a backslash", `a\==\,x`, `a\=\,x`},
		{"exclamation mark in a field", "a!b=c", "a!b=c"},
		{"two exclamation marks", "a!!=c", "a!!=c"},
		{"exclamation mark in a value", "a=!b", "a=!b"},
		{"no field", "=b", "=b"},
		{"no field, negated", "!=b", "!=b"},
		{"neither field nor value", "=", ""},
		{"neither field nor value, double", "==,a=b", "a=b"},
		{"neither field nor value, negated", "!=,a=b", "a=b"},
		{"any text", "a=\x00é\xff", "a=\x00é\xff"},
		{"invalid UTF-8 beside an escape", "a=\xff\\,", "a=\uFFFD\\,"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mustFields(t, test.input).String(); got != test.want {
				t.Errorf("ParseFields(%q) is %q, want %q", test.input, got, test.want)
			}
			if got := mustFields(t, test.want).String(); got != test.want {
				t.Errorf("ParseFields(%q) is %q, want the same", test.want, got)
			}
			if got := mustFields(t, test.input).Empty(); got != (test.want == "") {
				t.Errorf("Empty is %v for %q", got, test.want)
			}
			checkFields(t, test.input)
		})
	}
}

func TestParseFieldsErrors(t *testing.T) {
	const prefix = "unable to parse field selector: "
	tests := []struct {
		name, input string
		pos         int
		want        string
	}{
		{"no operator", "metadata.name", 0, "found 'metadata.name' at position 0, expected field=value, field==value or field!=value"},
		{"no operator, second term", "a=b,c,d=e", 4, "found 'c' at position 4, expected field=value, field==value or field!=value"},
		{"blank term", "a=b, ", 4, "found ' ' at position 4, expected field=value, field==value or field!=value"},
		{"only not", "!a", 0, "found '!a' at position 0, expected field=value, field==value or field!=value"},
		{"set operator", "a in (b)", 0, "found 'a in (b)' at position 0, expected field=value, field==value or field!=value"},
		{"equals sign in a value", "a=b=c", 3, `found '=' at position 3, expected ',' or the end of the value; in a value write \=`},
		{"three equals signs", "a===b", 3, `found '=' at position 3, expected ',' or the end of the value; in a value write \=`},
		{"not and double equals", "a!==b", 3, `found '=' at position 3, expected ',' or the end of the value; in a value write \=`},
		{"unknown escape", `x=y,a=bé\n`, 9, `found '\n' at position 9, expected one of: \\ \, \=`},
		{"backslash at the end", `a=b\`, 4, `found the end after a backslash at position 4, expected one of: \\ \, \=`},
		{"escaped comma in a term without operator", `a\,b`, 0, `found 'a\,b' at position 0, expected field=value, field==value or field!=value`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := selectors.ParseFields(test.input)
			checkError(t, err, selectors.ParseError{Input: test.input, Pos: test.pos, Msg: prefix + test.want})
			if !s.Empty() {
				t.Errorf("the selector beside the error is %q", s)
			}
			checkFields(t, test.input)
		})
	}
}

func TestFieldSelectorMatches(t *testing.T) {
	tests := []struct {
		name, selector string
		yes, no        []fieldMap
	}{
		{"everything", "", []fieldMap{nil, {"a": "b"}}, nil},
		{"equals", "a=x", []fieldMap{{"a": "x"}}, []fieldMap{nil, {"a": "X"}, {"b": "x"}}},
		{"equals the empty value", "a=", []fieldMap{nil, {"a": ""}}, []fieldMap{{"a": "x"}}},
		{"not equals", "a!=x", []fieldMap{nil, {"a": "y"}}, []fieldMap{{"a": "x"}}},
		{"not equals the empty value", "a!=", []fieldMap{{"a": "x"}}, []fieldMap{nil, {"a": ""}}},
		{"all must hold", "a=x,b!=y", []fieldMap{{"a": "x"}, {"a": "x", "b": "z"}}, []fieldMap{nil, {"a": "x", "b": "y"}}},
		{"escaped", `a=x\,\=\\`, []fieldMap{{"a": `x,=\`}}, []fieldMap{{"a": `x\,\=\\`}}},
		{"contradiction", "a=x,a=y", nil, []fieldMap{nil, {"a": "x"}, {"a": "y"}}},
		{"neither field nor value", "!=", []fieldMap{nil, {"": ""}, {"": "x"}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := mustFields(t, test.selector)
			for _, f := range test.yes {
				if !s.Matches(f) {
					t.Errorf("%q doesn't match %v", test.selector, f)
				}
			}
			for _, f := range test.no {
				if s.Matches(f) {
					t.Errorf("%q matches %v", test.selector, f)
				}
			}
			checkFields(t, test.selector, append(test.yes, test.no...)...)
		})
	}
}

func TestZeroFieldSelector(t *testing.T) {
	var s selectors.FieldSelector
	if !s.Empty() || s.String() != "" || !s.Matches(fieldMap{"a": "b"}) || s.Names() != nil || !s.Without("a").Empty() {
		t.Errorf("the zero value isn't the selector of everything")
	}
}

func TestFieldSelectorLabels(t *testing.T) {
	tests := []struct {
		name, selector string
		want           []string
	}{
		{"nothing", "", nil},
		{"one", "a=b", []string{"a"}},
		{"sorted and once", "c=1,b!=2,b=3,a=4,c!=5", []string{"a", "b", "c"}},
		{"odd names", ` a=1,=2,b\,c=3`, []string{"", " a", `b\,c`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mustFields(t, test.selector).Names(); !slices.Equal(got, test.want) {
				t.Errorf("Names of %q are %q, want %q", test.selector, got, test.want)
			}
		})
	}
}

func TestFieldSelectorExactAndWithout(t *testing.T) {
	tests := []struct {
		name, selector string
		exact          string // the value that Exact("a") gives
		ok             bool
		without        string // what Without("a", "z") leaves
	}{
		{"nothing", "", "", false, ""},
		{"another field", "b=x", "", false, "b=x"},
		{"equality", "a=x", "x", true, ""},
		{"equality with the empty value", "a=", "", true, ""},
		{"not equal", "a!=x", "", false, "a!=x"},
		{"both fields", "z=1,a=x,b=y", "x", true, "b=y"},
		{"the same twice", "a=x,a==x,b=y", "x", true, "b=y"},
		{"contradiction stays one", "a=x,a=y,a!=x", "x", true, "a=y,a!=x"},
		{"longer name", "ab=x,a.b=y", "", false, "a.b=y,ab=x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := mustFields(t, test.selector)
			if got, ok := s.Exact("a"); got != test.exact || ok != test.ok {
				t.Errorf("Exact of %q is %q, %v; want %q, %v", test.selector, got, ok, test.exact, test.ok)
			}
			before := s.String()
			if got := s.Without("a", "z").String(); got != test.without {
				t.Errorf("Without of %q is %q, want %q", test.selector, got, test.without)
			}
			if s.String() != before {
				t.Errorf("Without changed the selector from %q to %q", before, s)
			}
		})
	}
}

func TestFieldSelectorTerm(t *testing.T) {
	tests := []struct {
		name, selector, label, value string
		ok                           bool
	}{
		{"nothing", "", "", "", false},
		{"not equal", "a!=x", "", "", false},
		{"equality", "b=y,a!=x", "b", "y", true},
		{"first field", "c=z,b=y", "b", "y", true},
		{"the empty value", "a=", "a", "", true},
		{"name and namespace aren't terms", "metadata.name=x,metadata.namespace=y", "", "", false},
		{"behind name and namespace", "metadata.name=x,spec.a=z,metadata.namespace=y", "spec.a", "z", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			label, value, ok := mustFields(t, test.selector).Term()
			if label != test.label || value != test.value || ok != test.ok {
				t.Errorf("Term of %q is %q %q %v, want %q %q %v", test.selector, label, value, ok, test.label, test.value, test.ok)
			}
		})
	}
}
