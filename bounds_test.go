package main_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// bounds say how large code may be that isn't a test, in each module of the tree, and what to do where it's larger: who changes
// something has to keep in mind what stands around it.
var bounds = map[string]struct {
	most   int
	advice string
}{
	"file":     {500, "lines: it holds two nouns, so give the second one a file of its own"},
	"function": {60, "lines: look for a noun that has no name yet"},
	"struct":   {20, "fields, those of embedded structs that only split it among them: group what is set, locked or replaced together"},
	"package":  {6000, "lines, in thousands: move what can be told without the rest into a package of its own"},
}

// TestBounds: nothing is over its bound.
func TestBounds(t *testing.T) {
	sizes, err := sizesOf(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range boundProblems(sizes) {
		t.Error(problem)
	}
}

// boundProblems returns a sentence for each that is larger than it may be.
func boundProblems(sizes map[string]int) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		what, _, _ := strings.Cut(name, " ")
		if n := sizes[name]; n > bounds[what].most {
			problems = append(problems, fmt.Sprintf("%s has %d of at most %d %s", name, n, bounds[what].most, bounds[what].advice))
		}
	}
	return problems
}

// sizesOf counts the lines and fields of what a tree has, by "file NAME", "function FILE NAME", "struct FILE NAME" and "package NAME".
func sizesOf(tree fs.FS) (map[string]int, error) {
	sizes, packages := map[string]int{}, map[string]*structs{}
	err := fs.WalkDir(tree, ".", func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") && file != "." {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		content, err := fs.ReadFile(tree, file)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, content, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(file)
		if packages[dir] == nil {
			packages[dir] = &structs{map[string]*ast.StructType{}, map[string]string{}, map[string]int{}}
		}
		line := func(at token.Pos) int { return set.Position(at).Line }
		sizes["file "+file] = line(parsed.FileEnd)
		sizes["package "+dir] += line(parsed.FileEnd)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok {
				name := f.Name.Name
				if f.Recv != nil {
					name = typeName(f.Recv.List[0].Type) + "." + name
				}
				sizes["function "+file+" "+name] = line(f.End()) - line(f.Pos()) + 1
			}
			packages[dir].see(file, n)
			return true
		})
		return nil
	})
	for dir, of := range packages {
		sizes["package "+dir] = (sizes["package "+dir] + 999) / 1000 * 1000
		for name := range of.types {
			sizes["struct "+of.files[name]+" "+name] = of.fields(name)
		}
	}
	return sizes, err
}

// structs are those of a package.
type structs struct {
	types map[string]*ast.StructType
	files map[string]string // that they're in
	uses  map[string]int    // how many fields, parameters and results have a type of which the name is a part
}

func (s *structs) see(file string, n ast.Node) {
	switch n := n.(type) {
	case *ast.TypeSpec:
		if of, ok := n.Type.(*ast.StructType); ok {
			s.types[n.Name.Name], s.files[n.Name.Name] = of, file
		}
	case *ast.FuncDecl:
		if n.Recv != nil {
			s.uses[typeName(n.Recv.List[0].Type)]-- // its own methods are no use of a type
		}
	case *ast.Field:
		ast.Inspect(n.Type, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				s.uses[name.Name]++
			}
			return true
		})
	}
}

// fields counts the fields of a struct. An embedded one that nothing else uses only splits it, so what it has counts.
func (s *structs) fields(name string) (n int) {
	for _, f := range s.types[name].Fields.List {
		_, shared := f.Type.(*ast.StarExpr)
		if embedded := typeName(f.Type); len(f.Names) == 0 && !shared && s.types[embedded] != nil && s.uses[embedded] == 1 {
			n += s.fields(embedded)
		} else {
			n += max(1, len(f.Names))
		}
	}
	return n
}

// typeName is the name of a type of the package, or of what it points to; "" if it's of another one.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr: // with a type's argument
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}

// TestBoundProblems shows that the bounds catch what they're for.
func TestBoundProblems(t *testing.T) {
	const most = 20 // fields
	names := func(n int) string { return "a" + strings.Repeat(", a", n-1) + " int\n" }
	lines := func(n int) string { return strings.Repeat("//\n", n-2) }
	for _, test := range []struct {
		name  string
		files []string // after "package p"
		want  string   // a part of the only problem; empty if there's none
	}{
		{"file", []string{lines(501)}, "file p/0.go has 501 of at most 500 lines"},
		{"file as long as it may be", []string{lines(500)}, ""},
		{"function", []string{"func f() {\n" + lines(61) + "}\n"}, "function p/0.go f has 61 of at most 60 lines"},
		{"function as long as it may be", []string{"func f() {\n" + lines(60) + "}\n"}, ""},
		{"method", []string{"type t[A any] struct{}\n\nfunc (*t[A]) f() {\n" + lines(61) + "}\n"}, "function p/0.go t.f has 61"},
		{"struct", []string{"type t struct {\n" + names(most+1) + "}\n"}, "struct p/0.go t has 21 of at most 20 fields"},
		{"struct of another file that only splits it", []string{"type t struct {\nhalf\n" + names(most) + "}\n", "type half struct {\nb, c int\n}\nfunc (h *half) f() {}\n"}, "struct p/0.go t has 22"},
		{"struct with others in it that are something themselves", []string{"type t struct {\nhalf\n*other\n" + names(most-2) + "}\n", "type half struct {\nb, c int\n}\ntype other half\nfunc f(*half) {}\n"}, ""},
		{"package", slices.Repeat([]string{lines(500)}, 13), "package p has 7000 of at most 6000 lines"},
		{"package as long as it may be", slices.Repeat([]string{lines(500)}, 12), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := fstest.MapFS{"p/0_test.go": {Data: []byte("package p\n\n" + lines(501))}, "p/.git/0.go": {Data: []byte("package p\n\n" + lines(501))}}
			for i, file := range test.files {
				tree[fmt.Sprintf("p/%d.go", i)] = &fstest.MapFile{Data: []byte("package p\n\n" + file)}
			}
			sizes, err := sizesOf(tree)
			if err != nil {
				t.Fatal(err)
			}
			problems := boundProblems(sizes)
			if test.want == "" && len(problems) > 0 || test.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], test.want)) {
				t.Errorf("problems are %q, want one with %q", problems, test.want)
			}
		})
	}
}
