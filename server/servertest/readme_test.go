package servertest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestWidgets(t *testing.T) {
	s := servertest.New(t)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	t.Log(s.Get("/api/v1/namespaces/shop"))
}

// TestReadme: the README's example is the test above.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "<!-- test: server/servertest/readme_test.go -->\n```go\n")
	example, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatal("the README has no example that is marked as this test's")
	}
	if !strings.Contains(string(source), "\n"+example+"\n") {
		t.Errorf("this file doesn't have the README's example:\n%s", example)
	}
}
