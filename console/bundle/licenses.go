package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// inputsOf returns the files that esbuild has put into a bundle, in order.
func inputsOf(metafile string) ([]string, error) {
	var meta struct {
		Inputs map[string]json.RawMessage `json:"inputs"`
	}
	err := json.Unmarshal([]byte(metafile), &meta)
	return slices.Sorted(maps.Keys(meta.Inputs)), err
}

// licenses returns the licenses of the packages that files of a bundle are from, each with the package's name and version.
func licenses(dir string, inputs []string) ([]byte, error) {
	const modules = packages + "/node_modules/"
	names := map[string]bool{}
	for _, input := range inputs {
		if in, ok := strings.CutPrefix(filepath.ToSlash(input), modules); ok {
			parts := strings.SplitN(in, "/", 3)
			name := parts[0]
			if strings.HasPrefix(name, "@") {
				name += "/" + parts[1]
			}
			names[name] = true
		}
	}
	var out bytes.Buffer
	out.WriteString("The console of apiserver-lite has parts of these packages in it.\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := filepath.Join(dir, packages, "node_modules", name)
		text, err := os.ReadFile(filepath.Join(at, "package.json"))
		if err != nil {
			return nil, err
		}
		var about struct{ Version, License string }
		if err := json.Unmarshal(text, &about); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		license, err := licenseIn(at)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "\n%s\n%s %s (%s)\n\n%s\n", strings.Repeat("=", 80), name, about.Version, about.License, bytes.TrimSpace(license))
	}
	return out.Bytes(), nil
}

// licenseIn returns the license that a package brings.
func licenseIn(at string) ([]byte, error) {
	for _, name := range []string{"LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE"} {
		if text, err := os.ReadFile(filepath.Join(at, name)); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("%s has no license", at)
}
