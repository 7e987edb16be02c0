package server

import "slices"

// extra is something that this server has and Kubernetes doesn't: a path, or a name that it gives a meaning to.
type extra struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	ephemeral   bool   // only a server with --ephemeral has it
	clustered   bool   // only a server with --cluster-listen has it
}

// allExtras are on the page of /, in JSON under extrasMember. docs/wire.md has a line for each, which a test checks.
var allExtras = []extra{
	{Name: "GET /debug/quiescent", Description: "waits until the controllers have nothing left to do"},
	{Name: "GET /debug/watchers", Description: "lists the open watches, and how far they're behind"},
	{Name: "GET /apiserver-lite/members", Description: "lists the processes that have the store together", clustered: true},
	{Name: "DELETE /apiserver-lite/members/NAME", Description: "removes one of them", clustered: true},
	{Name: "POST /debug/reset", Description: "takes a server with --ephemeral back to an earlier state", ephemeral: true},
	{Name: "POST /debug/snapshot", Description: "names the present state for a reset", ephemeral: true},
	{Name: "annotation apiserver-lite/ttl", Description: "how long an object lives after its creation"},
}

// extras are those that this server has.
func (h *handler) extras() []extra {
	return slices.DeleteFunc(slices.Clone(allExtras), func(e extra) bool {
		return e.ephemeral && h.snapshots == nil || e.clustered && h.members == nil
	})
}

// extrasMember is where / lists the extras for programs. Clients of Kubernetes look at "paths" only.
const extrasMember = "apiserver-lite/extras"
