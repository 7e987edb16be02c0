package server

import (
	"encoding/json"
	"html/template"
	"net/http"
	"slices"

	"github.com/apiserver-lite/apiserver-lite/registry"
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
	paths := rootPaths(h.registry.Catalog())
	if media == mediaHTML {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Set("Vary", "Accept")
		return rootPage.Execute(w, map[string]any{"Version": Version().GitVersion, "Paths": paths})
	}
	body, err := json.Marshal(map[string][]string{"paths": paths})
	if err != nil {
		return err
	}
	w.writeObject(r, http.StatusOK, media, body)
	return nil
}

var rootPage = template.Must(template.New("root").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>apiserver-lite</title>
<h1>apiserver-lite {{.Version}}</h1>
<p>This server speaks the Kubernetes API. Use kubectl or another client of Kubernetes with its address, or follow a path:</p>
<ul>{{range .Paths}}
<li><a href="{{.}}">{{.}}</a>{{end}}
</ul>
</html>
`))

// rootPaths are the paths that lead on, sorted.
func rootPaths(c *registry.Catalog) []string {
	paths := []string{"/api", "/apis", "/debug/watchers", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"}
	for _, g := range c.Groups {
		if g.Name != "" {
			paths = append(paths, "/apis/"+g.Name)
		}
		for _, v := range g.Versions {
			paths = append(paths, "/"+openAPIPath(g.Name, v.Name))
		}
	}
	slices.Sort(paths)
	return paths
}
