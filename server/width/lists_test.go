package width_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// sample is of how many cases one is run. All of them take hours, make width half of one; what CI runs, a minute and a half with the race
// detector.
var sample = flag.Int("sample", 499, "send one of so many of the lists of all kinds: 1 sends them all")

// widths are how many elements lists have: what the issue asks for, nearly as many as are taken of small ones, and of those
// that merges take.
var widths = []int{100_000, 45_000, 3_500, 1_400}

// schema is a part of OpenAPI.
type schema struct {
	Ref        string `json:"$ref"`
	AllOf      []schema
	Type       string
	Properties map[string]schema
	Items      *schema
	Additional json.RawMessage         `json:"additionalProperties"`
	Kinds      []struct{ Kind string } `json:"x-kubernetes-group-version-kind"`
	ListKeys   []string                `json:"x-kubernetes-list-map-keys"`
	MergeKey   string                  `json:"x-kubernetes-patch-merge-key"`
}

// document is a group version's OpenAPI.
type document struct {
	Components struct{ Schemas map[string]schema }
}

func (d *document) resolve(s schema) (schema, string) {
	if len(s.AllOf) == 1 && s.Ref == "" {
		s.Ref = s.AllOf[0].Ref
	}
	if s.Ref == "" {
		return s, ""
	}
	name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	return d.Components.Schemas[name], name
}

// step is a member on the way to a list, which is one of the elements of a list if inList is set.
type step struct {
	name   string
	inList bool
}

// list is a list, or an object of any members, in a kind.
type list struct {
	path    []step
	element string // a format, with %d
	equal   string // an element that all may be
}

func (l list) String() string {
	names := make([]string, len(l.path))
	for i, s := range l.path {
		names[i] = s.name
		if s.inList {
			names[i] += "[]"
		}
	}
	return strings.Join(names, ".")
}

// lists finds the lists of a schema.
func (d *document) lists(s schema, path []step, open []string) (found []list) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		below, ref := d.resolve(s.Properties[name])
		if ref != "" && slices.Contains(open, ref) || len(path) > 12 {
			continue // a type that contains itself, once is enough
		}
		opened := append(slices.Clone(open), ref)
		at := append(slices.Clone(path), step{name: name})
		switch {
		case below.Type == "array" && below.Items != nil:
			item, itemRef := d.resolve(*below.Items)
			distinct, equal := d.element(item, append(s.Properties[name].ListKeys, s.Properties[name].MergeKey, "name"))
			found = append(found, list{at, distinct, equal})
			if itemRef == "" || !slices.Contains(open, itemRef) {
				at = slices.Clone(at)
				at[len(at)-1].inList = true
				found = append(found, d.lists(item, at, append(opened, itemRef))...)
			}
		case len(below.Additional) > 2 && below.Type == "object":
			var value schema
			if json.Unmarshal(below.Additional, &value) == nil {
				value, _ = d.resolve(value)
				distinct, _ := d.element(value, nil)
				found = append(found, list{at, `"a%d":` + strings.ReplaceAll(distinct, "%d", "1"), ""})
			}
		default:
			found = append(found, d.lists(below, at, opened)...)
		}
	}
	return found
}

// element makes small elements of a list: distinct ones, and one.
func (d *document) element(s schema, keys []string) (distinct, equal string) {
	switch s.Type {
	case "string":
		return `"a%d"`, `"a"`
	case "integer", "number":
		return `%d`, `0`
	case "boolean":
		return `true`, `true`
	case "array":
		return `[]`, `[]`
	}
	for _, key := range keys {
		if p, ok := s.Properties[key]; ok && key != "" {
			value, _ := d.element(p, nil)
			return `{"` + key + `":` + value + `}`, `{}`
		}
	}
	return `{}`, `{}`
}

// wrap puts elements into an object, or the part of one, at a path.
func (l list) wrap(elements string) string {
	isMap := strings.HasPrefix(l.element, `"a%d":`)
	text := "[" + elements + "]"
	if isMap {
		text = "{" + elements + "}"
	}
	for i, s := range slices.Backward(l.path) {
		if s.inList {
			text = `[{` + text + `}]`
		}
		text = `"` + s.name + `":` + text
		if i > 0 && !l.path[i-1].inList {
			text = "{" + text + "}"
		}
	}
	return text
}

// kind is a kind that is served.
type kind struct {
	apiVersion, name, path string
	namespaced             bool
	verbs                  []string
	lists                  []list
}

// kinds asks a server for its kinds.
func kinds(t *testing.T, s *servertest.Server) (found []kind) {
	t.Helper()
	get := func(path string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(s.Get(path)), into); err != nil {
			t.Fatal(path, err)
		}
	}
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	get("/openapi/v3", &root)
	for _, at := range slices.Sorted(maps.Keys(root.Paths)) {
		version, ok := strings.CutPrefix(at, "apis/")
		if !ok {
			version, ok = strings.CutPrefix(at, "api/")
		}
		if !ok || !strings.Contains(version, "/") && version != "v1" {
			continue
		}
		var of document
		get(root.Paths[at].ServerRelativeURL, &of)
		var resources struct {
			Resources []struct {
				Name, Kind string
				Namespaced bool
				Verbs      []string
			}
		}
		get("/"+at, &resources)
		for _, r := range resources.Resources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "create") {
				continue
			}
			k := kind{apiVersion: version, name: r.Kind, path: "/" + at + "/" + r.Name, namespaced: r.Namespaced, verbs: r.Verbs}
			if r.Namespaced {
				k.path = "/" + at + "/namespaces/default/" + r.Name
			}
			for _, s := range of.Components.Schemas {
				if len(s.Kinds) == 1 && s.Kinds[0].Kind == r.Kind && s.Properties["metadata"].Type+s.Properties["kind"].Type != "" {
					k.lists = of.lists(s, nil, nil)
				}
			}
			if len(k.lists) == 0 {
				t.Errorf("%s has no lists in its OpenAPI, not even in its metadata", k.path)
			}
			found = append(found, k)
		}
	}
	return found
}

// head begins a body.
func (k *kind) head() string { return fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, k.apiVersion, k.name) }

// body makes an object with a list, or if that is empty without.
func (k *kind) body(name, list string) string {
	if rest, ok := strings.CutPrefix(list, `"metadata":{`); ok {
		return k.head() + fmt.Sprintf(`,"metadata":{"name":%q,`, name) + rest + "}"
	}
	if list != "" {
		list = "," + list
	}
	return k.head() + fmt.Sprintf(`,"metadata":{"name":%q}`, name) + list + "}"
}

// TestLists sends wide lists. What is answered doesn't matter, only what that costs.
func TestLists(t *testing.T) {
	s := servertest.New(t, every)
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widesDefinition)
	s.Quiescent()
	cases, sent := 0, map[int]int{}
	for _, k := range kinds(t, s) {
		if code, answer := send(s, http.MethodPost, k.path, mediaJSON, k.body("small", small[k.name])); code != 201 && code != 409 && slices.Contains(k.verbs, "patch") && !slices.Contains(only, k.name) {
			t.Errorf("%s: nothing is there to be patched: %d %.200s", k.path, code, answer)
		}
		for _, l := range k.lists {
			for _, element := range []string{l.element, l.equal} {
				for _, n := range widths {
					if element == "" {
						continue
					}
					for _, v := range k.writes(l) {
						if cases++; cases%*sample != 0 {
							continue
						}
						body := v.body(l.wrap(join(n, element)))
						code, name := 0, fmt.Sprintf("%s %s: %d of %s at %s", v.method, v.path+" "+v.media, n, element, l)
						c := measureAgain(t, name, func() { code, _ = send(s, v.method, v.path, v.media, body) }, func() {
							if code == 201 && v.method == http.MethodPost {
								send(s, http.MethodDelete, k.path+"/wide", mediaJSON, "")
							}
						})
						check(t, fmt.Sprint(name, ": ", code), c)
						sent[code]++
					}
				}
			}
		}
	}
	t.Logf("%d cases; answers: %v", cases, sent)
	for _, code := range []int{200, 413} {
		if sent[code] == 0 {
			t.Errorf("none of %d cases was answered %d: the test tries nothing", cases, code)
		}
	}
}

// What workloads have.
const (
	podSpec  = `{"containers":[{"name":"a","image":"b"}]}`
	template = `{"metadata":{"labels":{"a":"b"}},"spec":` + podSpec + `}`
	workload = `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}`
	scaled   = `"spec":{"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}}`
	roleRef  = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"a"}`
	rules    = `"matchConstraints":{"resourceRules":[{"apiGroups":["x"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["y"]}]}`
)

// small is what kinds need besides metadata for there to be an object that can be updated and patched.
var small = map[string]string{
	"ServiceCIDR":                      `"spec":{"cidrs":["192.0.2.0/24"]}`,
	"IngressClass":                     `"spec":{"controller":"example.com/c"}`,
	"Pod":                              `"spec":` + podSpec,
	"PersistentVolumeClaim":            `"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`,
	"PersistentVolume":                 `"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/a"}}`,
	"PodTemplate":                      `"template":` + template,
	"ControllerRevision":               `"data":{}`,
	"ReplicationController":            `"spec":{"selector":{"a":"b"},"template":` + template + `}`,
	"Service":                          `"spec":{"ports":[{"port":80}]}`,
	"DaemonSet":                        workload,
	"Deployment":                       workload,
	"ReplicaSet":                       workload,
	"StatefulSet":                      workload,
	"CronJob":                          `"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}}}`,
	"Job":                              `"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}`,
	"HorizontalPodAutoscaler":          scaled,
	"ClusterTrustBundle":               `"spec":{"trustBundle":"-----BEGIN CERTIFICATE-----\nMIIBeDCCAR+gAwIBAgIUcC+egSuv++aYbnWRwGJvegv0msAwCgYIKoZIzj0EAwIw\nETEPMA0GA1UEAwwGYW5jaG9yMCAXDTI2MTEyMzE3MTkzMVoYDzIxMjYxMDMwMTcx\nOTMxWjARMQ8wDQYDVQQDDAZhbmNob3IwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\nAAR/QiszlwDlb/OOH8wc8AcXZQbtK7shhdKt9HhAbTHS8acUGUTwAU8AhNOS3LJm\ngqXnv9bdJjdwYhbz70/IaKOoo1MwUTAdBgNVHQ4EFgQUIsxWymjcbDzbDejYlDqI\njb6Of8UwHwYDVR0jBBgwFoAUIsxWymjcbDzbDejYlDqIjb6Of8UwDwYDVR0TAQH/\nBAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBiWsHQelvUeVix2xVhtUVyRTUQRANC\n63csYfN0reBaqQIgGdVRLUz4gkcDPpg9/CF4rVhc4xmSQTufpfs1zDQixbY=\n-----END CERTIFICATE-----\n"}`,
	"PodCertificateRequest":            `"spec":{"signerName":"example.com/s","podName":"p","podUID":"u","serviceAccountName":"s","serviceAccountUID":"u","nodeName":"node","nodeUID":"u","maxExpirationSeconds":86400,"stubPKCS10Request":"MH8wMwIBADAAMCowBQYDK2VwAyEAykPNfl+3tOMagWLKekbD8xR/mNTF25+NL1ocz24RTIygADAFBgMrZXADQQBLS/Z/RrjrnsIXY/XCseLQBW5awIq0KU61QebLhpRrvCEeJn2y1WUIWnPZgHzw3WcouojolqZ6cwE9LCTOPHUE"}`,
	"EndpointSlice":                    `"addressType":"IPv4","endpoints":[]`,
	"Ingress":                          `"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}`,
	"RuntimeClass":                     `"handler":"a"`,
	"ClusterRoleBinding":               roleRef,
	"RoleBinding":                      roleRef,
	"CSIStorageCapacity":               `"storageClassName":"a"`,
	"StorageClass":                     `"provisioner":"a"`,
	"VolumeAttachment":                 `"spec":{"attacher":"a","nodeName":"b","source":{"persistentVolumeName":"c"}}`,
	"VolumeAttributesClass":            `"driverName":"a","parameters":{"a":"b"}`,
	"FlowSchema":                       `"spec":{"priorityLevelConfiguration":{"name":"a"}}`,
	"PriorityLevelConfiguration":       `"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`,
	"ResourceSlice":                    `"spec":{"driver":"a","pool":{"name":"b","resourceSliceCount":1},"allNodes":true}`,
	"DeviceTaintRule":                  `"spec":{"taint":{"key":"a","effect":"NoSchedule"}}`,
	"ValidatingAdmissionPolicy":        `"spec":{` + rules + `,"validations":[{"expression":"true"}]}`,
	"MutatingAdmissionPolicy":          `"spec":{` + rules + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"test\", path: \"/a\", value: 1}]"}}]}`,
	"ValidatingAdmissionPolicyBinding": `"spec":{"policyName":"a","validationActions":["Deny"]}`,
	"MutatingAdmissionPolicyBinding":   `"spec":{"policyName":"a"}`,
	"StorageVersionMigration":          `"spec":{"resource":{"resource":"a"}}`,
}

// only are kinds whose objects can't be called "small", or aren't made in a line: their lists go through a create alone.
var only = []string{"CustomResourceDefinition", "APIService", "CertificateSigningRequest", "Event", "IPAddress"}

// write is a way to send a list.
type write struct {
	method, path, media string
	body                func(list string) string
}

// writes are the ways to send a list: a create, an update, and the four patches.
func (k *kind) writes(l list) []write {
	whole := func(list string) string { return k.body("small", list) }
	part := func(list string) string { return "{" + list + "}" }
	pointer := func(list string) string {
		name, value, _ := strings.Cut(list, ":")
		return `[{"op":"add","path":"/` + strings.Trim(name, `"`) + `","value":` + value + `}]`
	}
	if l.path[0].name == "metadata" { // whose name must stay
		pointer = func(list string) string {
			_, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(list, `"metadata":{`), "}"), ":")
			return `[{"op":"add","path":"/metadata/` + l.path[1].name + `","value":` + value + `}]`
		}
	}
	at := k.path + "/small"
	ways := []write{{http.MethodPost, k.path, mediaJSON, func(list string) string { return k.body("wide", list) }}}
	if slices.Contains(k.verbs, "update") {
		ways = append(ways, write{http.MethodPut, at, mediaJSON, whole})
	}
	if slices.Contains(k.verbs, "patch") {
		ways = append(ways, write{http.MethodPatch, at, mediaMerge, part}, write{http.MethodPatch, at, mediaPatch, pointer},
			write{http.MethodPatch, at, mediaStrategic, part}, write{http.MethodPatch, at + "?fieldManager=m&force=true", mediaApply, whole})
	}
	return ways
}

// send is servertest.Server.Do with the code alone.
func send(s *servertest.Server, method, path, media, body string) (int, string) {
	res, answer := s.Do(method, path, body, "Content-Type", media)
	return res.StatusCode, answer
}
