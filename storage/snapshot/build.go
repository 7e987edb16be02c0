package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

const (
	// maxBuilt is how many bytes of keys and values a database may be built of: the most that etcd advises for a whole store. While it's
	// built, its files take up to four times as much.
	maxBuilt = 8 << 30
	// builtAtOnce is how many bytes are in memory before they're written.
	builtAtOnce = 8 << 20
)

// keptFree is what a snapshot leaves free on its disk, in bytes, or keptShare of the disk if that's less: as much as a store keeps in
// reserve, which may be on the same disk.
const (
	keptFree  = 256 << 20
	keptShare = 8
)

// Room refuses a file of a size, in bytes, that would leave too little of a directory's disk.
func Room(dir string, size int64) error {
	free, total, err := disk.Space(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if kept := min(keptFree, total/keptShare); free < size+kept {
		return fmt.Errorf("the disk of the snapshot has %d MiB left: it needs %d MiB, and %d MiB are kept free", free>>20, size>>20, kept>>20)
	}
	return nil
}

// Keys calls put with each key that a store has at a revision, in any order, as etcd has them, and returns the revision. The keys are put's.
type Keys func(put func(*mvccpb.KeyValue) error) (at int64, err error)

// Build makes a Snapshot of keys and no history, of the revision that read returns. What it needs on the disk of dir has no name there, so that
// nothing is left when the process is killed. The errors are read's, ctx's and those of the disk.
func Build(ctx context.Context, dir string, read Keys) (*Snapshot, error) {
	rough, err := create(dir)
	if err != nil {
		return nil, err
	}
	defer rough.Close()
	b := building{ended: ctx.Err, dir: dir, db: rough.DB}
	at, err := read(b.put)
	if err == nil {
		err = b.finish(at)
	}
	if err != nil {
		return nil, fmt.Errorf("build a snapshot: %w", err)
	}
	return b.tight()
}

// file is a database whose file has no name any more.
type file struct {
	*bbolt.DB
	*os.File // the same file, opened once more
}

func create(dir string) (*file, error) {
	named, err := os.CreateTemp(dir, "snapshot-*.building")
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(named.Name(), 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err = errors.Join(err, os.Remove(named.Name())); err != nil {
		return nil, errors.Join(err, named.Close())
	}
	return &file{db, named}, nil
}

// Close gives the file's space back.
func (f *file) Close() error { return errors.Join(f.DB.Close(), f.File.Close()) }

// building is a database that keys come into in any order, which leaves it twice as large as it needs to be.
type building struct {
	ended func() error // why nobody waits for it any more
	dir   string
	db    *bbolt.DB
	batch []*mvccpb.KeyValue
	bytes int   // of batch
	all   int64 // bytes of keys and values so far
	last  int64 // the newest revision of a key
}

// put takes a key.
func (b *building) put(kv *mvccpb.KeyValue) error {
	b.batch = append(b.batch, kv)
	b.bytes += len(kv.Key) + len(kv.Value)
	b.last = max(b.last, kv.ModRevision)
	if b.bytes < builtAtOnce {
		return b.ended()
	}
	return b.write()
}

// write writes the batch.
func (b *building) write() error {
	if b.all += int64(b.bytes); b.all > maxBuilt {
		return fmt.Errorf("it has more than %d GiB", maxBuilt>>30)
	}
	if err := Room(b.dir, b.all); err != nil {
		return err
	}
	err := b.db.Update(func(tx *bbolt.Tx) error {
		keys, err := tx.CreateBucketIfNotExists(schema.Key.Name())
		for _, kv := range b.batch {
			if err == nil {
				err = put(keys, kv)
			}
		}
		return err
	})
	b.batch, b.bytes = b.batch[:0], 0
	return errors.Join(err, b.ended())
}

// put stores a key under its revision. What one transaction wrote has that of it, and a number in the order in which it comes.
func put(keys *bbolt.Bucket, kv *mvccpb.KeyValue) error {
	value, err := proto.Marshal(kv)
	if err != nil {
		return err
	}
	rev := mvcc.Revision{Main: kv.ModRevision}
	name := mvcc.RevToBytes(rev, mvcc.NewRevBytes())
	for keys.Get(name) != nil {
		rev.Sub++
		name = mvcc.RevToBytes(rev, mvcc.NewRevBytes())
	}
	return keys.Put(name, value)
}

// finish writes what is left, and the buckets that etcd has. Where another key than these has the store's revision, an empty one has it, as
// after a restore of etcd's own.
func (b *building) finish(at int64) error {
	if err := b.write(); err != nil {
		return err
	}
	return b.db.Update(func(tx *bbolt.Tx) error {
		for _, bucket := range schema.AllBuckets {
			if _, err := tx.CreateBucketIfNotExists(bucket.Name()); err != nil {
				return err
			}
		}
		if at <= b.last {
			return nil
		}
		return tx.Bucket(schema.Key.Name()).Put(mvcc.RevToBytes(mvcc.Revision{Main: at}, mvcc.NewRevBytes()), nil)
	})
}

// tight writes the database anew, in the order of its keys.
func (b *building) tight() (*Snapshot, error) {
	to, err := create(b.dir)
	if err != nil {
		return nil, err
	}
	var size int64
	if err = bbolt.Compact(to.DB, b.db, builtAtOnce); err == nil {
		err = to.View(func(tx *bbolt.Tx) error {
			size = tx.Size()
			return nil
		})
	}
	if err = errors.Join(err, b.ended()); err != nil {
		return nil, errors.Join(fmt.Errorf("build a snapshot: %w", err), to.Close())
	}
	return New(built{to.File, size}, to.Close), nil
}

// built is the content of a file up to a size.
type built struct {
	from io.ReaderAt
	size int64
}

func (b built) Size() int64 { return b.size }

func (b built) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, io.NewSectionReader(b.from, 0, b.size))
}
