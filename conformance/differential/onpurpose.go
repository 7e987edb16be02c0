package main

import "regexp"

// purpose is a difference that stays, with its reason.
type purpose struct {
	step   string // an expression for SCENARIO STEP
	path   string // one for the field's path
	theirs string // one for what upstream says there, which is "" where it says nothing
	ours   string // one for what we say there, likewise
	why    string // for docs/wire.md
	at     string // words beside its mark in docs/wire.md; "" if it has none

	steps, paths, theirsText, oursText *regexp.Regexp
}

// onPurpose is all that stays different. Each line is a sentence of docs/wire.md, and none is a defect. There are at most mostOnPurpose.
var onPurpose = compiled([]purpose{
	{step: ``, path: `^header (X-Content-Type-Options|Content-Length)$`, theirs: `^$`, why: "Answers have `X-Content-Type-Options: nosniff`, so that no browser takes an object for a page, and one that is there as a whole says how long it is. Of kube-apiserver's those of up to 4 KiB do, or 2 KiB over HTTP/1.1."},
	{step: ``, path: `^header Vary$`, theirs: `^(Accept|Accept-Encoding)?( \| Accept)?$`, ours: `^Accept(, Accept-Encoding)?$`, why: "`Vary` names all that an answer depends on, `Accept` too, for caches on the way."},
	{step: ``, path: `^header Allow$`, theirs: `^$`, why: "A 405 has `Allow` with the methods that are taken, as HTTP wants it.", at: "`Allow` with each 405"},
	{step: ``, path: `^header Etag$`, theirs: `^$`, why: "One object is answered with an `ETag` of its content, for `If-None-Match`."},
	{step: `^transport transport/GET \S+/configmaps/small If-None-Match`, path: ``, theirs: ``, why: "Who has an object of that `ETag` already is answered 304."},
	{step: `^transport transport/GET /openapi/v3/apis/apps/v1`, path: `^(form|header (Etag|Content-Encoding|Content-Length|Vary))$`, ours: `-gzip|-pretty|protobuf|^gzip$|Accept|^indented|^$`, why: "OpenAPI documents are compressed for who takes gzip and indented for who wants that, and have another `ETag` in each form, as HTTP wants it."},
	{step: `^openapi openapi/openapi/v2$`, path: `^form$`, why: "Its `<`, `>` and `&` are escaped in `/openapi/v2`, as everywhere else, so that no browser takes them for a page's."},
	{step: `^transport transport/GET \S+ Accept-Encoding (deflate, gzip;q=1\.0|\*|GZIP)$|^transport transport/HEAD \S+/largest Accept-Encoding gzip$`, path: `^header (Content-Encoding|Vary)$`, theirs: `^$`, why: "gzip may be asked for in each way that HTTP has. kube-apiserver knows the plain word."},
	{step: `^(persistentvolumeclaims\.v1|persistentvolumeclaims\.v1-mistakes|quotas) `, path: `^form$`, ours: `^with spaces`, why: "A claim that was created and not written since has a space after it in lists and Tables, which says what quotas have yet to settle."},
	{step: ` as YAML mistake type meta/apiVersion is a number$`, path: `^body\.message$`, why: "What a refusal quotes of a body of YAML is the JSON of it, which people can read. kube-apiserver quotes bytes in hexadecimal."},
	{step: `^events\S* list( table)?/(next )?page$`, path: `^body\.metadata\.continue$`, why: "A continue token's key begins with a slash, as that of kube-apiserver's cache. Its tokens of Events, which it reads from etcd, have none; either takes both."},
	{step: `^transport transport/GET \S+ X-Remote-User`, path: ``, why: "A header of a front proxy that no proxy's certificate vouches for is refused, as who sends it expects to be taken for somebody else. kube-apiserver ignores it."},
	{step: ``, path: `^code$`, theirs: `^` + timesOut + `$`, why: "Where kube-apiserver panics and closes the connection, as at a Job of `completionMode: Indexed` without `completions`, the request is answered."},
	{step: ` mistake text/YAML with an anchor$`, path: ``, why: "YAML has no anchors, aliases, tags or merge keys here: they make a large object of a small body."},
	{step: `reviews\S* mistake metadata/long annotation$`, path: `^body\.(message|details\.causes)`, why: "What a refusal repeats of a request is shortened where all of it has more than 64 KiB."},
	{step: ` get/HEAD$|^transport transport/HEAD /(api|version)`, path: `^(code|header Content-Length)$`, theirs: `^(405|<length>)$`, why: "`HEAD` is answered wherever `GET` is, as HTTP wants it, and as kube-apiserver does for custom resources but not for built-in kinds."},
	{step: ` .*/version/?(\?\S*)?( Accept-Encoding gzip)?(#\d+)?$`, path: `^body\.(gitVersion|gitCommit|gitTreeState|buildDate|goVersion|compiler|platform)$`,
		why: "`/version` names this program's own build beside the version of Kubernetes that it serves."},
	{step: `^(discovery|openapi) `, path: `/\{name\}/(attach|exec|log|portforward|proxy)|^body\.parameters\.(command|container|follow|insecureSkipTLSVerifyBackend|limitBytes|path|ports|previous|sinceSeconds|stderr|stdin|stdout|stream|tailLines|timestamps|tty)-|resources\[((pods|nodes|services)/)?(attach|exec|log|portforward|proxy)\]$`,
		why: "Nothing runs here, so there's nothing to exec, attach or forward to, no log and no proxy: discovery and OpenAPI don't name these subresources."},
	{step: `^(pods|nodes|services)\.v1 subresource proxy/|^pods\.v1 subresource ((attach|exec|log)/GET|portforward/GET( container)?)$`, path: `^(code|body\.(code|details|message|reason)\b.*)$`,
		why: "A request to one of these subresources of an object that has a host is a 404 that says so, and so is one to any proxy.", at: "there is no kubelet"},
	{step: `^discovery discovery/(index\.html)?$|^rbac rbac decision/GET /$`, path: `^body\.(paths|apiserver-lite/extras)`, why: "`/` lists the paths of this program, and what it has besides Kubernetes' API."},
	{step: `^discovery discovery/(livez|readyz)\?verbose|^rbac rbac decision/GET /(livez|readyz|healthz)`, path: `^body$`, why: "`/livez` and `/readyz` list the checks of this program's own parts."},
	{step: `^(customresourcedefinitions|definitions|webhooks-(changes|calls) (setup|end)/(gadgets|things)|conversions (setup|end)/)`, path: `^body\.status\.(acceptedNames|conditions)|managedFields\[kube-apiserver Update status|^form$`,
		why: "A definition's names and conditions are in the answer to the write of it, because it's in effect then; kube-apiserver writes them some moments later, as a change of its own.", at: "Established in the answer"},
	{step: `^customresourcedefinitions\S+ delete collection/`, path: `^events\[`, why: "The deletion of a collection of definitions deletes their objects too, as that of each does. kube-apiserver leaves them in its store."},
	{step: `^webhooks hook (Validating|Mutating)/(error|forbidden)$|^conversions convert/error `, path: `^body\.(message|details\.causes\[\S*( \w+)?\]\.message)$`,
		why: "What a webhook's server says beside a code of failure isn't repeated, because whoever writes a webhook's URL could read by it what a server says to this one alone."},
	{step: `^webhooks hook (Validating|Mutating)/no-yaml$|^conversions convert/((un|object-)\S+|version|kind\S*|name\S*|label\S+|annotation-wrong|metadata-\S+) `, path: `^body\.(message|details\.causes\[\S*( \w+)?\]\.message)$`,
		why: "Nor is why its answer isn't YAML or what is wrong with the objects that it has converted, which may repeat any of it."},
	{step: `^webhooks hook Mutating/patch-(unknown-operation|no-path|bad-path|no-value)(-ignored)?$`, path: `^(code|body\..*)$`, why: "An operation of a JSON patch has what RFC 6902 wants it to have. kube-apiserver hands any to its library, which takes some that are incomplete, and panics at others."},
	{step: `^webhooks hook (Validating|Mutating)/redirect$`, path: `^body\.(message|details\.causes\[\]\.message)$`, why: "A webhook that redirects has failed, and its error says so. kube-apiserver asks where it leads to with a GET, without the review."},
	{step: `^webhooks hook (Validating|Mutating)/big(-ignored)?$`, path: `^(code|header Warning|body\..*)$`, why: "A webhook whose answer has more than 3 MiB has failed. kube-apiserver reads whatever comes."},
	{step: `^webhooks-changes (built-in|custom)( (rename|named|deleted)/|/list$)`, path: `^code$|^body\.((apiVersion|code|data|kind|message|reason|status)$|(items\[(renamed-rename|named-named|deleted)\]\.)?metadata\.)|^events\[`,
		why: "A webhook can neither make a new object one that is being deleted nor rename what is applied. kube-apiserver stores the first, which nothing removes then, and the second under the name of the path with another name in it."},
	{step: `^webhooks-changes (built-in|custom) bad-version/create generated$`, path: `^body\.metadata\.resourceVersion$`, theirs: `^"x"$`, ours: `^$`, why: "The answer to a dry run has no resourceVersion that is no number, which a webhook may have made of it."},
	{step: `^bootstrap .*/componentstatuses`, path: `^body\.(items|rows)`, why: "`componentstatuses` has this program's own store alone. kube-apiserver also looks for a scheduler and a controller manager on its machine."},
	{step: `^definitions discovery and others/POST /(apis|healthz)$`, path: ``, why: "What can only be read, as `/apis` and `/healthz`, is 405 with other methods. kube-apiserver answers them as it does a GET."},
	{step: `^definitions discovery and others/GET /apis/differ`, path: `^body\.resources \(order\)$`, why: "Discovery has a group's resources in the order of their names. Those of kube-apiserver's definitions come in any order."},
	{step: `^definitions deletes/DELETE \$G/widgets$`, path: ``, why: "A collection can be deleted across namespaces, as the Go client does it where no namespace is named. kube-apiserver has no such path.", at: "list, watch and"},
	{step: `^definitions watches/GET \$W\?watch=true&timeoutSeconds=1&resourceVersion=1$`, path: `^body$`, why: "A watch from an old version gets what has happened since, as far as history goes. kube-apiserver remembers what came since it first served the resource."},
	{step: `^definitions watches/GET \$W\?watch=true&timeoutSeconds=1&resourceVersion=99999999$`, path: `^body$`, why: "A watch from a version that the store hasn't reached is told so at once, because such a version is another store's. kube-apiserver says nothing until it gets there.", at: "A version newer than the store"},
	{step: `^definitions watches/GET \$W/a\?watch=true&timeoutSeconds=1$`, path: `^body\.`, why: "`?watch=true` at the path of one object watches it, which is the shortest way to follow one with curl. kube-apiserver answers with the object.", at: "`?watch=true` on the path"},
	{step: `^definitions (apply|deletes|patches|watches)/`, path: `managedFields\[\S+ (Apply|Update) scale `, why: "What a write of a custom resource's `scale` sets is in its managedFields. kube-apiserver forgets whose it is.", at: "A write of `scale` is in managedFields"},
	{step: `^definitions patches/PATCH \$W/a\?fieldValidation=Strict$`, path: `^body\.(message|details\.causes)`, why: "So it's also in a refusal that repeats the object."},
	{step: `^definitions (apply/PATCH \$W/app/scale\?fieldManager=one|apply/GET \$W/app|deletes/DELETE \$W(\?dryRun=All)?)$`,
		path: `^code$|^body\.(apiVersion|code|kind|message|status|spec)$|^body\.(items\[app\]\.)?(spec\.replicas|metadata\.(creationTimestamp|generation|name|namespace|resourceVersion|uid))$`,
		why:  "A Scale can be applied to a custom resource. kube-apiserver 1.37.2 answers 500 to that.", at: "conflicts name the field of the Scale"},
})

// unseen is what differs besides, and what no request of the differential shows: it takes other flags, a failure, several processes or time.
// Each line is a sentence of docs/wire.md too, and at is what is there beside the mark of it.
var unseen = []purpose{
	{at: "in the order of their names", why: "Legacy discovery of definitions is in the order of names, so that two answers of one server are the same."},
	{at: "/apiserver-lite/members", why: "The program's own paths are there: `/console`, `/apiserver-lite/members`, `/apiserver-lite/v1/…`, `/debug/watchers`, `/debug/quiescent`, `/debug/reset`, `/debug/snapshot` and `/debug/clock`, because nothing of Kubernetes' says this."},
	{at: "`metadata.managedFields` is kept", why: "Under the program's own name managedFields begin with an object's first apply, because to track every write costs several times what the write does. As `kube-apiserver`, or with `--managed-fields=always`, all are tracked."},
	{at: "the message says what was expected", why: "Protobuf with fields that the envelope doesn't have, or that come twice, is 400: who sends them means something by them. kube-apiserver ignores them, or takes the last."},
	{at: "a text that isn't UTF-8", why: "So is a text in it that isn't UTF-8: objects are stored as JSON, which can't say it."},
	{at: "The object in a bookmark", why: "The object of a bookmark has metadata and nothing else as protobuf, because clients read no more of it. kube-apiserver sends empty fields besides."},
	{at: "the disk or the database is full", why: "Writes get 507 when the disk or the database is full: nobody should try again and again. Of an update by which the database became full the message says that nobody knows whether it happened: a get tells."},
	{at: "That is the same for a data directory", why: "Whether a write may have happened is told in the same way whatever has the store, so that clients know what they may repeat."},
	{at: "`timeoutSeconds=-1` is 400", why: "A watch's `timeoutSeconds=-1` is 400, because no time is meant by it."},
	{at: "An error is JSON", why: "An error is JSON where the client takes nothing that there is: it's for whoever looks into the client's log."},
	{at: "in key order", why: "The state with which a watch begins comes in the order of keys, as a list has it. kube-apiserver promises no order."},
	{at: "before a shutdown", why: "A watch with bookmarks gets one before a shutdown, so that it goes on elsewhere without a list."},
	{at: "history reaches back `--history`", why: "History outlives a restart, because it's in the store: watches go on after it. kube-apiserver's begins anew."},
	{at: "is the object at that version", why: "A get with `resourceVersionMatch=Exact` has the object of that version, because history has it. kube-apiserver ignores the match of a get, and answers with the newest."},
	{at: "by rules in the annotation", why: "A definition's annotation `apiserver-lite/conversion` has rules that convert its objects, because a webhook is a server of its own to run."},
	{at: "It needs `--ephemeral --fake-clock`", why: "`/debug/clock` moves the clock of a server of tests, so that what comes due in an hour needn't be waited for."},
	{at: "Of several other subprotocols", why: "Of several subprotocols of a WebSocket the first is chosen, because libraries name several. kube-apiserver takes one."},
	{at: "A program needs no `Origin`", why: "A program that opens a WebSocket needs no `Origin`, which only browsers have."},
	{at: "a web page of another site is refused", why: "A web page of another site opens none, because the browser would lend it what its user may do."},
	{at: "`metadata.namespace` of cluster-scoped kinds", why: "`metadata.namespace` is no field selector of a cluster-scoped custom resource, as of no built-in kind: it would select nothing."},
	{at: "`--webhook-addresses` names", why: "Conversion webhooks are called at public addresses and at those of `--webhook-addresses` alone, so that who may write a definition can't reach the network behind the server."},
	{at: "Only public addresses", why: "So are aggregated servers."},
	{at: "no longer applies stays", why: "The number of a custom resource's Scale that its manager applies no longer stays and is nobody's, because there must be one."},
	{at: "establish it", why: "A client that writes a definition's status takes no names and establishes nothing by it, because the server finds that out. kube-apiserver believes the client."},
	{at: "InstanceDeletionInProgress at once", why: "A deleted definition's condition says InstanceDeletionInProgress at once, because the deletion begins at once."},
	{at: "`--auto-create-namespaces`", why: "With `--auto-create-namespaces` the namespace of a create is made if it's missing, for tests that don't care about it."},
	{at: "all kinds at once", why: "What is in a deleted namespace goes, all kinds at once, because no controller manager has to do it."},
	{at: "nothing has to be discovered", why: "A namespace's conditions about discovery are always False: the server knows what it serves."},
	{at: "no path may have these", why: "No name has `;`, a backslash or a control character, because proxies read these in paths each in their own way."},
	{at: "A write of a configuration", why: "A write of a webhook's configuration is in effect for what is sent after its answer. kube-apiserver's cache learns of it later."},
	{at: "A write of a policy or a binding", why: "So is that of a policy or a binding, and parameters are as new as the request."},
	{at: "`messageExpression`", why: "A policy's `messageExpression` is evaluated where a validation failed alone, so that it can't use up what others may cost."},
	{at: "`status.typeChecking`", why: "A policy's `status.typeChecking` is in the answer to the write of it, because no controller has to write it."},
	{at: "from its next write on", why: "A default that is newer than an object is in it from its next write on, because what is read is what is stored, copied. kube-apiserver fills it in at each read."},
	{at: "one port for all", why: "The endpoints of `kubernetes` with ports of their own have EndpointSlices of their own, because a slice has one list of ports. kube-apiserver writes one port for all."},
	{at: "the message names the flag", why: "Without `--builtin=all` the paths of kinds that are data alone are 404, and the message names the flag: nobody should wait for what would act on them."},
	{at: "are on under the name", why: "Plug-ins that change every object of a kind are off under the program's own name, because nothing here takes back what they do."},
	{at: "200 requests at once", why: "What waits for an aggregated server holds no seat, so that a slow one doesn't take all of them."},
	{at: "runs in this process", why: "What Kubernetes has in kube-controller-manager runs in this process, unless `--controllers=none` says otherwise: there's no other."},
	{at: "The version in the reference", why: "An owner is there under whichever version a reference names, because the version says how it's read. Kubernetes leaves the dependent alone where it isn't served."},
	{at: "Dependents that are created while it waits", why: "Dependents that come while an owner waits to be orphaned lose their reference too, or they would name nobody."},
	{at: "an object that owns itself", why: "Circles of owners that clients delete in several places end, as that of an object that owns itself. kube-controller-manager leaves them forever."},
	{at: "isn't a reference to that object", why: "A reference with another kind, namespace or name than the object of its uid has is none to it, so nothing waits for it."},
	{at: "`GET /debug/quiescent", why: "`/debug/quiescent` waits until the controllers have nothing left to do, so that tests needn't sleep."},
	{at: "`apiserver-lite/ttl`", why: "The annotation `apiserver-lite/ttl` says how long an object lives, for tests and previews."},
	{at: "All of this is", why: "`/debug/reset` takes a server of tests back to an earlier state, which is quicker than a new one."},
	{at: "100,000 values in a body", why: "A body has a bound of values besides that of bytes, because each value costs many times its bytes in memory."},
	{at: "strategic merge patches of lists", why: "Patches and applies of very long lists are refused, because they cost the square of the length."},
	{at: "one user, or where users aren't told apart", why: "One user has no more than the free part of all requests, so that nobody can keep the others out."},
}

const mostOnPurpose = 40

func compiled(all []purpose) []purpose {
	for i := range all {
		p := &all[i]
		p.steps, p.paths, p.theirsText, p.oursText = regexp.MustCompile(p.step), regexp.MustCompile(p.path), regexp.MustCompile(p.theirs), regexp.MustCompile(p.ours)
	}
	return all
}

// isOnPurpose tells whether a difference stays, and notes that the line is needed.
func isOnPurpose(scenario, step string, d difference, used *[]bool) bool {
	for i, p := range onPurpose {
		if p.steps.MatchString(scenario+" "+step) && p.paths.MatchString(d.Path) && p.theirsText.MatchString(d.Theirs) && p.oursText.MatchString(d.Ours) {
			(*used)[i] = true
			return true
		}
	}
	return false
}
