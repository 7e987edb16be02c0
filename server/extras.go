package server

// extra is something that this server has and Kubernetes doesn't: a path, or a name that it gives a meaning to.
type extra struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// extras are on the page of /, in JSON under extrasMember. docs/wire.md has a line for each, which a test checks.
var extras = []extra{
	{"GET /debug/quiescent", "waits until the controllers have nothing left to do"},
	{"GET /debug/watchers", "lists the open watches, and how far they're behind"},
	{"POST /debug/reset", "takes a server with --ephemeral back to an earlier state"},
	{"POST /debug/snapshot", "names the present state for a reset"},
	{"annotation apiserver-lite/ttl", "how long an object lives after its creation"},
}

// extrasMember is where / lists the extras for programs. Clients of Kubernetes look at "paths" only.
const extrasMember = "apiserver-lite/extras"
