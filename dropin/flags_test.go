package dropin

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// upstream are the names of kube-apiserver 1.37.2's flags, from the sources of k8s.io/kubernetes, k8s.io/apiserver and k8s.io/component-base.
//
//go:embed testdata/kube-apiserver-flags.txt
var upstream string

// TestFlagsOfKubernetes: the flags are kube-apiserver's, each in one of the tables or with a meaning, and no others.
func TestFlagsOfKubernetes(t *testing.T) {
	names := strings.Fields(upstream)
	set := (&APIServer{}).flagSet(&flags{})
	for _, name := range names {
		if set.Lookup(name) == nil && name != "help" {
			t.Errorf("--%s of kube-apiserver is unknown here", name)
		}
	}
	set.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			t.Errorf("--%s is no flag of kube-apiserver", f.Name)
		}
		switch f.Value.(type) {
		case *unusedFlag, *refusedFlag:
			return
		}
		if _, ok := refused[f.Name]; ok {
			t.Errorf("--%s has a meaning, and stands in the table of those that are refused", f.Name)
		}
		for _, w := range unused {
			if slices.Contains(strings.Fields(w.names), f.Name) {
				t.Errorf("--%s has a meaning, and stands in the table of %s flags without an effect", f.Name, w.kind)
			}
		}
	})
	if set.Lookup("insecure-port") != nil {
		t.Error("envtest would take --insecure-port for served")
	}
}

// TestEveryFlagWithoutEffect: each is accepted with a value of its type and named, and refused with another.
func TestEveryFlagWithoutEffect(t *testing.T) {
	good := map[kind]string{aBool: "true", aNumber: "1", aDuration: "1s", aText: "x"}
	for _, w := range unused {
		for name := range strings.FieldsSeq(w.names) {
			a, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", "--" + name + "=" + good[w.kind]}, none)
			if err != nil || !slices.Equal(a.Unused, []string{"--" + name}) {
				t.Errorf("--%s: %v", name, err)
			}
			if w.kind == aText {
				continue
			}
			if _, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", "--" + name + "=nonsense"}, none); err == nil || !strings.Contains(err.Error(), "--"+name) {
				t.Errorf("--%s=nonsense: %v", name, err)
			}
		}
	}
}

// TestEveryRefusedFlag: each is an error that names it, unless it asks for nothing.
func TestEveryRefusedFlag(t *testing.T) {
	for name := range refused {
		if _, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", "--" + name + "=true"}, none); err == nil || !strings.Contains(err.Error(), "--"+name) {
			t.Errorf("--%s: %v", name, err)
		}
		if _, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", "--" + name + "="}, none); err != nil {
			t.Errorf("--%s without a value: %v", name, err)
		}
	}
}

func none(string) string { return "" }
