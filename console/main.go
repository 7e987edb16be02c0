// Command console writes the files of the console, which server/console holds, from their sources.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/apiserver-lite/apiserver-lite/console/bundle"
)

// dist is where the files are kept, from the module's directory.
const dist = "../server/console/dist"

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write replaces the files in dist, and says how large they are.
func write() error {
	files, err := bundle.Make(".")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	all := 0
	for name, content := range files {
		packed := bundle.Pack(content)
		all += len(packed)
		fmt.Printf("%8d %8d %s\n", len(content), len(packed), name)
		if err := os.WriteFile(filepath.Join(dist, name+".gz"), packed, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d bytes compressed\n", all)
	return nil
}
