package main

import "regexp"

// difference is one that is on purpose, or that can't be otherwise.
type difference struct {
	request *regexp.Regexp // of the request's method and path, or of these, its headers and its body
	field   *regexp.Regexp // of the answer
	why     string
}

// but makes a difference of two expressions.
func but(request, field, why string) difference {
	return difference{regexp.MustCompile(request), regexp.MustCompile(field), why}
}

// isOf tells whether it's a difference in the answers to a request.
func (d difference) isOf(r request) bool {
	return d.request.MatchString(r.String()) || d.request.MatchString(r.whole())
}

// known is docs/wire.md's (ours), and what the peer lacks because it's only a part of kube-apiserver. A request is matched
// with and without its headers and its body.
var known = []difference{
	// What the peer lacks or can't do.
	but(``, `^header X-Content-Type-Options$`, "kube-apiserver's outer handlers set it, and the peer has none of them"),
	but(`^GET /apis$`, `^(body|\.(apiVersion|groups|items))`, "the groups of definitions and the core API: in a cluster the aggregator adds them"),
	but(`^GET /openapi/v3$`, `^\.paths`, "as /apis"),
	but(`^GET /api$`, ``, "the peer has no core API"),
	but(`^GET /apis/apiextensions.k8s.io/v1$`, `storageVersionHash$`, "kube-apiserver has it, and the peer doesn't"),
	but(`^POST \$W Content-Type application/vnd.kubernetes.protobuf`, ``, "415: the peer panics and closes the connection"),
	but(`^GET \$W/a Accept application/vnd.kubernetes.protobuf $`, ``, "406 as JSON: the peer's is protobuf, and nothing here is"),

	// Answers of every kind.
	but(``, `^header Vary$`, "what an answer depends on is said (ours): Accept too"),
	but(``, `^header Allow$`, "a refused method comes with those that are taken (ours)"),
	but(``, `^\.details\{\}$`, "an error has no empty details (ours)"),
	but(`^GET \$W.*(Accept|$)`, `^body$`, "YAML has our order of fields"),

	// Paths and methods.
	but(`^(GET|POST|DELETE) (\$C$|\$G/widgets|/apis/differ.example.com/v0|/apis/none|/apis/differ.example.com/v1/(nothing|namespaces/default/(nothing|clusterwidgets)))`, `^(body|header Content-Type|header Cache-Control|\.)`, "404 has a Status (ours); the peer's last handler says it in plain text"),
	but(`/(readyz/none|nothing|openapi/v3/none)$`, `^(code|body|header|\.)`, "404 has a Status (ours)"),
	but(`^(GET|POST) /(healthz|livez|readyz)`, `^(body|code|header|\.)`, "the checks are those of the server's own parts (ours)"),
	but(`/namespaces//`, `^(code|body|header Content-Type|\.)`, "a path with an empty segment is 400 (ours)"),
	but(`^POST /apis/differ.example.com/v1/watch/`, ``, "405: the peer closes the connection"),
	but(`^(POST|DELETE) \$W/x$`, ``, "a POST with a name in its path is 405 (ours): the peer creates an object, which is then deleted"),
	but(`^(PUT|PATCH) \$W$`, `^(code|\.code|\.reason|\.details)`, "a PUT or PATCH without a name in its path is 405 (ours)"),
	but(`^POST \$G/widgets$`, `^code$`, "a create across namespaces is 405 (ours) and says where to post"),
	but(`^DELETE \$G/widgets$`, `^code$`, "objects of all namespaces can be deleted at once (ours)"),

	// Parameters.
	but(`[?&](limit=-1|force=x|gracePeriodSeconds=-1|orphanDependents=x)`, ``, "a parameter whose value can't be meant is 400 (ours)"),
	but(`[?&]sendInitialEvents=x`, `^(code|(event 0)?\.(code|reason|message|details)\b)`, "a parameter whose value can't be meant is 400 (ours)"),
	but(`[?&]watch=x`, `^(code|event 0\.)`, "a parameter whose value can't be meant is 400 (ours); the peer watches"),
	but(`^DELETE \$C/c1$`, ``, "as the peer took gracePeriodSeconds=-1 for a word, the object is gone there"),
	but(`^GET .*resourceVersion=(x|-1|99999999999999999999999)`, `^(code|(event 0)?\.code|(event 0)?\.reason)$`, "400 (ours): the peer's 500 makes clients try again"),
	but(`^GET \$W\?limit=2&continue=.*&resourceVersion=0$`, `^\.(items|metadata)`, "the limit holds for every page (ours); the peer answers with all the rest"),
	but(`^GET \$W\?limit=2&labelSelector=tier$`, `^\.metadata\.continue$`, "a page has a token only if something follows (ours)"),

	// Writes.
	but(`^POST \$W .*"resourceVersion":"12"`, `^(code|\.code|\.reason)$`, "a create with a resourceVersion is 400 (ours); the peer's 500 makes clients try again"),
	but(`^(POST|PATCH) \$W.*("metadata":\{\}|"ownerReferences")`, `causes\[<nil> `, "metadata that is wrong keeps no rule from being checked (ours)"),
	but(`^PUT \$W/a .*"resourceVersion":"x"`, ``, "a version that isn't one is 422 (ours); the peer's 500 makes clients try again"),
	but(`^PUT \$W/a .*"kind":"Gadget"`, ``, "another kind is refused before the version is looked at (ours)"),
	but(`^PATCH \$W/a .*"apiVersion":"differ.example.com/v2"`, `^header Warning$`, "a refused apiVersion has no warnings of the fields that it hasn't (ours)"),
	but(`^PATCH \$W/app/scale\?`, ``, "an apply to scale works (ours); the peer can't convert the Scale that it merged, and says 500"),
	but(`^(GET \$W/app|DELETE \$W(\?dryRun=All)?)$`, `\.(spec\.replicas|metadata\.generation|managedFields\[one Apply scale\].*)$`, "what the apply to scale did"),
	but(``, `\.managedFields\[differ Update scale\]`, "a write of scale is in managedFields (ours); the peer forgets it"),
	but(`^GET \$W/a/scale$`, `^(code|\.code|\.reason|\.details)`, "an object without replicas is 422 (ours); the peer says 500"),

	// Watches.
	but(`^GET \$W/a\?watch=true`, `^event \d+\.`, "a watch of one object (ours): the peer answers with the object"),
	but(`watch=true&timeoutSeconds=1&resourceVersion=1$`, `^event \d+\.(type|object\.)`, "history reaches further back (ours): the peer says 410"),
	but(`watch=true&timeoutSeconds=1&resourceVersion=99999999$`, `^event 0\.(type|object\.)`, "a watch from a version that isn't there yet is 410 (ours); the peer waits for it"),

	// Definitions.
	but(`^(POST|PUT|PATCH) \$CRDS`, `\.status\b`, "a definition is established in the answer to its POST (ours)"),
	but(`\$CRDS`, `\.managedFields`, "a definition's managedFields don't have the server's status (ours)"),
	but(`^POST \$CRDS `, `causes\[(status\.storedVersions|spec\.conversion)`, "causes name the fields of v1, and not what follows from them (ours)"),
	but(`^DELETE \$CRDS/`, `^\.(metadata\.(deletionGracePeriodSeconds|generation)|status)`, "a definition is deleted as every other object (ours), and the deletion of its objects begins at once"),

	// OpenAPI.
	but(`^GET /openapi/v3/apis/`, `^\.paths\..*\.(parameters\[|requestBody\.)`, "each operation names its parameters and its body, those alone that are served (ours)"),
	but(`^GET /openapi/v3/apis/`, `^\.paths\..*/scale\..*\.x-kubernetes-group-version-kind\.`, "what scale takes and gives is a Scale (ours), as for built-in kinds"),
	but(`^GET /openapi/v3/apis/`, `^\.components\..*\.(default(\{\})?|x-kubernetes-group-version-kind\[.*)$`, "zero values aren't named as defaults (ours), nor the groups whose DeleteOptions aren't taken"),
	but(`^GET /openapi/v3/apis/`, `(\.description|\.info\.\w+)$`, "the sentences and the title are our own"),
}
