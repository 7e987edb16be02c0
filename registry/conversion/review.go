package conversion

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

const reviewGroup = "apiextensions.k8s.io"

// request is one ConversionReview on its way to a webhook.
type request struct {
	version string // of ConversionReview
	uid     string
	body    []byte
}

// newRequest writes a ConversionReview around the objects' bytes. Kubernetes sends an empty response along,
// and webhooks may have come to rely on it.
func newRequest(version, apiVersion string, sources []source) *request {
	r := &request{version: version, uid: string(uuid.NewUUID())}
	size := 512 // for what is around the objects
	for i := range sources {
		size += len(sources[i].raw) + 1
	}
	desired, _ := json.Marshal(apiVersion) // a string can be marshalled
	b := make([]byte, 0, size)
	b = append(b, `{"kind":"ConversionReview","apiVersion":"`+reviewGroup+`/`+version+`","request":{"uid":"`+r.uid+`","desiredAPIVersion":`...)
	b = append(b, desired...)
	b = append(b, `,"objects":[`...)
	for i := range sources {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, sources[i].raw...)
	}
	r.body = append(b, `]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`...)
	return r
}

// review is what is read of an answer.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Response   *struct {
		UID              string            `json:"uid"`
		ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		Result           struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"result"`
	} `json:"response"`
}

// objects returns the objects of an answer: valid JSON, unchecked otherwise. The webhook's own failure is an
// error with its message.
func (r *request) objects(answer []byte) ([]json.RawMessage, error) {
	want := schema.GroupVersionKind{Group: reviewGroup, Version: r.version, Kind: "ConversionReview"}
	var got review
	if err := hookclient.Decode(answer, want, &got); err != nil {
		return nil, err
	}
	// Kubernetes checks these for v1 only, as there were webhooks of v1beta1 which didn't set them.
	if is := schema.FromAPIVersionAndKind(got.APIVersion, got.Kind); r.version == "v1" && is != want {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, is)
	}
	if got.Response == nil {
		return nil, errors.New("no response provided")
	}
	if r.version == "v1" && got.Response.UID != r.uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", r.uid, hookclient.Quote(got.Response.UID))
	}
	switch result := got.Response.Result; {
	case result.Status == "Success":
		return got.Response.ConvertedObjects, nil
	case result.Message != "":
		return nil, errors.New(hookclient.Quote(result.Message))
	default:
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", hookclient.Quote(result.Status))
	}
}
