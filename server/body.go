package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/markup"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

const (
	// maxBody is kube-apiserver's limit for a request body, in bytes.
	maxBody = 3 << 20
	// trustedBody is how much of a body is read without room for it (capacity.raw), and so how much of a Content-Length is allocated
	// up front, in bytes. A body that is no larger, and has few values, is within freeBody.
	trustedBody = freeBody / perByte
)

// body is what a client sent. The registry parses it: there it's checked whether it is JSON and UTF-8, and how deep it
// nests.
type body struct {
	data      []byte // JSON; of a patch, as sent
	protobuf  []byte // instead of data: an object as protobuf
	mediaType string // of a patch: without parameters, in lower case
	warnings  []string
}

// readBody reads an object, in whichever form it came. The data of an empty body is nil: what that means depends
// on the verb.
func readBody(w *response, r *http.Request, fieldValidation string) (body, error) {
	return readForm(w, r, fieldValidation, w.endpoint.TakesProtobuf(w.named.Subresource))
}

// readOptions reads the options of a deletion as JSON, in whichever form they came.
func readOptions(w *response, r *http.Request, fieldValidation string) (body, error) {
	const always = true // they're a type of Kubernetes', whatever is deleted
	b, err := readForm(w, r, fieldValidation, always)
	if b.protobuf != nil {
		b.data, err = writes.Of(w.endpoint).OpenDeleteOptions(b.protobuf)
		b.protobuf = nil
	}
	return b, err
}

// readForm reads a body as JSON, or where it may be that as protobuf.
func readForm(w *response, r *http.Request, fieldValidation string, protobuf bool) (body, error) {
	media, err := contentType(r)
	if err != nil {
		return body{}, err
	}
	protobuf = protobuf && media == string(negotiation.Protobuf)
	if media != "" && media != string(negotiation.JSON) && media != string(negotiation.YAML) && !protobuf && r.ContentLength != 0 {
		return body{}, unsupportedType()
	}
	data, err := readAll(w, r)
	if err != nil || len(data) == 0 {
		return body{}, err
	}
	if protobuf {
		return body{protobuf: data}, w.enterBody(r, data, len(data)/smallestField)
	}
	b := body{data: data}
	if media == string(negotiation.YAML) {
		duplicates, err := b.fromYAML()
		if err != nil {
			return body{}, w.endpoint.Unrecognized(data, err)
		}
		if b.warnings, err = markup.DuplicateFields(duplicates, fieldValidation); err != nil {
			return body{}, w.endpoint.Repeated(w.named.Subresource, b.data, status.BadRequest(err.Error()))
		}
	}
	return b, w.checkBody(r, b.data)
}

// smallestField is how many bytes a field of a message has at least.
const smallestField = 2

// checkBody refuses a body of too many values, and waits until there is room for what is made of it. The room is the
// request's until it's answered.
func (w *response) checkBody(r *http.Request, data []byte) error {
	values, err := writes.Of(w.endpoint).CheckValues(data)
	if err != nil {
		return err
	}
	return w.enterBody(r, data, values)
}

// mediaApply is the type of applied configurations, which may be JSON too.
const mediaApply = "application/apply-patch+yaml"

// readPatch reads a patch. The registry judges its media type, because that depends on the type of the object.
func readPatch(w *response, r *http.Request, fieldValidation string) (body, error) {
	media, err := contentType(r)
	if err != nil {
		return body{}, err
	}
	data, err := readAll(w, r)
	if err != nil {
		return body{}, err
	}
	b := body{data: data, mediaType: media}
	if media == mediaApply && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		duplicates, err := b.fromYAML()
		if err != nil {
			return body{}, status.BadRequest("error encoding patch: " + err.Error())
		}
		if b.warnings, err = markup.DuplicateFields(duplicates, fieldValidation); err != nil {
			return body{}, status.BadRequest(err.Error())
		}
	}
	return b, w.checkBody(r, b.data)
}

// fromYAML makes JSON of a body that is YAML. The error says why it's none that is taken here.
func (b *body) fromYAML() (duplicates []string, err error) {
	b.data, duplicates, err = markup.FromYAML(b.data)
	return duplicates, err
}

// contentType returns the body's media type, "" where the header is missing, and refuses compressed
// bodies: a few bytes could become any number.
func contentType(r *http.Request) (string, error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return "", status.Error(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the content encoding "+guard.Quote(coding)+" is not supported: send the body as it is")
	}
	header := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(header)
	if err != nil {
		return header, nil // which matches no media type that is served
	}
	return media, nil
}

func unsupportedType() error {
	return status.Error(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+negotiation.ObjectMedia)
}

// readError tells apart the ways in which a body can fail to arrive.
func readError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return status.BadRequest("the body did not arrive whole: " + err.Error())
}

// readAll reads at most maxBody bytes, and nothing of a body that announces more. What was read before the request got its
// seat isn't read again.
func readAll(w *response, r *http.Request) ([]byte, error) {
	if w.upload.read {
		data := w.upload.received
		w.upload.received = nil // of YAML the text isn't needed any more when there is JSON
		return data, nil
	}
	if r.ContentLength > maxBody {
		w.Header().Set("Connection", "close") // the rest of the body isn't read
		return nil, &http.MaxBytesError{Limit: maxBody}
	}
	data, err := w.receive(r)
	if err != nil {
		// Otherwise net/http would wait for more of the body before it sends the answer.
		http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now())
	}
	return data, err
}

// receive reads a body. What is large waits for room, which enterBody gives back, or the end of the request.
func (w *response) receive(r *http.Request) ([]byte, error) {
	var buffer bytes.Buffer
	buffer.Grow(int(min(max(r.ContentLength, 0), trustedBody)) + bytes.MinRead)
	body := http.MaxBytesReader(w.ResponseWriter, r.Body, maxBody)
	if _, err := buffer.ReadFrom(io.LimitReader(body, trustedBody+1)); err != nil {
		return nil, readError(err)
	}
	if buffer.Len() <= trustedBody {
		return buffer.Bytes(), nil
	}
	size := maxBody
	if r.ContentLength >= 0 {
		size = int(r.ContentLength)
	}
	if err := w.enterRaw(r, size); err != nil {
		return nil, err
	}
	buffer.Grow(size - buffer.Len() + bytes.MinRead) // all at once: it takes no more than it has room for
	if _, err := buffer.ReadFrom(body); err != nil {
		return nil, readError(err)
	}
	return buffer.Bytes(), nil
}
