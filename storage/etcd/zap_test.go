package etcd

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestLogger(t *testing.T) {
	var out strings.Builder
	var failures []error
	lg := newLogger(slog.New(slog.NewTextHandler(&out, nil)), func(err error) { failures = append(failures, err) }, nil)
	lg = lg.Named("raft").With(zap.Int("member", 7))
	lg.Info("quiet")
	lg.Warn("slow fdatasync", zap.String("took", "2s"))
	lg.Error("odd", zap.Error(errors.New("why")))
	lg.Warn("Running http and grpc server on single port. This is not recommended for production.")
	for _, want := range []string{`level=WARN msg="etcd: slow fdatasync" member=7 took=2s`, `level=ERROR msg="etcd: odd" error=why member=7`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, &out)
	}
	for _, end := range []func(){
		func() { lg.Fatal("failed to save", zap.Error(os.ErrClosed)) },
		func() { lg.Panic("unexpected", zap.String("path", "/x")) },
		func() { lg.Sugar().Panicf("tocommit(%d)", 5) },
	} {
		done := make(chan bool, 1)
		go func() {
			defer close(done)
			end()
			done <- true
		}()
		if <-done {
			t.Error("the goroutine went on")
		}
	}
	want := []string{"failed to save: file already closed", "unexpected path=/x", "tocommit(5)"}
	for i, err := range failures {
		if err.Error() != want[i] {
			t.Errorf("failure %d: %q, want %q", i, err, want[i])
		}
	}
	if !errors.Is(failures[0], os.ErrClosed) {
		t.Error("the cause is lost")
	}
}
