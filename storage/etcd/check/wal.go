package check

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// etcd repairs a WAL whose end can't be read by cutting it there. That is right after a power failure,
// when the end was never acknowledged, and a silent loss after a disk's mistake in the middle. So the
// WAL is read here first, with more suspicion, and etcd only gets one that it needn't repair.

// walSummary is what a WAL holds.
type walSummary struct {
	files     int
	clusterID uint64
	lastIndex uint64 // of the last entry
	commit    uint64 // the last entry known to be committed

	lastFile string
	end      int64 // of the last file's records
	torn     bool  // there's more after the end: a write that a crash interrupted
}

// readWAL reads all of the WAL and checks every record. The error is a *damage, or that of a
// file that can't be read. No WAL at all is a summary of no files.
func readWAL(d Directory) (walSummary, error) {
	var r walReader
	names, err := d.WALFiles()
	if err != nil {
		return r.sum, err
	}
	r.sum.files = len(names)
	if err := checkNames(names); err != nil {
		return r.sum, err
	}
	for _, name := range names {
		r.last = name == names[len(names)-1]
		if err := r.file(name); err != nil {
			return r.sum, err
		}
	}
	if r.sum.commit > r.sum.lastIndex {
		return r.sum, &damage{d.WAL(), wholeFile, fmt.Sprintf("the WAL ends at entry %d, but entry %d was committed", r.sum.lastIndex, r.sum.commit)}
	}
	return r.sum, nil
}

// checkNames checks that no file is missing between others.
func checkNames(names []string) error {
	var before uint64
	for i, name := range names {
		var seq, index uint64
		if _, err := fmt.Sscanf(filepath.Base(name), "%016x-%016x.wal", &seq, &index); err != nil {
			return &damage{name, wholeFile, "its name isn't one of a WAL file"}
		}
		if i > 0 && seq != before+1 {
			return &damage{name, wholeFile, fmt.Sprintf("the WAL file before it is missing (number %d)", before+1)}
		}
		before = seq
	}
	return nil
}

type walReader struct {
	sum  walSummary
	crc  uint32
	last bool // the file that is read is the WAL's last one
}

func (r *walReader) file(name string) error {
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
		return &newer{name, int64(end), unknown.Error()}
	case errors.Is(err, errRecordEnd) && (end == len(b) || r.last && allZero(b[end:])):
		return nil
	case int64(len(b)) < wal.SegmentSizeBytes:
		err = fmt.Errorf("it was cut: it ends at %d", len(b))
	case r.last && tornAt(b, end, err) && committedAfter(b, end+frameBytes) <= r.sum.lastIndex:
		r.sum.torn = true
		return nil
	case errors.Is(err, errRecordEnd):
		err = errors.New("a stretch of it is blank")
	}
	return &damage{name, int64(end), err.Error()}
}

// records goes through b to the first record that isn't one, and returns its offset and what's wrong
// with it: errRecordEnd where the WAL says that it ends.
func (r *walReader) records(b []byte) (int, error) {
	for off := 0; ; {
		rec, next, err := readRecord(b, off)
		if err != nil {
			return off, err
		}
		if rec.typ == wal.CrcType {
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
		if err := r.note(rec); err != nil {
			return off, err
		}
		off = next
	}
}

func (r *walReader) note(rec record) error {
	switch rec.typ {
	case wal.EntryType:
		index, err := protoVarint(rec.data, entryIndex)
		if err != nil {
			return err
		}
		if r.sum.lastIndex != 0 && index > r.sum.lastIndex+1 {
			return fmt.Errorf("entry %d follows entry %d", index, r.sum.lastIndex)
		}
		r.sum.lastIndex = index
	case wal.StateType:
		commit, err := protoVarint(rec.data, stateCommit)
		if err != nil {
			return err
		}
		r.sum.commit = max(r.sum.commit, commit)
	case wal.SnapshotType: // entries begin after it if the files before it were purged, or if another member sent it
		index, err := protoVarint(rec.data, snapshotIndex)
		if err != nil {
			return err
		}
		r.sum.lastIndex = max(r.sum.lastIndex, index)
	case wal.MetadataType:
		id, err := protoVarint(rec.data, metadataClusterID)
		if err != nil {
			return err
		}
		if r.sum.clusterID != 0 && id != r.sum.clusterID {
			return errors.New("it belongs to another cluster than the WAL file before it")
		}
		r.sum.clusterID = id
	case wal.CrcType:
	default:
		return unknownType(rec.typ)
	}
	return nil
}

// mend blanks what an interrupted write left after the WAL's end, and gives a file that an interrupted
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
