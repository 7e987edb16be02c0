package discovery

import (
	"html/template"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

var rootPage = template.Must(template.New("root").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>apiserver-lite</title>
<h1>apiserver-lite {{.Version}}</h1>
<p>This server speaks the Kubernetes API. Use kubectl or another client of Kubernetes with its address, or follow a path.</p>
{{range .Served}}<h2><a href="{{.Path}}">{{.Name}}</a></h2>
<table>
<tr><th>Resource</th><th>Short</th><th>Kind</th><th>Scope</th></tr>
{{range .Resources}}<tr><td><a href="{{.Path}}">{{.Name}}</a></td><td>{{.Short}}</td><td>{{.Kind}}</td><td>{{.Scope}}</td></tr>
{{end}}</table>
{{end}}<h2>Paths</h2>
<ul>{{range .Paths}}
<li><a href="{{.}}">{{.}}</a>{{end}}
</ul>
<h2>What Kubernetes doesn't have</h2>
<dl>{{range .Extras}}
<dt>{{.Name}}</dt><dd>{{.Description}}</dd>{{end}}
</dl>
</html>
`))

// Extra is something that a server has and Kubernetes doesn't: a path, or a name that it gives a meaning to.
type Extra struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// extra is an Extra that not every server has.
type extra struct {
	Extra
	ephemeral bool // only a server with --ephemeral has it
	clustered bool // only a server with --cluster-listen has it
	console   bool // a server with --console=false lacks it
}

// allExtras are on the page of /, and in its JSON. docs/wire.md has a line for each, which a test checks.
var allExtras = []extra{
	{Extra: Extra{"GET /console", "is a page for people, who come with a browser"}, console: true},
	{Extra: Extra{"GET /debug/quiescent", "waits until the controllers have nothing left to do"}},
	{Extra: Extra{"GET /debug/watchers", "lists the open watches, and how far they're behind"}},
	{Extra: Extra{"GET /apiserver-lite/v1/watch", "watches several kinds on one stream"}},
	{Extra: Extra{"POST /apiserver-lite/v1/apply", "applies the objects of a List, with a result for each"}},
	{Extra: Extra{"POST /apiserver-lite/v1/create", "creates the objects of a List, with a result for each"}},
	{Extra: Extra{"GET /apiserver-lite/v1/snapshot", "is a snapshot of the whole store, as etcd's are"}},
	{Extra: Extra{"GET /apiserver-lite/v1/traffic", "has what the server did in the last quarter of an hour"}},
	{Extra: Extra{"GET /apiserver-lite/members", "lists the processes that have the store together"}, clustered: true},
	{Extra: Extra{"DELETE /apiserver-lite/members/NAME", "removes one of them"}, clustered: true},
	{Extra: Extra{"POST /debug/reset", "takes a server with --ephemeral back to an earlier state"}, ephemeral: true},
	{Extra: Extra{"POST /debug/snapshot", "names the present state for a reset"}, ephemeral: true},
	{Extra: Extra{"annotation apiserver-lite/ttl", "how long an object lives after its creation"}},
	{Extra: Extra{"parameter lite=true", "selects by any field and by shard, orders lists, and leaves fields out"}},
}

// Extras returns what a server has that is ephemeral, has members or serves the console, or not.
func Extras(ephemeral, clustered, console bool) (all []Extra) {
	for _, e := range allExtras {
		if (!e.ephemeral || ephemeral) && (!e.clustered || clustered) && (!e.console || console) {
			all = append(all, e.Extra)
		}
	}
	return all
}

// Page writes what is served for a person who came with a browser.
func (d *Discovery) Page(to io.Writer, extras []Extra) error {
	return rootPage.Execute(to, map[string]any{"Version": d.Version.GitVersion, "Served": servedVersions(d.Registry.Catalog()), "Paths": d.Paths(), "Extras": extras})
}

// servedVersion is a group version on the page, with its resources.
type servedVersion struct {
	Name, Path string
	Resources  []servedResource
}

type servedResource struct{ Name, Path, Short, Kind, Scope string }

// servedVersions are what the page lists: all that can be listed.
func servedVersions(c *registry.Catalog) (all []servedVersion) {
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			at := schema.GroupVersion{Group: g.Name, Version: v.Name}
			served := servedVersion{Name: at.String(), Path: "/" + Path(at)}
			for _, e := range v.Resources {
				if !slices.Contains(e.Verbs, "list") {
					continue
				}
				scope := "cluster"
				if e.Namespaced {
					scope = "namespace"
				}
				served.Resources = append(served.Resources, servedResource{e.Plural, served.Path + "/" + e.Plural, strings.Join(e.ShortNames, ", "), e.Kind, scope})
			}
			all = append(all, served)
		}
	}
	return all
}

// Paths are those that lead on, sorted.
func (d *Discovery) Paths() []string {
	paths := []string{"/.well-known/openid-configuration", "/api", "/apis", "/debug/quiescent", "/debug/watchers", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"}
	for _, g := range d.Registry.Catalog().Groups {
		if g.Name != "" {
			paths = append(paths, "/apis/"+g.Name)
		}
		for _, v := range g.Versions {
			paths = append(paths, "/"+pathOf(g, v))
		}
	}
	slices.Sort(paths)
	return paths
}
