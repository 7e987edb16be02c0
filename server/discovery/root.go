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
