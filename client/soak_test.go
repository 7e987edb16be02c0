//go:build soak

package client_test

import (
	"os"
	"testing"
	"time"
)

// TestSoak runs the model tests again and again, for as long as SOAK says (10m without it).
func TestSoak(t *testing.T) {
	length := 10 * time.Minute
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		t.Run("follow", TestFollowModel)
		t.Run("cache", TestCacheModel)
	}
}
