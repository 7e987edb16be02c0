package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

const (
	sealName = "seal.json"
	// sealChunk is how much of the file one checksum covers, and so how exactly damage is located.
	sealChunk = 1 << 20
	// sealTime bounds how long Close reads the database for the seal: a stop is more urgent. At 4 GB/s,
	// which is usual for what was just in use, it's enough for all that the quota allows by default.
	sealTime = 2 * time.Second
)

// A seal is what Close leaves: the checksums of the database as it was closed. It covers free pages too,
// and a commit writes into those before it writes the meta page that makes it count. So a start removes
// the seal, and syncs that, before etcd opens the database: a seal describes a database that nobody has
// touched since, and only damage can have changed a byte of it. After a kill there is no seal, and only
// the tree and the log are checked.
type seal struct {
	// Version is sealVersion. Seals without one are older: the programs that wrote them left them in place
	// while etcd ran, so they prove nothing.
	Version int      `json:"version"`
	TxID    uint64   `json:"txid"`
	Sums    []uint32 `json:"sums"` // CRC-32C of each sealChunk of the file's pages
}

const sealVersion = 1

// errUnsealed means that sealing took too long.
var errUnsealed = fmt.Errorf("sealing the database took more than %v", sealTime)

// writeSeal writes the seal of a closed database.
func (d *dataDir) writeSeal(ctx context.Context) (err error) {
	defer catchFault(debug.SetPanicOnFault(true), d.db(), &err)
	db, unmap, err := openDB(d.db())
	if err != nil {
		return err
	}
	defer unmap()
	s := seal{Version: sealVersion, TxID: db.meta.txid}
	err = db.sums(func(sum uint32) error {
		s.Sums = append(s.Sums, sum)
		return ctx.Err()
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return errUnsealed
	}
	if err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return d.writeFile(sealName, b)
}

// breakSeal removes the seal for good. etcd may start after that.
func (d *dataDir) breakSeal() error {
	if err := os.Remove(d.file(sealName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(d.path)
}

// readSeal returns the seal; one that isn't there or isn't whole is the same as one that doesn't fit.
func (d *dataDir) readSeal() (seal, error) {
	b, err := os.ReadFile(d.file(sealName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return seal{}, err
	}
	var s seal
	if json.Unmarshal(b, &s) != nil {
		return seal{}, nil
	}
	return s, nil
}

// check compares the database with a seal. fits is false if the seal is of another commit.
func (s seal) check(db *dbFile) (fits bool, err error) {
	if s.Version != sealVersion || s.TxID != db.meta.txid || int64(len(s.Sums)) != (db.meta.bytes()+sealChunk-1)/sealChunk {
		return false, nil
	}
	i := 0
	return true, db.sums(func(sum uint32) error {
		if sum != s.Sums[i] {
			return &damage{db.name, int64(i) * sealChunk, fmt.Sprintf("the %d bytes from there aren't those that were written", sealChunk)}
		}
		i++
		return nil
	})
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
