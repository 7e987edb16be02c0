package server

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// callBack answers an EventSource that can't be served now. It never comes back after an HTTP error, so it's told in a stream, and when to come
// back. It reports whether it has answered: other refusals and other clients are answered as ever.
func (w *response) callBack(r *http.Request, answer metav1.Status) bool {
	if code := answer.Code; r.Method != http.MethodGet || code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable && code != http.StatusGatewayTimeout {
		return false
	}
	if media, err := negotiate(r.Header.Values("Accept"), acceptStream); err != nil || media != mediaEvents {
		return false
	}
	after := int32(registry.RetryAfter)
	if answer.Details != nil {
		after = max(after, answer.Details.RetryAfterSeconds)
	}
	w.Header().Set("Content-Type", string(mediaEvents))
	w.WriteHeader(http.StatusOK)
	w.Write(watchstream.AppendServerSentError(fmt.Appendf(nil, "retry: %d\n", 1000*after), encodeStatus(answer), int(answer.Code))) // an error means that the client is gone
	return true
}

// openWatch opens the watch that a request asks for. One of server-sent events may come from a browser that comes back by itself, with the
// URL that it began with and the last id that it got, which counts more than what the URL says of where to begin. Without an id, a version
// from which no watch can begin any more is no reason to refuse: the browser would come back with it for ever. So it gets the state.
func openWatch(w *response, r *http.Request, t target, wanted form.Form) (*cacher.Cursor, watchstream.Options, error) {
	asked := t.request(w, r, wanted)
	last := r.Header.Get("Last-Event-Id")
	if wanted.Encoding != form.ServerSent {
		return reads.Of(t.endpoint).Watch(r.Context(), asked)
	}
	if last != "" {
		if rev, err := strconv.ParseInt(last, 10, 64); err != nil || rev <= 0 {
			return nil, watchstream.Options{}, registry.BadRequest("the header Last-Event-ID must be the id of an event of this server, a resourceVersion, and is %q: begin without it", clip.Text(last))
		}
		asked = beginningAt(asked, last)
	}
	cursor, options, err := reads.Of(t.endpoint).Watch(r.Context(), asked)
	if about := (*reads.StreamError)(nil); last == "" && errors.As(err, &about) { // whether it's gone or of another store
		return reads.Of(t.endpoint).Watch(r.Context(), beginningAt(asked, ""))
	}
	return cursor, options, err
}

// beginningAt returns a request for a watch that begins after a version, or with the state for "", whatever it said of that before.
func beginningAt(asked *registry.Request, version string) *registry.Request {
	again := *asked
	again.Query = maps.Clone(asked.Query)
	again.Query.Del("sendInitialEvents")
	again.Query.Del("resourceVersionMatch")
	again.Query.Set("resourceVersion", version)
	return &again
}

// serverSentEnd is what ends each server-sent event. No JSON in one has a newline.
var serverSentEnd = []byte("\n\n")

// serverSentMessages yields the events in a batch.
func serverSentMessages(frames []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(frames) > 0 {
			event, rest, _ := bytes.Cut(frames, serverSentEnd)
			if !yield(event) {
				return
			}
			frames = rest
		}
	}
}
