package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// answer is what a server has answered to a question of this server's own.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// ask asks a server for a document on this server's own account: at most most bytes, within some time. as is who asks.
func (b *Backend) ask(ctx context.Context, path string, as user.Info, header http.Header, most int64, within time.Duration) (*answer, error) {
	if b.clients.err != nil {
		return nil, b.clients.err
	}
	host, err := b.aggregator.resolve(b)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header = header
	setUser(request.Header, as)
	response, err := b.clients.any.RoundTrip(request) // it follows no redirects, unlike a http.Client
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return &answer{response.StatusCode, response.Header, body}, nil
}

var errNotOK = errors.New("the answer wasn't 200 OK")
