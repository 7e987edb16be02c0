package servertest

import (
	"os"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/recording"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// Replay makes happen to the server what a file of apiserver-lite record has: all changes in the order in which they were recorded, one at a
// time. It fails the test unless the file is whole, and each of its changes can be replayed. Package backup/recording does it at other speeds.
func Replay(t testing.TB, s *Server, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := client.New(s.URL, client.Options{HTTP: s.Client})
	if err != nil {
		t.Fatal(err)
	}
	result, err := recording.Replay(t.Context(), c, f, recording.Options{})
	for _, failure := range result.Failures {
		t.Errorf("replay %s: %v", file, failure)
	}
	if err != nil {
		t.Fatalf("replay %s: %v", file, err)
	}
	if result.Failed > 0 {
		t.FailNow()
	}
}
