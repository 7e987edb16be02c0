package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

// etcd's database is a bbolt file: pages in a tree, of which only the two meta pages have a checksum.
// bbolt trusts the rest, and a wrong page number ends the whole process. So the tree is walked here first,
// over bytes and within bounds. The walk doesn't look at values: the seal covers them (seal.go).

const (
	dbMagic        = 0xED0CDAED
	dbVersion      = 2
	pageHeaderSize = 16
	metaSize       = 64
	elementSize    = 16
	branchPage     = 1
	leafPage       = 2
	bucketElement  = 1

	firstTreePage = 2 // after the two meta pages
	indexSize     = 8 // bytes of the consistent index, which etcd stores as a uint64
	// maxFileBytes is more than any database has. Without a bound, a damaged number of pages could overflow.
	maxFileBytes = 1 << 46
)

// Where the fields are in a page's header, and in the elements of branches and leaves, which begin with a position and
// with flags. Source: bbolt's common.Page and its elements.
const (
	pageKindAt     = 8
	pageCountAt    = 10
	pageOverflowAt = 12

	branchKeySizeAt = 4
	branchPageAt    = 8

	leafPositionAt  = 4
	leafKeySizeAt   = 8
	leafValueSizeAt = 12
)

// dbMeta is the newest valid meta page of a database file.
type dbMeta struct {
	pageSize uint64
	root     uint64 // page of the root bucket
	pages    uint64 // how many pages the file has; bytes after them are preallocated
	txid     uint64 // raised by every commit
}

func (m dbMeta) bytes() int64 { return int64(m.pages * m.pageSize) }

// errNoMeta means that neither meta page is whole.
var errNoMeta = errors.New("neither of its meta pages is whole")

// unknownVersion is the version in a whole meta page that this version of bbolt doesn't know.
type unknownVersion uint32

func (u unknownVersion) Error() string {
	return fmt.Sprintf("the database has the unknown version %d", uint32(u))
}

// readMeta finds the newest of the two meta pages in the first bytes of a file. The error is errNoMeta or an
// unknownVersion.
func readMeta(head []byte) (dbMeta, error) {
	first, err := parseMeta(head)
	if err != nil && !errors.Is(err, errNoMeta) {
		return dbMeta{}, err
	}
	if err == nil && uint64(len(head)) <= first.pageSize {
		return first, nil
	}
	if err == nil {
		second, err := parseMeta(head[first.pageSize:])
		switch {
		case errors.Is(err, errNoMeta) || err == nil && second.txid < first.txid:
			return first, nil
		default:
			return second, err
		}
	}
	for size := minPageSize; size < len(head); size *= 2 { // the first one says how far away the second is
		m, err := parseMeta(head[size:])
		if err == nil && m.pageSize == uint64(size) || err != nil && !errors.Is(err, errNoMeta) {
			return m, err
		}
	}
	return dbMeta{}, errNoMeta
}

// Page sizes that bbolt can have: those of operating systems.
const (
	minPageSize = 1 << 10
	maxPageSize = 1 << 16
)

// Offsets in bbolt's meta page. Source: bbolt's type common.Meta.
const (
	metaVersionAt  = 4
	metaPageSizeAt = 8
	metaRootAt     = 16
	metaPagesAt    = 40
	metaTxidAt     = 48
	metaSumAt      = 56
)

func parseMeta(page []byte) (dbMeta, error) {
	if len(page) < pageHeaderSize+metaSize {
		return dbMeta{}, errNoMeta
	}
	b, ne := page[pageHeaderSize:pageHeaderSize+metaSize], binary.NativeEndian
	m := dbMeta{
		pageSize: uint64(ne.Uint32(b[metaPageSizeAt:])),
		root:     ne.Uint64(b[metaRootAt:]),
		pages:    ne.Uint64(b[metaPagesAt:]),
		txid:     ne.Uint64(b[metaTxidAt:]),
	}
	sum := fnv.New64a()
	sum.Write(b[:metaSumAt])
	if ne.Uint32(b) != dbMagic || ne.Uint64(b[metaSumAt:]) != sum.Sum64() {
		return dbMeta{}, errNoMeta
	}
	if version := ne.Uint32(b[metaVersionAt:]); version != dbVersion {
		return dbMeta{}, unknownVersion(version)
	}
	ok := m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pages > m.root && m.pages < maxFileBytes/m.pageSize
	if !ok {
		return dbMeta{}, errNoMeta
	}
	return m, nil
}

// dbFile is a database file's content.
type dbFile struct {
	name  string
	b     []byte // its pages, without what is preallocated after them
	meta  dbMeta
	ended func() error // why nobody waits for the walk any more; nil: somebody does
}

// openDB maps a database and reads its meta; unmap ends that. The error is a *damage if there's no whole
// meta page, or if the file is shorter than the meta says, and a *newer if its version is unknown.
func openDB(name string) (db *dbFile, unmap func(), err error) {
	b, unmap, err := mapFile(name)
	if err != nil {
		return nil, nil, err
	}
	meta, err := readMeta(b[:min(len(b), 2*maxPageSize)])
	var unknown unknownVersion
	if errors.As(err, &unknown) {
		unmap()
		return nil, nil, &newer{name, 0, err.Error()}
	}
	if err != nil {
		unmap()
		return nil, nil, &damage{name, 0, err.Error()}
	}
	if int64(len(b)) < meta.bytes() {
		unmap()
		return nil, nil, &damage{name, int64(len(b)), fmt.Sprintf("it was cut: it had at least %d bytes", meta.bytes())}
	}
	return &dbFile{name: name, b: b[:meta.bytes()], meta: meta}, unmap, nil
}

// mapFile maps a file for reading. The files are read where the page cache has them, as copying
// them made a restarted server larger by what it had read.
func mapFile(name string) (b []byte, unmap func(), err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() == 0 { // can't be mapped
		return nil, func() {}, nil
	}
	b, undo, err := disk.Map(f, info.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", name, err)
	}
	return b, undo, nil
}

// walk checks the tree and returns the index of the last WAL entry that the database has (0 if none).
func (db *dbFile) walk() (consistentIndex uint64, err error) {
	w := dbWalk{b: db.b, meta: db.meta, seen: make([]bool, db.meta.pages), ended: db.ended}
	if err := w.tree(db.meta.root, keyRange{}, w.rootElement); err != nil {
		return 0, &damage{db.name, int64(err.page * db.meta.pageSize), err.what}
	}
	return w.consistentIndex, nil
}

// pageError is what's wrong with a page.
type pageError struct {
	page uint64
	what string
}

// dbWalk goes through a tree. It reads headers and keys, not values.
type dbWalk struct {
	b               []byte
	meta            dbMeta
	seen            []bool // by page
	consistentIndex uint64
	ended           func() error // see dbFile
}

// A visit looks at one element of a leaf.
type visit func(page uint64, flags uint32, key, value []byte) *pageError

// keyRange bounds the keys of a page: low <= key < high; nil is no bound.
type keyRange struct{ low, high []byte }

// tree walks the pages below id, whose keys must be in the range.
func (w *dbWalk) tree(id uint64, within keyRange, fn visit) *pageError {
	page, err := w.page(id)
	if err != nil {
		return err
	}
	return w.elements(id, page, within, fn)
}

// page returns a page with the pages that it runs over into.
func (w *dbWalk) page(id uint64) ([]byte, *pageError) {
	if w.ended != nil {
		if err := w.ended(); err != nil {
			return nil, &pageError{0, err.Error()}
		}
	}
	if id < firstTreePage || id >= w.meta.pages {
		return nil, &pageError{min(id, w.meta.pages-1), fmt.Sprintf("the tree names page %d of %d", id, w.meta.pages)}
	}
	start := id * w.meta.pageSize
	header, ne := w.b[start:start+pageHeaderSize], binary.NativeEndian
	if got := ne.Uint64(header); got != id {
		return nil, &pageError{id, fmt.Sprintf("page %d says that it's page %d", id, got)}
	}
	n := 1 + uint64(ne.Uint32(header[pageOverflowAt:]))
	if id+n > w.meta.pages {
		return nil, &pageError{id, fmt.Sprintf("page %d runs over the file's end", id)}
	}
	for i := id; i < id+n; i++ {
		if w.seen[i] {
			return nil, &pageError{id, fmt.Sprintf("page %d is in the tree twice", i)}
		}
		w.seen[i] = true
	}
	return w.b[start : start+n*w.meta.pageSize], nil
}

// elements goes through a page, which may be part of another page's element (a small bucket).
func (w *dbWalk) elements(id uint64, page []byte, within keyRange, fn visit) *pageError {
	if len(page) < pageHeaderSize {
		return &pageError{id, "a bucket in it is shorter than its header"}
	}
	ne := binary.NativeEndian
	kind, count := ne.Uint16(page[pageKindAt:]), int(ne.Uint16(page[pageCountAt:]))
	if kind != branchPage && kind != leafPage {
		return &pageError{id, fmt.Sprintf("it is of no known kind (%#x)", kind)}
	}
	if pageHeaderSize+count*elementSize > len(page) || kind == branchPage && count == 0 {
		return &pageError{id, fmt.Sprintf("it can't have %d elements", count)}
	}
	low, high := within.low, within.high
	for i := range count {
		key, value, ok := elementAt(page, i, kind)
		if !ok {
			return &pageError{id, fmt.Sprintf("element %d reaches over the page's end", i)}
		}
		if low != nil && (bytes.Compare(key, low) < 0 || i > 0 && bytes.Equal(key, low)) || high != nil && bytes.Compare(key, high) >= 0 {
			return &pageError{id, fmt.Sprintf("the key of element %d is out of order", i)}
		}
		low = key
		el := page[pageHeaderSize+i*elementSize:]
		if kind == leafPage {
			if err := fn(id, ne.Uint32(el), key, value); err != nil {
				return err
			}
			continue
		}
		upTo := high
		if i+1 < count {
			if upTo, _, ok = elementAt(page, i+1, kind); !ok {
				return &pageError{id, fmt.Sprintf("element %d reaches over the page's end", i+1)}
			}
		}
		if err := w.tree(ne.Uint64(el[branchPageAt:]), keyRange{key, upTo}, fn); err != nil {
			return err
		}
	}
	return nil
}

// elementAt returns an element's key, and its value if the page is a leaf; false if they aren't in the page.
func elementAt(page []byte, i int, kind uint16) (key, value []byte, ok bool) {
	at, ne := uint64(pageHeaderSize+i*elementSize), binary.NativeEndian
	el := page[at : at+elementSize]
	var pos, ksize, vsize uint64
	if kind == branchPage {
		pos, ksize = uint64(ne.Uint32(el)), uint64(ne.Uint32(el[branchKeySizeAt:]))
	} else {
		pos, ksize, vsize = uint64(ne.Uint32(el[leafPositionAt:])), uint64(ne.Uint32(el[leafKeySizeAt:])), uint64(ne.Uint32(el[leafValueSizeAt:]))
	}
	from := at + pos
	if from+ksize+vsize > uint64(len(page)) {
		return nil, nil, false
	}
	return page[from : from+ksize : from+ksize], page[from+ksize : from+ksize+vsize], true
}

// rootElement visits the root bucket's elements: each is a bucket of etcd's.
func (w *dbWalk) rootElement(id uint64, flags uint32, key, value []byte) *pageError {
	if flags != bucketElement {
		return &pageError{id, "an element of the root isn't a bucket"}
	}
	return w.bucket(id, value, func(id uint64, flags uint32, k, v []byte) *pageError {
		if flags != 0 {
			return &pageError{id, fmt.Sprintf("an element of bucket %q is no key", key)}
		}
		if bytes.Equal(key, schema.Meta.Name()) && bytes.Equal(k, schema.MetaConsistentIndexKeyName) {
			if len(v) != indexSize {
				return &pageError{id, "the consistent index isn't a number"}
			}
			w.consistentIndex = binary.BigEndian.Uint64(v)
		}
		return nil
	})
}

// bucket walks a bucket: its root page's number, a sequence, and, where the number is 0, its only page.
func (w *dbWalk) bucket(id uint64, value []byte, fn visit) *pageError {
	const header = 16
	if len(value) < header {
		return &pageError{id, "a bucket in it is shorter than its header"}
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return w.tree(root, keyRange{}, fn)
	}
	return w.elements(id, value[header:], keyRange{}, fn)
}
