package server

import (
	"encoding/json"
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/server/console"
	"github.com/apiserver-lite/apiserver-lite/server/discovery"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// extras are those that this server has.
func (h *handler) extras() []discovery.Extra {
	return discovery.Extras(discovery.Has{Ephemeral: h.besides.snapshots != nil, Clustered: h.besides.members != nil, Console: h.besides.console, Faults: h.besides.faults != nil, FakeClock: h.besides.clock != nil})
}

// extrasMember is where / lists the extras for programs. Clients of Kubernetes look at "paths" only.
const extrasMember = "apiserver-lite/extras"

const mediaHTML negotiation.Media = "text/html"

// rootMedia tells what / is answered with. It's HTML only if a client asks for that by name, as browsers do.
func rootMedia(r *http.Request) (negotiation.Media, error) {
	return negotiation.Negotiate(r.Header.Values("Accept"), func(c negotiation.Clause) (negotiation.Media, bool) {
		if c.Media == string(mediaHTML) {
			return mediaHTML, true
		}
		return negotiation.Object(c)
	})
}

// consoleTakes tells whether a request is the console's, whoever makes it: its files need no credential. A connection that is
// one too many gets none of them.
func (h *handler) consoleTakes(w *response, r *http.Request) bool {
	if !h.besides.console || w.end.lobby {
		return false
	}
	if console.Has(r.URL.Path) {
		return true
	}
	if r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	media, err := rootMedia(r)
	return err == nil && media == mediaHTML
}

// serveConsole serves the console's files, and what isn't among them never as its page.
func (h *handler) serveConsole(w *response, r *http.Request) error {
	place, err := h.capacity.arrivals.enter(r.Context(), fair.Flow{Who: wire.ClientOf(r)}, 1, readDeadline/waitShare)
	if err != nil {
		return err
	}
	defer place.Leave()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return methodNotAllowed(w, "GET, HEAD", "only GET and HEAD are served here")
	}
	w.Header().Add("Vary", "Accept") // that of / depends on it
	found, err := console.Serve(w, r)
	if err == nil && !found {
		return noPage(w)
	}
	return err
}

// serveRoot serves /: the paths that there are, as JSON as kube-apiserver does, or as a list for a person who came with a browser,
// if there is no console, or at /index.html.
func (h *handler) serveRoot(w *response, r *http.Request) error {
	media, err := rootMedia(r)
	if err != nil {
		return err
	}
	if media == mediaHTML {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Add("Vary", "Accept")
		return h.discovery.Page(w, h.extras())
	}
	body, err := json.Marshal(map[string]any{"paths": h.discovery.Paths(), extrasMember: h.extras()})
	if err != nil {
		return err
	}
	if media == negotiation.JSON {
		return w.writeIndented(r, http.StatusOK, body)
	}
	return w.writeObject(r, http.StatusOK, media, body)
}
