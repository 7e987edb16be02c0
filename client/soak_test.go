//go:build soak

package client_test

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestSoak runs the model tests again and again, for as long as SOAK says (10m without it). Each round is a process of its
// own, because the race detector's memory grows by some 200 MB a round and never shrinks.
func TestSoak(t *testing.T) {
	length := 10 * time.Minute
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 0
	for end := time.Now().Add(length); time.Now().Before(end); rounds++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^Test(Follow|Cache)Model$", "-test.v")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("round %d: %v\n%s", rounds+1, err, output)
		}
	}
	t.Logf("%d rounds", rounds)
}
