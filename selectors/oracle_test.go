package selectors_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// derivedSets is how many label sets or field sets are made from the words of one selector.
const derivedSets = 24

// checkLabels holds what ParseLabels makes of input against apimachinery's labels.Parse, and against
// the properties that are ours alone. sets are matched beside those derived from the selector. It
// returns on how many sets the selector's Term was put to the test.
func checkLabels(t *testing.T, input string, sets ...map[string]string) (termsTested int) {
	t.Helper()
	got, err := selectors.ParseLabels(input)
	oracle, oracleErr := labels.Parse(input)
	if (err == nil) != (oracleErr == nil) {
		t.Fatalf("ParseLabels(%q) says %v, apimachinery says %v", input, err, oracleErr)
	}
	if err != nil {
		checkParseError(t, input, err)
		return 0
	}
	if got.Empty() != oracle.Empty() {
		t.Errorf("Empty of %q is %v", input, got.Empty())
	}
	canonical := got.String()
	requirements, _ := oracle.Requirements()
	spellings := []string{canonical, oracle.String()}
	backwards := ""
	for _, r := range slices.Backward(requirements) {
		backwards += r.String() + " ,\n" + r.String() + ","
	}
	spellings = append(spellings, strings.TrimSuffix(backwards, ","))
	for _, text := range spellings {
		if again := mustLabels(t, text).String(); again != canonical {
			t.Errorf("%q prints as %q, but its other spelling %q as %q", input, canonical, text, again)
		}
	}
	printed, err := labels.Parse(canonical)
	if err != nil {
		t.Fatalf("apimachinery doesn't parse %q: %v", canonical, err)
	}
	key, values, ok := got.Term()
	if wantTerm := slices.ContainsFunc(requirements, isEquality); ok != wantTerm {
		t.Errorf("%q has a term: %v, want %v", input, ok, wantTerm)
	}
	for _, m := range append(sets, labelSets(requirements)...) {
		set, want := selectors.SetOf(m), oracle.Matches(labels.Set(m))
		if got.Matches(set) != want {
			t.Errorf("%q matches %v: %v, apimachinery says %v", input, m, !want, want)
		}
		if printed.Matches(labels.Set(m)) != want {
			t.Errorf("apimachinery says that %q and its canonical form %q differ about %v", input, canonical, m)
		}
		if ok && want {
			termsTested++
			if value, has := set.Get(key); !has || !slices.Contains(values, value) {
				t.Errorf("%q matches %v, but its term is %q %q", input, m, key, values)
			}
		}
	}
	return termsTested
}

func isEquality(r labels.Requirement) bool {
	return r.Operator() == "=" || r.Operator() == "==" || r.Operator() == "in"
}

// labelSets makes sets of labels near the border of what the requirements select.
func labelSets(requirements labels.Requirements) []map[string]string {
	values := map[string][]string{}
	for _, r := range requirements {
		near := values[r.Key()]
		for _, v := range r.ValuesUnsorted() {
			near = append(near, v, v, v+"0")
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				near = append(near, fmt.Sprint(n-1), fmt.Sprint(n+1), "+"+v, "-"+v, "0"+v, v+"00000000000000000000")
			}
		}
		values[r.Key()] = near
	}
	return makeSets(values)
}

// makeSets picks for each key one of the values, or the empty one, or leaves it out. The same values
// give the same sets.
func makeSets(values map[string][]string) []map[string]string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	random := rand.New(rand.NewPCG(1, 2))
	sets := make([]map[string]string, derivedSets)
	for i := range sets {
		sets[i] = map[string]string{"other": "x"}
		for _, key := range keys {
			choice := random.IntN(len(values[key]) + 2)
			switch choice - len(values[key]) {
			case 0:
			case 1:
				sets[i][key] = ""
			default:
				sets[i][key] = values[key][choice]
			}
		}
	}
	return sets
}

func checkParseError(t *testing.T, input string, err error) {
	t.Helper()
	var parseError *selectors.ParseError
	if !errors.As(err, &parseError) {
		t.Fatalf("error for %q is a %T", input, err)
	}
	if parseError.Input != input || parseError.Pos < 0 || parseError.Pos > len(input) {
		t.Errorf("error for %q is about position %d of %q", input, parseError.Pos, parseError.Input)
	}
	const maxMessage = 800
	msg := err.Error()
	if !utf8.ValidString(msg) || strings.ContainsAny(msg, "\n\r\x00") || len(msg) > maxMessage {
		t.Errorf("error for %q isn't a readable line: %q", input, msg)
	}
	if !strings.Contains(msg, fmt.Sprintf("at position %d", parseError.Pos)) {
		t.Errorf("error for %q doesn't name position %d: %q", input, parseError.Pos, msg)
	}
}

// checkFields is checkLabels for field selectors.
func checkFields(t *testing.T, input string, sets ...fieldMap) (termsTested int) {
	t.Helper()
	got, err := selectors.ParseFields(input)
	oracle, oracleErr := fields.ParseSelector(input)
	if (err == nil) != (oracleErr == nil) {
		t.Fatalf("ParseFields(%q) says %v, apimachinery says %v", input, err, oracleErr)
	}
	if err != nil {
		checkParseError(t, input, err)
		return 0
	}
	if got.Empty() != oracle.Empty() {
		t.Errorf("Empty of %q is %v", input, got.Empty())
	}
	canonical := got.String()
	for _, text := range []string{canonical, oracle.String(), "," + canonical + "," + canonical + ","} {
		if again := mustFields(t, text).String(); again != canonical {
			t.Errorf("%q prints as %q, but its other spelling %q as %q", input, canonical, text, again)
		}
	}
	printed, err := fields.ParseSelector(canonical)
	if err != nil {
		t.Fatalf("apimachinery doesn't parse %q: %v", canonical, err)
	}
	checkExact(t, got, oracle)
	label, value, ok := got.Term()
	taken := got.Without(got.Names()...)
	for _, m := range append(sets, fieldSets(oracle.Requirements())...) {
		want := oracle.Matches(fields.Set(m))
		if got.Matches(m) != want {
			t.Errorf("%q matches %v: %v, apimachinery says %v", input, m, !want, want)
		}
		if printed.Matches(fields.Set(m)) != want {
			t.Errorf("apimachinery says that %q and its canonical form %q differ about %v", input, canonical, m)
		}
		if ok && want {
			termsTested++
			if m.Field(label) != value {
				t.Errorf("%q matches %v, but its term is %q=%q", input, m, label, value)
			}
		}
		if hasExact(got, m) && taken.Matches(m) != want {
			t.Errorf("%q and what Without left of it, %q, differ about %v", input, taken, m)
		}
	}
	return termsTested
}

// hasExact reports whether m has all values that Exact names.
func hasExact(s selectors.FieldSelector, m fieldMap) bool {
	for _, label := range s.Names() {
		if value, ok := s.Exact(label); ok && m.Field(label) != value {
			return false
		}
	}
	return true
}

// checkExact compares Names and Exact with apimachinery, which may choose another value than we do
// only if the selector asks for both.
func checkExact(t *testing.T, got selectors.FieldSelector, oracle fields.Selector) {
	t.Helper()
	asked := map[string][]string{}
	for _, r := range oracle.Requirements() {
		if asked[r.Field] == nil {
			asked[r.Field] = []string{}
		}
		if r.Operator == "=" {
			asked[r.Field] = append(asked[r.Field], r.Value)
		}
	}
	if !slices.IsSorted(got.Names()) || len(got.Names()) != len(asked) {
		t.Errorf("Names of %q are %q, want those of %v", got, got.Names(), asked)
	}
	for label, values := range asked {
		if !slices.Contains(got.Names(), label) {
			t.Errorf("Labels of %q don't have %q", got, label)
		}
		value, ok := got.Exact(label)
		if _, want := oracle.RequiresExactMatch(label); ok != want || ok && !slices.Contains(values, value) {
			t.Errorf("Exact(%q) of %q is %q, %v; want one of %q", label, got, value, ok, values)
		}
	}
}

// fieldSets makes objects near the border of what the terms select.
func fieldSets(requirements fields.Requirements) []fieldMap {
	values := map[string][]string{}
	for _, r := range requirements {
		values[r.Field] = append(values[r.Field], r.Value, r.Value, r.Value+"0", `\`+r.Value)
	}
	var sets []fieldMap
	for _, m := range makeSets(values) {
		sets = append(sets, m)
	}
	return sets
}

// pairs reads `k=v,k=v` as labels or fields, whatever the bytes.
func pairs(text string) map[string]string {
	m := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return m
}

func FuzzLabels(f *testing.F) {
	for _, input := range []string{
		"", "a", "!a", "a=b", "a==b", "a!=b", "a in (b,c)", "a notin (b,,c)", "a>1", "a<2", "x in ()", "a=,b!=,c in (,)",
		"example.com/tier=front,size>007,!legacy", " in in (in , notin) ", "a===b", "a!==b", "a=!b", "a>=1", "a\x00=b\x00\x00)",
		"a/b/c", "A.b/c", "-a", "a=b-", "a>-1", "a<9223372036854775808", "a in (b", "a,,b", "é=ü",
	} {
		f.Add(input, "a=b,size=8,tier=")
	}
	f.Fuzz(func(t *testing.T, input, set string) {
		checkLabels(t, input, pairs(set))
	})
}

func FuzzFields(f *testing.F) {
	for _, input := range []string{
		"", "a=b", "a==b", "a!=b", "a=b,c!=d,", ",,", "=", "!=", "==", "=b", `a=\,\=\\`, `a\=b`, `a\==\,b`, `a=\`, `a=\x`, "a!b=c",
		"a!==b", "a===b", "a=b=c", " a = b ", "a", "metadata.name=x,metadata.name=y", "a=\xff", "a=\xff\\,",
	} {
		f.Add(input, "a=b,metadata.name=x")
	}
	f.Fuzz(func(t *testing.T, input, set string) {
		checkFields(t, input, pairs(set))
	})
}

// TestRandomSelectors is the fuzz tests' comparison on random rows of words that often are selectors.
func TestRandomSelectors(t *testing.T) {
	const rounds, minTested = 6_000, 3_000
	tests := []struct {
		name  string
		words []string
		forms []string // each ? is a word
		check func(t *testing.T, input string) (termsTested int)
	}{
		{
			"labels",
			[]string{"a", "b", "c", "in", "notin", "1", "7", "x/y", "", " ", "=", "!", "(", ")", ",", ">", "-", "\x00", "é"},
			[]string{"?", "!?", "?=?", "?==?", "?!=?", "? in (?,?)", "? in (?)", "? notin (?,?,?)", "?>7", "?<1", "?>?", "???"},
			func(t *testing.T, input string) int { return checkLabels(t, input) },
		},
		{
			"fields",
			[]string{"a", "b", "metadata.name", "1", "7", "", " ", "=", "!", ",", `\`, `\\`, `\=`, `\,`, "\xff"},
			[]string{"?=?", "?==?", "?!=?", "?=??", "???", ""},
			func(t *testing.T, input string) int { return checkFields(t, input) },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			tested := 0
			for range rounds {
				parts := make([]string, 1+random.IntN(4))
				for i := range parts {
					parts[i] = test.forms[random.IntN(len(test.forms))]
					for strings.Contains(parts[i], "?") {
						word := test.words[int(float64(len(test.words))*random.Float64()*random.Float64())] // rather the first
						parts[i] = strings.Replace(parts[i], "?", word, 1)
					}
				}
				tested += test.check(t, strings.Join(parts, ","))
			}
			if tested < minTested {
				t.Errorf("Term was put to the test only %d times", tested)
			}
		})
	}
}
