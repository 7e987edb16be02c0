package flowcontrol

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// Place is where a request gets its seat.
type Place struct {
	Level        *fair.Level // nil: it needs none
	Flow         fair.Flow
	Schema, Name string // of the FlowSchema, "" for none, and of the level

	// SchemaUID and LevelUID are those of the stored objects that an answer names, as kube-apiserver's does; "" for none.
	SchemaUID, LevelUID types.UID
}

// Place returns the place of a request of the user in its context. asks is what it asks for; nil if nobody has looked yet.
func (p *Priorities) Place(r *http.Request, asks *authorizer.AttributesRecord) Place {
	if asks == nil {
		asks = access.AttributesOf(r)
	}
	u := registry.UserFrom(r.Context())
	s := p.Now().Of(u, asks)
	at := Place{Level: s.Level, Flow: s.Flow(u, asks), Schema: s.Name, Name: s.Named.Name}
	if asks.Verb == "watch" || !access.LongRunning(asks) { // kube-apiserver gives the others no seat
		at.SchemaUID, at.LevelUID = s.UID, s.Named.UID
	}
	return at
}

// Levels returns the levels in effect.
func (p *Priorities) Levels() []Level { return p.Now().Levels }

// leaseSeats are for leases alone, so that they never wait behind lists: the part of all seats that kube-apiserver's level
// leader-election has, of the 600 that it has by default.
const leaseSeats = 600 * 10 / 245

// Addresses are the levels where users aren't told apart: each address is a flow, and leases have a level of their own.
type Addresses struct{ leases, rest *fair.Level }

// NewAddresses returns levels of so many seats together. queues says how many requests may wait at each level.
func NewAddresses(most int, queues fair.Limits) *Addresses {
	level := func(most int) *fair.Level {
		queues.Most = most
		return fair.NewLevel(queues)
	}
	leases := max(min(leaseSeats, most/2), 1)
	return &Addresses{level(leases), level(max(most-leases, 1))}
}

// Place returns the place of a request.
func (a *Addresses) Place(r *http.Request, _ *authorizer.AttributesRecord) Place {
	at := Place{Level: a.rest, Flow: fair.Flow{Who: wire.ClientOf(r)}, Name: DefaultLevel}
	if path := r.URL.Path; strings.HasPrefix(path, "/apis/coordination.k8s.io/") && strings.Contains(path, "/leases") {
		at.Level, at.Name = a.leases, LeaseLevel
	}
	return at
}

// Levels returns the two levels.
func (a *Addresses) Levels() []Level { return []Level{{LeaseLevel, a.leases}, {DefaultLevel, a.rest}} }
