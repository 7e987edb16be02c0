package server

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// callBack answers an EventSource that can't be served now. It never comes back after an HTTP error, so it's told in a stream, and when to come
// back. It reports whether it has answered: other refusals and other clients are answered as ever.
func (w *response) callBack(r *http.Request, answer metav1.Status) bool {
	if code := answer.Code; r.Method != http.MethodGet || code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable && code != http.StatusGatewayTimeout {
		return false
	}
	if media, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.Stream); err != nil || media != negotiation.Events {
		return false
	}
	after := int32(registry.RetryAfter)
	if answer.Details != nil {
		after = max(after, answer.Details.RetryAfterSeconds)
	}
	w.Header().Set("Content-Type", string(negotiation.Events))
	w.WriteHeader(http.StatusOK)
	w.Write(watchstream.AppendServerSentError(fmt.Appendf(nil, "retry: %d\n", 1000*after), status.JSON(answer), int(answer.Code))) // an error means that the client is gone
	return true
}

// opener opens a watch.
type opener func() (watches.Source, watchstream.Options, error)

// openAgain opens a watch of server-sent events. Its request may come from a browser that comes back by itself, with the URL that it began
// with and the last id that it got, which counts more than what the URL says of where to begin. Without an id, a version from which no
// watch can begin any more is no reason to refuse: the browser would come back with it for ever. So it gets the state. asked opens what the
// URL asks for, and at the same after another version, or with the state for "".
func openAgain(r *http.Request, asked opener, at func(version string) opener) (watches.Source, watchstream.Options, error) {
	if last := r.Header.Get("Last-Event-Id"); last != "" {
		if rev, err := strconv.ParseInt(last, 10, 64); err != nil || rev <= 0 || strconv.FormatInt(rev, 10) != last {
			return nil, watchstream.Options{}, registry.BadRequest("the header Last-Event-ID must be the id of an event of this server, a resourceVersion, and is %q: begin without it", clip.Text(last))
		}
		return at(last)()
	}
	source, options, err := asked()
	if about := (*reads.StreamError)(nil); errors.As(err, &about) { // whether it's gone or of another store
		return at("")()
	}
	return source, options, err
}

// after returns a query for a watch that begins after a version, or with the state for "", whatever it said of that before.
func after(query url.Values, version string) url.Values {
	query = maps.Clone(query)
	query.Del("sendInitialEvents")
	query.Del("resourceVersionMatch")
	query.Set("resourceVersion", version)
	return query
}
