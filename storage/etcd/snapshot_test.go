package etcd_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// save writes a snapshot to a file.
func save(t *testing.T, s *etcd.Server) (path string) {
	t.Helper()
	content, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	n, err := content.WriteTo(&text)
	if err := errors.Join(err, content.Close()); err != nil || n != int64(text.Len()) || n != content.Size {
		t.Fatalf("%d of %d bytes are written, and %d are said to be: %v", text.Len(), content.Size, n, err)
	}
	return keep(t, text.Bytes())
}

// keep writes a file.
func keep(t *testing.T, text []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSnapshot: what is stored when a snapshot is opened is in the directory that is restored from it, above all revisions that anybody has
// seen, and nobody goes on from one of these.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := open(t, etcd.Options{DataDir: t.TempDir()})
	put(t, s, "/registry/core/configmaps/default/a", `{"a":1}`)
	put(t, s, "/registry/core/configmaps/default/gone", `{}`)
	put(t, s, "/apiserver-lite/x", "own")
	if _, err := s.Client.Delete(t.Context(), "/registry/core/configmaps/default/gone"); err != nil {
		t.Fatal(err)
	}
	at := put(t, s, "/registry/core/configmaps/default/b", `{"b":1}`)
	path := save(t, s)
	seen := put(t, s, "/registry/core/configmaps/default/a", `{"a":2}`)

	st, err := snapshot.Read(t.Context(), path)
	if err != nil || int64(st.Revision) != at || st.Objects != 2 {
		t.Fatalf("the file has %+v, %v, want two objects and revision %d", st, err, at)
	}
	dir := filepath.Join(t.TempDir(), "new", "dir")
	restored, err := etcd.Restore(t.Context(), path, dir, slog.New(slog.DiscardHandler))
	if err != nil || restored != st {
		t.Fatal(restored, err)
	}
	for range 2 { // the second start finds what the first one left
		again := open(t, etcd.Options{DataDir: dir})
		for key, want := range map[string]string{"a": `{"a":1}`, "b": `{"b":1}`, "gone": ""} {
			if got := get(t, again, "/registry/core/configmaps/default/"+key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		if got := get(t, again, "/apiserver-lite/x"); got != "own" {
			t.Errorf("the program's own key is %q", got)
		}
		now := put(t, again, "/registry/core/configmaps/default/c", "{}")
		if now < seen+etcd.RevisionBump/2 {
			t.Errorf("revision %d comes after %d, which somebody has seen", now, seen)
		}
		for _, old := range []int64{at, seen, at + etcd.RevisionBump/2} {
			if _, err := again.Client.Get(t.Context(), "a", clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
				t.Errorf("revision %d, which was before the restore: %v", old, err)
			}
		}
		if again.Local.Cluster().ID() == s.Local.Cluster().ID() || again.Local.MemberID() == s.Local.MemberID() {
			t.Error("the ids are those of the old store")
		}
		closeServer(t, again)
	}
}

// TestRestoreTwice: a second restore of one file begins above all that was written after the first.
func TestRestoreTwice(t *testing.T) {
	t.Parallel()
	s := open(t, etcd.Options{Ephemeral: true})
	put(t, s, "/registry/core/configmaps/default/a", `{"a":1}`)
	path := save(t, s)
	last := int64(0)
	for range 2 {
		dir := t.TempDir()
		if _, err := etcd.Restore(t.Context(), path, dir, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		again := open(t, etcd.Options{DataDir: dir})
		for range 3 {
			now := put(t, again, "/registry/core/configmaps/default/b", `{}`)
			if now <= last {
				t.Errorf("revision %d comes after %d", now, last)
			}
			last = now
		}
		closeServer(t, again)
	}
}

// TestRestoredWithoutWAL: a restored directory that has lost its log is refused, and not taken for one whose first start was killed.
func TestRestoredWithoutWAL(t *testing.T) {
	t.Parallel()
	s := open(t, etcd.Options{Ephemeral: true})
	put(t, s, "/registry/core/configmaps/default/a", `{"a":1}`)
	dir := t.TempDir()
	if _, err := etcd.Restore(t.Context(), save(t, s), dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "member", "wal")); err != nil {
		t.Fatal(err)
	}
	if s, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)}); err == nil {
		closeServer(t, s)
		t.Error("it's opened as an empty one")
	}
}

// TestSnapshotRefused: a file that isn't a whole snapshot of ours is refused before anything is written, and so is a directory that holds
// something.
func TestSnapshotRefused(t *testing.T) {
	t.Parallel()
	s := open(t, etcd.Options{Ephemeral: true})
	put(t, s, "/registry/core/configmaps/default/a", `{"a":1}`)
	path := save(t, s)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	signed := func(text []byte) string {
		sum := sha256.Sum256(text)
		return keep(t, append(bytes.Clone(text), sum[:]...))
	}
	foreign, kubernetes := open(t, etcd.Options{Ephemeral: true}), open(t, etcd.Options{Ephemeral: true})
	put(t, foreign, "/calico/x", "y")
	put(t, kubernetes, "/registry/configmaps/default/a", "k8s\x00\x0a")
	broken := bytes.Clone(good[:len(good)-sha256.Size])
	copy(broken[2*os.Getpagesize():], bytes.Repeat([]byte{0xff}, len(broken)))
	for name, tc := range map[string]struct{ path, says string }{
		"missing":             {filepath.Join(t.TempDir(), "x"), "can't be read"},
		"empty":               {keep(t, nil), "has been cut"},
		"cut":                 {keep(t, good[:len(good)/2]), "or"},
		"cut in the checksum": {keep(t, good[:len(good)-1]), "has been cut"},
		"damaged":             {keep(t, flipped), "is damaged"},
		"a directory":         {t.TempDir(), "is no file"},
		"no database":         {signed(make([]byte, 4096)), "holds no whole database"},
		"broken pages":        {signed(broken), "holds no whole database"},
		"foreign":             {save(t, foreign), `it has the key "/calico/x"`},
		"kube-apiserver's":    {save(t, kubernetes), "isn't JSON"},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		_, err := etcd.Restore(t.Context(), tc.path, dir, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory was made", name)
		}
	}
	if _, err := etcd.Restore(t.Context(), path, filepath.Dir(path), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "isn't empty") {
		t.Errorf("into a directory with files: %v", err)
	}
}

// TestSnapshotBesideWrites: writes go on while somebody reads a snapshot, and aren't in it.
func TestSnapshotBesideWrites(t *testing.T) {
	t.Parallel()
	s := open(t, etcd.Options{DataDir: t.TempDir()})
	for i := range 50 {
		put(t, s, fmt.Sprintf("/registry/core/configmaps/default/%d", i), `{}`)
	}
	content, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := content.WriteTo(writer)
		done <- errors.Join(err, writer.CloseWithError(err))
	}()
	for i := range 50 { // nobody has read a byte
		put(t, s, fmt.Sprintf("/registry/core/configmaps/default/more-%d", i), strings.Repeat("{}", 1000))
	}
	text, err := io.ReadAll(reader)
	if err := errors.Join(err, <-done, content.Close()); err != nil {
		t.Fatal(err)
	}
	if st, err := snapshot.Read(t.Context(), keep(t, text)); err != nil || st.Objects != 50 {
		t.Errorf("the snapshot has %+v, %v", st, err)
	}
}
