package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

const (
	sealName = "seal.json"
	// sealVersion is the version of seals. Those without one are older: the programs that wrote them left
	// them in place while etcd ran, so they prove nothing.
	sealVersion = 1
	// sealChunk is how much of the file one checksum covers, and so how exactly damage is located.
	sealChunk = 1 << 20
	// sealTime bounds how long the database is read for a seal: a stop is more urgent. At 4 GB/s, which is
	// usual for what was just in use, it's enough for all that the quota allows by default.
	sealTime = 2 * time.Second
)

// ErrUnsealed is returned by Seal when reading the database takes too long.
var ErrUnsealed = fmt.Errorf("sealing the database took more than %v", sealTime)

// A seal is the file with the checksums of a database that is closed. This type owns the file's life:
// write makes it when etcd has stopped, compare reads it before etcd starts, and remove ends it.
//
// A seal covers free pages too, and a commit writes into those before it writes the meta page that makes
// the commit count. So the seal is removed for good before etcd opens the database. Then a seal always
// describes a database that nobody has touched since, and only damage can have changed a byte of it. After
// a kill there is no seal, and only the tree and the WAL are checked.
type seal struct {
	path string
	db   string        // the database's path
	time time.Duration // bounds write; sealTime, but in tests
}

func sealOf(d Directory) seal {
	return seal{path: filepath.Join(d.Path, sealName), db: d.Database(), time: sealTime}
}

// Seal writes the checksums of the database in the data directory at path. etcd must have closed it. The
// error is ErrUnsealed if that takes too long; the next start then checks less.
func Seal(path string) error { return sealOf(Directory{Path: path}).write() }

// sealed is a seal's content.
type sealed struct {
	Version int      `json:"version"` // sealVersion
	TxID    uint64   `json:"txid"`
	Sums    []uint32 `json:"sums"` // CRC-32C of each sealChunk of the file's pages
}

// write makes the seal of a closed database. It's written in place: half of it is as good as none.
func (s seal) write() (err error) {
	defer catchFaults(s.db, &err)()
	db, unmap, err := openDB(s.db)
	if err != nil {
		return err
	}
	defer unmap()
	content := sealed{Version: sealVersion, TxID: db.meta.txid}
	deadline := time.Now().Add(s.time)
	err = db.sums(func(sum uint32) error {
		content.Sums = append(content.Sums, sum)
		if time.Now().After(deadline) {
			return ErrUnsealed
		}
		return nil
	})
	if err != nil {
		return err
	}
	b, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return s.store(b)
}

// store writes and syncs the file.
func (s seal) store(b []byte) error {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|disk.NoFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(s.path))
	}
	return nil
}

// compare compares the database with its seal. Without a seal, or with one that isn't whole or is of
// another commit, there is nothing to compare.
func (s seal) compare(db *dbFile) error {
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var content sealed
	if json.Unmarshal(b, &content) != nil || content.Version != sealVersion || content.TxID != db.meta.txid ||
		int64(len(content.Sums)) != (db.meta.bytes()+sealChunk-1)/sealChunk {
		return nil
	}
	i := 0
	return db.sums(func(sum uint32) error {
		if sum != content.Sums[i] {
			return &damage{db.name, int64(i) * sealChunk, fmt.Sprintf("the %d bytes from there aren't those that were written", sealChunk)}
		}
		i++
		return nil
	})
}

// remove removes the seal for good: after a power failure, too, it isn't there.
func (s seal) remove() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return SyncDir(filepath.Dir(s.path))
}

// SyncDir makes what was created, renamed and removed in a directory survive a power failure.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sums calls fn with the checksum of each chunk.
func (db *dbFile) sums(fn func(uint32) error) error {
	for chunk := range slices.Chunk(db.b, sealChunk) {
		if err := fn(crc32.Checksum(chunk, castagnoli)); err != nil {
			return err
		}
	}
	return nil
}
