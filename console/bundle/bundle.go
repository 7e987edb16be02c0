// Package bundle makes the console's files from its sources: TypeScript in src and the packages that package-lock.json names. The
// packages come from npm, which keeps them in .packages; esbuild, which is linked here, makes one script and one stylesheet of
// them, and a second script for what most visits don't need. The same sources make the same files.
package bundle

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// Files are the console's, by name, as a browser gets them.
type Files map[string][]byte

// packages is where npm puts the packages, below the module's directory.
const packages = ".packages"

// Make makes the files from the sources in dir, the directory of the module. It asks npm for the packages if those of the lock
// file aren't there yet.
func Make(dir string) (Files, error) {
	if err := Install(dir); err != nil {
		return nil, err
	}
	script, err := build(dir, "src/main.tsx", nil)
	if err != nil {
		return nil, err
	}
	editor, err := build(dir, "src/editor/editor.ts", nil)
	if err != nil {
		return nil, err
	}
	files := Files{}
	editorName := files.add("editor", ".js", editor.script)
	// The name of the second script is known only now, so the first one has a word in its place.
	main := bytes.ReplaceAll(script.script, []byte("EDITOR_SCRIPT"), []byte("./"+editorName))
	licenses, err := licenses(dir, slices.Concat(script.inputs, editor.inputs))
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(dir, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	files["index.html"] = []byte(strings.NewReplacer(
		"SCRIPT", files.add("console", ".js", main),
		"STYLE", files.add("console", ".css", script.style),
		"LICENSES", files.add("licenses", ".txt", licenses),
	).Replace(string(page)))
	return files, nil
}

// add takes a file under a name that has a hash of its content, and returns the name.
func (f Files) add(name, end string, content []byte) string {
	sum := sha256.Sum256(content)
	name += "." + hex.EncodeToString(sum[:5]) + end
	f[name] = content
	return name
}

// Install has npm bring the packages of the lock file, unless they're there.
func Install(dir string) error {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	at := filepath.Join(dir, packages)
	stamp := filepath.Join(at, "installed")
	if there, err := os.ReadFile(stamp); err == nil && bytes.Equal(there, lock) {
		return nil
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
			return err
		}
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = at
	if output, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", npm, err, output)
	}
	return os.WriteFile(stamp, lock, 0o644)
}

// built is what esbuild makes of a source and what it imports.
type built struct {
	script, style []byte
	inputs        []string // the paths of the files in it, below the module's directory
}

// build bundles the source with that name.
func build(dir, name string, external []string) (*built, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: dir, EntryPoints: []string{name}, NodePaths: []string{filepath.Join(dir, packages, "node_modules")},
		Bundle: true, Format: api.FormatESModule, Target: api.ES2022, External: append(external, "EDITOR_SCRIPT"),
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsNone,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", Charset: api.CharsetUTF8, Metafile: true, Outdir: filepath.Join(dir, "out"),
	})
	if len(result.Errors) > 0 {
		return nil, errors.New(strings.Join(api.FormatMessages(result.Errors, api.FormatMessagesOptions{}), "\n"))
	}
	b := &built{}
	for _, file := range result.OutputFiles {
		switch filepath.Ext(file.Path) {
		case ".js":
			b.script = file.Contents
		case ".css":
			b.style = file.Contents
		}
	}
	b.inputs, err = inputsOf(result.Metafile)
	return b, err
}

// Pack compresses a file as it's stored. How well differs by the version of Go, so what's stored is compared by Unpack.
func Pack(content []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // an error would be that of the level
	w.Write(content)                                        // a buffer takes all
	w.Close()
	return out.Bytes()
}

// Unpack is the reverse of Pack.
func Unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
