// Package bundle makes the console's files from its sources: TypeScript in src and the packages that package-lock.json names. The
// packages come from npm, which keeps them in .packages; esbuild, which is linked here, makes one script and one stylesheet of
// them, and scripts of their own for the editor and the plots, which most visits don't need. The same sources make the same files.
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
	files, inputs, err := build(dir)
	if err != nil {
		return nil, err
	}
	licenses, err := licenses(dir, inputs)
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(dir, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	files["index.html"] = []byte(strings.NewReplacer(
		"EARLY", files.named("early", ".js"),
		"SCRIPT", files.named("console", ".js"),
		"STYLE", files.named("console", ".css"),
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

// named returns the name of the file whose name begins and ends so, around a hash.
func (f Files) named(begin, end string) string {
	for name := range f {
		if strings.HasPrefix(name, begin+".") && strings.HasSuffix(name, end) {
			return name
		}
	}
	return ""
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

// build bundles the sources, and returns the paths of the files that are in them, below the module's directory. What is imported only when
// it's needed is a file of its own.
func build(dir string) (Files, []string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: dir, EntryPointsAdvanced: []api.EntryPoint{{InputPath: "src/early.ts", OutputPath: "early"}, {InputPath: "src/main.tsx", OutputPath: "console"}},
		NodePaths: []string{filepath.Join(dir, packages, "node_modules")}, Outdir: filepath.Join(dir, "out"),
		Bundle: true, Splitting: true, Format: api.FormatESModule, Target: api.ES2022, EntryNames: "[name].[hash]", ChunkNames: "[name].[hash]",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsNone,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", Charset: api.CharsetUTF8, Metafile: true,
	})
	if len(result.Errors) > 0 {
		return nil, nil, errors.New(strings.Join(api.FormatMessages(result.Errors, api.FormatMessagesOptions{}), "\n"))
	}
	files := Files{}
	for _, file := range result.OutputFiles {
		files[filepath.Base(file.Path)] = file.Contents
	}
	inputs, err := inputsOf(result.Metafile)
	return files, inputs, err
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
