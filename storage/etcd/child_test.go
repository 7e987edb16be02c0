package etcd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// childEnv makes the test binary a server of its own that can be killed. Its value says which.
const childEnv = "ETCD_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childEnv); mode {
	case "":
		goleak.VerifyTestMain(m)
	default:
		os.Exit(child(mode, os.Getenv(childEnv+"_DIR")))
	}
}

// child opens a store, says so on stdout, and writes until it is killed or fails. Each acknowledged
// write is a line "key revision".
func child(mode, dir string) int {
	s, err := etcd.Open(context.Background(), etcd.Options{
		DataDir:   dir,
		Ephemeral: mode == "ephemeral",
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("open", s.Dir())
	switch mode {
	case "session":
		return end(s, session(s))
	case "list":
		return end(s, list(s))
	}
	value := "v"
	if mode == "full" {
		value = strings.Repeat("v", 64<<10)
		if err := limitFiles(s.Dir()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if mode == "write" || mode == "full" {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-s.Done(); cancel() }()
		go writeUntilFailure(ctx, s, value) // nobody waits: a failed etcd may hold locks that a writer needs
	}
	<-s.Done()
	err = s.Err()
	fmt.Fprintln(os.Stderr, err)
	if cerr := s.Close(); cerr == nil {
		fmt.Fprintln(os.Stderr, "Close of a failed server returned nil")
		return 1
	}
	return 3
}

// end closes a store and returns the exit code.
func end(s *etcd.Server, err error) int {
	if err = errors.Join(err, s.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// sessionWrites is how many keys a session writes.
const sessionWrites = 8

// session writes a few keys, has them committed, and writes some more.
func session(s *etcd.Server) error {
	for i := range sessionWrites {
		key := fmt.Sprintf("%d-%d", os.Getpid(), i)
		rev, err := putUntilAcked(s, key, strings.Repeat("v", 20_000*(i%3)))
		if err != nil {
			return err
		}
		fmt.Println(key, rev)
		if i%4 == 3 {
			s.Local.Backend().ForceCommit()
		}
	}
	return nil
}

// list says which keys there are, as if they had been acknowledged now.
func list(s *etcd.Server) error {
	res, err := s.Client.Get(context.Background(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range res.Kvs {
		fmt.Println(string(kv.Key), kv.ModRevision)
	}
	return nil
}

// putUntilAcked writes a key again when etcd's own deadline has passed: a traced process can be slow.
func putUntilAcked(s *etcd.Server, key, value string) (rev int64, err error) {
	for {
		res, err := s.Client.Put(context.Background(), key, value)
		if err == nil {
			return res.Header.Revision, nil
		}
		if !errors.Is(err, rpctypes.ErrTimeout) {
			return 0, err
		}
	}
}

// limitFiles lets no file become larger than the database is: its next growth fails, as on a full disk.
func limitFiles(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	info, err := os.Stat(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		return err
	}
	size := uint64(info.Size())
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size})
}

func writeUntilFailure(ctx context.Context, s *etcd.Server, value string) {
	var mu sync.Mutex // stdout's lines
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				res, err := s.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
				if err != nil {
					return
				}
				mu.Lock()
				fmt.Println(key, res.Header.Revision)
				mu.Unlock()
			}
		})
	}
	writers.Wait()
}

// process is a running child.
type process struct {
	cmd    *exec.Cmd
	stdout *bufio.Scanner
	stderr strings.Builder
}

func startChild(t *testing.T, mode, dir string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), self)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+mode, childEnv+"_DIR="+dir)
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// waitOpen returns the child's directory once it serves.
func (p *process) waitOpen(t *testing.T) string {
	t.Helper()
	if !p.stdout.Scan() {
		p.cmd.Wait()
		t.Fatalf("the child didn't open: %s", &p.stderr)
	}
	return strings.TrimPrefix(p.stdout.Text(), "open ")
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// readAcks adds the acknowledged writes to acks, at most n whole lines of them, and then all that stands
// in the pipe if the child is dead.
func (p *process) readAcks(t *testing.T, n int, acks map[string]int64) {
	t.Helper()
	for i := 0; i < n && p.stdout.Scan(); i++ {
		parseAck(p.stdout.Text(), acks)
	}
	if err := p.stdout.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}

// parseAck adds an acknowledged write to acks.
func parseAck(line string, acks map[string]int64) {
	key, rev, ok := strings.Cut(line, " ")
	if r, err := strconv.ParseInt(rev, 10, 64); ok && err == nil { // else it was cut by the kill, and is no ack
		acks[key] = r
	}
}

// checkAcks fails if an acknowledged write isn't there, or not at its revision.
func checkAcks(t *testing.T, s *etcd.Server, acks map[string]int64) {
	t.Helper()
	res, err := s.Client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]int64, len(res.Kvs))
	for _, kv := range res.Kvs {
		there[string(kv.Key)] = kv.ModRevision
	}
	for key, rev := range acks {
		if there[key] != rev {
			t.Fatalf("%s was acknowledged at revision %d and is there at %d (0: missing); %d of %d keys", key, rev, there[key], len(there), len(acks))
		}
	}
}
