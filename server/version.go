package server

import (
	"encoding/json"
	"net/http"

	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/apiserver-lite/apiserver-lite/server/version"
)

// Version says what this build is, in the form of /version.
func Version() kubeversion.Info { return version.Info() }

func (h *handler) serveVersion(w *response, r *http.Request) error {
	body, err := json.Marshal(Version())
	if err != nil {
		return err
	}
	return w.writeIndented(r, http.StatusOK, body)
}
