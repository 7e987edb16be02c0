package server

import (
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/discovery"
)

const mediaHTML mediaType = "text/html"

// serveRoot serves /: the paths that there are, as JSON as kube-apiserver does, or as a page for a person who came
// with a browser.
func (h *handler) serveRoot(w *response, r *http.Request) error {
	media, err := negotiate(r.Header.Values("Accept"), func(c clause) (mediaType, bool) {
		if c.media == string(mediaHTML) {
			return mediaHTML, true
		}
		return acceptObject(c)
	})
	if err != nil {
		return err
	}
	catalog := h.registry.Catalog()
	paths := rootPaths(catalog)
	if media == mediaHTML {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Add("Vary", "Accept")
		return rootPage.Execute(w, map[string]any{"Version": Version().GitVersion, "Served": servedVersions(catalog), "Paths": paths, "Extras": h.extras()})
	}
	body, err := json.Marshal(map[string]any{"paths": paths, extrasMember: h.extras()})
	if err != nil {
		return err
	}
	if media == mediaJSON {
		return w.writeIndented(r, http.StatusOK, body)
	}
	return w.writeObject(r, http.StatusOK, media, body)
}

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
			served := servedVersion{Name: at.String(), Path: "/" + discovery.Path(at)}
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

// rootPaths are the paths that lead on, sorted.
func rootPaths(c *registry.Catalog) []string {
	paths := []string{"/.well-known/openid-configuration", "/api", "/apis", "/debug/quiescent", "/debug/watchers", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"}
	for _, g := range c.Groups {
		if g.Name != "" {
			paths = append(paths, "/apis/"+g.Name)
		}
		for _, v := range g.Versions {
			paths = append(paths, "/"+discovery.Path(schema.GroupVersion{Group: g.Name, Version: v.Name}))
		}
	}
	slices.Sort(paths)
	return paths
}
