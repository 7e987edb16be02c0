package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestToken: where users are asked for a token, the page has nothing before it has one, and keeps it nowhere else than in memory.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("very-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--ephemeral", "--token-file="+file)
	p := open(t, s.url+"/console#/kinds")
	p.see("Who are you?")
	p.do(chromedp.SendKeys("input[type=password]", "wrong"))
	p.key(kb.Enter)
	p.see("The server refuses this token")
	p.key(strings.Split("very-secret", "")...) // in the place of the wrong one, which is selected
	p.key(kb.Enter)
	p.see("ConfigMap")
	p.do(chromedp.Navigate(s.url + "/console#/me"))
	p.see("system:masters")
	kept := p.eval(`JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state, document.documentElement.outerHTML])`)
	if strings.Contains(fmt.Sprint(kept), "very-secret") {
		t.Errorf("the token is kept: %s", kept)
	}
	p.do(chromedp.Click(`//button[text()="Forget the token"]`, chromedp.BySearch))
	p.await(`document.activeElement?.type === "password"`)
	p.key(strings.Split("very-secret", "")...)
	p.key(kb.Enter)
	p.see("system:masters")
	p.do(chromedp.Reload())
	p.see("Who are you?")
}

// startForReader starts a server that knows the user reader by reader-token, and returns the header of the one who may do everything.
func startForReader(t *testing.T) (s *process, as []string) {
	t.Helper()
	dir := t.TempDir()
	admin, users := filepath.Join(dir, "admin"), filepath.Join(dir, "users")
	for file, content := range map[string]string{admin: "root\n", users: "reader-token,reader,1\n"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = start(t, "--ephemeral", "--authorization-mode=RBAC", "--token-file="+admin, "--token-auth-file="+users)
	return s, []string{"Authorization", "Bearer root"}
}

// TestRights: what the user may not do isn't offered, and what he may not see says so.
func TestRights(t *testing.T) {
	s, as := startForReader(t)
	s.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{metadata: {name: reader}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]}`, append(as, "Content-Type", "application/yaml")...)
	s.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{metadata: {name: reader}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}, subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]}`, as...)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("a", ""), as...)
	p := open(t, s.url+"/console#/object/core/v1/configmaps/default/a")
	p.see("Who are you?")
	p.do(chromedp.SendKeys("input[type=password]", "reader-token"))
	p.key(kb.Enter)
	p.see("creationTimestamp")
	p.do(chromedp.Navigate(s.url + "/console#/me"))
	p.see("configmaps")
	p.do(chromedp.Navigate(s.url + "/console#/object/core/v1/configmaps/default/a"))
	p.see("creationTimestamp")
	if offered := p.eval(`[...document.querySelectorAll("main .tools button")].map((b) => b.textContent).join()`); offered != "" {
		t.Errorf("the reader is offered %v", offered)
	}
	s.ask("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/roles", `{metadata: {name: maker}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [create]}]}`, as...)
	s.ask("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings", `{metadata: {name: maker}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: maker}, subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]}`, as...)
	p.do(chromedp.Navigate(s.url + "/console#/objects?pane=core/v1/configmaps%3Fns%3Dkube-public")) // where he may make one
	p.see("0 objects · live")
	p.with("k")
	p.await(`document.activeElement?.getAttribute("role") === "combobox"`)
	p.key(strings.Split("new", "")...)
	p.await(`[...document.querySelectorAll("[role=option] span")].map((o) => o.textContent).filter((o) => o.startsWith("New ")).join() === "New ConfigMap"`)
	p.key(kb.Escape)
	p.do(chromedp.Click(`//a[text()="New"]`, chromedp.BySearch))
	p.await(`document.getElementById("new-namespace")?.value === "kube-public"`)
	p.do(chromedp.SendKeys("#new-name", "made"))
	p.key(kb.Enter)
	p.await(`location.hash.includes("kube-public/made")`)
	p.do(chromedp.Navigate(s.url + "/console#/objects?pane=core/v1/secrets"))
	p.see("cannot watch")
	p.do(chromedp.Navigate(s.url + "/console#/traffic"))
	p.see("The points aren't there to see")
	p.do(chromedp.Navigate(s.url + "/console#/objects?pane=core/v1/configmaps&pane=core/v1/secrets")) // no stream for both
	p.see("2 objects · live")
	p.see("cannot watch")
}

// TestMayNotWatch: counts of what the user may watch move with one stream, and those of what he may only list are asked for again.
func TestMayNotWatch(t *testing.T) {
	s, as := startForReader(t)
	var core struct{ Resources []struct{ Name string } }
	var others struct{ Groups []struct{ Name string } }
	for path, into := range map[string]any{"/api/v1": &core, "/apis": &others} {
		if err := json.Unmarshal([]byte(s.ask("GET", path, "", as...)), into); err != nil {
			t.Fatal(err)
		}
	}
	var resources, groups []string
	for _, r := range core.Resources {
		if r.Name != "secrets" {
			resources = append(resources, r.Name)
		}
	}
	for _, g := range others.Groups {
		groups = append(groups, g.Name)
	}
	s.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", fmt.Sprintf(`{metadata: {name: reader}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: [list]},
		{apiGroups: [""], resources: [%s], verbs: [watch]}, {apiGroups: [%s], resources: ["*"], verbs: [watch]}]}`, strings.Join(resources, ","), strings.Join(groups, ",")), as...)
	s.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{metadata: {name: reader}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}, subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]}`, as...)
	p := open(t, s.url+"/console")
	p.see("Who are you?")
	p.do(chromedp.SendKeys("input[type=password]", "reader-token"))
	p.key(kb.Enter)
	count := func(of string) string {
		return `document.querySelector("a[href*=\"core%2Fv1%2F` + of + `\"]")?.parentElement.querySelector("data").value`
	}
	p.await(count("secrets") + ` === "0" && ` + count("configmaps") + ` === "0"`)
	s.ask("POST", "/api/v1/namespaces/default/secrets", "{metadata: {name: s}}", as...)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("a", ""), as...)
	p.await(`document.querySelector(".latest")?.textContent.includes("new ConfigMap a default") && ` + count("configmaps") + ` === "1"`)
	p.await(count("secrets") + ` === "1"`)
}

// TestCertificate: who comes with a client certificate is asked for no token. The browser's part is a proxy that shows the certificate,
// because Chromium leaves the choice of one to a person.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	mary := clientCertificate(t, filepath.Join(dir, "ca.crt"))
	s := start(t, "--data-dir="+t.TempDir(), "--authorization-mode=RBAC", "--tls", "--client-ca-file="+filepath.Join(dir, "ca.crt"))
	p := open(t, newProxy(t, s.url, mary)+"/console#/me")
	p.see("mary")
	p.see("system:masters")
	p.see("what the browser shows by itself")
	p.visit("#/objects?pane=core/v1/namespaces")
	p.see("4 objects · live")
}

// TestReset: a watch that ends with 410 begins anew with the state, so that the page has what there is and nothing else.
func TestReset(t *testing.T) {
	s := start(t, "--ephemeral")
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("old", ""))
	s.ask("POST", "/debug/snapshot?name=one", "")
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("new", ""))
	p := open(t, s.url+"/console#/objects?pane=core/v1/configmaps&pane=core/v1/namespaces")
	p.see("2 objects · live")
	s.ask("POST", "/debug/reset?to=one", "")
	p.see("1 object · live")
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("newer", ""))
	p.see("2 objects · live")
	if rows := p.rows(); strings.Contains(rows, "new ") || !strings.Contains(rows, "newer") {
		t.Errorf("rows are %s", rows)
	}
}

// TestRestart: a page goes on where it was after its server has been restarted, and shows what came meanwhile.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--data-dir="+dir)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("a", ""))
	p := open(t, s.url+"/console#/objects?pane=core/v1/configmaps")
	p.see("1 object · live")
	s.stop()
	p.see("cut off")
	again := start(t, "--data-dir="+dir, "--listen="+strings.TrimPrefix(s.url, "http://"))
	again.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("b", ""))
	p.see("2 objects · live")
}
