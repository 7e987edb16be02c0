package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger makes the logger that etcd gets. Warnings and errors go to log. What etcd calls fatal, or panics with, goes
// to fail, and ends the goroutine that logged it, after its deferred calls. The process goes on, since it may be a test
// or someone else's program. notes are etcd's words that something happens: it calls the function for one before it goes on.
func newLogger(log *slog.Logger, fail func(error), notes map[string]func()) *zap.Logger {
	hook := fatalHook(fail)
	return zap.New(slogCore{log: log, fail: fail, notes: notes}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

type fatalHook func(error)

func (fail fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	fail(entryError(e.Entry, fields))
	runtime.Goexit()
}

// entryError is one line: the message, then the error it came with, else all the fields.
func entryError(e zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			return fmt.Errorf("%s: %w", e.Message, err)
		}
	}
	var b strings.Builder
	b.WriteString(e.Message)
	for _, a := range attrs(fields) {
		fmt.Fprintf(&b, " %s", a)
	}
	return fmt.Errorf("%s", strings.TrimSpace(b.String()))
}

// expected are warnings and errors that a healthy single member logs. They go to debug.
var expected = []string{
	"Running http and grpc server on single port", // there's no port at all
	"cannot campaign at term",                     // it was asked before its own membership was applied; it's asked again
	"is unpromotable and can not campaign",        // the same, after a kill
	"Failed to detect schema version",             // a new store has no term yet
	"Failed to detect storage schema version",     // the same, after a kill
	"failed to update storage version",            // the same; etcd tries again
	"failed to publish local member to cluster",   // the same
	"failed to apply request",                     // whoever asked gets the error
	"failed to lock file",                         // it looks for log files to remove, and meets those in use
	"exceeded recommended request limit",          // with Bulk
	"stopped publish because server is stopping",  // closed right after it was opened
	"failed to update cluster version",            // the same; or it's tried again
}

// slogCore hands zap's entries to slog.
type slogCore struct {
	log    *slog.Logger
	fail   func(error)
	notes  map[string]func() // by the message, of entries of the level info; it looks at no others of that level, and hands none on
	fields []zapcore.Field
}

func (c slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel }

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

func (c slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level > zapcore.ErrorLevel || e.Level < zapcore.WarnLevel && c.notes[e.Message] == nil { // the hook reports what ends a goroutine
		return ce
	}
	return ce.AddCore(e, c)
}

// noNextWAL is what etcd logs when it can't make its WAL's next file ahead. It doesn't try again, and fails when it needs
// the file. So the server fails now. room prevents this: it makes the file before etcd does.
const noNextWAL = "failed to preallocate space when creating a new WAL"

// What etcd logs, with the level info, before it goes on.
const (
	// snapshotBegins comes before etcd writes a snapshot's file.
	snapshotBegins = "triggering snapshot"
	// snapshotApplies comes before another member's database takes the place of this one's. snapshotApplied follows in any case.
	snapshotApplies = "applying snapshot"
	// snapshotApplied comes when another member's database has taken the place of this one's, and before any read of what
	// came with it is answered (EtcdServer.applySnapshot). etcd tells that in no other way without a lock.
	snapshotApplied = "applied snapshot"
)

// memberRemoved is what etcd logs before it stops because the cluster has removed the member.
const memberRemoved = "data-dir used by this member must be removed"

var errRemoved = errors.New("this member was removed from the cluster: to be one again it joins with an empty data directory")

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if note := c.notes[e.Message]; note != nil {
		note()
		return nil
	}
	switch e.Message {
	case memberRemoved:
		c.fail(errRemoved)
		return nil
	case noNextWAL:
		c.fail(entryError(e, fields))
		return nil // the owner gets Err
	}
	level := slog.LevelWarn
	if e.Level == zapcore.ErrorLevel {
		level = slog.LevelError
	}
	if slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(e.Message, s) }) {
		level = slog.LevelDebug
	}
	c.log.LogAttrs(context.Background(), level, "etcd: "+e.Message, attrs(slices.Concat(c.fields, fields))...)
	return nil
}

func (c slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	out := make([]slog.Attr, 0, len(enc.Fields))
	for _, k := range slices.Sorted(maps.Keys(enc.Fields)) {
		out = append(out, slog.Any(k, enc.Fields[k]))
	}
	return out
}
