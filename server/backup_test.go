package server_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

const backupPath = "/apiserver-lite/v1/snapshot"

// TestBackup: a snapshot has what was acknowledged before it, while others write.
func TestBackup(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	makeConfigMap(s, "a")
	res, body := s.Do("GET", backupPath, "")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/octet-stream" || res.ContentLength != int64(len(body)) {
		t.Fatal(res.Status, res.Header, len(body))
	}
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := snapshot.Read(t.Context(), path); err != nil || st.Objects < 2 {
		t.Errorf("it holds %+v, %v", st, err)
	}
	if !bytes.Contains([]byte(body), []byte(`"name":"a"`)) {
		t.Error("what was acknowledged isn't in it")
	}
	if res, body := s.Do("POST", backupPath, ""); res.StatusCode != http.StatusMethodNotAllowed {
		t.Error(res.Status, body)
	}
}

// TestBackupRights: only who may do everything may have all Secrets.
func TestBackupRights(t *testing.T) {
	t.Parallel()
	s := newRuled(t)
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "admin", "admin"), 201, "")
	for _, user := range []string{"ann", "admin", ""} {
		said := user
		if user == "" {
			said = "system:anonymous"
		}
		s.expect(user, "GET "+backupPath, "", 403, `forbidden: User "`+said+`" cannot get path "`+backupPath+`"`)
	}
	s.expect("root", "GET "+backupPath, "", 200, "")
}

// TestBackupStalled: of two snapshots that may be read at once one address has one, and a client that takes nothing is cut off.
func TestBackupStalled(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = 500 * time.Millisecond })
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} { // more than the sockets take
		s.Do("POST", configMaps, `{"metadata":{"name":"`+name+`"},"data":{"a":"`+strings.Repeat("x", 1<<20)+`"}}`)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+backupPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	stalled, err := s.Client.Do(r)
	if err != nil || stalled.StatusCode != http.StatusOK {
		t.Fatal(stalled, err)
	}
	defer stalled.Body.Close()
	if res, body := s.Do("GET", backupPath, ""); res.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "too many snapshots are being read") {
		t.Error("a second one:", res.Status)
	}
	until(t, "a place for another one", func() bool {
		res, _ := s.Do("GET", backupPath, "")
		return res.StatusCode == http.StatusOK
	})
	if _, err := io.Copy(io.Discard, stalled.Body); err == nil {
		t.Error("a client that took nothing got all")
	}
}
