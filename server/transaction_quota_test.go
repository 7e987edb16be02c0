package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTransactionsAreCharged: the objects of a transaction are charged to a quota, each once, whether they're written together or in a dry run; and
// one that is refused leaves nothing charged.
func TestTransactionsAreCharged(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	s.PostYAML(namespaceDefault+"resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: '4', secrets: '1'}}}")
	s.PostYAML(namespaceDefault+"configmaps", "metadata: {name: before}")
	usedOf(t, s, "q") // until then it limits nothing
	creates := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, `{"create":`+configMapNamed(name, "")+`}`)
		}
		return all
	}
	secret := `{"create":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%s"}}}`
	for _, step := range []struct {
		name       string
		query      string
		operations []string
		code       int
		why        string
		used       string // configmaps and secrets, afterwards
	}{
		{"too many in a dry run", "?dryRun=All", creates("a", "b", "c", "d"), http.StatusForbidden,
			`operation 3 (create): configmaps "d" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=4, limited: configmaps=4`, "1 0"},
		{"too many", "", creates("a", "b", "c", "d"), http.StatusForbidden,
			`operation 3 (create): configmaps "d" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=4, limited: configmaps=4`, "1 0"},
		{"as many as there's room for, in a dry run", "?dryRun=All", creates("a", "b", "c"), http.StatusOK, "", "1 0"},
		{"of two kinds", "?dryRun=All", []string{fmt.Sprintf(secret, "a"), creates("a")[0], fmt.Sprintf(secret, "b")}, http.StatusForbidden,
			`operation 2 (create): secrets "b" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1`, "1 0"},
		{"as many as there's room for", "", creates("a", "b", "c"), http.StatusOK, "", "4 0"},
		{"one more, in a dry run", "?dryRun=All", creates("d"), http.StatusForbidden, "used: configmaps=4", "4 0"},
	} {
		code, got, body := transact(s, step.query, step.operations...)
		if code != step.code || !strings.Contains(got.Message, step.why) {
			t.Errorf("%s: %d %s, want %d %s", step.name, code, body, step.code, step.why)
		}
		if used := usedOf(t, s, "q"); used["configmaps"]+" "+used["secrets"] != step.used {
			t.Errorf("%s: %v is used afterwards, want %s", step.name, used, step.used)
		}
	}
}
