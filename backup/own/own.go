// Package own tells what of a server is its users' own, and what the server sets or makes by itself: for those who copy it to another server.
package own

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/backup/document"
)

// KindOf returns kind.group.
func KindOf(o document.Object) string {
	kind, group := document.Text(o, "kind"), document.Group(document.Text(o, "apiVersion"))
	if group != "" {
		kind += "." + group
	}
	return kind
}

// madeByName are the objects that a server makes by itself, and doesn't let go: by kind, as namespace/name or */name.
var madeByName = map[string][]string{
	"ConfigMap":                       {"*/kube-root-ca.crt", "kube-system/extension-apiserver-authentication", "kube-system/kube-apiserver-legacy-service-account-token-tracking"},
	"Service":                         {"default/kubernetes"},
	"Endpoints":                       {"default/kubernetes"},
	"EndpointSlice.discovery.k8s.io":  {"default/kubernetes"},
	"ServiceCIDR.networking.k8s.io":   {"/kubernetes"},
	"PriorityClass.scheduling.k8s.io": {"/system-cluster-critical", "/system-node-critical"},
}

// madeByLabel are the labels that controllers give to what they make, by kind. "*" is any value.
var madeByLabel = map[string][2]string{
	"EndpointSlice.discovery.k8s.io": {"endpointslice.kubernetes.io/managed-by", "*.k8s.io"},
	"Endpoints":                      {"endpoints.kubernetes.io/managed-by", "endpoint-controller"},
	"IPAddress.networking.k8s.io":    {"ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"},
}

// startNamespaces are those that a server begins with.
var startNamespaces = []string{"default", "kube-node-lease", "kube-public", "kube-system"}

// ServerMakes tells whether a server makes the object by itself, as it is. The object has been through Strip.
func ServerMakes(o document.Object) bool {
	kind, namespace, name := KindOf(o), document.NamespaceOf(o), document.NameOf(o)
	for _, at := range madeByName[kind] {
		if at == namespace+"/"+name || at == "*/"+name {
			return true
		}
	}
	if by, ok := madeByLabel[kind]; ok {
		value, _ := document.Map(o, "metadata", "labels")[by[0]].(string)
		if value == by[1] || strings.HasPrefix(by[1], "*") && strings.HasSuffix(value, by[1][1:]) {
			return true
		}
	}
	switch kind {
	case "Namespace":
		return slices.Contains(startNamespaces, name) && bare(o)
	case "ServiceAccount":
		return name == "default" && bare(o)
	case "APIService.apiregistration.k8s.io":
		return document.Map(o, "spec", "service") == nil
	case "FlowSchema.flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io":
		return document.Text(o, "metadata", "annotations", "apf.kubernetes.io/autoupdate-spec") == "true"
	}
	own, is := ownRules()[kind+" "+namespace+"/"+name]
	return is && bytes.Equal(own, document.Append(nil, o))
}

// bare tells whether an object has nothing but its name.
func bare(o document.Object) bool {
	for member := range o {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, member) {
			return false
		}
	}
	for member := range document.Map(o, "metadata") {
		if member != "name" && member != "namespace" {
			return false
		}
	}
	return true
}

// ownRules are Kubernetes' own roles and bindings, as an export would write them, by kind, namespace and name.
var ownRules = sync.OnceValue(func() map[string][]byte {
	all := map[string][]byte{}
	for _, rule := range access.OwnRules() {
		asJSON, _ := json.Marshal(rule) // of these types can't fail
		o, _ := document.Decode(asJSON)
		Strip(o, false)
		all[KindOf(o)+" "+document.NamespaceOf(o)+"/"+document.NameOf(o)] = document.Append(nil, o)
	}
	return all
})

// jobLabels are what a server gives to the template of a Job whose selector it makes.
var jobLabels = []string{"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"}

// Keeps tells whether an object that has been through Strip lacks what must not change in an update.
func Keeps(o document.Object) bool {
	return KindOf(o) == "Job.batch" && document.Map(o, "spec")["manualSelector"] != true
}

// Keep gives such an object what the server has made there by itself.
func Keep(o, there document.Object) {
	template := document.Map(o, "spec", "template")
	if !Keeps(o) || template == nil {
		return
	}
	document.Map(o, "spec")["selector"] = document.Map(there, "spec")["selector"]
	made := document.Map(there, "spec", "template", "metadata", "labels")
	for _, label := range jobLabels {
		if value, has := made[label]; has {
			within(within(template, "metadata"), "labels")[label] = value
		}
	}
}

// within returns the mapping that a member is, which is made if need be.
func within(of map[string]any, name string) map[string]any {
	in, is := of[name].(map[string]any)
	if !is {
		in = map[string]any{}
		of[name] = in
	}
	return in
}

// Strip removes from an object what the server sets, and what another server would have to set in its own way: its place in the store,
// addresses, uids. withStatus says that the status is the object's own, because its kind has no other way to write it.
func Strip(o document.Object, withStatus bool) {
	document.ClearMetadata(o)
	if !withStatus {
		delete(o, "status")
	}
	switch KindOf(o) {
	case "Namespace":
		document.Drop(o, "metadata", "labels", "kubernetes.io/metadata.name")
		delete(o, "spec") // its finalizer
	case "Service":
		if spec := document.Map(o, "spec"); spec["clusterIP"] != "None" {
			delete(spec, "clusterIP")
			delete(spec, "clusterIPs")
		}
	case "PersistentVolume":
		document.Drop(o, "spec", "claimRef", "uid")
		document.Drop(o, "spec", "claimRef", "resourceVersion")
	case "Job.batch":
		if document.Map(o, "spec")["manualSelector"] != true {
			delete(document.Map(o, "spec"), "selector")
			for _, label := range jobLabels {
				document.Drop(o, "metadata", "labels", label)
				document.Drop(o, "spec", "template", "metadata", "labels", label)
			}
		}
	case "ClusterRole.rbac.authorization.k8s.io":
		if o["aggregationRule"] != nil {
			delete(o, "rules") // a controller fills them in
		}
	}
	for _, holder := range []map[string]any{document.Map(o, "metadata"), document.Map(o, "spec", "template", "metadata")} {
		if holder != nil && holder["creationTimestamp"] == nil {
			delete(holder, "creationTimestamp") // null: it's there in Go's form alone
		}
	}
}
