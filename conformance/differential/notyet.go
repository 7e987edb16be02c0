package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is what differences are counted by: a family of requests, and a field without places in lists.
type entry struct{ family, class string }

func notYetFile(dir, scenario string) string { return filepath.Join(dir, "notyet", scenario+".txt") }

// readNotYet returns what is allowed. A file that isn't there allows nothing.
func readNotYet(dir, scenario string) (map[entry]int, error) {
	allowed := map[entry]int{}
	f, err := os.Open(notYetFile(dir, scenario))
	if errors.Is(err, fs.ErrNotExist) {
		return allowed, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.Split(lines.Text(), "\t")
		var n int
		if _, err := fmt.Sscan(parts[0], &n); err != nil || len(parts) != 3 {
			return nil, fmt.Errorf("%s: %q isn't a count, a family and a field with tabs between", notYetFile(dir, scenario), lines.Text())
		}
		allowed[entry{parts[1], parts[2]}] = n
	}
	return allowed, nil
}

// writeNotYet replaces a scenario's file. With nothing in it there's none.
func writeNotYet(dir, scenario string, counts map[entry]int) error {
	var b strings.Builder
	lines := map[string]string{}
	for e, n := range counts {
		if n > 0 {
			lines[e.family+"\t"+e.class] = fmt.Sprint(n)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "%s\t%s\n", lines[line], line)
	}
	file := notYetFile(dir, scenario)
	if b.Len() == 0 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
