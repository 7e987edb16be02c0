package etcd_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// A server that is killed while it writes, again and again on the same directory, loses nothing that it
// acknowledged, and its revisions go on.
func TestKillUnderLoad(t *testing.T) {
	dir := t.TempDir()
	acks := map[string]int64{}
	for range 4 {
		p := startChild(t, "write", dir)
		p.waitOpen(t)
		p.readAcks(t, 100+rand.IntN(3000), acks)
		p.kill(t)
		p.readAcks(t, math.MaxInt, acks)
		p.cmd.Wait()
	}
	var last int64
	for _, rev := range acks {
		last = max(last, rev)
	}
	s := open(t, etcd.Options{DataDir: dir})
	checkAcks(t, s, acks)
	if rev := put(t, s, "k", "v"); rev <= last {
		t.Errorf("revision %d after %d", rev, last)
	}
	t.Logf("%d acknowledged writes", len(acks))
}

// A start that is killed at any time, the first one or a recovery, leaves a directory that starts.
func TestKillDuringStart(t *testing.T) {
	began := time.Now()
	startChild(t, "hold", t.TempDir()).waitOpen(t)
	start := time.Since(began)
	tests := []struct {
		name    string
		written int // before the kills
	}{
		{"first boot", 0},
		{"recovery", 2500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			acks := map[string]int64{}
			if tt.written > 0 {
				p := startChild(t, "write", dir)
				p.waitOpen(t)
				p.readAcks(t, tt.written, acks)
				p.kill(t)
				p.readAcks(t, math.MaxInt, acks)
				p.cmd.Wait()
			}
			for i := range 15 {
				if tt.written == 0 {
					dir = t.TempDir()
				}
				p := startChild(t, "hold", dir)
				timer := time.AfterFunc(rand.N(start), func() { p.cmd.Process.Kill() })
				for p.stdout.Scan() {
				}
				p.cmd.Wait()
				timer.Stop()
				if msg := p.stderr.String(); msg != "" {
					t.Fatalf("start %d: %s", i, msg)
				}
				if tt.written == 0 {
					put(t, open(t, etcd.Options{DataDir: dir}), "k", "v")
				}
			}
			if tt.written > 0 {
				checkAcks(t, open(t, etcd.Options{DataDir: dir}), acks)
			}
		})
	}
}

// When a write fails, the server ends without acknowledging anything after it, and says why.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	p := startChild(t, "full", dir)
	p.waitOpen(t)
	acks := map[string]int64{}
	p.readAcks(t, math.MaxInt, acks)
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 3 {
		t.Fatalf("exit code %d: %s", code, &p.stderr)
	}
	if msg := strings.TrimSpace(p.stderr.String()); !strings.Contains(msg, "file too large") || strings.Contains(msg, "\n") {
		t.Errorf("it isn't one line that says why: %q", msg)
	}
	if len(acks) == 0 {
		t.Error("nothing was written before the failure")
	}
	checkAcks(t, open(t, etcd.Options{DataDir: dir}), acks)
}
