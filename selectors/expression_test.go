package selectors_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// typesByName makes the type of a field from the beginning of its last name, so that tests need no schema.
func typesByName(p selectors.Path, _ int) (selectors.Type, error) {
	last := p[len(p)-1]
	for prefix, t := range map[string]selectors.Type{
		"n": selectors.Integer, "f": selectors.Number, "is": selectors.Boolean, "t": selectors.Time, "o": selectors.Composite, "p": selectors.IntOrText,
	} {
		if strings.HasPrefix(last.Name, prefix) {
			return t, nil
		}
	}
	return selectors.Text, nil
}

func resolve(input string) (selectors.Expression, error) {
	e, err := selectors.ParseExpression(input)
	if err != nil {
		return e, err
	}
	return e.Resolve(input, typesByName)
}

func TestExpressionIsCanonical(t *testing.T) {
	for _, test := range []struct{ name, input, want string }{
		{"nothing", "", ""},
		{"white space", " \t", ""},
		{"equality", "spec.n=3", "spec.n=3"},
		{"two signs", "spec.n == 03", "spec.n=3"},
		{"leading dot", ".spec.n!=3", "spec.n!=3"},
		{"in one", "a in (x)", "a=x"},
		{"sorted values", "a in (y, x,x)", "a in (x,y)"},
		{"notin", "a notin (y,x)", "a notin (x,y)"},
		{"there", "a.b", "a.b"},
		{"not there", "! a.b", "!a.b"},
		{"and binds more than or", "a=1,b=2||c=3", "a=1,b=2||c=3"},
		{"order", "c=3 || b=2 , a=1, a=1", "a=1,b=2||c=3"},
		{"empty comparisons", ",a=1,,b=2,||c,", "a=1,b=2||c"},
		{"empty value", "a=", "a=''"},
		{"prefix", "spec.host^=eu-", "spec.host^=eu-"},
		{"order of numbers", "f>=1.50,f<1e3", "f>=1.5,f<1000"},
		{"negative", "n<=-5", "n<=-5"},
		{"time", "t>2026-01-01T01:00:00+01:00", "t>2026-01-01T00:00:00Z"},
		{"quotes", `a="x, 'y'"`, `a='x, \'y\''`},
		{"backslashes", `a=x\,y\=z\\`, `a='x,y=z\\'`},
		{"all elements", "spec.ports[*].n=80", "spec.ports[*].n=80"},
		{"elements of elements", "a[*][*]=x", "a[*][*]=x"},
		{"key in brackets", `metadata.annotations['a.b/c']=x`, `metadata.annotations['a.b/c']=x`},
		{"key that needs none", `a["b"]=x`, `a.b=x`},
		{"key with a quote", `a["it's"]`, `a['it\'s']`},
		{"called as an operator", "in in (in), notin", "in=in,notin"},
		{"empty list", "a in ()", "a=''"},
		{"alternatives once", "a=1||a==1||b", "a=1||b"},
		{"one that can't be", "n=1,n=2||a=1", "a=1"},
		{"none that can be", "n=1,n=2", "n=1,n=2"},
		{"integer or text", "p in (80,http)", "p in (80,http)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := resolve(test.input)
			if err != nil {
				t.Fatal(err)
			}
			if e.String() != test.want {
				t.Errorf("%q prints as %q, want %q", test.input, e, test.want)
			}
			if again, err := resolve(e.String()); err != nil || again.String() != test.want {
				t.Errorf("%q prints as %q, %v", test.want, again, err)
			}
		})
	}
}

func TestExpressionErrors(t *testing.T) {
	for _, test := range []struct {
		name, input string
		pos         int
		want        string
	}{
		{"no field", "=3", 0, "expected the name of a field"},
		{"empty alternative", "a||", 3, "found the end at position 3, expected the name of a field"},
		{"one bar", "a=1|b=2", 3, "found '|' at position 3, expected ',' or '||' or the end"},
		{"unknown operator", "a~3", 1, "found '~' at position 1, expected an operator"},
		{"two words", "a b", 2, "found 'b' at position 2, expected an operator"},
		{"two values", "a=x y", 4, "found 'y' at position 4, expected ','"},
		{"list without parentheses", "a in x", 5, "expected '('"},
		{"list without an end", "a in (x", 7, "found the end at position 7, expected ',' or ')'"},
		{"element by number", "a[0]=x", 2, "found '0' at position 2, expected '*'"},
		{"quote without an end", "a='x", 4, "expected the closing '"},
		{"bracket without an end", "a['x'=3", 5, "expected ']'"},
		{"escape of a letter", `a=\x`, 3, "found 'x' at position 3, expected after a backslash"},
		{"path ends in a dot", "a.=3", 2, "expected the name of a field"},
		{"integer", "a=1,n=x", 6, "found 'x' at position 6, expected an integer"},
		{"fraction", "n>1.5", 2, "found '1.5' at position 2, expected an integer"},
		{"number", "f=x", 2, "expected a number"},
		{"boolean", "is=yes", 3, "expected true or false"},
		{"time", "t>yesterday", 2, "expected a time"},
		{"object", "o=3", 0, "it can only be there"},
		{"order of booleans", "is>true", 0, "it has no order"},
		{"order of mixtures", "p>3", 0, "it has no order"},
		{"prefix of an integer", "n^=3", 0, "only a text has a beginning"},
		{"too many comparisons", strings.Repeat("a,", selectors.MaxComparisons) + "a", 129, "more than 64 comparisons"},
		{"too many values", "a in (" + strings.Repeat("x,", selectors.MaxValues) + "x)", 6 + 2*1024 + 1, "more than 1024 values"},
		{"too deep", strings.Repeat("a.", selectors.MaxSteps) + "a", 65, "more than 32 steps"},
		{"too long", strings.Repeat("a", selectors.MaxExpression+1), selectors.MaxExpression, "more than 16384 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := resolve(test.input)
			var parseError *selectors.ParseError
			if !errors.As(err, &parseError) || parseError.Pos != test.pos || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q: %v, want position %d and %q", test.input, err, test.pos, test.want)
			}
		})
	}
}

func TestExpressionNever(t *testing.T) {
	for input, want := range map[string]bool{
		"n=1,n=2": true, "n=1,n!=1": true, "n=1,n>1": true, "n in (1,2),n>=2": false, "n>5,n<3": true, "n>3,n<5": false, "a,!a": true, "a=x,!a": true,
		"!a,a!=x": false, "a^=x,a^=y": true, "a^=x,a^=xy": false, "a[*]=x,a[*]=y": false, "n=1,n=2||a": false, "a notin (x),a=x||n=1,n=2": true, "": false,
	} {
		e, err := resolve(input)
		if err != nil || e.Never() != want {
			t.Errorf("%q can't be met: %v, %v", input, e.Never(), err)
		}
	}
}

func TestExpressionExact(t *testing.T) {
	for _, test := range []struct{ input, path, want string }{
		{"metadata.name=x", "metadata.name", "x"},
		{"a,metadata.name = 'x'", "metadata.name", "x"},
		{"metadata.name=x,a!=1||!y", "metadata.name", ""},
		{"metadata.name=x,a||metadata.name=x", "metadata.name", "x"},
		{"metadata.name=x||metadata.name=y", "metadata.name", ""},
		{"metadata.name in (x,y)", "metadata.name", ""},
		{"metadata.name!=x", "metadata.name", ""},
		{"a=1", "metadata.name", ""},
	} {
		e, err := selectors.ParseExpression(test.input)
		if got, ok := e.Exact(test.path); err != nil || got != test.want || ok != (test.want != "") {
			t.Errorf("%q fixes %s as %q, %v (%v), want %q", test.input, test.path, got, ok, err, test.want)
		}
	}
}

// TestKeysAreInOrder: keys compare as values do.
func TestKeysAreInOrder(t *testing.T) {
	for typ, values := range map[selectors.Type][]string{
		selectors.Integer: {"-9223372036854775808", "-2", "-1", "0", "1", "9", "10", "9223372036854775807"},
		selectors.Number:  {"-1e300", "-2.5", "-1e-300", "0", "1e-300", "0.5", "2", "10", "1e300"},
		selectors.Time:    {"0001-01-01T00:00:00Z", "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.2Z", "2026-01-01T00:00:00Z"},
		selectors.Text:    {"", "a", "aa", "b"},
	} {
		if typ == selectors.Time { // the last one was put there to be found
			values = append(values[:3:3], values[5], values[3], values[4])
		}
		last := ""
		for i, v := range values {
			key, ok := typ.AppendKey(nil, []byte(v))
			if !ok || i > 0 && string(key) <= last {
				t.Errorf("%s: the key of %q isn't above that of %q", typ, v, values[max(i-1, 0)])
			}
			last = string(key)
		}
	}
	zero, _ := selectors.Number.AppendKey(nil, []byte("0"))
	if negative, _ := selectors.Number.AppendKey(nil, []byte("-0.0")); string(negative) != string(zero) {
		t.Error("there are two zeros")
	}
}

func TestPaths(t *testing.T) {
	paths, err := selectors.ParsePaths(" metadata.name, .spec.a[*].b ,metadata.name")
	if got := fmt.Sprint(paths); err != nil || got != "[metadata.name spec.a[*].b]" {
		t.Errorf("%s, %v", got, err)
	}
	many := "a"
	for i := range selectors.MaxPaths {
		many += fmt.Sprint(",a", i)
	}
	for _, bad := range []string{"", "a,", "a b", "a=1", many} {
		if paths, err := selectors.ParsePaths(bad); err == nil {
			t.Errorf("%q is %v", bad, paths)
		} else if err != nil {
			checkParseError(t, bad, err)
		}
	}
	key, err := selectors.ParseSortKey("- .spec.size")
	if err != nil || key.String() != "-spec.size" {
		t.Errorf("%s, %v", key, err)
	}
	for _, bad := range []string{"", "-", "a,b"} {
		if _, err := selectors.ParseSortKey(bad); err == nil {
			t.Errorf("%q is a sort key", bad)
		}
	}
}

func TestShards(t *testing.T) {
	half := "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	other := `shardRange( object.metadata.uid,"0x8000000000000000",'0x10000000000000000' )`
	first, err := selectors.ParseShards(half)
	if err != nil {
		t.Fatal(err)
	}
	second, err := selectors.ParseShards(other)
	if err != nil {
		t.Fatal(err)
	}
	both, err := selectors.ParseShards(other + "||" + half)
	if err != nil || both.Field() != "metadata.uid" {
		t.Fatal(both, err)
	}
	in := 0
	for i := range 100 {
		uid := fmt.Appendf(nil, "%x", sha256.Sum256([]byte{byte(i)}))
		if first.Has(uid) == second.Has(uid) || !both.Has(uid) {
			t.Errorf("%s is in %v, %v and %v", uid, first.Has(uid), second.Has(uid), both.Has(uid))
		}
		if first.Has(uid) {
			in++
		}
	}
	if in < 30 || in > 70 {
		t.Errorf("%d of 100 are in one half", in)
	}
	if !second.Has([]byte("")) { // FNV-1a of nothing is 0xcbf29ce484222325
		t.Error("it's another hash")
	}
	if again, err := selectors.ParseShards(both.String()); err != nil || again.String() != both.String() {
		t.Errorf("%s, %v", again, err)
	}
	for _, bad := range []string{
		"", "x", "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')", strings.Replace(half, "0x0000000000000000", "0x0", 1),
		strings.Replace(half, "'0x0000000000000000'", "0", 1), strings.Replace(half, "0x8000000000000000", "0x0000000000000000", 1), half + " && " + half, half + "||",
		half + "||" + strings.Replace(other, "uid", "namespace", 1), strings.Replace(half, "0x8", "0xA", 1), strings.TrimSuffix(half, ")"),
	} {
		if _, err := selectors.ParseShards(bad); err == nil {
			t.Errorf("%q is a shard", bad)
		} else {
			checkParseError(t, bad, err)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, input := range []string{
		"", "a", "!a", "a=b", "a.n>3,b!=c||d in (e,f)", "a['x.y'][*].z^='q \\' r'", "n notin (1,2)", ".a.b == \"c\"", "t<=2026-01-01T00:00:00Z", "f>1e400", "a=\\,", "||", "a in ()",
	} {
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input string) {
		e, err := resolve(input)
		if err != nil {
			checkParseError(t, input, err)
			return
		}
		again, err := resolve(e.String())
		if err != nil || again.String() != e.String() || again.Never() != e.Never() {
			t.Errorf("%q prints as %q, and that as %q, %v", input, e, again, err)
		}
	})
}

// FuzzPaths: what names fields is refused with the position, or prints as what is read as the same.
func FuzzPaths(f *testing.F) {
	for _, input := range []string{
		"", "a", "-a", "- .a.b", "a,b", " .a[*].b , c['x.y']", "a['it\\'s']", "a['']", "a[*", "a[b]", "a..b", "a,", "a.b[*][*]", "-a-b", "a b", "\x00", "é.ü", "a['\n']",
	} {
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input string) {
		paths, err := selectors.ParsePaths(input)
		if err != nil {
			checkParseError(t, input, err)
		}
		for _, path := range paths {
			again, err := selectors.ParsePaths(path.String())
			if err != nil || len(again) != 1 || !slices.Equal(again[0], path) {
				t.Errorf("%q has %q, which is read as %q, %v", input, path, again, err)
			}
		}
		key, err := selectors.ParseSortKey(input)
		if err != nil {
			checkParseError(t, input, err)
			return
		}
		again, err := selectors.ParseSortKey(key.String())
		if err != nil || again.Descending != key.Descending || !slices.Equal(again.Path, key.Path) {
			t.Errorf("%q sorts by %q, and that by %q, %v", input, key, again, err)
		}
	})
}
