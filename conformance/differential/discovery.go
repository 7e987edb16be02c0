package main

import "strings"

// groupVersions are upstream's, by default, in version 1.37. A test looks whether discovery has others.
var groupVersions = strings.Fields(`v1 admissionregistration.k8s.io/v1 apiextensions.k8s.io/v1 apiregistration.k8s.io/v1 apps/v1
	authentication.k8s.io/v1 authorization.k8s.io/v1 autoscaling/v1 autoscaling/v2 batch/v1 certificates.k8s.io/v1 coordination.k8s.io/v1
	discovery.k8s.io/v1 events.k8s.io/v1 flowcontrol.apiserver.k8s.io/v1 networking.k8s.io/v1 node.k8s.io/v1 policy/v1
	rbac.authorization.k8s.io/v1 resource.k8s.io/v1 scheduling.k8s.io/v1 storage.k8s.io/v1 storagemigration.k8s.io/v1`)

func gvRoot(gv string) string {
	group, version, ok := strings.Cut(gv, "/")
	if !ok {
		return root("", gv)
	}
	return root(group, version)
}

// discoverySteps ask for all that says what is served.
func discoverySteps() (steps []step) {
	get := func(path string, header map[string]string) {
		name := path
		for _, value := range header {
			name += " " + value
		}
		steps = append(steps, step{name: "discovery" + name, method: "GET", path: path, header: header})
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		get(path, nil)
		get(path, map[string]string{"Accept": aggregated + ",application/json"})
		get(path, map[string]string{"Accept": strings.Replace(aggregated, "v=v2", "v=v2beta1", 1) + ",application/json"})
		get(path, map[string]string{"Accept": "application/vnd.kubernetes.protobuf"})
		get(path, map[string]string{"Accept": asYAML})
	}
	for _, gv := range groupVersions {
		get(gvRoot(gv), nil)
		get(gvRoot(gv), map[string]string{"Accept": asProtobuf})
		if group, _, ok := strings.Cut(gv, "/"); ok {
			get("/apis/"+group, nil)
		}
	}
	for _, path := range []string{"/", "/version", "/apis/none", "/apis/apps/v9", "/api/v2", "/none", "/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/none", "/livez?verbose", "/readyz?verbose&exclude=ping", "/.well-known/openid-configuration", "/openid/v1/jwks", "/version/", "/apis/", "/api/",
		"/index.html", "/metrics/", "/healthz/", "/livez/", "/readyz/", "/livez/ping/", "/readyz/none/", "/openapi/v2/", "/openapi/v3/", "/openapi/v3/apis/apps/v1/", "/openapi/",
		"/.well-known/openid-configuration/", "/.well-known/", "/openid/v1/jwks/", "/apis/apps/", "/apis/apps/v1/", "/api/v1/", "/api/v1/namespaces/", "/api/v1/namespaces/default/",
		"/apis/none/", "/none/"} {
		get(path, nil)
	}
	return steps
}

// openAPISteps ask for the documents.
func openAPISteps() (steps []step) {
	get := func(path string, header map[string]string) {
		name := path
		for _, value := range header {
			name += " " + value
		}
		steps = append(steps, step{name: "openapi" + name, method: "GET", path: path, header: header})
	}
	get("/openapi/v3", nil)
	get("/openapi/v2", nil)
	for _, gv := range groupVersions {
		get("/openapi/v3"+gvRoot(gv), nil)
	}
	for _, path := range []string{"/api", "/apis", "/version", "/logs", "/openid/v1/jwks", "/.well-known/openid-configuration"} {
		get("/openapi/v3"+path, nil)
	}
	for _, gv := range groupVersions {
		if group, _, ok := strings.Cut(gv, "/"); ok {
			get("/openapi/v3/apis/"+group, nil)
		}
	}
	return steps
}
