#!/usr/bin/env bash
# Starts what makes a cluster of a server: Kubernetes' controller manager and scheduler, and nodes without machines by kwok.
#
#	examples/kwok/parts.sh DIR
#
# DIR has kubeconfig, and beside it kube-controller-manager.kubeconfig, kube-scheduler.kubeconfig and kwok.kubeconfig where
# these are users of their own; ca.crt, which Pods get to know the server by; and sa.key, which signs ServiceAccounts' tokens.
# PARTS is where the programs are (bin/oracle), NODES how many nodes there are (100). It ends with the first of its parts.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$(realpath "$1")
parts=$(realpath "${PARTS:-$here/../../bin/oracle}")
nodes=${NODES:-100}

trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap 'exit 0' INT TERM

# of NAME prints the kubeconfig of a part.
of() { if [ -f "$dir/$1.kubeconfig" ]; then echo "$dir/$1.kubeconfig"; else echo "$dir/kubeconfig"; fi; }

# start NAME FLAGS... starts a part, whose log is in DIR.
start() {
	local name=$1
	shift
	"$parts/$name" "$@" >"$dir/$name.log" 2>&1 &
}

# Each controller of the manager has the rights of its own ServiceAccount. Nobody else is there to lead.
start kube-controller-manager --kubeconfig="$(of kube-controller-manager)" --use-service-account-credentials --leader-elect=false --secure-port=0 \
	--root-ca-file="$dir/ca.crt" --service-account-private-key-file="$dir/sa.key" --kube-api-qps=1000 --kube-api-burst=2000
start kube-scheduler --kubeconfig="$(of kube-scheduler)" --leader-elect=false --secure-port=0 \
	--kube-api-qps=1000 --kube-api-burst=2000
start kwok --kubeconfig="$(of kwok)" --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40 --cidr=10.128.0.0/14 \
	$(printf -- '--config=%s ' "$parts"/stages/*.yaml)

for i in $(seq "$nodes"); do
	sed "s/NAME/$(printf 'node-%03d' "$i")/" "$here/node.yaml"
done | kubectl --kubeconfig="$dir/kubeconfig" apply -f - >/dev/null
echo "$nodes nodes"

wait -n || true
echo "a part has ended; the logs are in $dir" >&2
exit 1
