package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// backupPath is where a snapshot of the whole store is. All Secrets are in it: of Kubernetes' own roles only cluster-admin may get it.
const backupPath = "/apiserver-lite/v1/snapshot"

// maxBackups is how many snapshots may be on their way at once. While one is, what is freed in the database isn't used again.
const maxBackups = 2

// What a client has for a snapshot: backupTime, and a second more for each backupRate bytes. As long as it's read, its pages stay in the
// database beside those that replace them.
const (
	backupTime = time.Minute
	backupRate = 1 << 20
)

// serveBackup answers GET /apiserver-lite/v1/snapshot. A client that takes nothing for the time that a watch's may is cut off.
func (h *handler) serveBackup(w *response, r *http.Request) error {
	if h.besides.store == nil {
		return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, "this server's store is an etcd elsewhere: take that etcd's own snapshot")
	}
	place, err := h.capacity.backups.enter(r.Context(), h.flowOf(r), 1, 0)
	if err != nil {
		return err
	}
	defer place.Leave()
	snapshot, err := h.besides.store.Snapshot()
	if errors.Is(err, etcd.ErrRewriting) {
		return status.Unavailable("snapshots", err.Error())
	}
	if err != nil {
		return err
	}
	defer snapshot.Close()
	answer, err := wire.NewLongAnswer(w, h.port.StreamTimeout)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(snapshot.Size, 10))
	answer.Until = time.Now().Add(backupTime + time.Duration(snapshot.Size/backupRate)*time.Second)
	if _, err = snapshot.WriteTo(answer); err != nil {
		return wire.Gone(err) // cut off: the client has to see that it hasn't got all
	}
	return nil
}
