#!/usr/bin/env bash
# Starts three members on this machine, writes to one and reads from the others, kills one, writes again, and brings it back:
#
#	make build && examples/cluster/local.sh bin/apiserver-lite
#
# It takes free ports, leaves nothing behind, and ends with an error if any step doesn't do what it should.
set -euo pipefail

binary=$(realpath "${1:-bin/apiserver-lite}")
dir=$(mktemp -d)
pids=()
urls=()

stop() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap stop EXIT

fail() {
	echo "$1" >&2
	tail -n 40 "$dir"/*.log >&2
	exit 1
}

# until_true SECONDS WHAT COMMAND... runs the command until it succeeds.
until_true() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "$what: not in time"
		sleep 0.1
	done
}

# free_port prints a port that nobody listens on now.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
	done
}

# member N FLAGS... starts one and waits until it serves.
member() {
	local n=$1
	shift
	"$binary" --listen=127.0.0.1:0 --url-file="$dir/url-$n" --data-dir="$dir/member-$n" "$@" >"$dir/$n.log" 2>&1 &
	pids+=($!)
	until_true 90 "member $n is ready" test -s "$dir/url-$n"
	urls+=("$(cat "$dir/url-$n")")
	echo "member $n serves at ${urls[-1]}"
}

# configmap URL NAME creates one.
configmap() {
	curl -sSf -m 10 -o /dev/null -H 'Content-Type: application/json' "$1/api/v1/namespaces/default/configmaps" \
		-d '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "'"$2"'"}}'
}

# has URL NAME tells whether a member shows it.
has() { curl -sSf -m 10 -o /dev/null "$1/api/v1/namespaces/default/configmaps/$2"; }

# all_vote tells whether none of the members is a learner.
all_vote() {
	local list
	list=$("$binary" member list --server "${urls[0]}") && [[ $(wc -l <<<"$list") -eq 4 && $list != *learner* ]]
}

first=127.0.0.1:$(free_port)
member 1 --cluster-listen="$first"
member 2 --cluster-listen="127.0.0.1:$(free_port)" --join="$first" --join-token-file="$dir/member-1/join-token"
third=127.0.0.1:$(free_port)
member 3 --cluster-listen="$third" --join="$first" --join-token-file="$dir/member-1/join-token"

until_true 90 "the namespace default is there" curl -sSf -o /dev/null "${urls[0]}/api/v1/namespaces/default"
configmap "${urls[0]}" one || fail "no ConfigMap could be created at member 1"
for url in "${urls[@]}"; do has "$url" one || fail "$url doesn't show what member 1 has acknowledged"; done
echo "what member 1 acknowledged is there at each member"

# Until all vote, two may be enough to vote and to be missed.
until_true 90 "all members vote" all_vote
kill -KILL "${pids[2]}"
wait "${pids[2]}" 2>/dev/null || true
until_true 90 "writes go on at member 2" configmap "${urls[1]}" two
has "${urls[0]}" two || fail "member 1 doesn't show what member 2 has acknowledged"
echo "member 3 was killed; what member 2 acknowledged then is there at member 1"

rm -f "$dir/url-3"
member 3 --cluster-listen="$third"
has "${urls[3]}" two || fail "member 3 doesn't show what was written without it"
echo "member 3 is back, and has what was written without it"
