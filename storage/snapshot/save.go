package snapshot

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

// Part ends the names of files that Save hasn't finished. Before it there's a point, and a number.
const Part = ".part"

// Save has write fill a file for its owner only, beside path, and check look at it when it's on disk. Then it gets its name, which is on
// disk when Save returns. After an error nothing is left; after a kill there may be a file whose name is path's with .NUMBER.part at its end.
func Save(path string, write func(to io.Writer) error, check func(part string) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+Part)
	if err != nil {
		return err
	}
	part := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	if err = write(&gentle{file: f}); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = check(part); err != nil {
		return err
	}
	if err = os.Rename(part, path); err != nil {
		return err
	}
	if synced := syncDir(filepath.Dir(path)); synced != nil {
		return errors.Join(synced, os.Rename(path, part))
	}
	return nil
}

// gentlePiece is how many bytes of a file are on their way to the disk at once. A store's log on the same disk waits for them at each of its syncs:
// when a file of a GiB went there at its end, writes waited a second for that.
const gentlePiece = 1 << 20

// gentle is a file that goes to the disk as it's written.
type gentle struct {
	file         *os.File
	size, onDisk int64
}

// Write implements io.Writer.
func (g *gentle) Write(p []byte) (int, error) {
	n, err := g.file.Write(p)
	if g.size += int64(n); err == nil && g.size-g.onDisk >= gentlePiece {
		err = disk.Flush(g.file, g.onDisk, g.size-g.onDisk)
		g.onDisk = g.size
	}
	return n, err
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
