package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/protobuf/encoding/protowire"
)

// A record on disk is a frame, a walpb.Record and padding. etcd's decoder (wal.NewDecoder) reads the same, but
// copies each record twice and stops at the first one that it can't read. So a test holds this file to
// the decoder instead: docs/decisions/0002-how-etcds-files-are-checked.md.
type record struct {
	typ  int64 // wal.EntryType and so on
	crc  uint32
	data []byte
}

const (
	// frameBytes is what a record begins with. The lowest seven bytes are the length of what follows, and
	// the highest says how many bytes of padding follow that. Records begin at multiples of frameBytes.
	frameBytes = 8
	// maxRecordBytes is above what any record of ours can have: a length beyond it is no length.
	maxRecordBytes = 64 << 20
	// sectorBytes is what a disk writes whole: after a power failure a sector is the old one (zeros, as the
	// file is preallocated) or the new one.
	sectorBytes = 512
)

// Numbers of fields in etcd's messages.
const (
	recordType        protowire.Number = 1 // of walpb.Record
	recordCRC         protowire.Number = 2 // of walpb.Record
	recordData        protowire.Number = 3 // of walpb.Record
	entryIndex        protowire.Number = 3 // of raftpb.Entry
	stateCommit       protowire.Number = 3 // of raftpb.HardState
	snapshotIndex     protowire.Number = 1 // of walpb.Snapshot
	metadataClusterID protowire.Number = 2 // of etcdserverpb.Metadata
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errRecordEnd    = errors.New("the WAL ends")
	errRecordLength = errors.New("a record is longer than the file")
	errRecordForm   = errors.New("a record can't be decoded")
	errRecordCRC    = errors.New("a record's checksum is wrong")
)

// unknownType is the type of a whole record that this version of etcd doesn't have.
type unknownType int64

func (u unknownType) Error() string {
	return fmt.Sprintf("a record has the unknown type %d", int64(u))
}

// readRecord reads the record at off and returns the offset of the next.
func readRecord(b []byte, off int) (record, int, error) {
	size, pad, err := recordFrame(b, off)
	if err != nil {
		return record{}, off, err
	}
	rec, err := parseRecord(b[off+frameBytes : off+frameBytes+size])
	if err != nil {
		return record{}, off, errRecordForm
	}
	return rec, off + frameBytes + size + pad, nil
}

// recordFrame reads a record's length and padding.
func recordFrame(b []byte, off int) (size, pad int, err error) {
	if len(b)-off < frameBytes {
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
	if size = int(length); size+pad > len(b)-off-frameBytes {
		return 0, 0, errRecordLength
	}
	return size, pad, nil
}

// parseRecord parses a walpb.Record. Fields that it doesn't know are skipped, as etcd does.
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
		case num == recordType && typ == protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
			rec.typ = int64(v)
		case num == recordCRC && typ == protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
			rec.crc = uint32(v)
		case num == recordData && typ == protowire.BytesType:
			rec.data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return rec, protowire.ParseError(n)
		}
		b = b[n:]
	}
	if rec.typ <= 0 {
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
		return err == nil && blankSector(b, off+frameBytes, off+frameBytes+size+pad)
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
	for off+frameBytes <= len(b) {
		if len(b)-off >= len(blank) && bytes.Equal(b[off:off+len(blank)], blank[:]) {
			off += len(blank)
			continue
		}
		first, next, err := readRecord(b, off)
		if err != nil {
			off += frameBytes
			continue
		}
		second, _, err := readRecord(b, next)
		if err != nil || second.typ == wal.CrcType || crc32.Update(first.crc, castagnoli, second.data) != second.crc {
			off += frameBytes
			continue
		}
		commit = max(commit, commitOf(first), commitOf(second))
		off = next
	}
	return commit
}

// commitOf returns the last committed entry that a record names.
func commitOf(rec record) uint64 {
	if rec.typ != wal.StateType {
		return 0
	}
	commit, err := protoVarint(rec.data, stateCommit)
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
