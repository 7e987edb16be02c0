#!/usr/bin/env bash
# Starts a cluster without machines on this server, until Ctrl-C:
#
#	make build oracle kwok && examples/kwok/up.sh
#
# DIR (by default a directory that goes at the end) gets the data, the logs, and kubeconfig, an administrator's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$(realpath "${BINARY:-$here/../../bin/apiserver-lite}")
if [ -n "${DIR:-}" ]; then
	mkdir -p "$DIR"
else
	DIR=$(mktemp -d)
	temporary=$DIR
fi
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf ${temporary:-}' EXIT
trap 'exit 0' INT TERM

# The controller manager does what the server does by itself otherwise, and ServiceAccounts have rights of their own.
"$binary" --builtin=all --controllers=none --managed-fields=always --authorization-mode=RBAC --tls --data-dir="$DIR/data" \
	--listen="${LISTEN:-127.0.0.1:0}" --write-kubeconfig="$DIR/kubeconfig" >"$DIR/server.log" 2>&1 &
server=$!
until [ -s "$DIR/kubeconfig" ]; do
	kill -0 $server 2>/dev/null || { cat "$DIR/server.log" >&2; exit 1; }
	sleep 0.1
done
cp "$DIR/data/tls.crt" "$DIR/ca.crt"
cp "$DIR/data/service-account.key" "$DIR/sa.key"
echo "export KUBECONFIG=$DIR/kubeconfig"
"$here/parts.sh" "$DIR" &
wait -n
