package main

import "regexp"

// difference is one that is on purpose, or that can't be otherwise.
type difference struct {
	request *regexp.Regexp // of the request's method and path
	field   *regexp.Regexp // of the answer
	why     string
}

// but makes a difference of two expressions.
func but(request, field, why string) difference {
	return difference{regexp.MustCompile(request), regexp.MustCompile(field), why}
}

// known is docs/wire.md's (ours), and what the peer lacks because it's only a part of kube-apiserver.
var known = []difference{
	but(`^(POST|PUT|PATCH) \$CRDS`, `\.status\b|\.managedFields`, "a definition is established in the answer to its POST (ours)"),
	but(``, `^header X-Content-Type-Options$`, "kube-apiserver's outer handlers set it, and the peer has none of them"),
	but(``, `^header Vary$`, "what an answer depends on is said (ours): Accept too"),
	but(``, `^header Allow$`, "a refused method comes with those that are taken (ours)"),
	but(`^(GET|POST|DELETE) (\$C$|\$G/widgets|/apis/differ.example.com/v0|/apis/none|/apis/differ.example.com/v1/(nothing|namespaces/default/(nothing|clusterwidgets)))`, `^(body|header Content-Type|header Cache-Control|\.)`, "404 has a Status (ours); the peer's last handler says it in plain text"),
	but(`/(readyz/none|nothing|openapi/v3/none)$`, `^(code|body|header|\.)`, "404 has a Status (ours)"),
	but(`^GET /apis$`, `^(body|\.(apiVersion|groups|items))`, "the groups of definitions and the core API: in a cluster the aggregator adds them"),
	but(`^GET /openapi/v3$`, `^\.paths`, "as /apis"),
	but(`^GET /api$`, ``, "the peer has no core API"),
	but(`^(GET|POST) /(healthz|livez|readyz)`, `^(body|code|header|\.)`, "the checks are those of the server's own parts (ours)"),
	but(`^GET .*resourceVersion=(x|-1|99999999999999999999999)`, `^(code|\.code|\.reason)$`, "400 (ours): the peer's 500 makes clients try again"),
	but(`^POST \$W$`, `^(code|\.code|\.reason)$`, "a create with a resourceVersion is 400 (ours); the peer's 500 makes clients try again. A body that isn't known to it breaks the peer"),
	but(`^GET \$W.*(Accept|$)`, `^body$`, "YAML has our order of fields"),
	but(`watch=`, `^(event \d+\.type|event \d+\.object)`, "initial events come in key order (ours), and history reaches further back (ours)"),
}
