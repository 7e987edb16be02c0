package dropin

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// upstreamVersions are the API groups that kube-apiserver 1.37 knows, with their versions. By default it serves those without alpha or
// beta, as this server does.
var upstreamVersions = map[string]string{
	"":                             "v1",
	"admission.k8s.io":             "v1 v1beta1",
	"admissionregistration.k8s.io": "v1 v1beta1 v1alpha1",
	"apiextensions.k8s.io":         "v1 v1beta1",
	"apiregistration.k8s.io":       "v1 v1beta1",
	"apps":                         "v1 v1beta2 v1beta1",
	"authentication.k8s.io":        "v1 v1beta1 v1alpha1",
	"authorization.k8s.io":         "v1 v1beta1",
	"autoscaling":                  "v2 v1",
	"batch":                        "v1 v1beta1",
	"certificates.k8s.io":          "v1 v1beta1 v1alpha1",
	"coordination.k8s.io":          "v1 v1beta1 v1alpha2",
	"discovery.k8s.io":             "v1 v1beta1",
	"events.k8s.io":                "v1 v1beta1",
	"extensions":                   "v1beta1",
	"flowcontrol.apiserver.k8s.io": "v1 v1beta3 v1beta2 v1beta1",
	"imagepolicy.k8s.io":           "v1alpha1",
	"internal.apiserver.k8s.io":    "v1alpha1",
	"lifecycle.k8s.io":             "v1alpha1",
	"networking.k8s.io":            "v1 v1beta1",
	"node.k8s.io":                  "v1 v1beta1 v1alpha1",
	"policy":                       "v1 v1beta1",
	"rbac.authorization.k8s.io":    "v1 v1beta1 v1alpha1",
	"resource.k8s.io":              "v1 v1beta2 v1beta1 v1alpha3",
	"scheduling.k8s.io":            "v1 v1beta1 v1alpha3",
	"storage.k8s.io":               "v1 v1beta1 v1alpha1",
	"storagemigration.k8s.io":      "v1 v1beta1",
}

// apiSets are what stands for many versions at once, in the order in which they count: a later one overrules those before it.
var apiSets = []struct {
	key     string
	version *regexp.Regexp
}{
	{"api/all", regexp.MustCompile(``)},
	{"api/ga", gaVersion},
	{"api/beta", regexp.MustCompile(`^v\d+beta\d+$`)},
	{"api/alpha", regexp.MustCompile(`^v\d+alpha\d+$`)},
}

var gaVersion = regexp.MustCompile(`^v\d+$`)

// runtimeConfig is what --runtime-config switches on and off: sets of versions by apiSets' keys, versions, and single resources. What is
// more special counts.
type runtimeConfig struct {
	sets      map[string]bool
	versions  map[schema.GroupVersion]bool
	resources map[schema.GroupVersionResource]bool
}

// parseRuntimeConfig reads the pairs, and names those that ask for versions which aren't here.
func parseRuntimeConfig(pairs []string) (c runtimeConfig, unused []string, err error) {
	c = runtimeConfig{map[string]bool{}, map[schema.GroupVersion]bool{}, map[schema.GroupVersionResource]bool{}}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		on, err := c.set(key, value)
		if err != nil {
			return c, nil, err
		}
		if version := strings.SplitN(key+"/", "/", 3)[1]; on && !gaVersion.MatchString(version) && key != "api/ga" {
			unused = append(unused, "--runtime-config="+pair)
		}
	}
	if all, ok := c.sets["api/all"]; ok && !all && len(c.sets)+len(c.versions)+len(c.resources) == 1 {
		return c, nil, fmt.Errorf("--runtime-config with nothing but api/all=false leaves nothing to serve")
	}
	return c, unused, nil
}

// set notes one pair.
func (c *runtimeConfig) set(key, value string) (on bool, err error) {
	for _, s := range apiSets {
		if key == s.key {
			if value != "true" && value != "false" {
				return false, fmt.Errorf("--runtime-config: %s is true or false, not %q", key, value)
			}
			c.sets[key] = value == "true"
			return c.sets[key], nil
		}
	}
	parts := strings.Split(key, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return false, fmt.Errorf("--runtime-config: %q is neither group/version nor group/version/resource", key)
	}
	gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	versions, known := upstreamVersions[gv.Group]
	if !known {
		return false, fmt.Errorf("--runtime-config: kube-apiserver 1.37 has no API group %q", gv.Group)
	}
	if !slices.Contains(strings.Fields(versions), gv.Version) {
		return false, fmt.Errorf("--runtime-config: kube-apiserver 1.37 has no version %q of API group %q", gv.Version, gv.Group)
	}
	if on = true; value != "" {
		if on, err = strconv.ParseBool(value); err != nil {
			return false, fmt.Errorf("--runtime-config: %s is true or false, not %q", key, value)
		}
	}
	switch {
	case len(parts) == 2:
		c.versions[gv] = on
	case parts[2] != strings.ToLower(parts[2]):
		return false, fmt.Errorf("--runtime-config: %q: a resource is its plural, in lower case", key)
	default:
		c.resources[gv.WithResource(parts[2])] = on
	}
	return on, nil
}

// serves tells whether a built-in kind is served.
func (c *runtimeConfig) serves(path schema.GroupVersionResource) bool {
	on := true
	for _, s := range apiSets {
		if set, ok := c.sets[s.key]; ok && s.version.MatchString(path.Version) {
			on = set
		}
	}
	if version, ok := c.versions[path.GroupVersion()]; ok {
		on = version
	}
	if resource, ok := c.resources[path]; ok {
		on = resource
	}
	return on
}
