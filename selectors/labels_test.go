package selectors_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

func mustLabels(t testing.TB, text string) selectors.LabelSelector {
	t.Helper()
	s, err := selectors.ParseLabels(text)
	if err != nil {
		t.Fatalf("ParseLabels(%q): %v", text, err)
	}
	return s
}

// TestParseLabels says what each accepted form is canonically. The second column must also parse to itself.
func TestParseLabels(t *testing.T) {
	longName, longPrefix := strings.Repeat("n", 63), strings.Repeat("p", 253)
	tests := []struct{ name, input, want string }{
		{"empty", "", ""},
		{"only white space", " \t\r\n", ""},
		{"exists", "tier", "tier"},
		{"absent", "!tier", "!tier"},
		{"absent with space", "! tier", "!tier"},
		{"equals", "tier=front", "tier=front"},
		{"double equals", "tier==front", "tier=front"},
		{"not equals", "tier!=front", "tier!=front"},
		{"in", "tier in (front,back)", "tier in (back,front)"},
		{"notin", "tier notin (front,back)", "tier notin (back,front)"},
		{"greater", "size>3", "size>3"},
		{"less", "size<3", "size<3"},
		{"white space everywhere", "\t tier \n in\r( front , back ) , size  >  3 ", "size>3,tier in (back,front)"},
		{"no white space around in", "tier in(front,back),a notin(x,y)", "a notin (x,y),tier in (back,front)"},
		{"empty value at the end", "tier=", "tier="},
		{"empty value before a comma", "tier==,a!=", "a!=,tier="},
		{"empty list", "tier in ()", "tier="},
		{"empty list negated", "tier notin ( )", "tier!="},
		{"list of a comma", "tier in (,)", "tier="},
		{"empty value first", "tier in (,a)", "tier in (,a)"},
		{"empty value last", "tier in (a,)", "tier in (,a)"},
		{"empty value between", "tier in (a,,b)", "tier in (,a,b)"},
		{"list of one", "tier in (a)", "tier=a"},
		{"negated list of one", "tier notin (a)", "tier!=a"},
		{"repeated values", "tier in (b,a,b,a)", "tier in (a,b)"},
		{"repeated value left alone", "tier in (a,a)", "tier=a"},
		{"repeated requirement", "tier=a,tier==a,tier in (a)", "tier=a"},
		{"sorted by key", "c,b=x,!a", "!a,b=x,c"},
		{"contradiction stays", "tier=b,tier=a,!tier", "!tier,tier=a,tier=b"},
		{"leading zeros", "size>007", "size>7"},
		{"largest integer", "size<9223372036854775807", "size<9223372036854775807"},
		{"operators as keys and values", "in in (in,notin),notin notin (in),!in", "!in,in in (in,notin),notin!=in"},
		{"operator words as exact value", "a=in,b==notin", "a=in,b=notin"},
		{"operator word alone exists", "notin", "notin"},
		{"key with prefix", "app.example.com/Tier_1.x-y=A", "app.example.com/Tier_1.x-y=A"},
		{"longest key and value", longPrefix + "/" + longName + "=" + longName, longPrefix + "/" + longName + "=" + longName},
		{"long part in prefix", strings.Repeat("p", 100) + ".com/a", strings.Repeat("p", 100) + ".com/a"},
		{"NUL ends the selector", "a=b \x00),c", "a=b"},
		{"NUL first", "\x00a", ""},
		{"NUL behind a token is skipped", "a\x00=\x00b\x00,\x00c", "a=b,c"},
		{"NUL behind a NUL ends", "a\x00\x00b", "a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mustLabels(t, test.input).String(); got != test.want {
				t.Errorf("ParseLabels(%q) is %q, want %q", test.input, got, test.want)
			}
			if got := mustLabels(t, test.want).String(); got != test.want {
				t.Errorf("ParseLabels(%q) is %q, want the same", test.want, got)
			}
			if got := mustLabels(t, test.input).Empty(); got != (test.want == "") {
				t.Errorf("Empty is %v for %q", got, test.want)
			}
			checkLabels(t, test.input)
		})
	}
}

func TestParseLabelsErrors(t *testing.T) {
	const (
		prefix     = "unable to parse requirement: "
		afterKey   = "expected one of: =, ==, !=, in, notin, >, <, ',' or the end of the selector"
		nameRule   = "letters, digits, '-', '_' and '.' only, with a letter or digit first and last"
		valueRule  = "a label value must be empty, or consist of " + nameRule
		number     = "expected a non-negative integer below 2^63"
		subdomain  = "the part of a label key before '/' must be a DNS subdomain, as in example.com: lower case letters, digits, '-' and '.' only, with a letter or digit at both ends of each part between dots"
		keyOrBang  = "expected a label key or '!'"
		commaOrEnd = "expected ',' or the end of the selector"
	)
	long := strings.Repeat("n", 64)
	tests := []struct {
		name, input string
		pos         int
		want        string
	}{
		{"comma first", ",a", 0, "found ',' at position 0, " + keyOrBang},
		{"comma last", "a,", 2, "found the end at position 2, " + keyOrBang},
		{"two commas", "a,,b", 2, "found ',' at position 2, " + keyOrBang},
		{"parenthesis first", " (", 1, "found '(' at position 1, " + keyOrBang},
		{"operator first", "=a", 0, "found '=' at position 0, " + keyOrBang},
		{"not alone", "a,!", 3, "found the end at position 3, expected a label key"},
		{"not twice", "!!a", 1, "found '!' at position 1, expected a label key"},
		{"not with a value", "!a=b", 2, "found '=' at position 2, " + commaOrEnd},
		{"two words", "a b", 2, "found 'b' at position 2, " + afterKey},
		{"not behind the key", "a!", 1, "found '!' at position 1, " + afterKey},
		{"three equals signs", "a===b", 3, "found '=' at position 3, expected a label value"},
		{"space in an operator", "a= =b", 3, "found '=' at position 3, expected a label value"},
		{"at least", "a>=3", 2, "found '=' at position 2, " + number},
		{"two values", "a=b c", 4, "found 'c' at position 4, " + commaOrEnd},
		{"value is a list", "a=(b)", 2, "found '(' at position 2, expected a label value"},
		{"in without list", "a in", 4, "found the end at position 4, expected '('"},
		{"in without parentheses", "a in b", 5, "found 'b' at position 5, expected '('"},
		{"list not closed", "a in (b", 7, "found the end at position 7, expected ',' or ')'"},
		{"list not closed behind comma", "a in (b,", 8, "found the end at position 8, expected a label value, ',' or ')'"},
		{"list without commas", "a in (b c)", 8, "found 'c' at position 8, expected ',' or ')'"},
		{"operator in a list", "a in (b,=)", 8, "found '=' at position 8, expected a label value, ',' or ')'"},
		{"closed twice", "a in (b))", 8, "found ')' at position 8, " + commaOrEnd},
		{"closed only", "a,b)", 3, "found ')' at position 3, " + afterKey},
		{"greater than a word", "size>big", 5, "found 'big' at position 5, " + number},
		{"greater than nothing", "size>", 5, "found the end at position 5, " + number},
		{"greater than a list", "size>(3)", 5, "found '(' at position 5, " + number},
		{"negative", "size>-3", 5, "found '-3' at position 5, " + number},
		{"plus sign", "size<+3", 5, "found '+3' at position 5, " + number},
		{"fraction", "size<3.5", 5, "found '3.5' at position 5, " + number},
		{"too large", "size>9223372036854775808", 5, "found '9223372036854775808' at position 5, " + number},
		{"too many zeros", "size>" + strings.Repeat("0", 64), 5, "found '" + strings.Repeat("0", 64) + "' at position 5, " + number},
		{"bad value", "a=b,tier=-x", 9, "label value '-x' at position 9 is not valid: " + valueRule},
		{"bad value in a list", "a in (b,c_)", 8, "label value 'c_' at position 8 is not valid: " + valueRule},
		{"long value", "a=" + long, 2, "label value '" + long + "' at position 2 is not valid: a label value must have at most 63 bytes, this one has 64"},
		{"value beyond ASCII", "a=é", 2, "label value 'é' at position 2 is not valid: " + valueRule},
		{"bad key", "-a=b", 0, "label key '-a' at position 0 is not valid: the name in a label key must consist of " + nameRule},
		{"long key", long, 0, "label key '" + long + "' at position 0 is not valid: the name in a label key must have at most 63 bytes, this one has 64"},
		{"key of two slashes", "a/b/c", 0, "label key 'a/b/c' at position 0 is not valid: a label key has at most one '/', between an optional DNS subdomain and the name, as in example.com/tier"},
		{"key without prefix", "/a", 0, "label key '/a' at position 0 is not valid: the part of a label key before '/' must not be empty; without a prefix leave out the '/'"},
		{"key without name", "a/=b", 0, "label key 'a/' at position 0 is not valid: the name in a label key, after '/', must not be empty"},
		{"upper case prefix", "Example.com/a", 0, "label key 'Example.com/a' at position 0 is not valid: " + subdomain},
		{"underscore in prefix", "a_b/c", 0, "label key 'a_b/c' at position 0 is not valid: " + subdomain},
		{"dots in prefix", "a..b/c", 0, "label key 'a..b/c' at position 0 is not valid: " + subdomain},
		{"dash at an end in prefix", "a-.b/c", 0, "label key 'a-.b/c' at position 0 is not valid: " + subdomain},
		{"long prefix", strings.Repeat("p", 254) + "/a", 0, "label key '" + strings.Repeat("p", 80) + "...' at position 0 is not valid: the part of a label key before '/' must have at most 253 bytes, this one has 254"},
		{"not printable", "a=\x01\xff", 2, `label value '\x01\xff' at position 2 is not valid: ` + valueRule},
		{"not UTF-8 where it's cut", strings.Repeat("\xbf", 90), 0, `label key '` + strings.Repeat(`\xbf`, 76) + `...' at position 0 is not valid: the name in a label key must have at most 63 bytes, this one has 90`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := selectors.ParseLabels(test.input)
			checkError(t, err, selectors.ParseError{Input: test.input, Pos: test.pos, Msg: prefix + test.want})
			if !s.Empty() {
				t.Errorf("the selector beside the error is %q", s)
			}
			checkLabels(t, test.input)
		})
	}
}

func checkError(t *testing.T, err error, want selectors.ParseError) {
	t.Helper()
	var got *selectors.ParseError
	if !errors.As(err, &got) {
		t.Fatalf("error is %v (%T), want a *ParseError", err, err)
	}
	if *got != want {
		t.Errorf("error is\n%+v, want\n%+v", *got, want)
	}
	if err.Error() != want.Msg {
		t.Errorf("error prints as %q, want %q", err.Error(), want.Msg)
	}
}

func TestLabelSelectorMatches(t *testing.T) {
	tests := []struct {
		name, selector string
		yes, no        []map[string]string
	}{
		{"everything", "", []map[string]string{nil, {"a": "b"}}, nil},
		{"exists", "a", []map[string]string{{"a": ""}, {"a": "x", "b": "y"}}, []map[string]string{nil, {"b": "a"}}},
		{"absent", "!a", []map[string]string{nil, {"b": "a"}}, []map[string]string{{"a": ""}}},
		{"equals", "a=x", []map[string]string{{"a": "x"}}, []map[string]string{nil, {"a": ""}, {"a": "X"}, {"b": "x"}}},
		{"equals the empty value", "a=", []map[string]string{{"a": ""}}, []map[string]string{nil, {"a": "x"}}},
		{"not equals", "a!=x", []map[string]string{nil, {"a": ""}, {"a": "y"}}, []map[string]string{{"a": "x"}}},
		{"in", "a in (x,,z)", []map[string]string{{"a": "x"}, {"a": ""}, {"a": "z"}}, []map[string]string{nil, {"a": "y"}}},
		{"notin", "a notin (x,,z)", []map[string]string{nil, {"a": "y"}}, []map[string]string{{"a": "x"}, {"a": ""}, {"a": "z"}}},
		{"greater", "a>3", []map[string]string{{"a": "4"}, {"a": "+4"}, {"a": "0010"}, {"a": "9223372036854775807"}},
			[]map[string]string{nil, {"a": "3"}, {"a": "-4"}, {"a": "x"}, {"a": ""}, {"a": "+"}, {"a": "4.5"}, {"a": "0x9"}, {"a": "1_0"}, {"a": "9223372036854775808"}}},
		{"less", "a<3", []map[string]string{{"a": "2"}, {"a": "-4"}, {"a": "-9223372036854775808"}},
			[]map[string]string{nil, {"a": "3"}, {"a": "-"}, {"a": "-9223372036854775809"}, {"a": "-18446744073709551616"}}},
		{"all must hold", "a=x,b,!c", []map[string]string{{"a": "x", "b": ""}},
			[]map[string]string{{"a": "x"}, {"a": "x", "b": "", "c": ""}, {"b": ""}}},
		{"contradiction", "a=x,a=y", nil, []map[string]string{nil, {"a": "x"}, {"a": "y"}}},
		{"between", "a>3,a<6", []map[string]string{{"a": "4"}, {"a": "5"}}, []map[string]string{{"a": "3"}, {"a": "6"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := mustLabels(t, test.selector)
			for _, m := range test.yes {
				if !s.Matches(selectors.SetOf(m)) {
					t.Errorf("%q doesn't match %v", test.selector, m)
				}
			}
			for _, m := range test.no {
				if s.Matches(selectors.SetOf(m)) {
					t.Errorf("%q matches %v", test.selector, m)
				}
			}
			checkLabels(t, test.selector, append(test.yes, test.no...)...)
		})
	}
}

func TestZeroLabelSelector(t *testing.T) {
	var s selectors.LabelSelector
	if !s.Empty() || s.String() != "" || !s.Matches(nil) || !s.Matches(selectors.Set{"a", "b"}) {
		t.Errorf("the zero value isn't the selector of everything")
	}
	if key, values, ok := s.Term(); ok {
		t.Errorf("Term of the zero value is %q %q", key, values)
	}
}

func TestLabelSelectorTerm(t *testing.T) {
	tests := []struct {
		name, selector, key string
		values              []string // nil: there is no term
	}{
		{"nothing", "", "", nil},
		{"no equality", "a,!b,c!=x,d notin (x,y),e>1,f<1", "", nil},
		{"equality", "a,b=x", "b", []string{"x"}},
		{"equality with the empty value", "b=", "b", []string{""}},
		{"equality before in", "a in (x,y),b=x", "b", []string{"x"}},
		{"first key among equalities", "c=z,b=x", "b", []string{"x"}},
		{"in", "a in (y,x,)", "a", []string{"", "x", "y"}},
		{"in with the fewest values", "a in (x,y,z),b in (x,y)", "b", []string{"x", "y"}},
		{"in with the fewest different values", "a in (x,y),b in (x,x,x)", "b", []string{"x"}},
		{"first key among in", "b in (x,y),a in (v,w)", "a", []string{"v", "w"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			key, values, ok := mustLabels(t, test.selector).Term()
			if ok != (test.values != nil) || key != test.key || !slices.Equal(values, test.values) {
				t.Errorf("Term of %q is %q %q %v, want %q %q", test.selector, key, values, ok, test.key, test.values)
			}
		})
	}
}

func TestSet(t *testing.T) {
	tests := []struct {
		name   string
		labels map[string]string
		want   selectors.Set
	}{
		{"nil", nil, nil},
		{"empty", map[string]string{}, nil},
		{"one", map[string]string{"a": "b"}, selectors.Set{"a", "b"}},
		{"sorted bytewise", map[string]string{"b": "1", "a": "2", "B": "", "a/b": "3", "ab": "4"},
			selectors.Set{"B", "", "a", "2", "a/b", "3", "ab", "4", "b", "1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := selectors.SetOf(test.labels)
			if !slices.Equal(s, test.want) {
				t.Errorf("SetOf(%v) is %q, want %q", test.labels, s, test.want)
			}
			if got := maps.Collect(s.All()); !maps.Equal(got, test.labels) {
				t.Errorf("All yields %v, want %v", got, test.labels)
			}
			for key, want := range test.labels {
				if got, ok := s.Get(key); !ok || got != want {
					t.Errorf("Get(%q) is %q, %v; want %q", key, got, ok, want)
				}
			}
			for _, key := range []string{"", "A", "aa", "a/", "c"} {
				if got, ok := s.Get(key); ok {
					t.Errorf("Get(%q) finds %q", key, got)
				}
			}
			for range s.All() {
				break // a loop may end early
			}
		})
	}
}

func TestMatchesDoesNotAllocate(t *testing.T) {
	set := selectors.SetOf(map[string]string{"a": "x", "b": "y", "size": "99999999999999999999", "tier": "front"})
	fields := fieldMap{"spec.a": "x"}
	tests := []struct {
		name  string
		match func() bool
	}{
		{"labels", func(s selectors.LabelSelector) func() bool { return func() bool { return s.Matches(set) } }(
			mustLabels(t, "a,!z,b=y,tier in (a,b,front),a notin (b,c),size"))},
		{"integer out of range", func(s selectors.LabelSelector) func() bool { return func() bool { return !s.Matches(set) } }(
			mustLabels(t, "size>3"))},
		{"fields", func(s selectors.FieldSelector) func() bool { return func() bool { return s.Matches(fields) } }(
			mustFields(t, "spec.a=x,spec.b!=y"))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !test.match() {
				t.Fatal("wrong verdict")
			}
			if n := testing.AllocsPerRun(100, func() { test.match() }); n != 0 {
				t.Errorf("Matches allocates %v times", n)
			}
		})
	}
}

// TestLargeInput would run into the test binary's time limit if parsing or matching were quadratic.
func TestLargeInput(t *testing.T) {
	const (
		n      = 1 << 20 // bytes
		sorted = 1 << 17 // requirements, values or terms; fewer, as sorting is slow under -race
	)
	labels := []struct {
		name, input string
		ok          bool
	}{
		{"requirements", strings.Repeat("a,", sorted) + "a", true},
		{"values", "a in (" + strings.Repeat("a,b,", sorted) + ")", true},
		{"white space", strings.Repeat(" ", n) + "a" + strings.Repeat("\t", n), true},
		{"word", strings.Repeat("a", n), false},
		{"dots", strings.Repeat("a.", n) + "/a", false},
		{"slashes", strings.Repeat("/", n), false},
		{"not", strings.Repeat("!", n), false},
		{"open", "a in " + strings.Repeat("(", n), false},
		{"NUL", strings.Repeat("a\x00", n), false},
	}
	for _, test := range labels {
		t.Run("labels/"+test.name, func(t *testing.T) {
			s, err := selectors.ParseLabels(test.input)
			if (err == nil) != test.ok {
				t.Fatalf("error is %v", err)
			}
			if test.ok && !s.Matches(selectors.Set{"a", "a"}) {
				t.Errorf("%q doesn't match a=a", s)
			}
		})
	}
	fields := []struct {
		name, input string
		ok          bool
	}{
		{"terms", strings.Repeat("a=a,", sorted), true},
		{"many labels", manyFields(sorted), true},
		{"commas", strings.Repeat(",", n), true},
		{"escapes", "b!=" + strings.Repeat(`\,`, n), true},
		{"no operator", strings.Repeat("a", n), false},
		{"backslashes", strings.Repeat(`\`, n+1), false},
	}
	for _, test := range fields {
		t.Run("fields/"+test.name, func(t *testing.T) {
			s, err := selectors.ParseFields(test.input)
			if (err == nil) != test.ok {
				t.Fatalf("error is %v", err)
			}
			if test.ok && !s.Without("b", "c").Matches(fieldMap{"a": "a"}) {
				t.Error("doesn't match a=a")
			}
		})
	}
}
