#!/usr/bin/env bash
# Does with web.yaml what people do with a Deployment, and prints how long each step took. It ends with an error if one fails.
#
#	KUBECONFIG=... examples/kwok/try.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# step WHAT COMMAND... runs a command, and prints how long it took.
step() {
	local what=$1 begun=$EPOCHREALTIME
	shift
	"$@" >/dev/null
	printf '%6.1f s  %s\n' "$(bc <<<"$EPOCHREALTIME - $begun")" "$what"
}

rolled_out() { kubectl -n web rollout status deployment/web --timeout=10m; }
apply() { kubectl apply -f "$here/web.yaml" && rolled_out; }
scale() { kubectl -n web scale deployment/web --replicas=200 && rolled_out; }
image() { kubectl -n web set image deployment/web web=example.com/web:2 && rolled_out; }
undo() { kubectl -n web rollout undo deployment/web && rolled_out; }
finished() { kubectl -n web wait --for=condition=Complete job/report --timeout=10m; }

# drain empties the node that the first pod of the Deployment runs on.
drain() {
	local node
	node=$(kubectl -n web get pods -l app=web -o jsonpath='{.items[0].spec.nodeName}')
	kubectl drain "$node" --force --ignore-daemonsets
	rolled_out
	[ -z "$(kubectl -n web get pods -l app=web --field-selector="spec.nodeName=$node" -o name)" ]
	kubectl uncordon "$node"
}

step "a Deployment of 1,000 pods has rolled out" apply
step "its Job is complete" finished
step "200 pods are left of it" scale
step "a new image has rolled out" image
step "that is undone" undo
step "the pods of a drained node run elsewhere" drain
step "the namespace is gone" kubectl delete namespace web
