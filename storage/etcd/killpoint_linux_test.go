package etcd_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// A process that opens a store, writes and closes it may be killed at any moment: what it leaves starts,
// and every acknowledged write is there. The process is traced: before each system call that changes or
// syncs a file of its directory, the directory is copied. That copy is what a kill at this moment leaves.
// A power failure leaves less: what the process has synced. So a write may be acknowledged only once the
// file of the log that has it was synced after it was written.
func TestKillAtEveryChange(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T) string // returns the directory that the process finds
		leaves  string                    // a file that the process makes
	}{
		{"first start", func(t *testing.T) string { return t.TempDir() }, "history.json"},
		// etcd makes a snapshot after 2000 writes.
		{"start after a clean stop", func(t *testing.T) string {
			s := open(t, etcd.Options{DataDir: t.TempDir()})
			fill(t, s, 1990, 10)
			closeServer(t, s)
			return s.Dir()
		}, "member/snap/*.snap"},
		// etcd begins a new file of its log after 8 MiB.
		{"start after a kill", func(t *testing.T) string {
			s := open(t, etcd.Options{DataDir: t.TempDir()})
			fill(t, s, 7, 1_180_000)
			return copyDir(t, s.Dir()).dir
		}, "member/wal/0000000000000001-*.wal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := &killPoints{t: t, dir: tt.prepare(t)}
			k.there = k.kept()
			k.run()
			t.Logf("%d calls, %d kills that make a difference", k.calls, k.kills)
			if k.kills < 40 || k.synced.acks != sessionWrites {
				t.Errorf("the trace has missed some: it saw %d acknowledged writes of %d", k.synced.acks, sessionWrites)
			}
			if left, err := filepath.Glob(filepath.Join(k.dir, tt.leaves)); err != nil || left == nil {
				t.Errorf("the process left no %s; %v", tt.leaves, err)
			}
		})
	}
}

// fill writes n keys with values of size bytes. They are zeros, so that a copy is made of holes.
func fill(t *testing.T, s *etcd.Server, n, size int) {
	t.Helper()
	value := strings.Repeat("\x00", size)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < n; i += 8 {
				if _, err := s.Client.Put(t.Context(), fmt.Sprintf("fill-%d", i), value); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

// killPoints traces a process that opens a store, writes, and closes it.
type killPoints struct {
	t     *testing.T
	dir   string           // of the store
	there map[string]int64 // what was written before
	out   *os.File         // the process's stdout: what it acknowledges
	calls int              // that change or sync a file of the directory
	kills int              // copies that differed from the one before

	synced syncedLog
	last   dirCopy
	checks errgroup.Group
}

// kept returns the keys that the directory has, with their revisions. It looks at a copy.
func (k *killPoints) kept() map[string]int64 {
	k.t.Helper()
	if _, err := os.Stat(filepath.Join(k.dir, markerFile)); err != nil {
		return nil
	}
	return listed(k.t, copyDir(k.t, k.dir).dir)
}

// listed starts a server on a directory and returns its keys with their revisions; it fails the test if
// the server doesn't start or stop. It is a process of its own, as after
// a kill.
func listed(t *testing.T, dir string) map[string]int64 {
	there := map[string]int64{}
	p := startChild(t, "list", dir)
	p.readAcks(t, math.MaxInt, there)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &p.stderr)
		return nil
	}
	return there
}

func (k *killPoints) run() {
	out, err := os.Create(filepath.Join(k.t.TempDir(), "stdout"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer out.Close()
	k.out = out
	k.checks.SetLimit(8) // most of a check waits for the disk
	traced := make(chan error)
	go func() {
		runtime.LockOSThread() // only the thread that started a process may trace it; it ends with the goroutine
		traced <- k.trace()
	}()
	if err := <-traced; err != nil {
		k.t.Error(err)
	}
	k.point() // the end
	k.submit()
	k.checks.Wait()
}

// point copies the directory. What is acknowledged by now must be in the copy.
func (k *killPoints) point() {
	k.calls++
	c := copyDir(k.t, k.dir)
	c.call = k.calls
	if c.sum == k.last.sum { // a sync changes nothing
		os.RemoveAll(c.dir)
	} else {
		k.submit()
		k.last = c
	}
	acks, err := os.ReadFile(k.out.Name())
	if err != nil {
		k.t.Error(err)
	}
	k.last.acks = string(acks)
}

// submit has the last copy checked.
func (k *killPoints) submit() {
	c := k.last
	if c.dir == "" {
		return
	}
	k.kills++
	k.checks.Go(func() error {
		defer os.RemoveAll(c.dir)
		k.check(c)
		return nil
	})
}

// check starts a server on a copy, and looks for all that was acknowledged.
func (k *killPoints) check(c dirCopy) {
	there := listed(k.t, c.dir)
	if there == nil {
		k.t.Errorf("killed before call %d: it doesn't start", c.call)
		return
	}
	want := map[string]int64{}
	for line := range strings.Lines(c.acks) {
		parseAck(strings.TrimSuffix(line, "\n"), want)
	}
	for key, rev := range k.there {
		if _, again := want[key]; !again {
			want[key] = rev
		}
	}
	for key, rev := range want {
		if there[key] != rev {
			k.t.Errorf("killed before call %d: %s was acknowledged at revision %d and is there at %d (0: missing)", c.call, key, rev, there[key])
			return
		}
	}
}

// dirCopy is a copy of a data directory.
type dirCopy struct {
	dir  string
	sum  [sha256.Size]byte // of names and contents
	acks string            // what the process had acknowledged
	call int               // before which it was made
}

func copyDir(t *testing.T, dir string) dirCopy {
	to, err := os.MkdirTemp("", "killed")
	if err != nil {
		t.Error(err)
		return dirCopy{}
	}
	t.Cleanup(func() { os.RemoveAll(to) })
	h := sha256.New()
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintln(h, rel, e.IsDir())
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		}
		fmt.Fprintln(h, e.Name())
		return copyFile(filepath.Join(to, rel), path, h)
	})
	if err != nil {
		t.Error(err)
	}
	return dirCopy{dir: to, sum: [sha256.Size]byte(h.Sum(nil))}
}

// copyFile copies what a file has besides holes, and tells h. Most of etcd's files is preallocated and blank.
func copyFile(to, from string, h io.Writer) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := dst.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for at := int64(0); ; {
		const seekData, seekHole = 3, 4
		if at, err = src.Seek(at, seekData); errors.Is(err, syscall.ENXIO) {
			fmt.Fprintln(h, size)
			return nil
		}
		if err != nil {
			return err
		}
		end, err := src.Seek(at, seekHole)
		if err != nil {
			return err
		}
		for at < end {
			n, err := src.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
			if n == 0 {
				return err
			}
			if used := bytes.TrimRight(buf[:n], "\x00"); len(used) > 0 {
				fmt.Fprintln(h, at, len(used))
				h.Write(used)
				if _, err := dst.WriteAt(used, at); err != nil {
					return err
				}
			}
			at += int64(n)
		}
	}
}

// trace runs the process to its end.
func (k *killPoints) trace() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := os.StartProcess(self, []string{self}, &os.ProcAttr{
		Env:   append(os.Environ(), childEnv+"=session", childEnv+"_DIR="+k.dir),
		Files: []*os.File{nil, k.out, os.Stderr},
		Sys:   &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return err
	}
	defer p.Release()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Pid, &status, 0, nil); err != nil || !status.Stopped() {
		return fmt.Errorf("the traced process: %#x, %w", status, err)
	}
	const exitKill = 0x100000
	if err := syscall.PtraceSetOptions(p.Pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|exitKill); err != nil {
		return err
	}
	threads := tracedThreads{points: k, known: map[int]bool{p.Pid: true}}
	for thread := p.Pid; ; {
		if status.Stopped() {
			// A thread that stopped can be gone by now: the process ends with all its threads.
			if err := threads.stopped(thread, status.StopSignal()); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		if thread, err = syscall.Wait4(-1, &status, syscall.WALL|syscall.WNOTHREAD, nil); err != nil {
			return err
		}
		if thread == p.Pid && (status.Exited() || status.Signaled()) {
			if status != 0 {
				return fmt.Errorf("the traced process ended with %#x", status)
			}
			return nil
		}
	}
}

// syncedLog is what of the log would outlast a power failure, by the calls of a traced process.
type syncedLog struct {
	written map[string][]byte // to each file of the log, and not synced yet
	synced  []byte            // all that was, one after the other
	acks    int               // writes that were acknowledged
}

// wrote notes what is being written to a file.
func (l *syncedLog) wrote(path string, content []byte) {
	if filepath.Base(filepath.Dir(path)) != "wal" {
		return
	}
	if l.written == nil {
		l.written = map[string][]byte{}
	}
	l.written[path] = append(l.written[path], content...)
}

// sync notes that a file was synced.
func (l *syncedLog) sync(path string) {
	l.synced = append(l.synced, l.written[path]...)
	delete(l.written, path)
}

// acked returns an error if a line acknowledges a write that a power failure would lose.
func (l *syncedLog) acked(line string) error {
	key, _, ok := strings.Cut(line, " ")
	if !ok || key == "open" {
		return nil
	}
	l.acks++
	if !bytes.Contains(l.synced, []byte(key)) {
		return fmt.Errorf("%s was acknowledged before the log that has it was synced: a power failure would lose it", key)
	}
	return nil
}

// tracedThreads lets one thread at a time change the directory, so that nothing changes while it's copied.
type tracedThreads struct {
	points  *killPoints
	known   map[int]bool
	busy    int    // the thread whose call is under way; 0 if none is
	syncs   string // the file that this call syncs; empty if it does something else
	waiting []int  // threads before such a call
}

// stopped looks why a thread has stopped, and lets it go on when it may.
func (ts *tracedThreads) stopped(thread int, signal syscall.Signal) error {
	switch {
	case signal == syscall.SIGTRAP|0x80: // before or after a call
		c, err := callOf(thread)
		if err != nil {
			return err
		}
		if c.op == callEntry && ts.points.changes(thread, c) {
			ts.waiting = append(ts.waiting, thread)
			return ts.next()
		}
		if c.op == callEntry && c.nr == syscall.SYS_WRITE && c.args[0] == uint64(syscall.Stdout) {
			line, err := written(thread, c)
			if err == nil {
				err = ts.points.synced.acked(string(line))
			}
			if err != nil {
				return err
			}
		}
		if err := syscall.PtraceSyscall(thread, 0); err != nil || thread != ts.busy {
			return err
		}
		ts.points.synced.sync(ts.syncs)
		ts.busy = 0
		return ts.next()
	case signal == syscall.SIGTRAP, // a new thread, or the start
		signal == syscall.SIGSTOP && !ts.known[thread]:
		ts.known[thread] = true
		return syscall.PtraceSyscall(thread, 0)
	default:
		return syscall.PtraceSyscall(thread, int(signal))
	}
}

// next lets the next call change the directory if none is under way.
func (ts *tracedThreads) next() error {
	if ts.busy != 0 || len(ts.waiting) == 0 {
		return nil
	}
	ts.busy, ts.waiting, ts.syncs = ts.waiting[0], ts.waiting[1:], ""
	ts.points.point()
	c, err := callOf(ts.busy)
	if err != nil {
		return err
	}
	switch c.nr {
	case syscall.SYS_WRITE, syscall.SYS_PWRITE64:
		content, err := written(ts.busy, c)
		if err != nil {
			return err
		}
		ts.points.synced.wrote(fileOf(ts.busy, c), content)
	case syscall.SYS_FSYNC, syscall.SYS_FDATASYNC:
		ts.syncs = fileOf(ts.busy, c)
	}
	return syscall.PtraceSyscall(ts.busy, 0)
}

// call is the kernel's struct ptrace_syscall_info.
type call struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64
	nr   uint64 // at the entry
	args [6]uint64
	_    [2]uint64
}

const (
	callEntry = 1
	callExit  = 2
)

// callOf returns the system call that a thread is stopped at.
func callOf(thread int) (call, error) {
	const getSyscallInfo = 0x420e
	var c call
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, getSyscallInfo, uintptr(thread), unsafe.Sizeof(c), uintptr(unsafe.Pointer(&c)), 0, 0)
	if errno != 0 {
		return c, fmt.Errorf("system call of thread %d: %w", thread, errno)
	}
	return c, nil
}

// changes tells whether a call changes or syncs files of the directory.
func (k *killPoints) changes(thread int, c call) bool {
	switch c.nr {
	case syscall.SYS_WRITE, syscall.SYS_PWRITE64, syscall.SYS_WRITEV, syscall.SYS_PWRITEV,
		syscall.SYS_FTRUNCATE, syscall.SYS_FALLOCATE, syscall.SYS_FSYNC, syscall.SYS_FDATASYNC:
		return strings.HasPrefix(fileOf(thread, c), k.dir)
	case syscall.SYS_OPENAT:
		return c.args[2]&(syscall.O_CREAT|syscall.O_TRUNC) != 0
	case syscall.SYS_TRUNCATE, syscall.SYS_RENAMEAT, syscall.SYS_UNLINKAT, syscall.SYS_MKDIRAT, syscall.SYS_LINKAT:
		return true
	}
	return false
}

// fileOf returns the path of the file that a call is about, by its first argument; empty if there is none.
func fileOf(thread int, c call) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, c.args[0])) // empty on an error
	return path
}

// written returns what a call is about to write.
func written(thread int, c call) ([]byte, error) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", thread))
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	content := make([]byte, c.args[2])
	_, err = memory.ReadAt(content, int64(c.args[1]))
	return content, err
}
