package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// backupPath is where a snapshot of the whole store is. All Secrets are in it: of Kubernetes' own roles only cluster-admin may get it.
const backupPath = "/apiserver-lite/v1/snapshot"

// maxBackups is how many snapshots may be on their way at once. While one is, what is freed in the database isn't used again.
const maxBackups = 2

// serveBackup answers GET /apiserver-lite/v1/snapshot. A client that takes nothing for the time that a watch's may is cut off. Of an etcd
// elsewhere it may take minutes before there's a snapshot.
func (h *handler) serveBackup(w *response, r *http.Request) error {
	place, err := h.capacity.backups.enter(r.Context(), h.flowOf(r), 1, 0)
	if err != nil {
		return err
	}
	defer place.Leave()
	answer, err := wire.NewLongAnswer(w, h.port.StreamTimeout)
	if err != nil {
		return err
	}
	content, err := h.besides.backup(r.Context())
	if errors.Is(err, snapshot.ErrRewriting) {
		return status.Unavailable("snapshots", err.Error())
	}
	if err != nil {
		return err
	}
	defer content.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(content.Size, 10))
	answer.Until = time.Now().Add(content.Time())
	if _, err = content.WriteTo(answer); err != nil {
		return wire.Gone(err) // cut off: the client has to see that it hasn't got all
	}
	return nil
}
