package client

import (
	"context"
	"io"
	"net/http"
)

// Snapshot opens a snapshot of everything that the server has stored, with its history, in the form of etcd's snapshots. All Secrets are
// in it. Whoever reads it must close it. One that is cut off ends with io.ErrUnexpectedEOF. Only apiserver-lite has it, for whoever may
// get /apiserver-lite/v1/snapshot.
func (c *Client) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	answer, err := c.send(ctx, &request{method: http.MethodGet, path: "/apiserver-lite/v1/snapshot", accept: "application/octet-stream"})
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}
