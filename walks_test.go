package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// maxWords is how many lines the glossary has at most: who reads it reads all of it.
const maxWords = 60

// TestWalks: each function that a walk of docs/architecture.md goes through is in the file that it names, and so is each type of the
// glossary.
func TestWalks(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Three walks\n")
	walks, rest, _ := strings.Cut(rest, "\n## Words\n")
	words, _, found := strings.Cut(rest, "\n## ")
	if !found {
		t.Fatal("the walks and the words aren't where they were")
	}
	named := regexp.MustCompile("`([A-Za-z.]+)` in `([a-z/_]+\\.go)`")
	for name, part := range map[string]string{"walks": walks, "words": words} {
		rows := 0
		for line := range strings.Lines(part) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| step |") || strings.HasPrefix(line, "| word |") {
				continue
			}
			rows++
			m := named.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: this line names nothing: %s", name, line)
				continue
			}
			if !declares(t, m[2], m[1]) {
				t.Errorf("%s: %s isn't in %s", name, m[1], m[2])
			}
		}
		if rows < 30 || name == "words" && rows > maxWords {
			t.Errorf("%s has %d lines", name, rows)
		}
	}
}

// declares reports whether a file declares a function, a method ("receiver.method") or a type.
func declares(t *testing.T, path, name string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			full := d.Name.Name
			if d.Recv != nil {
				full = receiver(d.Recv.List[0].Type) + "." + full
			}
			if full == name {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}

// receiver is the name of the type that a method belongs to.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
