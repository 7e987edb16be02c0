package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

// Status is what a snapshot's file holds.
type Status struct {
	Revision storage.Revision // of the last write
	Objects  int              // that there are at that revision
	Bytes    int64            // of the file
	SHA256   [sha256.Size]byte
}

// sector divides the size of each database, in bytes. By it etcd knows whether a file has a checksum at its end.
const sector = 512

// errNoSnapshot begins what is said of other files.
var errNoSnapshot = errors.New("is no snapshot of this program")

// Read checks a snapshot's file and says what it holds. It reads all of it: the checksum, the database's pages, and each key. The error says
// what is wrong with the file, whose name is in it, or is ctx's.
func Read(ctx context.Context, path string) (Status, error) {
	st, err := Sum(ctx, path)
	if err == nil {
		err = st.readKeys(ctx, path)
	}
	switch {
	case ctx.Err() != nil:
		return Status{}, ctx.Err()
	case err != nil:
		return Status{}, fmt.Errorf("%s %w", path, err)
	}
	return st, nil
}

// Sum compares a file with the checksum at its end, and says how large it is. The error says what is wrong, without the file's name, or is
// ctx's.
func Sum(ctx context.Context, path string) (st Status, err error) {
	f, err := os.Open(path)
	if err != nil {
		return st, fmt.Errorf("can't be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return st, fmt.Errorf("can't be read: %w", err)
	case !info.Mode().IsRegular():
		return st, errors.New("is no file")
	case info.Size() <= sha256.Size || info.Size()%sector != sha256.Size:
		return st, fmt.Errorf("%w, or has been cut: it has %d bytes", errNoSnapshot, info.Size())
	}
	sum := sha256.New()
	if _, err := io.CopyN(Until(ctx, sum), f, info.Size()-sha256.Size); err != nil {
		return st, fmt.Errorf("can't be read: %w", err)
	}
	if _, err := io.ReadFull(f, st.SHA256[:]); err != nil {
		return st, fmt.Errorf("can't be read: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), st.SHA256[:]) {
		return st, fmt.Errorf("%w, or is damaged: the SHA-256 at its end isn't that of the rest", errNoSnapshot)
	}
	st.Bytes = info.Size()
	return st, nil
}

// readKeys looks at each page and each key of the database in a file.
func (st *Status) readKeys(ctx context.Context, path string) (err error) {
	if err := check.Database(ctx, path); err != nil {
		return fmt.Errorf("holds no whole database: %w", err)
	}
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("holds no database: %w", err)
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return fmt.Errorf("%w: it has no keys of etcd's", errNoSnapshot)
		}
		there := map[string]bool{}
		err := keys.ForEach(func(k, v []byte) error { return cmp.Or(ctx.Err(), st.readKey(there, k, v)) })
		st.Objects = len(there)
		return err
	})
}

// readKey notes a write, in the order of revisions. there are the objects as of it.
func (st *Status) readKey(there map[string]bool, k, v []byte) error {
	var kv mvccpb.KeyValue
	if len(k) != revisionBytes && len(k) != revisionBytes+1 || k[8] != '_' || len(k) > revisionBytes && k[revisionBytes] != 't' || k[0]&0x80 != 0 || k[9]&0x80 != 0 {
		return fmt.Errorf("%w: it has a key without a revision", errNoSnapshot)
	}
	if err := proto.Unmarshal(v, &kv); err != nil {
		return fmt.Errorf("holds a write that can't be read: %w", err)
	}
	st.Revision = storage.Revision(mvcc.BytesToRev(k).Main)
	switch key := string(kv.Key); {
	case key == "": // etcd's own, where a restore has raised the revision
	case bytes.HasPrefix(kv.Key, []byte(storage.Own)):
	case !bytes.HasPrefix(kv.Key, []byte(storage.Root)):
		return fmt.Errorf("%w: it has the key %q", errNoSnapshot, key)
	case mvcc.IsTombstone(k):
		delete(there, key)
	case !bytes.HasPrefix(kv.Value, []byte("{")):
		return fmt.Errorf("%w: the value of %s isn't JSON; that of a kube-apiserver's etcd is moved by its API", errNoSnapshot, key)
	default:
		there[key] = true
	}
	return nil
}

// revisionBytes is how long the key of a write is in etcd's database: two numbers and a sign between them. That of a deletion has a t at its
// end.
const revisionBytes = 8 + 1 + 8
