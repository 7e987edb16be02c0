package etcd_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

const (
	dbPath  = "member/snap/db"
	walPath = "member/wal/0000000000000000-0000000000000000.wal"
)

// image is a data directory's files: as they are after Close, or as they are after a kill.
type image map[string]string

// images writes n keys and returns both.
func images(t *testing.T, n int) (closed, killed image) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, etcd.Options{DataDir: dir})
	value := strings.Repeat("value", 200)
	for i := range n {
		put(t, s, fmt.Sprintf("/key/%05d", i), value)
	}
	s.Local.Backend().ForceCommit()
	killed = files(t, dir)
	closeServer(t, s)
	return files(t, dir), killed
}

// restore writes an image, changed by edit, into a new directory.
func (im image) restore(t *testing.T, edit func(image)) string {
	t.Helper()
	changed := image{}
	for name, content := range im {
		changed[name] = content
	}
	edit(changed)
	dir := t.TempDir()
	for name, content := range changed {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func (im image) flip(name string, offset int) {
	b := []byte(im[name])
	b[offset] ^= 0x10
	im[name] = string(b)
}

// records returns the offset of each record of the first WAL file, and where the last one ends.
func records(im image) (at []int, end int) {
	for off := 0; ; {
		field := binary.LittleEndian.Uint64([]byte(im[walPath][off : off+8]))
		if field == 0 {
			return at, off
		}
		at = append(at, off)
		pad := 0
		if field>>63 == 1 {
			pad = int(field >> 56 & 7)
		}
		off += 8 + int(field&^(0xff<<56)) + pad
	}
}

func TestDamageRefused(t *testing.T) {
	closed, killed := images(t, 400)
	at, _ := records(killed)
	i := len(at) / 2
	for at[i+1]-at[i] < 500 { // an entry, not a state
		i++
	}
	mid := at[i]
	tests := []struct {
		name string
		edit func(image)
		want []string // parts of the message
	}{
		{"log: a byte flipped", func(im image) { im.flip(walPath, mid+100) },
			[]string{walPath, fmt.Sprintf("at offset %d", mid), "checksum"}},
		{"log: a byte of the last record flipped", func(im image) { im.flip(walPath, at[len(at)-1]+9) },
			[]string{walPath, fmt.Sprintf("at offset %d", at[len(at)-1])}},
		{"log: a length flipped", func(im image) { im.flip(walPath, mid+1) },
			[]string{walPath, fmt.Sprintf("at offset %d", mid)}},
		{"log: a length beyond the file", func(im image) { im.flip(walPath, mid+2) },
			[]string{walPath, fmt.Sprintf("at offset %d", mid)}},
		{"log: an impossible length", func(im image) { im.flip(walPath, mid+6) },
			[]string{walPath, fmt.Sprintf("at offset %d", mid)}},
		{"log: blank from a record on", func(im image) {
			im[walPath] = im[walPath][:mid] + strings.Repeat("\x00", len(im[walPath])-mid)
		}, []string{"member/wal", "the WAL ends at entry", "the database has entry"}},
		{"log: a blank stretch", func(im image) {
			im[walPath] = im[walPath][:mid] + strings.Repeat("\x00", 4096) + im[walPath][mid+4096:]
		}, []string{walPath, fmt.Sprintf("at offset %d", mid), "blank"}},
		{"log: cut", func(im image) { im[walPath] = im[walPath][:mid+16] },
			[]string{walPath, fmt.Sprintf("at offset %d", mid), "it was cut"}},
		{"log: cut between records", func(im image) { im[walPath] = im[walPath][:mid] },
			[]string{"member/wal", "the WAL ends at entry", "the database has entry"}},
		{"WAL: missing", func(im image) { delete(im, walPath) }, []string{"member/wal", "the WAL is missing"}},
		{"log: an earlier file missing", func(im image) {
			im["member/wal/0000000000000002-0000000000000fff.wal"] = im[walPath]
		}, []string{"0000000000000002-0000000000000fff.wal", "missing (number 1)"}},
		{"log: of another directory", func(im image) {
			im[markerFile] = `{"layout":1,"id":"another"}`
		}, []string{"belongs to another cluster"}},
		{"database: cut", func(im image) { im[dbPath] = im[dbPath][:50*4096] },
			[]string{dbPath, "it was cut"}},
		{"database: missing", func(im image) { delete(im, dbPath) }, []string{dbPath, "it is missing"}},
		{"database: empty", func(im image) { im[dbPath] = "" }, []string{dbPath, "meta"}},
		{"database: both metas flipped", func(im image) { im.flip(dbPath, 40); im.flip(dbPath, 4096+40) },
			[]string{dbPath, "at offset 0", "meta"}},
		{"everything but the marks is gone", func(im image) {
			for name := range im {
				if strings.HasPrefix(name, "member") {
					delete(im, name)
				}
			}
		}, []string{"member", "it is missing"}},
		{"only the database is there", func(im image) {
			for name := range im {
				if name != dbPath && name != markerFile {
					delete(im, name)
				}
			}
		}, []string{"member/wal", "the WAL is missing"}},
	}
	for _, tt := range tests {
		for _, from := range []struct {
			name string
			image
		}{{"closed", closed}, {"killed", killed}} {
			t.Run(tt.name+"/"+from.name, func(t *testing.T) {
				dir := from.restore(t, tt.edit)
				refused(t, dir, append(tt.want, "restore|put the directory's own files back")...)
			})
		}
	}
}

// refused opens a damaged directory twice: it is refused with the same words, and nothing is changed.
func refused(t *testing.T, dir string, want ...string) {
	t.Helper()
	before := files(t, dir)
	delete(before, "pid")
	for range 2 {
		s, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			s.Close()
			t.Fatal("opened")
		}
		msg := err.Error()
		for _, w := range want {
			ok := false
			for part := range strings.SplitSeq(w, "|") {
				ok = ok || strings.Contains(msg, part)
			}
			if !ok || strings.Contains(msg, "\n") {
				t.Fatalf("got %q, want one line with %q", msg, w)
			}
		}
	}
	after := files(t, dir)
	delete(after, "pid")
	if !maps.Equal(after, before) {
		t.Error("the files were changed")
	}
}

// After a clean stop every byte of the database is covered.
func TestFlippedDatabaseRefused(t *testing.T) {
	closed, _ := images(t, 200)
	pages := len(strings.TrimRight(closed[dbPath], "\x00")) / 4096
	tried := 0
	for page := 2; page < pages; page += 1 + pages/30 {
		dir := closed.restore(t, func(im image) { im.flip(dbPath, page*4096+(page*997)%4096) })
		_, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Fatalf("a flipped byte in page %d was served", page)
		}
		if !strings.Contains(err.Error(), dbPath+" is damaged at offset ") {
			t.Fatal(err)
		}
		tried++
	}
	if tried < 20 {
		t.Errorf("only %d pages tried", tried)
	}
}

// While etcd can write to the database there is no seal: a kill would leave one that no longer fits.
func TestSealRemovedAtStart(t *testing.T) {
	dir := t.TempDir()
	sealed := func() bool {
		_, err := os.Stat(filepath.Join(dir, "seal.json"))
		return err == nil
	}
	for i := range 3 {
		s := open(t, etcd.Options{DataDir: dir})
		if sealed() {
			t.Errorf("start %d left the seal", i)
		}
		put(t, s, "k", "v")
		closeServer(t, s)
		if !sealed() {
			t.Errorf("stop %d left no seal", i)
		}
	}
}

// A seal of a program that left it in place while etcd ran doesn't fit, and proves nothing.
func TestOldSealIgnored(t *testing.T) {
	closed, _ := images(t, 10)
	dir := closed.restore(t, func(im image) {
		im["seal.json"] = strings.Replace(im["seal.json"], `"version":1,`, "", 1)
		b := []byte(im[dbPath])
		b[freePage(t, im)*4096+100] ^= 1
		im[dbPath] = string(b)
	})
	s := open(t, etcd.Options{DataDir: dir})
	if get(t, s, "/key/00009") == "" {
		t.Error("a key is missing")
	}
}

// freePage returns a page of the database that its tree doesn't use.
func freePage(t *testing.T, im image) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	write(t, path, im[dbPath])
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	free := 0
	err = db.View(func(tx *bbolt.Tx) error {
		for id := 2; ; id++ {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return err
			}
			if page.Type == "free" {
				free = id
			}
		}
	})
	if err != nil || free == 0 {
		t.Fatal("no free page: ", err)
	}
	return free
}

// A write at the WAL's end that the power failed under is dropped with a log line. It was never
// acknowledged, and everything before it is there.
func TestTornTail(t *testing.T) {
	_, killed := images(t, 50)
	last, end := records(killed)
	crc := lastCRC(t, killed, last[len(last)-1])
	tests := []struct {
		name string
		tail func() []byte
	}{
		{"only the length", func() []byte { return binary.LittleEndian.AppendUint64(nil, 4000) }},
		{"a sector missing", func() []byte {
			b := entryRecord(crc, 4000)
			clear(b[1024:2048])
			return b
		}},
		{"only the end", func() []byte {
			b := entryRecord(crc, 4000)
			clear(b[:2048])
			return b
		}},
		{"over the file's end", func() []byte { return binary.LittleEndian.AppendUint64(nil, 9<<20) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := killed.restore(t, func(im image) {
				tail := string(tt.tail())
				im[walPath] = im[walPath][:end] + tail + im[walPath][end+len(tail):]
			})
			var log logBuffer
			for i := range 3 {
				s := open(t, etcd.Options{DataDir: dir, Log: log.logger()})
				res, err := s.Client.Get(t.Context(), "/key/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || res.Count != 50 {
					t.Fatalf("%d of 50 keys, %v", res.Count, err)
				}
				put(t, s, "after", fmt.Sprint(i))
				closeServer(t, s)
			}
			want := fmt.Sprintf("offset=%d", end)
			if n := strings.Count(log.String(), "wasn't finished"); n != 1 || !strings.Contains(log.String(), want) {
				t.Errorf("%d log lines about it, want one with %q:\n%s", n, want, log.String())
			}
		})
	}
}

// entryRecord is a WAL record like etcd's, with size bytes of data.
func entryRecord(crc uint32, size int) []byte {
	data := append([]byte{0x08, 0, 0x10, 2, 0x18, 0xff, 0x7f, 0x22, byte(size&0x7f | 0x80), byte(size >> 7)}, bytes.Repeat([]byte("x"), size)...)
	b, _ := logRecord(crc, 2, data)
	return b
}

// logRecord is a WAL record of a type. It returns its checksum, too, from which the next one's goes on.
func logRecord(crc uint32, typ byte, data []byte) ([]byte, uint32) {
	crc = crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), data)
	msg := binary.AppendUvarint([]byte{0x08, typ, 0x10}, uint64(crc))
	msg = append(binary.AppendUvarint(append(msg, 0x1a), uint64(len(data))), data...)
	pad := -len(msg) & 7
	field := uint64(len(msg))
	if pad > 0 {
		field |= uint64(0x80|pad) << 56
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, field), msg...), make([]byte, pad)...), crc
}

// groupCommit is what one sync covers: n entries of 1000 bytes after an entry, and a state with a commit.
func groupCommit(t *testing.T, crc uint32, after uint64, n int, commit uint64) (records [][]byte) {
	t.Helper()
	put := pb.PutRequest{Key: []byte("grouped"), Value: bytes.Repeat([]byte("x"), 1000)}
	request, err := proto.Marshal(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1}, Put: &put})
	if err != nil {
		t.Fatal(err)
	}
	field := func(tag byte, v uint64) []byte { return binary.AppendUvarint([]byte{tag}, v) }
	var rec []byte
	for i := range n {
		data := slices.Concat(field(0x08, 0), field(0x10, 2), field(0x18, after+1+uint64(i)), field(0x22, uint64(len(request))), request)
		rec, crc = logRecord(crc, 2, data)
		records = append(records, rec)
	}
	rec, _ = logRecord(crc, 3, slices.Concat(field(0x08, 2), field(0x10, 1), field(0x18, commit)))
	return append(records, rec)
}

// lastEntry reads the index of the last entry of a WAL.
func lastEntry(t *testing.T, im image) uint64 {
	t.Helper()
	dir := im.restore(t, func(image) {})
	log, err := wal.OpenForRead(zap.NewNop(), filepath.Join(dir, "member/wal"), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, _, entries, err := log.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return entries[len(entries)-1].GetIndex()
}

// One sync covers many records. After a power failure one of them may be blank and those after it whole:
// nothing of it was acknowledged, unless a later record says that the missing entry was committed.
func TestTornGroupCommit(t *testing.T) {
	_, killed := images(t, 50)
	last, end := records(killed)
	crc, entry := lastCRC(t, killed, last[len(last)-1]), lastEntry(t, killed)
	tests := []struct {
		name    string
		blank   []int  // records
		commit  uint64 // by the state at the end
		refused bool
	}{
		{"the first is blank", []int{0}, entry, false},
		{"one in the middle is blank", []int{2}, entry, false},
		{"two are blank", []int{0, 2}, entry, false},
		{"the first is blank, and committed", []int{0}, entry + 1, true},
		{"one in the middle is blank, and committed", []int{2}, entry + 5, true},
		{"one in the middle is blank, those before it committed", []int{2}, entry + 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			group := groupCommit(t, crc, entry, 5, tt.commit)
			at := end
			for i := range tt.blank[0] {
				at += len(group[i])
			}
			for _, i := range tt.blank {
				clear(group[i])
			}
			tail := string(bytes.Join(group, nil))
			dir := killed.restore(t, func(im image) {
				im[walPath] = im[walPath][:end] + tail + im[walPath][end+len(tail):]
			})
			if tt.refused {
				refused(t, dir, walPath, fmt.Sprintf("at offset %d", at), "blank", "restore")
				return
			}
			var log logBuffer
			for range 2 {
				s := open(t, etcd.Options{DataDir: dir, Log: log.logger()})
				res, err := s.Client.Get(t.Context(), "/key/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || res.Count != 50 {
					t.Fatalf("%v of 50 keys, %v", res, err)
				}
				closeServer(t, s)
			}
			if n := strings.Count(log.String(), "wasn't finished"); n != 1 || !strings.Contains(log.String(), fmt.Sprintf("offset=%d", at)) {
				t.Errorf("%d log lines about it, want one with offset %d:\n%s", n, at, log.String())
			}
		})
	}
}

// A record of a type that doesn't exist yet is no damage: a newer version has been here.
func TestUnknownRecord(t *testing.T) {
	_, killed := images(t, 10)
	last, end := records(killed)
	rec, _ := logRecord(lastCRC(t, killed, last[len(last)-1]), 6, []byte("new"))
	dir := killed.restore(t, func(im image) {
		im[walPath] = im[walPath][:end] + string(rec) + im[walPath][end+len(rec):]
	})
	refused(t, dir, walPath, fmt.Sprintf("at offset %d", end), "unknown type 6", "newer version")
}

// lastCRC reads the checksum of the record at off: its second field.
func lastCRC(t *testing.T, im image, off int) uint32 {
	t.Helper()
	b := []byte(im[walPath][off+8:])
	if b[0] != 0x08 || b[2] != 0x10 {
		t.Fatalf("not a record at %d: %x", off, b[:16])
	}
	crc, _ := binary.Uvarint(b[3:])
	return uint32(crc)
}

// What a kill leaves is repaired as far as it must be and never changed otherwise: the same image opens
// again and again.
func TestKilledImage(t *testing.T) {
	_, killed := images(t, 300)
	for _, tt := range []struct {
		name string
		edit func(image)
	}{
		{"as it is", func(image) {}},
		{"an older meta page", func(im image) { // the newer one was being written
			b := []byte(im[dbPath])
			newer := 0
			if binary.NativeEndian.Uint64(b[4096+16+48:]) > binary.NativeEndian.Uint64(b[16+48:]) {
				newer = 4096
			}
			b[newer+20] ^= 0xff
			im[dbPath] = string(b)
		}},
		{"a WAL whose blank rest was lost", func(im image) { // an interrupted start leaves it so
			_, end := records(im)
			im[walPath] = im[walPath][:end]
		}},
		{"a damaged seal", func(im image) { im["seal.json"] = "{" }},
		{"damaged marks", func(im image) { im["history.json"] = `{"marks":[{"revision":5},{"revision":4}]}` }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := killed.restore(t, tt.edit)
			s := open(t, etcd.Options{DataDir: dir})
			res, err := s.Client.Get(t.Context(), "/key/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || res.Count != 300 {
				t.Fatalf("%v of 300 keys, %v", res, err)
			}
			if _, err := os.Stat(filepath.Join(dir, dbPath)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFirstStartKilled: the entry that adds the first member may come into the database before it's in the WAL. Whoever was killed
// there begins anew, and only there: with more in the database, or after a start that succeeded, the directory is damaged.
func TestFirstStartKilled(t *testing.T) {
	_, killed := images(t, 1)
	for _, tt := range []struct {
		name  string
		index uint64
		used  bool
		want  string // of the refusal; "" for a start
	}{
		{"the member's entry", 1, false, ""},
		{"one entry more", 2, false, "the WAL ends at entry 0, but the database has entry 2"},
		{"after a start that succeeded", 1, true, "the WAL ends at entry 0, but the database has entry 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := killed.restore(t, func(im image) {
				if !tt.used {
					delete(im, "history.json")
				}
				offsets, _ := records(im)
				const entry, state = 2, 3 // types of records
				first := slices.IndexFunc(offsets, func(off int) bool { of := im[walPath][off+9]; return of == entry || of == state })
				im[walPath] = im[walPath][:offsets[first]]
			})
			setIndex(t, filepath.Join(dir, dbPath), tt.index)
			if tt.want == "" {
				s := open(t, etcd.Options{DataDir: dir})
				if res, err := s.Client.Get(t.Context(), "/key/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || res.Count != 0 {
					t.Errorf("%v keys, %v", res, err)
				}
				return
			}
			if s, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

// setIndex makes an entry the last one that a database has.
func setIndex(t *testing.T, path string, index uint64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, index))
	}); err != nil {
		t.Fatal(err)
	}
}
