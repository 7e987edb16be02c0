package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestWatch: the program prints what there is and what happens.
func TestWatch(t *testing.T) {
	s := servertest.New(t)
	definition, err := os.ReadFile("../../testdata/crds/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(definition))
	const widgets = "/apis/example.com/v1/namespaces/default/widgets"
	s.PostYAML(widgets, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: red}, spec: {color: red, size: 1}}")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- watch(ctx, s.URL, w) }()
	lines := bufio.NewScanner(r)
	for i, want := range []string{"THERE IS red red 1", "ADDED blue blue 2"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("line %d is %q, want %q", i, lines.Text(), want)
		}
		if i == 0 {
			s.PostYAML(widgets, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: blue}, spec: {color: blue, size: 2}}")
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it ended without an error")
	}
}

// maxSize is how large the program may be, stripped.
const maxSize = 8 << 20

// TestSize: the program links neither etcd nor Kubernetes, and is small.
func TestSize(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "watcher")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() >= maxSize {
		t.Errorf("it has %d bytes, want less than %d", info.Size(), maxSize)
	}
	t.Logf("%d bytes", info.Size())
	list, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(list)) {
		if !strings.HasPrefix(path, "github.com/apiserver-lite/") {
			t.Errorf("it links %s", path)
		}
	}
}
