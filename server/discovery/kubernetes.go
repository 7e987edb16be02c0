package discovery

import (
	"archive/zip"
	"bytes"
	_ "embed" // kubernetes.zip
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// What Kubernetes' own kinds are published with is in kubernetes.zip: a path and a schema for each, as kube-apiserver
// answered them; conformance/openapi makes it. A Go type doesn't say what is in these documents at run time, such as which
// values a field takes.

//go:generate go -C ../../conformance run ./openapi

//go:embed kubernetes.zip
var kubernetesOpenAPI []byte

// publication is what Kubernetes publishes of a group version, or of a path above one.
type publication struct {
	Paths      map[string]json.RawMessage
	Schemas    map[string]json.RawMessage
	Parameters map[string]json.RawMessage // of version 2
}

// The entries of the archive: those of documents of version 3, of the paths of version 2 by these documents, what all paths of
// version 2 share, and the values to which the others refer.
const (
	publishedOne    = "v3/"
	publishedPaths2 = "v2/"
	publishedAll2   = "all2"
	publishedShared = "shared"
)

// published is the archive with the values that its entries share.
type published struct {
	files  *zip.Reader
	values [][]byte
}

// openPublished reads what is shared: some milliseconds' work, and so once for each document that is built.
func openPublished() (*published, error) {
	p := &published{files: publishedFiles()}
	shared, err := fs.ReadFile(p.files, publishedShared)
	p.values = bytes.Split(shared, []byte("\n"))
	return p, err
}

// publishedFiles are the archive's entries.
func publishedFiles() *zip.Reader {
	files, err := zip.NewReader(bytes.NewReader(kubernetesOpenAPI), int64(len(kubernetesOpenAPI)))
	if err != nil {
		panic(err) // the program wasn't built of what conformance/openapi has made
	}
	return files
}

// hasPublished tells whether Kubernetes publishes something in an entry.
func hasPublished(entry string) bool {
	_, err := fs.Stat(publishedFiles(), entry)
	return err == nil
}

// read returns an entry; an empty one if Kubernetes publishes nothing there.
func (p *published) read(entry string) (*publication, error) {
	all := &publication{}
	text, err := fs.ReadFile(p.files, entry)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(p.expand(nil, text), all)
	}
	if err != nil {
		return nil, fmt.Errorf("what Kubernetes publishes as %s: %w", entry, err)
	}
	return all, nil
}

// publishedMark stands before and after the number of a shared value. No text of JSON has it.
var publishedMark = []byte{1}

// expand appends a text with the values to which it refers.
func (p *published) expand(to, text []byte) []byte {
	for {
		before, rest, found := bytes.Cut(text, publishedMark)
		to = append(to, before...)
		if !found {
			return to
		}
		number, after, _ := bytes.Cut(rest, publishedMark)
		n, err := strconv.Atoi(string(number))
		if err != nil {
			panic(err) // as in publishedFiles
		}
		to, text = p.expand(to, p.values[n]), after
	}
}

// publishedRoots are the paths with documents of their own that aren't about any group: what is served there is no resource.
var publishedRoots = []string{".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"}

// of returns the paths of one of Kubernetes' own resources and of those of its subresources that are served; none for a resource that
// is another's; with nil for the resource those of no resource.
func (p *publication) of(at string, e *registry.Endpoint) object {
	found := object{}
	if e != nil && p.Schemas[reads.Of(e).ModelName()] == nil {
		return found
	}
	for path, item := range p.Paths {
		resource, subresource := resourceAt(at, path)
		if e == nil && resource == "" || e != nil && resource == e.Plural && (subresource == "" || slices.Contains(e.Subresources, subresource)) {
			found[path] = item
		}
	}
	return found
}

// resourceAt returns what a path below a group version's is about.
func resourceAt(at, path string) (resource, subresource string) {
	rest := strings.Trim(strings.TrimPrefix(path, "/"+at), "/")
	rest = strings.TrimPrefix(rest, "watch/")
	rest = strings.TrimPrefix(rest, "namespaces/{namespace}/")
	resource, rest, _ = strings.Cut(rest, "/")
	_, subresource, _ = strings.Cut(rest, "/")
	return resource, subresource
}

var reference = regexp.MustCompile(`"\$ref":"#/[^"]*/([^"/]+)"`)

// reach calls visit with the names of the schemas and parameters to which a piece of a document refers.
func reach(piece []byte, visit func(name string)) {
	for _, found := range reference.FindAllSubmatch(piece, -1) {
		visit(string(found[1]))
	}
}

// addTo adds the schemas and parameters to which paths refer, and those to which these refer, but for those that were seen.
func (p *publication) addTo(schemas, parameters object, paths object, seen map[string]bool) {
	for _, item := range paths {
		if text, ok := item.(json.RawMessage); ok {
			reach(text, func(name string) { p.add(name, schemas, parameters, seen) })
		}
	}
}

// add adds the schema or parameter of a name, and those to which it refers.
func (p *publication) add(name string, schemas, parameters object, seen map[string]bool) {
	again := func(name string) { p.add(name, schemas, parameters, seen) }
	if schema := p.Schemas[name]; schema != nil && schemas[name] == nil && !seen[name] {
		schemas[name] = schema
		reach(schema, again)
	}
	if parameter := p.Parameters[name]; parameter != nil && parameters[name] == nil {
		parameters[name] = parameter
		reach(parameter, again)
	}
}

// shared returns the schemas of version 3 that documents of definitions share with Kubernetes' own kinds.
func (p *published) shared() (*publication, error) {
	const has = publishedOne + "apis/apps/v1" // which has all of them
	shared, err := p.read(has)
	if err != nil {
		return nil, err
	}
	all, err := p.read(publishedAll2)
	if err != nil {
		return nil, err
	}
	shared.Schemas[deleteOptionsSchema], err = ofTypes(shared.Schemas[deleteOptionsSchema], all.Schemas[deleteOptionsSchema])
	return shared, err
}

// untyped are the groups that have options and no resources with types of Kubernetes' clients.
var untyped = []string{"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"}

// ofTypes returns a schema with the kinds that another one says it's of, but for those of the untyped groups.
func ofTypes(schema, all json.RawMessage) (json.RawMessage, error) {
	var members object
	var kinds struct {
		All []map[string]string `json:"x-kubernetes-group-version-kind"`
	}
	if err := errors.Join(json.Unmarshal(schema, &members), json.Unmarshal(all, &kinds)); err != nil {
		return nil, err
	}
	members["x-kubernetes-group-version-kind"] = slices.DeleteFunc(kinds.All, func(of map[string]string) bool { return slices.Contains(untyped, of["group"]) })
	return json.Marshal(members)
}
