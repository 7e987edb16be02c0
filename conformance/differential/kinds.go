package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed testdata/kinds
var samples embed.FS

// sample is what is known of a kind besides its schema: objects that are valid. In it $NAME is the object's name, $N the number of it, and
// $NS the scenario's namespace.
type sample struct {
	Name     string                    `json:"name"`    // a pattern with %s for a role or %d for its number, if the kind has a rule for names
	Own      string                    `json:"own"`     // the prefix that all names of the pattern have
	Minimal  map[string]any            `json:"minimal"` // apart from apiVersion, kind and metadata
	Full     map[string]any            `json:"full"`    // every field that can stand beside the others
	Change   map[string]any            `json:"change"`  // a merge patch of Full that is allowed
	Status   map[string]any            `json:"status"`
	Statuses map[string]map[string]any `json:"statuses"` // further valid or invalid ones, by a word for each
	Setup    []map[string]any          `json:"setup"`    // whole objects that must be there before
	Put      map[string]map[string]any `json:"put"`      // by subresource: what is merged into the object and PUT there
	Post     map[string]map[string]any `json:"post"`     // by subresource: what is POSTed there
	More     map[string]map[string]any `json:"more"`     // further valid or invalid objects, by a word for each
	Stamped  bool                      `json:"stamped"`  // the server puts the time of a write into its status
	Bare     bool                      `json:"bare"`     // it has no metadata: it is answered, not stored
	Template bool                      `json:"template"` // it has a pod's template: the fields of one are tried with Pod itself
}

// subresource is one that discovery names.
type subresource struct {
	name  string
	verbs []string
}

// kind is a built-in kind in one version.
type kind struct {
	group, version, plural, kind string
	namespaced                   bool
	verbs                        []string
	subresources                 []subresource
	schema                       *schema
	sample                       sample
}

// name is the scenario's: plural.group.version, without core's empty group.
func (k kind) name() string {
	if k.group == "" {
		return k.plural + "." + k.version
	}
	return k.plural + "." + k.group + "." + k.version
}

func (k kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

func root(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// readUpstream returns upstream's kinds, from the recordings of discovery and OpenAPI.
func readUpstream(dir string) (all []kind, err error) {
	said := map[string]any{} // by path
	for _, r := range []struct {
		scenario string
		steps    []step
	}{{"discovery", discoverySteps()}, {"openapi", openAPISteps()}} {
		lines, err := readRecording(dir, r.scenario)
		if err != nil {
			return nil, err
		}
		for _, s := range r.steps {
			for _, line := range lines {
				if line.Step == s.name && s.header == nil {
					said[s.path] = line.Answer.Body
				}
			}
		}
	}
	known, err := readSamples()
	if err != nil {
		return nil, err
	}
	for _, gv := range groupVersions {
		var list resources
		if err := convert(said[gvRoot(gv)], &list); err != nil {
			return nil, fmt.Errorf("discovery of %s: %w", gv, err)
		}
		document, err := newDocument(said["/openapi/v3"+gvRoot(gv)])
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", gv, err)
		}
		for _, k := range list.kinds(gv) {
			k.schema = document.kind(k.group, k.version, k.kind)
			for _, name := range []string{k.plural + "." + k.group + "." + k.version, k.plural + "." + k.group, k.plural} {
				if s, ok := known[strings.TrimSuffix(name, ".")]; ok {
					k.sample = s
					break
				}
			}
			all = append(all, k)
		}
	}
	return all, nil
}

// resources are what discovery says of a version.
type resources struct {
	Resources []struct {
		Name, Kind string
		Namespaced bool
		Verbs      []string
	}
}

// kinds returns the resources that aren't below another one.
func (list resources) kinds(gv string) (all []kind) {
	group, version, ok := strings.Cut(gv, "/")
	if !ok {
		group, version = "", gv
	}
	for _, r := range list.Resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		k := kind{group: group, version: version, plural: r.Name, kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs}
		for _, s := range list.Resources {
			if name, ok := strings.CutPrefix(s.Name, r.Name+"/"); ok {
				k.subresources = append(k.subresources, subresource{name, s.Verbs})
			}
		}
		all = append(all, k)
	}
	return all
}

// readSamples returns the samples by what their keys in the files are: plural, plural.group or plural.group.version.
func readSamples() (map[string]sample, error) {
	all := map[string]sample{}
	files, err := fs.Glob(samples, "testdata/kinds/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := samples.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some map[string]sample
		if err := yaml.UnmarshalStrict(content, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(file), err)
		}
		for name, s := range some {
			if _, twice := all[name]; twice {
				return nil, fmt.Errorf("%s has %s again", path.Base(file), name)
			}
			all[name] = s
		}
	}
	return all, nil
}

func convert(from, to any) error {
	encoded, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, to)
}

// schema is a part of an OpenAPI document.
type schema struct {
	Ref         string                                  `json:"$ref"`
	AllOf       []*schema                               `json:"allOf"`
	OneOf       []*schema                               `json:"oneOf"`
	Type        string                                  `json:"type"`
	Format      string                                  `json:"format"`
	Enum        []string                                `json:"enum"`
	Properties  map[string]*schema                      `json:"properties"`
	Items       *schema                                 `json:"items"`
	Additional  *schema                                 `json:"additionalProperties"`
	Required    []string                                `json:"required"`
	GVKs        []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
	IntOrString bool                                    `json:"x-kubernetes-int-or-string"`

	document *document
	named    string // in the document
}

type document struct {
	Components struct{ Schemas map[string]*schema }
}

func newDocument(tree any) (*document, error) {
	var d document
	if err := convert(tree, &d); err != nil {
		return nil, err
	}
	for name, s := range d.Components.Schemas {
		s.own(&d)
		s.named = name
	}
	return &d, nil
}

// own tells a schema and all below it whose they are.
func (s *schema) own(d *document) {
	if s == nil {
		return
	}
	s.document = d
	for _, p := range s.Properties {
		p.own(d)
	}
	for _, p := range slices.Concat(s.AllOf, s.OneOf) {
		p.own(d)
	}
	s.Items.own(d)
	s.Additional.own(d)
}

func (d *document) kind(group, version, kind string) *schema {
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		for _, gvk := range s.GVKs {
			if len(s.GVKs) == 1 && gvk.Group == group && gvk.Version == version && gvk.Kind == kind {
				return s
			}
		}
	}
	return nil
}

// resolve follows references.
func (s *schema) resolve() *schema {
	for s != nil {
		switch {
		case s.Ref != "":
			s = s.document.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		case len(s.AllOf) == 1:
			s = s.AllOf[0]
		default:
			return s
		}
	}
	return nil
}

// isQuantity tells whether it's one of Kubernetes' quantities, which OpenAPI has as a text or a number.
func (s *schema) isQuantity() bool { return strings.HasSuffix(s.named, "api.resource.Quantity") }
