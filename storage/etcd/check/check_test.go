package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// written returns a data directory in which an etcd has written a few keys, and its cluster's id.
func written(t testing.TB) Directory {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.LogLevel = "panic"
	cfg.ListenClientUrls, cfg.ListenPeerUrls, cfg.AdvertiseClientUrls = nil, nil, nil
	cfg.TickMs, cfg.ElectionMs = 10, 50
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	<-e.Server.ReadyNotify()
	for _, key := range []string{"a", "b", "c"} {
		put := pb.PutRequest{Key: []byte(key), Value: []byte(strings.Repeat(key, 50))}
		if _, err := e.Server.Put(t.Context(), &put); err != nil {
			t.Fatal(err)
		}
	}
	return Directory{Path: cfg.Dir, ClusterID: uint64(e.Server.Cluster().ID())}
}

// smallFiles returns a small real WAL and database.
func smallFiles(t testing.TB) (log, db []byte) {
	t.Helper()
	d := written(t)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.TrimRight(b, "\x00")
	}
	logs, err := filepath.Glob(filepath.Join(d.WAL(), "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	db = read(d.Database())
	return read(logs[0]), append(db, make([]byte, -len(db)&4095)...)
}

// A stop doesn't wait for a seal that takes long: there's none, and the next start checks what it can without one.
func TestSealTakesTooLong(t *testing.T) {
	d := written(t)
	slow := sealOf(d)
	slow.time = -time.Second
	if err := slow.write(); !errors.Is(err, ErrUnsealed) {
		t.Errorf("sealed with %v", err)
	}
	if _, err := os.Stat(slow.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the seal is there: %v", err)
	}
	if commit, err := d.Open(slog.New(slog.DiscardHandler)); err != nil || commit < 3 {
		t.Errorf("opened with entry %d and error %v", commit, err)
	}
}

// A directory that was closed is sound, a seal is compared once, and what it covers is located.
func TestSeal(t *testing.T) {
	d := written(t)
	log := slog.New(slog.DiscardHandler)
	opens := func() uint64 {
		t.Helper()
		commit, err := d.Open(log)
		if err != nil || commit < 3 {
			t.Fatalf("opened with entry %d and error %v", commit, err)
		}
		return commit
	}
	seals := func() {
		t.Helper()
		if err := Seal(d.Path); err != nil {
			t.Fatal(err)
		}
	}
	flip := func() {
		t.Helper()
		f, err := os.OpenFile(d.Database(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		at := info.Size() - 1
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
	}

	commit := opens()
	seals()
	if again := opens(); again != commit {
		t.Errorf("the last committed entry is %d, and was %d", again, commit)
	}
	flip() // in a value or in unused bytes: the tree is as it was
	opens()
	seals()
	flip()
	var broken *damage
	for range 2 {
		if _, err := d.Open(log); !errors.As(err, &broken) || broken.file != d.Database() || broken.offset != 0 {
			t.Fatalf("error %v, want damage of the database at 0", err)
		}
	}
	flip()
	opens()
}

// Whatever a WAL file holds, reading it neither panics nor loops, ends within it, and finds the records that
// etcd's own decoder finds.
func FuzzLog(f *testing.F) {
	log, _ := smallFiles(f)
	f.Add(log)
	f.Add(append(bytes.Clone(log), 1, 2, 3))
	f.Add([]byte{})
	f.Add(make([]byte, 1000))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r walReader
		end, err := r.records(b)
		if err == nil || end < 0 || end > len(b) {
			t.Fatalf("ended at %d of %d with %v", end, len(b), err)
		}
		committedAfter(b, end)
		sameRecords(t, b)
	})
}

// Wherever a bit of a WAL is flipped, or a sector is blank, our reader and etcd's stop at the same place.
func TestLogFlipped(t *testing.T) {
	log, _ := smallFiles(t)
	sameRecords(t, log)
	for at := range log {
		for _, bit := range []byte{0x01, 0x80} {
			log[at] ^= bit
			sameRecords(t, log)
			log[at] ^= bit
		}
	}
	for at := 0; at < len(log); at += sectorBytes {
		torn := bytes.Clone(log)
		clear(torn[at:min(at+sectorBytes, len(torn))])
		sameRecords(t, torn)
	}
}

// sameRecords reads a WAL file with etcd's decoder, which is the model for ours.
func sameRecords(t *testing.T, b []byte) {
	t.Helper()
	d := wal.NewDecoder(mapped{bytes.NewReader(b)})
	var want walpb.Record
	for {
		off, crc := int(d.LastOffset()), d.LastCRC()
		derr := d.Decode(&want)
		got, next, err := readRecord(b, off)
		switch {
		case derr == nil && want.GetType() <= 0 && errors.Is(err, errRecordForm):
			return // etcd refuses the type after the decoder
		case derr == nil && err == nil:
			if got.typ != want.GetType() || got.crc != want.GetCrc() || !bytes.Equal(got.data, want.GetData()) || int64(next) != d.LastOffset() {
				t.Fatalf("record at %d is %+v, and etcd reads %v", off, got, &want)
			}
			sameContent(t, got)
			if got.typ == wal.CrcType {
				d.UpdateCRC(got.crc)
			}
			continue
		case derr == nil:
			t.Fatalf("record at %d: %v, and etcd reads %v", off, err, &want)
		case err == nil && (got.typ == wal.CrcType || crc32.Update(crc, castagnoli, got.data) == got.crc):
			t.Fatalf("record at %d is %+v, and to etcd %v", off, got, derr)
		case err == nil:
			err = errRecordCRC
		}
		var long uint64
		if len(b)-off >= frameBytes {
			long = binary.LittleEndian.Uint64(b[off:]) &^ (0xff << 56)
		}
		torn := errors.Is(derr, io.EOF) || errors.Is(derr, io.ErrUnexpectedEOF)
		if torn != tornAt(b, off, err) && long <= maxRecordBytes {
			t.Fatalf("at %d: %v, and to etcd %v", off, err, derr)
		}
		return
	}
}

// sameContent compares what is read of a record's data with what etcd's types have.
func sameContent(t *testing.T, rec record) {
	t.Helper()
	var entry raftpb.Entry
	var state raftpb.HardState
	var snapshot walpb.Snapshot
	var metadata pb.Metadata
	for _, tt := range []struct {
		typ     int64
		message proto.Message
		value   func() uint64
		field   protowire.Number
	}{
		{wal.EntryType, &entry, entry.GetIndex, entryIndex},
		{wal.StateType, &state, state.GetCommit, stateCommit},
		{wal.SnapshotType, &snapshot, snapshot.GetIndex, snapshotIndex},
		{wal.MetadataType, &metadata, metadata.GetClusterID, metadataClusterID},
	} {
		if rec.typ != tt.typ || proto.Unmarshal(rec.data, tt.message) != nil {
			continue
		}
		got, err := protoVarint(rec.data, tt.field)
		if want := tt.value(); got != want || err != nil {
			t.Fatalf("a record of type %d has %d, %v, and to etcd %d", rec.typ, got, err, want)
		}
	}
}

// mapped is a file's content, as etcd's decoder reads it.
type mapped struct{ *bytes.Reader }

func (m mapped) FileInfo() (fs.FileInfo, error) { return mappedInfo{size: m.Size()}, nil }

// mappedInfo has what the decoder asks for.
type mappedInfo struct {
	fs.FileInfo
	size int64
}

func (i mappedInfo) Name() string { return "" }
func (i mappedInfo) Size() int64  { return i.size }

// A database of a version that doesn't exist yet is no damage: a newer version has been here. Both meta pages
// may be of that version, or the one that was written last.
func TestUnknownDatabase(t *testing.T) {
	for _, metas := range [][]int{{0}, {1}, {0, 1}} {
		t.Run(fmt.Sprint(metas), func(t *testing.T) {
			d := written(t)
			b, err := os.ReadFile(d.Database())
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range metas {
				meta := b[i*os.Getpagesize()+pageHeaderSize:][:metaSize]
				binary.NativeEndian.PutUint32(meta[4:], dbVersion+1)
				sum := fnv.New64a()
				sum.Write(meta[:56])
				binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
			}
			if err := os.WriteFile(d.Database(), b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = d.Open(slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), "unknown version 3: run the newer version that wrote it") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// A mapped file that shrinks while it's read faults: that is an error, as an unreadable sector's.
func TestFault(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() (err error) {
		defer catchFaults(name, &err)()
		b, unmap, err := mapFile(name)
		if err != nil {
			return err
		}
		defer unmap()
		if err := os.Truncate(name, 0); err != nil {
			return err
		}
		allZero(b)
		return nil
	}
	var d *damage
	if err := read(); !errors.As(err, &d) || d.file != name {
		t.Errorf("got %v", err)
	}
}

// Wherever a bit of a database is flipped, the walk neither panics nor faults nor loops, and names a page.
func TestWalkFlipped(t *testing.T) {
	_, db := smallFiles(t)
	meta, err := readMeta(db)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 2 * meta.pageSize; at < uint64(meta.bytes()); at++ {
		for _, bit := range []byte{0x01, 0x80} {
			db[at] ^= bit
			found += walkBytes(t, db, meta)
			db[at] ^= bit
		}
	}
	if found < 100 || walkBytes(t, db, meta) != 0 {
		t.Errorf("%d flips were noticed", found)
	}
}

// walkBytes walks a database in memory; it returns 1 if that found damage.
func walkBytes(t *testing.T, b []byte, meta dbMeta) int {
	t.Helper()
	w := dbWalk{b: b, meta: meta, seen: make([]bool, meta.pages)}
	err := w.tree(meta.root, keyRange{}, w.rootElement)
	if err == nil {
		return 0
	}
	if err.page >= meta.pages {
		t.Fatalf("page %d of %d: %s", err.page, meta.pages, err.what)
	}
	return 1
}

func FuzzDatabase(f *testing.F) {
	_, db := smallFiles(f)
	f.Add(db, 0, byte(0))
	f.Add(db[:4096], 4100, byte(1))
	f.Add([]byte("short"), 2, byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if len(b) == 0 {
			return
		}
		meta, err := readMeta(b)
		if err != nil || uint64(len(b)) < uint64(meta.bytes()) {
			return
		}
		b = bytes.Clone(b)
		b[uint(at)%uint(len(b))] ^= flip
		walkBytes(t, b, meta)
	})
}
