package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestTransact: a Go program writes several kinds at once or not at all.
func TestTransact(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	configMap := func(name, value string) any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]string{"k": value}}
	}
	a := client.Which{Resource: "configmaps", Name: "a"}
	got, err := c.Transact(ctx, []client.Operation{
		client.CheckAbsent(a),
		client.Creating(configMap("a", "1")),
		client.Applying(configMap("b", "1")),
		client.Patching(a, map[string]any{"data": map[string]any{"l": "2"}}),
	}, client.FieldManager("me"))
	if err != nil || len(got.Objects) != 4 || got.Objects[3].ResourceVersion() != got.ResourceVersion || got.Objects[2].Name() != "b" || got.Objects[1].Name() != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	dry, err := c.Transact(ctx, []client.Operation{client.CheckVersion(a, got.ResourceVersion), client.Deleting(a)}, client.DryRun())
	if err != nil || dry.ResourceVersion != "" {
		t.Errorf("%+v, %v", dry, err)
	}
	for name, tc := range map[string]struct {
		operations []client.Operation
		want       string
	}{
		"a check":         {[]client.Operation{client.Deleting(a), client.CheckThat(a, "object.data.k == '7'")}, "operation 1 (check of configmaps /a)"},
		"a version":       {[]client.Operation{client.CheckVersion(a, "1")}, "operation 0"},
		"an older object": {[]client.Operation{client.Updating(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "resourceVersion": "1"}})}, "operation 0 (update)"},
	} {
		_, err := c.Transact(ctx, tc.operations)
		if !errors.Is(err, client.ErrConflict) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Transact(ctx, []client.Operation{{}}); err == nil {
		t.Error("the zero Operation was sent")
	}
	if _, err := c.Transact(ctx, nil, client.IfVersion("1")); err == nil {
		t.Error("IfVersion was dropped")
	}
	if _, err := client.Resource[client.Object](c, "v1", "configmaps").In("default").Get(ctx, "a"); err != nil {
		t.Error(err)
	}
}
