package main

import "regexp"

// purpose is a difference that stays, with its reason.
type purpose struct {
	step   string // an expression for SCENARIO STEP
	path   string // one for the field's path
	theirs string // what upstream says there; "" for whatever
	why    string // for docs/wire.md

	steps, paths *regexp.Regexp
}

// onPurpose is all that stays different. Each line is a sentence of docs/wire.md, and none is a defect. There are at most mostOnPurpose.
var onPurpose = compiled([]purpose{
	{step: ``, path: `^header X-Content-Type-Options$`, why: "Answers have `X-Content-Type-Options: nosniff`, so that no browser takes an object for a page."},
	{step: ``, path: `^header Vary$`, why: "`Vary` names all that an answer depends on, `Accept` too, for caches on the way."},
	{step: ``, path: `^header Allow$`, why: "A 405 has `Allow` with the methods that are taken, as HTTP wants it."},
	{step: ``, path: `^header Etag$`, why: "One object is answered with an `ETag` of its content, for `If-None-Match`."},
	{step: ``, path: `^code$`, theirs: timesOut, why: "Where kube-apiserver panics and closes the connection, as at a Job of `completionMode: Indexed` without `completions`, the request is answered."},
	{step: ` mistake text/two YAML documents$`, path: `^body\.message$`, why: "A body of several YAML documents is refused. Of those kube-apiserver takes the first and drops the others."},
	{step: `reviews\S* mistake metadata/long annotation$`, path: `^body\.(message|details\.causes)`, why: "What a refusal repeats of a request is shortened where all of it has more than 64 KiB."},
	{step: ` get/HEAD$`, path: `^code$`, theirs: "405", why: "`HEAD` is answered wherever `GET` is, as HTTP wants it, and as kube-apiserver does for custom resources but not for built-in kinds."},
	{step: ` .*/version/?(#\d+)?$`, path: `^body\.(gitVersion|gitCommit|gitTreeState|buildDate|goVersion|compiler|platform)$`,
		why: "`/version` names this program's own build beside the version of Kubernetes that it serves."},
	{step: `^(discovery|openapi) `, path: `/\{name\}/(attach|exec|log|portforward|proxy)|^body\.parameters\.(command|container|follow|insecureSkipTLSVerifyBackend|limitBytes|path|ports|previous|sinceSeconds|stderr|stdin|stdout|stream|tailLines|timestamps|tty)-|resources\[((pods|nodes|services)/)?(attach|exec|log|portforward|proxy)\]$`,
		why: "Nothing runs here, so there's nothing to exec, attach or forward to, no log and no proxy: discovery and OpenAPI don't name these subresources."},
	{step: `^(pods|nodes|services)\.v1 subresource proxy/|^pods\.v1 subresource ((attach|exec|log)/GET|portforward/GET( container)?)$`, path: `^(code|body\.(code|details|message|reason)\b.*)$`,
		why: "A request to one of these subresources of an object that has a host is a 404 that says so, and so is one to any proxy."},
	{step: `^discovery discovery/(index\.html)?$|^rbac rbac decision/GET /$`, path: `^body\.(paths|apiserver-lite/extras)`, why: "`/` lists the paths of this program, and what it has besides Kubernetes' API."},
	{step: `^discovery discovery/(livez|readyz)\?verbose|^rbac rbac decision/GET /(livez|readyz|healthz)`, path: `^body$`, why: "`/livez` and `/readyz` list the checks of this program's own parts."},
	{step: `^(customresourcedefinitions|definitions)`, path: `^body\.status\.(acceptedNames|conditions)|^body\.metadata\.managedFields\[kube-apiserver Update status`,
		why: "A definition's names and conditions are in the answer to the write of it, because it's in effect then; kube-apiserver writes them some moments later, as a change of its own."},
	{step: `^customresourcedefinitions\S+ delete collection/`, path: `^events\[`, why: "The deletion of a collection of definitions deletes their objects too, as that of each does. kube-apiserver leaves them in its store."},
	{step: `^webhooks hook (Validating|Mutating)/(error|forbidden)$`, path: `^body\.(message|details\.causes\[\]\.message)$`,
		why: "What a webhook's server says beside a code of failure isn't repeated, because whoever writes a webhook's URL could read by it what a server says to this one alone."},
	{step: `^webhooks hook (Validating|Mutating)/no-yaml$`, path: `^body\.(message|details\.causes\[\]\.message)$`, why: "Nor is why its answer isn't YAML, which may repeat any of it."},
	{step: `^webhooks hook Mutating/patch-(unknown-operation|no-path|bad-path|no-value)(-ignored)?$`, path: `^(code|body\..*)$`, why: "An operation of a JSON patch has what RFC 6902 wants it to have. kube-apiserver hands any to its library, which takes some that are incomplete, and panics at others."},
	{step: `^webhooks hook (Validating|Mutating)/redirect$`, path: `^body\.(message|details\.causes\[\]\.message)$`, why: "A webhook that redirects has failed, and its error says so. kube-apiserver asks where it leads to with a GET, without the review."},
	{step: `^webhooks hook (Validating|Mutating)/big(-ignored)?$`, path: `^(code|header Warning|body\..*)$`, why: "A webhook whose answer has more than 3 MiB has failed. kube-apiserver reads whatever comes."},
	{step: `^bootstrap .*/componentstatuses`, path: `^body\.(items|rows)`, why: "`componentstatuses` has this program's own store alone. kube-apiserver also looks for a scheduler and a controller manager on its machine."},
	{step: `^definitions discovery and others/POST /(apis|healthz)$`, path: ``, why: "What can only be read, as `/apis` and `/healthz`, is 405 with other methods. kube-apiserver answers them as it does a GET."},
	{step: `^definitions discovery and others/GET /apis/differ`, path: `^body\.resources \(order\)$`, why: "Discovery has a group's resources in the order of their names. Those of kube-apiserver's definitions come in any order."},
	{step: `^definitions deletes/DELETE \$G/widgets$`, path: ``, why: "A collection can be deleted across namespaces, as the Go client does it where no namespace is named. kube-apiserver has no such path."},
	{step: `^definitions watches/GET \$W\?watch=true&timeoutSeconds=1&resourceVersion=1$`, path: `^body$`, why: "A watch from an old version gets what has happened since, as far as history goes. kube-apiserver remembers what came since it first served the resource."},
	{step: `^definitions watches/GET \$W\?watch=true&timeoutSeconds=1&resourceVersion=99999999$`, path: `^body$`, why: "A watch from a version that the store hasn't reached is told so at once, because such a version is another store's. kube-apiserver says nothing until it gets there."},
	{step: `^definitions watches/GET \$W/a\?watch=true&timeoutSeconds=1$`, path: `^body\.`, why: "`?watch=true` at the path of one object watches it, which is the shortest way to follow one with curl. kube-apiserver answers with the object."},
	{step: `^definitions (apply|deletes|patches|watches)/`, path: `managedFields\[\S+ (Apply|Update) scale `, why: "What a write of a custom resource's `scale` sets is in its managedFields. kube-apiserver forgets whose it is."},
	{step: `^definitions patches/PATCH \$W/a\?fieldValidation=Strict$`, path: `^body\.(message|details\.causes)`, why: "So it's also in a refusal that repeats the object."},
	{step: `^definitions (apply/PATCH \$W/app/scale\?fieldManager=one|apply/GET \$W/app|deletes/DELETE \$W(\?dryRun=All)?)$`,
		path: `^code$|^body\.(apiVersion|code|kind|message|status|spec)$|^body\.(items\[app\]\.)?(spec\.replicas|metadata\.(creationTimestamp|generation|name|namespace|resourceVersion|uid))$`,
		why:  "A Scale can be applied to a custom resource. kube-apiserver 1.37.2 answers 500 to that."},
})

const mostOnPurpose = 40

func compiled(all []purpose) []purpose {
	for i := range all {
		all[i].steps, all[i].paths = regexp.MustCompile(all[i].step), regexp.MustCompile(all[i].path)
	}
	return all
}

// isOnPurpose tells whether a difference stays, and notes that the line is needed.
func isOnPurpose(scenario, step string, d difference, used *[]bool) bool {
	for i, p := range onPurpose {
		if p.steps.MatchString(scenario+" "+step) && p.paths.MatchString(d.Path) && (p.theirs == "" || p.theirs == d.Theirs) {
			(*used)[i] = true
			return true
		}
	}
	return false
}
