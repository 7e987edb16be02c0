#!/bin/sh
# A controller with nothing but curl and a shell: it asks the URL of each Check, and writes into the Check's status what
# the URL answered.
#
#   controller.sh [URL of the server]
#
# A shell doesn't parse JSON, so the controller watches Checks as a table. Each event then has one row of values, in the
# order of the definition's columns: "name",generation,observedGeneration,"code","url". No value has a bracket in it, and
# only the last one may have a comma.
set -euf
server=${1:-http://127.0.0.1:8080}
here=$(dirname "$0")
checks=$server/apis/example.com/v1/checks

# patch TYPE BODY URL sends a patch. If it's refused, the answer is printed, and patch fails.
patch() {
	answer=$(curl -sS --fail-with-body -X PATCH -H "Content-Type: application/$1" --data-binary "$2" "$3" </dev/null) || {
		echo "$answer" >&2
		return 1
	}
}

# events prints a line for each Check that is there, and then one for each change.
events() {
	curl -sSN --fail -H 'Accept: application/json;as=Table;v=v1;g=meta.k8s.io' "$checks?watch=true&includeObject=None"
}

# reconcile NAME GENERATION OBSERVED URL does what a Check asks for, unless its status is about this generation already.
reconcile() {
	[ "$2" != "$3" ] || return 0
	code=$(curl -s -o /dev/null -m 10 -w '%{http_code}' --globoff "$4" </dev/null) || true
	now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
	patch merge-patch+json "{\"status\": {\"observedGeneration\": $2, \"code\": \"$code\", \"checkedAt\": \"$now\"}}" "$checks/$1/status"
	echo "$1: $4 answered $code"
}

patch apply-patch+yaml "@$here/definition.yaml" "$server/apis/apiextensions.k8s.io/v1/customresourcedefinitions/checks.example.com?fieldManager=checks&force=true"
echo "watching $checks"

# A watch ends now and then. The next one begins with the state, so nothing has to be remembered.
while :; do
	events | while read -r event; do
		case $event in
		'{"type":"ADDED"'* | '{"type":"MODIFIED"'*) ;;
		*) continue ;; # a deleted Check leaves nothing to do
		esac
		cells=${event#*'"cells":['}
		IFS=, read -r name generation observed code url <<-END
			${cells%%]*}
		END
		name=${name#'"'} url=${url#'"'}
		reconcile "${name%'"'}" "$generation" "$observed" "${url%'"'}" || echo "it will be tried with the next watch" >&2
	done
	sleep 1
done
