package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/protobuf/encoding/protowire"
)

// etcd repairs a log whose end can't be read by cutting it there. That is right after a power failure,
// when the end was never acknowledged, and a silent loss after a disk's mistake in the middle. So the
// log is read here first, with more suspicion, and etcd only gets one that it needn't repair.

// maxRecordBytes is above what any record of ours can have: a length beyond it is no length.
const maxRecordBytes = 64 << 20

// sectorBytes is what a disk writes whole: after a power failure a sector is the old one (zeros, as the
// file is preallocated) or the new one.
const sectorBytes = 512

// The types of etcd's log records.
const (
	recordMetadata = 1
	recordEntry    = 2
	recordState    = 3
	recordCRC      = 4
	recordSnapshot = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// walSummary is what a log holds.
type walSummary struct {
	files     int
	clusterID uint64
	lastIndex uint64 // of the last entry
	commit    uint64 // the last entry known to be committed

	lastFile string
	end      int64 // of the last file's records
	torn     bool  // there's more after the end: a write that a crash interrupted
}

// readWAL reads all of the log in dir and checks every record. The error is a *damage, or that of a
// file that can't be read. No log at all is a summary of no files.
func readWAL(dir string) (walSummary, error) {
	var r walReader
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return r.sum, err
	}
	slices.Sort(names)
	r.sum.files = len(names)
	if err := checkNames(names); err != nil {
		return r.sum, err
	}
	for i, name := range names {
		if err := r.file(name, i == len(names)-1); err != nil {
			return r.sum, err
		}
	}
	if r.sum.commit > r.sum.lastIndex {
		return r.sum, &damage{dir, -1, fmt.Sprintf("the log ends at entry %d, but entry %d was committed", r.sum.lastIndex, r.sum.commit)}
	}
	return r.sum, nil
}

// checkNames checks that no file is missing between others.
func checkNames(names []string) error {
	var before uint64
	for i, name := range names {
		var seq, index uint64
		if _, err := fmt.Sscanf(filepath.Base(name), "%016x-%016x.wal", &seq, &index); err != nil {
			return &damage{name, -1, "its name isn't one of a log file"}
		}
		if i > 0 && seq != before+1 {
			return &damage{name, -1, fmt.Sprintf("the log file before it is missing (number %d)", before+1)}
		}
		before = seq
	}
	return nil
}

type walReader struct {
	sum walSummary
	crc uint32
}

func (r *walReader) file(name string, last bool) error {
	b, unmap, err := mapFile(name)
	if err != nil {
		return err
	}
	defer unmap()
	end, err := r.records(b)
	r.sum.lastFile, r.sum.end = name, int64(end)
	var unknown unknownType
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s at offset %d: %w: run the newer version that wrote it, or restore the data directory from a backup if there was none", name, end, unknown)
	case errors.Is(err, errRecordEnd) && (end == len(b) || last && allZero(b[end:])):
		return nil
	case int64(len(b)) < wal.SegmentSizeBytes:
		err = fmt.Errorf("it was cut: it ends at %d", len(b))
	case last && tornAt(b, end, err) && committedAfter(b, end+8) <= r.sum.lastIndex:
		r.sum.torn = true
		return nil
	case errors.Is(err, errRecordEnd):
		err = errors.New("a stretch of it is blank")
	}
	return &damage{name, int64(end), err.Error()}
}

// records goes through b to the first record that isn't one, and returns its offset and what's wrong
// with it: errRecordEnd where the log says that it ends.
func (r *walReader) records(b []byte) (int, error) {
	for off := 0; ; {
		rec, next, err := readRecord(b, off)
		if err != nil {
			return off, err
		}
		if rec.typ == recordCRC {
			if r.crc != 0 && rec.crc != r.crc {
				return off, errRecordCRC
			}
			r.crc = rec.crc
		} else {
			crc := crc32.Update(r.crc, castagnoli, rec.data)
			if crc != rec.crc {
				return off, errRecordCRC
			}
			r.crc = crc
		}
		if rec.typ > recordSnapshot {
			return off, unknownType(rec.typ)
		}
		if err := r.note(rec); err != nil {
			return off, err
		}
		off = next
	}
}

func (r *walReader) note(rec record) error {
	switch rec.typ {
	case recordEntry:
		index, err := protoVarint(rec.data, 3)
		if err != nil {
			return err
		}
		if r.sum.lastIndex != 0 && index > r.sum.lastIndex+1 {
			return fmt.Errorf("entry %d follows entry %d", index, r.sum.lastIndex)
		}
		r.sum.lastIndex = index
	case recordState:
		commit, err := protoVarint(rec.data, 3)
		if err != nil {
			return err
		}
		r.sum.commit = max(r.sum.commit, commit)
	case recordSnapshot: // after the files before it were purged, entries begin after it
		index, err := protoVarint(rec.data, 1)
		if err != nil {
			return err
		}
		if r.sum.lastIndex == 0 {
			r.sum.lastIndex = index
		}
	case recordMetadata:
		id, err := protoVarint(rec.data, 2)
		if err != nil {
			return err
		}
		if r.sum.clusterID != 0 && id != r.sum.clusterID {
			return errors.New("it belongs to another cluster than the log file before it")
		}
		r.sum.clusterID = id
	}
	return nil
}

// A record on disk is its length in 8 bytes, of which the lowest seven are the length and the highest
// says how many bytes of padding follow; then a protobuf message of type, checksum and data.
type record struct {
	typ  uint64
	crc  uint32
	data []byte
}

var (
	errRecordEnd    = errors.New("the log ends")
	errRecordLength = errors.New("a record is longer than the file")
	errRecordForm   = errors.New("a record can't be decoded")
	errRecordCRC    = errors.New("a record's checksum is wrong")
)

// unknownType is the type of a whole record that this version of etcd doesn't have.
type unknownType uint64

func (u unknownType) Error() string {
	return fmt.Sprintf("a record has the unknown type %d", uint64(u))
}

// readRecord reads the record at off and returns the offset of the next.
func readRecord(b []byte, off int) (record, int, error) {
	size, pad, err := recordFrame(b, off)
	if err != nil {
		return record{}, off, err
	}
	rec, err := parseRecord(b[off+8 : off+8+size])
	if err != nil {
		return record{}, off, errRecordForm
	}
	return rec, off + 8 + size + pad, nil
}

// recordFrame reads a record's length and padding.
func recordFrame(b []byte, off int) (size, pad int, err error) {
	if len(b)-off < 8 {
		return 0, 0, errRecordEnd
	}
	field := binary.LittleEndian.Uint64(b[off:])
	if field == 0 {
		return 0, 0, errRecordEnd
	}
	length := field &^ (0xff << 56)
	if field>>63 == 1 {
		pad = int(field >> 56 & 7)
	}
	if length > maxRecordBytes {
		return 0, 0, errRecordForm
	}
	if size = int(length); size+pad > len(b)-off-8 {
		return 0, 0, errRecordLength
	}
	return size, pad, nil
}

func parseRecord(b []byte) (record, error) {
	var rec record
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return rec, protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		switch {
		case (num == 1 || num == 2) && typ == protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
			if num == 1 {
				rec.typ = v
			} else {
				rec.crc = uint32(v)
			}
		case num == 3 && typ == protowire.BytesType:
			rec.data, n = protowire.ConsumeBytes(b)
		default:
			return rec, errRecordForm
		}
		if n < 0 {
			return rec, protowire.ParseError(n)
		}
		b = b[n:]
	}
	if rec.typ < recordMetadata {
		return rec, errRecordForm
	}
	return rec, nil
}

// protoVarint returns the last value of a varint field of a message; 0 if it isn't there.
func protoVarint(b []byte, field protowire.Number) (uint64, error) {
	var v uint64
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, errRecordForm
		}
		b = b[n:]
		if num == field && typ == protowire.VarintType {
			v, n = protowire.ConsumeVarint(b)
		} else {
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return 0, errRecordForm
		}
		b = b[n:]
	}
	return v, nil
}

// tornAt tells whether what is at off, where err was met, looks like a write that a crash interrupted:
// a sector of it is blank.
func tornAt(b []byte, off int, err error) bool {
	switch {
	case errors.Is(err, errRecordEnd), errors.Is(err, errRecordLength):
		return true
	case errors.Is(err, errRecordCRC), errors.Is(err, errRecordForm):
		size, pad, err := recordFrame(b, off)
		return err == nil && blankSector(b, off+8, off+8+size+pad)
	}
	return false
}

// committedAfter returns the last entry that whole records from off on say is committed; 0 if none does.
// One sync covers many records, so after a power failure whole records may follow one that isn't, and none
// of them was acknowledged. But raft notes an entry as committed only after a sync of that entry.
//
// Chance makes no records: one counts only if the checksum of the next one goes on from it. Records begin at
// multiples of 8.
func committedAfter(b []byte, off int) (commit uint64) {
	for off+8 <= len(b) {
		if len(b)-off >= len(blank) && bytes.Equal(b[off:off+len(blank)], blank[:]) {
			off += len(blank)
			continue
		}
		first, next, err := readRecord(b, off)
		if err != nil {
			off += 8
			continue
		}
		second, _, err := readRecord(b, next)
		if err != nil || second.typ == recordCRC || crc32.Update(first.crc, castagnoli, second.data) != second.crc {
			off += 8
			continue
		}
		commit = max(commit, commitOf(first), commitOf(second))
		off = next
	}
	return commit
}

// commitOf returns the last committed entry that a record names.
func commitOf(rec record) uint64 {
	if rec.typ != recordState {
		return 0
	}
	commit, err := protoVarint(rec.data, 3)
	if err != nil {
		return 0
	}
	return commit
}

// blankSector reports whether a sector's part of b[from:to] is all zeros.
func blankSector(b []byte, from, to int) bool {
	for from < to {
		end := min(to, from-from%sectorBytes+sectorBytes)
		if allZero(b[from:end]) {
			return true
		}
		from = end
	}
	return false
}

// blank is compared with, as comparing is far faster than looping.
var blank [4096]byte

func allZero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(blank))
		if !bytes.Equal(b[:n], blank[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// mend blanks what an interrupted write left after the log's end, and gives a file that an interrupted
// start left short its size back. Then etcd has nothing to repair.
func (s walSummary) mend() error {
	f, err := os.OpenFile(s.lastFile, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if s.torn {
		if _, err := f.WriteAt(make([]byte, info.Size()-s.end), s.end); err != nil {
			return err
		}
	} else if info.Size() >= wal.SegmentSizeBytes {
		return nil
	}
	if info.Size() < wal.SegmentSizeBytes {
		if err := f.Truncate(wal.SegmentSizeBytes); err != nil {
			return err
		}
	}
	return f.Sync()
}
