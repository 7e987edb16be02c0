// Package quiescence has what requests say that wait for the controllers, and what they're told if these don't get done. It keeps nothing, starts no
// goroutine and takes no lock.
package quiescence

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// defaultTimeout is for queries that don't say one: longer than what controllers do after a test, and short
// enough that a test that hangs is told why.
const defaultTimeout = 30 * time.Second

// causePending is the type of the causes of a 504: one for each object about which something is left to do.
const causePending metav1.CauseType = "ControllerPending"

// Options reads the query of such a request, which waits for at most the longest time. The error is a Status. The revision is 0 for now.
func Options(query url.Values, longest time.Duration) (rev storage.Revision, timeout time.Duration, err error) {
	timeout = defaultTimeout
	for name, values := range query {
		text, bad := values[0], len(values) > 1
		switch name {
		case "resourceVersion":
			n, err := strconv.ParseUint(text, 10, 63)
			rev, bad = storage.Revision(n), bad || err != nil || n == 0
		case "timeout":
			d, err := time.ParseDuration(text)
			timeout, bad = d, bad || err != nil || d <= 0 || d > longest
		default:
			bad = true
		}
		if bad {
			return 0, 0, status.BadRequest(fmt.Sprintf("%s=%s can't be used: "+
				"the parameters are resourceVersion, which some write was answered, and timeout, as 30s, of at most %v, each once",
				clip.Text(name), clip.Text(text), longest))
		}
	}
	return rev, timeout, nil
}

// Pending is the error that says, after a message, what is left to do.
func Pending(report controllers.Report, message string) error {
	err := status.Error(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, message)
	err.ErrStatus.Details = &metav1.StatusDetails{}
	for _, p := range report.Pending {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: causePending, Message: p.Cause, Field: p.Object.String()})
	}
	return err
}
