package resets

import (
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// Check refuses all but a POST on an ephemeral server, without a body, and without other parameters than one. A reset takes
// everything away, so nothing of a request for one is ignored. read returns the body. The error is a Status, or read's.
func (s *Snapshots) Check(w http.ResponseWriter, r *http.Request, query url.Values, parameter string, read func() ([]byte, error)) error {
	switch {
	case s == nil:
		return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, "only a server with --ephemeral can be reset")
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return status.Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only POST is served here")
	}
	for name := range query {
		if name != parameter {
			return status.BadRequest(
				fmt.Sprintf("there is no parameter %s here, only %s", guard.Quote(name), parameter))
		}
	}
	switch sent, err := read(); {
	case err != nil:
		return err
	case len(sent) > 0:
		return status.BadRequest("this takes no body: what it is to do is said in the query, as " + parameter + "=NAME")
	}
	return nil
}
