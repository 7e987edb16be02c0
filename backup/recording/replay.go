package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// Speed is how fast a recording is replayed: how many times as fast as it was recorded.
type Speed float64

// The speeds that aren't times.
const (
	Step Speed = 0  // all changes in the order in which they were recorded, one at a time
	Max  Speed = -1 // as fast as it goes
)

const (
	// writers is how many changes are under way at once, unless it's one: so many share a sync of the server's disk.
	writers = 64
	// maxListed is how many failures are kept. The others are counted.
	maxListed = 1000
)

// Options say how a recording is replayed.
type Options struct {
	// Speed defaults to Step.
	Speed Speed
	// Progress, unless it's nil, is called now and then with the number of changes read so far.
	Progress func(changes int)
}

// Result is what became of a recording's changes.
type Result struct {
	Changes   int // that were read
	Writes    int // requests that changed something
	Created   int
	Updated   int
	Deleted   int
	Unchanged int // there was nothing to write: the target had it so already, or the change was of what servers set
	Own       int // objects that a server makes by itself, and that the target has its own of
	Gaps      int // where the recording lacks changes
	Ownerless int // references to owners that aren't there, which were left out
	Failed    int
	Failures  []Failure // the first maxListed, by line
	Unlisted  int       // those of the failed that aren't among them
}

// Failure is a change that couldn't be replayed.
type Failure struct {
	Line   int    // 0 for several
	Object string // kind, namespace and name, or a kind
	Err    error
}

// Error says what failed.
func (f Failure) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %v", f.Object, f.Err)
	}
	return fmt.Sprintf("line %d: %s: %v", f.Line, f.Object, f.Err)
}

// Replay makes happen to a target what a file says. Each object's changes come in their order, and after those of its owners and of what it owned; what others are judged by (definitions, namespaces, rights, policies and their like) is changed alone.
// Changes that the target refuses are in the result. ErrCut says that the file has no end, ErrForm that it has something else than changes: what
// comes before was replayed. Other errors are that the target can't be reached, or why ctx ended.
func Replay(ctx context.Context, target *client.Client, file io.Reader, o Options) (Result, error) {
	lines, err := NewReader(file)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := newReplayer(target)
	workers, most := writers, windowChanges
	if o.Speed == Step {
		workers, most = 1, 1
	}
	s := newSchedule(most)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for c := range s.ready {
				if ctx.Err() == nil {
					if err := r.replay(ctx, c); err != nil {
						cancel(err)
					}
				}
				s.finish(c)
			}
		})
	}
	err = feed(ctx, lines, s, r, o)
	s.idle()
	close(s.ready)
	working.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r.total(), err
}

// feed gives the file's changes to the schedule, when their time has come.
func feed(ctx context.Context, lines *Reader, s *schedule, r *replayer, o Options) error {
	var p pace
	for ctx.Err() == nil {
		l, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case l.Type == Gap:
			r.count(func(sum *Result) { sum.Gaps++ })
			continue
		case l.Object == nil:
			continue
		}
		if o.Speed > 0 {
			if err := p.wait(ctx, l.Time, o.Speed); err != nil {
				return err
			}
		}
		own, shares := touches(l.Object)
		if err := s.add(ctx, &change{Line: l, at: lines.At(), size: len(l.Object)}, own, shares); err != nil {
			return err
		}
		r.read++
		if o.Progress != nil {
			o.Progress(r.read)
		}
	}
	return context.Cause(ctx)
}

// touches returns what a change of an object has for itself, and what it shares with others: its name and uid are its own, its owners' uids it
// shares. All is what it shares with everything, but for what others are judged by.
func touches(o client.Object) (own, shares []string) {
	const all = "all"
	id := identityOf(o)
	own = []string{"name " + id.kind + " " + id.Namespace + "/" + id.Name}
	if uid := o.UID(); uid != "" {
		own = append(own, "uid "+uid)
	}
	for _, owner := range ownersOf(o) {
		if owner != o.UID() {
			shares = append(shares, "uid "+owner)
		}
	}
	if alone(o) {
		return append(own, all), shares
	}
	return own, append(shares, all)
}

// pace is how far a replay is in time.
type pace struct{ recorded, began time.Time }

// wait waits until a change is due.
func (p *pace) wait(ctx context.Context, at time.Time, speed Speed) error {
	if p.began.IsZero() {
		p.recorded, p.began = at, time.Now()
	}
	due := p.began.Add(time.Duration(float64(at.Sub(p.recorded)) / float64(speed)))
	pause := time.Until(due)
	if pause <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
