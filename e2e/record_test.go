package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
)

// TestRecord: the commands record and replay of docs/operations.md, through the program: what one server has been through another one goes
// through, and has the same objects then. The recording goes on over a restart of the server.
func TestRecord(t *testing.T) {
	t.Parallel()
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "changes.jsonl.gz")
	first := start(t, "--data-dir", data)
	at := strings.TrimPrefix(first.url, "http://")
	var said await.Log
	recorder := exec.Command(binary(), "record", "--server", first.url, "-o", file)
	recorder.Stderr = &said
	if err := recorder.Start(); err != nil {
		t.Fatal(err)
	}
	defer recorder.Process.Kill()
	await.Until(t, "the recording has begun", func() bool { return strings.Contains(said.String(), "recording from resourceVersion") })
	configmaps := "/api/v1/namespaces/default/configmaps"
	for i := range 10 {
		first.do(http.StatusCreated, "POST", configmaps, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
	}
	first.do(http.StatusOK, "DELETE", configmaps+"/c3", "")
	first.stop()
	first = start(t, "--data-dir", data, "--listen", at)
	defer first.stop()
	first.do(http.StatusCreated, "POST", configmaps, `{"metadata":{"name":"after"},"data":{"a":"b"}}`)
	await.Until(t, "the last change is recorded", func() bool {
		out, _ := exec.Command("sh", "-c", "gzip -dc "+file+" 2>/dev/null").Output() // it has no end yet
		return bytes.Contains(out, []byte(`"name":"after"`))
	})
	if err := recorder.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := recorder.Wait(); err != nil {
		t.Fatalf("record ends with %v: %s", err, said.String())
	}
	second := start(t, "--ephemeral")
	defer second.stop()
	if out := pipe(t, "", "replay", file, "--server", second.url, "--speed", "max"); !strings.HasPrefix(out, "replayed ") || strings.Contains(out, "failed") {
		t.Errorf("replay says %s", out)
	}
	want := pipe(t, "", "export", "--server", first.url)
	if got := pipe(t, "", "export", "--server", second.url); got != want || strings.Count(got, "kind: ConfigMap") != 10 {
		t.Errorf("the second server has\n%s\nwant\n%s", got, want)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	cut := exec.Command(binary(), "replay", file, "--server", second.url, "--speed", "step")
	out, err := cut.CombinedOutput()
	if code := cut.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "the recording is cut at line") {
		t.Errorf("replay of a cut recording ends with %d, %v: %s", code, err, out)
	}
}
