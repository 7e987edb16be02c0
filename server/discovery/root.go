package discovery

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

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
	faults    bool // only a server with --faults has it
	fakeClock bool // only a server with --fake-clock has it
}

// allExtras are on the page of /, and in its JSON. docs/wire.md has a line for each, which a test checks.
var allExtras = []extra{
	{Extra: Extra{"GET /console", "is a page for people, who come with a browser"}, console: true},
	{Extra: Extra{"GET /debug/quiescent", "waits until the controllers have nothing left to do"}},
	{Extra: Extra{"GET /debug/watchers", "lists the open watches, and how far they're behind"}},
	{Extra: Extra{"GET /apiserver-lite/v1/watch", "watches several kinds on one stream"}},
	{Extra: Extra{"POST /apiserver-lite/v1/apply", "applies the objects of a List, with a result for each"}},
	{Extra: Extra{"POST /apiserver-lite/v1/create", "creates the objects of a List, with a result for each"}},
	{Extra: Extra{"POST /apiserver-lite/v1/transactions", "does several operations together or none of them"}},
	{Extra: Extra{"GET /apiserver-lite/v1/snapshot", "is a snapshot of the whole store, as etcd's are"}},
	{Extra: Extra{"GET /apiserver-lite/v1/traffic", "has what the server did in the last quarter of an hour"}},
	{Extra: Extra{"PUT /apiserver-lite/v1/faults/NAME", "has the server fail on purpose, by a rule"}, faults: true},
	{Extra: Extra{"GET /apiserver-lite/v1/faults", "lists the rules by which it does"}, faults: true},
	{Extra: Extra{"GET /apiserver-lite/v1/faultlog", "lists the faults that requests have met"}, faults: true},
	{Extra: Extra{"GET /apiserver-lite/members", "lists the processes that have the store together"}, clustered: true},
	{Extra: Extra{"DELETE /apiserver-lite/members/NAME", "removes one of them"}, clustered: true},
	{Extra: Extra{"POST /debug/reset", "takes a server with --ephemeral back to an earlier state"}, ephemeral: true},
	{Extra: Extra{"POST /debug/snapshot", "names the present state for a reset"}, ephemeral: true},
	{Extra: Extra{"POST /debug/clock", "moves the clock, and does what comes due"}, fakeClock: true},
	{Extra: Extra{"annotation apiserver-lite/ttl", "how long an object lives after its creation"}},
	{Extra: Extra{"parameter history=true", "gets the versions of an object that there are"}},
	{Extra: Extra{"parameter at=INSTANT", "reads the state of then"}},
	{Extra: Extra{"parameter lite=true", "selects by any field and by shard, orders lists, and leaves fields out"}},
}

// Has says which of the extras that not every server has a server has.
type Has struct{ Ephemeral, Clustered, Console, Faults, FakeClock bool }

// Extras returns what a server has.
func Extras(has Has) (all []Extra) {
	for _, e := range allExtras {
		if (!e.ephemeral || has.Ephemeral) && (!e.clustered || has.Clustered) && (!e.console || has.Console) && (!e.faults || has.Faults) && (!e.fakeClock || has.FakeClock) {
			all = append(all, e.Extra)
		}
	}
	return all
}

// Page writes what is served for a person who came with a browser. It's written without html/template, which looks methods up by their names:
// a program that does so keeps every method of every type, which are an eighth of this one.
func (d *Discovery) Page(to io.Writer, extras []Extra) error {
	p := page{}
	p.add("<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>apiserver-lite</title>\n")
	p.add("<h1>apiserver-lite %s</h1>\n", d.Version.GitVersion)
	p.add("<p>This server speaks the Kubernetes API. Use kubectl or another client of Kubernetes with its address, or follow a path.</p>\n")
	for _, v := range servedVersions(d.Registry.Catalog()) {
		p.add("<h2><a href=\"%s\">%s</a></h2>\n<table>\n", v.Path, v.Name)
		p.add("<tr><th>Resource</th><th>Short</th><th>Kind</th><th>Scope</th></tr>\n")
		for _, r := range v.Resources {
			p.add("<tr><td><a href=\"%s\">%s</a></td><td>%s</td><td>%s</td><td>%s</td></tr>\n", r.Path, r.Name, r.Short, r.Kind, r.Scope)
		}
		p.add("</table>\n")
	}
	p.add("<h2>Paths</h2>\n<ul>")
	for _, path := range d.Paths() {
		p.add("\n<li><a href=\"%s\">%s</a>", path, path)
	}
	p.add("\n</ul>\n<h2>What Kubernetes doesn't have</h2>\n<dl>")
	for _, e := range extras {
		p.add("\n<dt>%s</dt><dd>%s</dd>", e.Name, e.Description)
	}
	p.add("\n</dl>\n</html>\n")
	_, err := to.Write(p.Bytes())
	return err
}

// page is a page of HTML that is being written.
type page struct{ bytes.Buffer }

// add adds markup, in which the arguments are text.
func (p *page) add(markup string, text ...string) {
	escaped := make([]any, len(text))
	for i, s := range text {
		escaped[i] = html.EscapeString(s)
	}
	fmt.Fprintf(p, markup, escaped...)
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
