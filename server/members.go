package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// The processes that have the store together are seen and removed at /apiserver-lite/members, by the command apiserver-lite
// member. Kubernetes has nothing of that.

// membersPath is the list; below it each member has its name.
const membersPath = "/apiserver-lite/members"

// membersPage is the answer.
type membersPage struct {
	Members []etcd.Member `json:"members"`
}

// serveMembers answers GET /apiserver-lite/members.
func (h *handler) serveMembers(w *response, r *http.Request) error {
	if h.besides.members == nil {
		return errNoCluster()
	}
	if r.Method != http.MethodGet {
		return methodNotAllowed(w, http.MethodGet, "only GET is served here; DELETE "+membersPath+"/NAME removes a member")
	}
	all, err := h.besides.members.Members(r.Context())
	if err != nil {
		return err
	}
	return w.writePage(membersPage{all})
}

// serveMember answers DELETE /apiserver-lite/members/NAME with the members that are left.
func (h *handler) serveMember(w *response, r *http.Request) error {
	if h.besides.members == nil {
		return errNoCluster()
	}
	if r.Method != http.MethodDelete {
		return methodNotAllowed(w, http.MethodDelete, "only DELETE is served here")
	}
	name, err := url.PathUnescape(chi.URLParam(r, "name"))
	if err != nil {
		return errUnknownPath
	}
	err = kv.Wrap("remove the member", name, h.besides.members.RemoveMember(r.Context(), name))
	switch {
	case errors.Is(err, etcd.ErrNoMember):
		return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no member %s", guard.Quote(clip.Text(name))))
	case errors.Is(err, etcd.ErrNotNow):
		return status.Error(http.StatusConflict, metav1.StatusReasonConflict, clip.Text(err.Error()))
	case err != nil:
		return h.registry.Failed(err)
	}
	all, err := h.besides.members.Members(r.Context())
	if err != nil {
		return err
	}
	return w.writePage(membersPage{all})
}

func errNoCluster() error {
	return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, etcd.ErrNoCluster.Error())
}
