package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// etcdsLocks are the methods of etcd's server through which its database is reached, with the files that may call them. etcd
// holds the locks behind them during a whole defragmentation, and no context ends the wait. So who answers health, metrics
// or a barrier stays away from them, and a call from elsewhere needs a line here, and a reason.
var etcdsLocks = map[string][]string{
	"Backend": {
		"storage/etcd/database.go",    // the door: it publishes what others need
		"storage/etcd/raise.go",       // a migration's, before anybody uses the store
		"storage/embedded/changes.go", // reads of history, which say that they wait
	},
	"Defragment": {"storage/etcd/database.go"},
	"Defrag":     nil,
	"Alarms":     {"storage/etcd/database.go"},
	"KV": {
		"storage/etcd/compaction.go",  // the keeper's goroutine, or the start
		"storage/etcd/space.go",       // the keeper's goroutine
		"storage/etcd/raise.go",       // as above
		"storage/embedded/store.go",   // reads that say that they wait
		"storage/embedded/changes.go", // as above
	},
	"Lessor":    nil,
	"AuthStore": nil,
}

// TestEtcdsLocks: production code reaches etcd's database in the files above only.
func TestEtcdsLocks(t *testing.T) {
	used := map[string]bool{}
	eachMethod(t, func(at token.Position, of ast.Expr, method string, called bool) {
		files, guarded := etcdsLocks[method]
		if !guarded || !called && method != "Defragment" { // which may be passed on
			return
		}
		used[method+" "+at.Filename] = true
		if !slices.Contains(files, at.Filename) {
			t.Errorf("%s: %s takes locks that etcd holds during a whole defragmentation: ask storage/etcd/database.go, or add the file to etcdsLocks with its reason", at, method)
		}
	})
	for method, files := range etcdsLocks {
		for _, file := range files {
			if !used[method+" "+file] {
				t.Errorf("%s doesn't call %s any more: take it out of etcdsLocks", file, method)
			}
		}
	}
}

// TestPathsAreNoPatterns: production code looks for no files by a pattern, of which a directory's name would be a part: that may
// have the characters of one. os.ReadDir and the end of a name do.
func TestPathsAreNoPatterns(t *testing.T) {
	eachMethod(t, func(at token.Position, of ast.Expr, method string, _ bool) {
		if of, ok := of.(*ast.Ident); ok && slices.Contains([]string{"filepath.Glob", "filepath.Match", "fs.Glob"}, of.Name+"."+method) {
			t.Errorf("%s: %s.%s takes the name of a directory for a pattern", at, of.Name, method)
		}
	})
}

// others are words of other people's code in comments of ours, and plurals of names.
var others = strings.Fields("applyAppArmorVersionSkew attemptToDeleteItem crConverter iSCSI listMapKey pendingConfIndex resourceVersions sourceIPs stripMeta structType " +
	"customresource_handler.go file.go status_strategy.go")

// TestCommentsName: what comments name, if it's written as names of functions, fields and files are, is there. A word with a quote, a slash or a
// dot at it is no such name.
func TestCommentsName(t *testing.T) {
	known, said := map[string]bool{}, map[string]token.Position{}
	for _, word := range others {
		known[word] = true
	}
	name := regexp.MustCompile(`(?:^|[\s(])([a-z]+[A-Z]\w*|[a-z_]+\.go)(?:[\s,;:)]|\.\s|$)`)
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		known[filepath.Base(path)] = true
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.ToSlash(path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				known[n.Name] = true
			case *ast.BasicLit: // names on the wire
				for _, word := range regexp.MustCompile(`\w+`).FindAllString(n.Value, -1) {
					known[word] = true
				}
			}
			return true
		})
		for _, group := range file.Comments {
			for _, found := range name.FindAllStringSubmatch(group.Text(), -1) {
				said[found[1]] = set.Position(group.Pos())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for word, at := range said {
		if !known[word] {
			t.Errorf("%s: the comment names %s, which isn't there", at, word)
		}
	}
}

// eachMethod calls f with each X.Name in our production code: X, Name, and whether it's called, without arguments.
func eachMethod(t *testing.T, f func(at token.Position, of ast.Expr, name string, called bool)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bench") || strings.HasPrefix(path, "conformance") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.ToSlash(path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		called := map[ast.Expr]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr: // before its Fun
				called[n.Fun] = len(n.Args) == 0
			case *ast.SelectorExpr:
				f(set.Position(n.Pos()), n.X, n.Sel.Name, called[n])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
