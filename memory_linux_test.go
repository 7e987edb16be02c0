package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestForgetCode: the program's code is out of the process's memory, and runs as before.
func TestForgetCode(t *testing.T) {
	before := codeInMemory(t)
	if err := forgetCode(); err != nil {
		t.Fatal(err)
	}
	if after := codeInMemory(t); after >= before {
		t.Errorf("%d kB of code are in memory, as before (%d kB)", after, before)
	}
}

// codeInMemory returns how much of the program's code is in the process's memory, in kB.
func codeInMemory(t *testing.T) (sum int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	code := false
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "-") && strings.Contains(line, "p ") {
			code = strings.Contains(line, " r-xp ") && strings.HasSuffix(line, program+"\n")
		}
		if n := 0; code && strings.HasPrefix(line, "Rss:") {
			if _, err := fmt.Sscanf(line, "Rss: %d kB", &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
