package main

import (
	"fmt"
	"slices"
	"strings"
)

// transportScenario is about how an answer is sent: compressed or not, for people or for programs, whole or without a body.
func transportScenario() scenario {
	// The groups of other scenarios would be in its answers.
	sc := scenario{name: "transport", alone: true}
	const namespace, large = "/api/v1/namespaces/transport", 60_000 // characters; lists of several such objects are compressed
	configMap := func(name string, size int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"<&>","b":%q}}`, name, strings.Repeat("b", size))
	}
	ask := func(method, path, body string, header ...string) {
		s := step{name: "transport/" + strings.Join(append([]string{method, path}, header...), " "), method: method, path: path, body: body, header: map[string]string{}}
		for pair := range slices.Chunk(header, 2) {
			s.header[pair[0]] = pair[1]
		}
		if body != "" {
			s.header["Content-Type"] = asJSON
		}
		sc.add(s)
	}
	const zip = "Accept-Encoding"
	ask("POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"transport"}}`)
	ask("POST", namespace+"/configmaps", configMap("small", 10))
	ask("GET", namespace+"/configmaps", "", zip, "gzip")
	for i := range 4 {
		ask("POST", namespace+"/configmaps", configMap(fmt.Sprintf("large%d", i), large), zip, "gzip")
	}
	ask("POST", namespace+"/configmaps", configMap("largest", 4*large), zip, "gzip")
	ask("PATCH", namespace+"/configmaps/largest", "{}", zip, "gzip", "Content-Type", mergePatch)
	forms(ask, namespace+"/configmaps", namespace+"/configmaps/largest", namespace+"/configmaps/small")
	ask("GET", namespace+"/configmaps?watch=true&timeoutSeconds=1&resourceVersion=${rv:small}&fieldSelector=metadata.name%3Dlarge0", "", zip, "gzip")
	ask("GET", namespace+"/configmaps?watch=true&timeoutSeconds=1&pretty=true&resourceVersion=${rv:small}&fieldSelector=metadata.name%3Dlarge0", "")
	ask("GET", namespace+"/configmaps/missing", "", zip, "gzip")
	ask("GET", namespace+"/configmaps/missing?pretty=true", "")
	ask("GET", namespace+"/configmaps/missing", "", "User-Agent", "curl/8.0")
	for _, path := range []string{"/apis", "/apis/apps/v1", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/version", "/healthz", "/none"} {
		ask("GET", path, "", zip, "gzip")
		ask("GET", path+"?pretty=true", "")
		ask("HEAD", path, "")
	}
	ask("GET", "/openapi/v3/apis/apps/v1", "", "If-None-Match", "*")
	ask("GET", "/openapi/v3/apis/apps/v1", "", "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
	for name, header := range map[string]string{"Audit-Id": "given-by-the-client", "If-None-Match": "*", "If-Match": `"x"`, "If-Modified-Since": "Mon, 02 Jan 2034 15:04:05 GMT", "Origin": "https://example.com", "X-Remote-User": "somebody", "Expect": "100-continue"} {
		ask("GET", namespace+"/configmaps/small", "", name, header)
	}
	slices.SortStableFunc(sc.steps[len(sc.steps)-7:], func(a, b step) int { return strings.Compare(a.name, b.name) })
	timeouts(ask, namespace+"/configmaps")
	ask("DELETE", namespace+"/configmaps", "", zip, "gzip")
	return sc
}

// timeouts asks with the time that a client gives its request, which may be one that can't be read.
func timeouts(ask func(method, path, body string, header ...string), list string) {
	for _, timeout := range []string{"timeout=", "timeout=0s", "timeout=-1s", "timeout=1h", "timeout=1ns", "timeout=10", "timeout=x", "timeout=30s&timeout=x", "timeout=x&timeout=30s", "timeout=%22%3C", "Timeout=x"} {
		ask("GET", list+"?labelSelector=none&"+timeout, "")
		ask("GET", list+"/small?"+timeout, "")
		ask("GET", list+"?labelSelector=none&resourceVersion=${rv:small}&resourceVersionMatch=Exact&"+timeout, "")
		ask("POST", list+"?dryRun=All&"+timeout, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"timely"}}`)
		ask("PATCH", list+"/small?dryRun=All&"+timeout, "{}", "Content-Type", mergePatch)
		ask("DELETE", list+"/small?dryRun=All&"+timeout, "")
		ask("GET", list+"?watch=true&timeoutSeconds=1&resourceVersion=${rv:small}&fieldSelector=metadata.name%3Dlarge0&"+timeout, "")
		ask("GET", list+"/log?"+timeout, "")
		ask("GET", strings.TrimSuffix(list, "configmaps")+"pods/none/log?"+timeout, "")
		for _, path := range []string{"/api", "/apis/apps/v1", "/healthz", "/version", "/none"} {
			ask("GET", path+"?"+timeout, "")
		}
		ask("GET", list+"?"+timeout, "", "Authorization", "Bearer of-nobody")
	}
}

// forms asks for what is at paths in each way in which an answer may be wanted.
func forms(ask func(method, path, body string, header ...string), paths ...string) {
	const zip = "Accept-Encoding"
	for _, path := range paths {
		for _, encoding := range []string{"gzip", "gzip;q=0", "gzip;q=0.5, identity", "deflate, gzip;q=1.0", "identity", "deflate", "br", "*", "GZIP", ""} {
			ask("GET", path, "", zip, encoding)
		}
		for _, accept := range []string{asYAML, asProtobuf, asTable} {
			ask("GET", path, "", zip, "gzip", "Accept", accept)
		}
		ask("HEAD", path, "", zip, "gzip")
		for _, query := range []string{"pretty=true", "pretty=1", "pretty=false", "pretty=0", "pretty", "pretty=x"} {
			ask("GET", path+"?labelSelector=none&"+query, "")
		}
		for _, agent := range []string{"curl/8.0", "Mozilla/5.0", "Wget/1.2", "kubectl/v1.37"} {
			ask("GET", path+"?labelSelector=none", "", "User-Agent", agent)
		}
		for _, accept := range []string{"application/json;pretty=1", "application/json;pretty=true", "application/json;pretty=0", "application/*", "*/*", "text/html,*/*;q=0.8", "application/json;charset=utf-8", "application/json;as=List", "application/yaml;pretty=1"} {
			ask("GET", path+"?labelSelector=none", "", "Accept", accept)
		}
		ask("GET", path, "", "Range", "bytes=0-9")
	}
}
