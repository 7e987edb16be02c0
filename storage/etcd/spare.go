package etcd

import "os"

// The spare is an empty file with space allocated, which is reserved for etcd's next snapshot. A snapshot has some
// kilobytes, and goes to a new file, which can't be allocated ahead. So if the disk is full when etcd begins a snapshot, the
// spare is removed first.
const (
	spareName  = "spare"
	spareBytes = 256 << 10 // many times what a snapshot has
)

// makeSpare makes the spare, or does nothing if it's there.
func (d *dataDir) makeSpare() error {
	d.spent.Store(false) // before the file is made: if a snapshot begins meanwhile, spendSpare says that it's spent
	if err := allocatePath(d.file(spareName), spareBytes); err != nil {
		d.spent.Store(true)
		return err
	}
	return nil
}

// spendSpare gives the spare's space to a snapshot that begins, if the disk is full.
func (d *dataDir) spendSpare() {
	if disk, err := statDisk(d.path); err == nil && disk.free >= minFree || d.ephemeral {
		return
	}
	d.spent.Store(true)
	_ = os.Remove(d.file(spareName)) // if that fails, the snapshot fails too, and its error says more
}
