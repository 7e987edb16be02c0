//go:build soak

package e2e

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// diskRounds is how often TestSoakDisk fills each of its disks: the environment's DISK_ROUNDS, or 200.
func diskRounds(t *testing.T) int {
	if os.Getenv("DISK_ROUNDS") == "" {
		return 200
	}
	n, err := strconv.Atoi(os.Getenv("DISK_ROUNDS"))
	if err != nil {
		t.Fatal("DISK_ROUNDS must be a number: ", err)
	}
	return n
}

// TestSoakDisk fills and empties small disks many times while clients write, watch and list. Some rounds write
// the filler, others take all the space at once, some leave a little.
func TestSoakDisk(t *testing.T) {
	disks := []struct {
		name string
		make func(t *testing.T) string
	}{
		{"tmpfs", func(t *testing.T) string { return smallDisk(t, 256) }},
		{"ext4", loopDisk},
	}
	for _, d := range disks {
		t.Run(d.name, func(t *testing.T) {
			disk := d.make(t)
			args := []string{"--data-dir", filepath.Join(disk, "data"), "--history=5s"}
			p := start(t, args...)
			p.define()
			l := newFullLoad(p.client, p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion)
			for n := range diskRounds(t) {
				how := []func(*testing.T, string){fill, seize, fillNearly}[rand.IntN(3)]
				l.fillAndEmpty(t, disk, how)
				if t.Failed() {
					t.Fatalf("in round %d", n)
				}
				l.follow(t)
			}
			l.end(t)
			l.check(t)
			p.stop()
			t.Logf("%d writes, %d refused, %d lists", l.written.Load(), l.refused.Load(), l.listed.Load())
		})
	}
}

// loopDisk makes a file system in a file.
func loopDisk(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, c := range [][]string{
		{"truncate", "-s", "256M", image},
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if output, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, output)
		}
	}
	t.Cleanup(func() {
		if output, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	})
	return dir
}

// seize takes all space of the disk in a moment.
func seize(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size, at := int64(512<<20), int64(0); size >= 4<<10; {
		switch err := syscall.Fallocate(int(f.Fd()), 0, at, size); {
		case err == nil:
			at += size
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case !errors.Is(err, syscall.EINTR):
			t.Fatal(err)
		}
	}
}

// fillNearly leaves some space: less than the server wants.
func fillNearly(t *testing.T, dir string) {
	t.Helper()
	fill(t, dir)
	path := filepath.Join(dir, "filler")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, max(0, info.Size()-rand.Int64N(6<<20))); err != nil {
		t.Fatal(err)
	}
}
