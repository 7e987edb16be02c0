package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
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
		"storage/etcd/keeper.go",      // its goroutine, or the start
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
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bench/") {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, called := n.(*ast.CallExpr)
			if called && len(call.Args) == 0 {
				n = call.Fun
			}
			method, ok := n.(*ast.SelectorExpr)
			if !ok || !called && method.Sel.Name != "Defragment" { // which may be passed on
				return true
			}
			files, guarded := etcdsLocks[method.Sel.Name]
			if guarded && !slices.Contains(files, filepath.ToSlash(path)) {
				t.Errorf("%s: %s takes locks that etcd holds during a whole defragmentation: ask storage/etcd/database.go, or add the file to etcdsLocks with its reason", set.Position(n.Pos()), method.Sel.Name)
			}
			if guarded {
				used[method.Sel.Name+" "+filepath.ToSlash(path)] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for method, files := range etcdsLocks {
		for _, file := range files {
			if !used[method+" "+file] {
				t.Errorf("%s doesn't call %s any more: take it out of etcdsLocks", file, method)
			}
		}
	}
}
