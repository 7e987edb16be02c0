// Package playback is the commands apiserver-lite record and replay: they write what happens to a server's objects into a file, and make the same
// happen to another server. Package backup/recording does the work.
//
// A replay of the standard input reads it in a goroutine, which stays until the end of the process where the other side of a pipe says
// nothing.
package playback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup/recording"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
)

// command is one of them.
type command interface {
	addFlags(set *pflag.FlagSet)
	// parse takes the arguments, after the flags have their values.
	parse(args []string) error
	run(ctx context.Context, c *client.Client, p cli.Process) error
}

// Commands returns the commands of a process.
func Commands(p cli.Process) []*cobra.Command {
	return []*cobra.Command{
		newCommand(&recordCommand{}, p, &cobra.Command{Use: "record [KIND...] -o FILE", Short: "Write what happens to a server's objects into a file",
			Long: `Writes the objects of a server, and then each change of them with its time, into a file that replay takes: until it's interrupted, or for the time
that --for says, over restarts of the server, too. Without KIND it's all kinds, also those that are defined meanwhile. Secrets take --secrets.`}),
		newCommand(&replayCommand{speed: speed(1)}, p, &cobra.Command{Use: "replay FILE [--speed 10|max|step]", Short: "Make the same happen to another server",
			Long: `Makes happen to a server what record has written into a file: creates, updates, also of the status, and deletions. Owners are those that the
replay has made. What the server refuses is listed at the end, and the exit code is 1 then, as it is where the file has no end.`}),
	}
}

// newCommand returns a command that ends with exit code 0 when all is done, 1 if something failed, 2 if the arguments are wrong, 130 if its
// context ended first.
func newCommand(c command, p cli.Process, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().SortFlags = false
	c.addFlags(cmd.Flags())
	return p.Connected(cmd, io.Discard, c.parse, c.run) // warnings are about objects that others have made
}

// recordCommand is what the arguments of record say.
type recordCommand struct {
	recording.RecordOptions
	output string
	length time.Duration
	from   cli.Moment
}

func (c *recordCommand) addFlags(set *pflag.FlagSet) {
	set.StringVarP(&c.output, "output", "o", "", "file to write, compressed if its name ends in .gz, or - for the standard output")
	set.DurationVar(&c.length, "for", 0, "how long to record (default until it's interrupted)")
	set.Var(&c.from, "from", "moment to begin at, with the state that was there then: a resourceVersion as 120, an instant as 2026-11-23T10:00:00Z, or how long ago as 10m (default now)")
	set.BoolVar(&c.ChangesOnly, "changes-only", false, "leave out the state that a recording begins with")
	set.BoolVar(&c.Secrets, "secrets", false, "record Secrets, too")
}

func (c *recordCommand) parse(args []string) error {
	c.Resources = args
	if c.From = c.from.Version(); c.From == "" && c.from.Given() {
		c.Instant = c.from.Options()[0]
	}
	switch {
	case c.output == "":
		return errors.New("where to? apiserver-lite record -o recording.jsonl.gz, or - for the standard output")
	case c.length < 0:
		return fmt.Errorf("--for %v: it must be above 0", c.length)
	}
	c.Gzip = strings.HasSuffix(c.output, ".gz")
	return nil
}

// run records. A file that is there already is left alone: a recording can't be made again. One that hasn't begun leaves none.
func (c *recordCommand) run(ctx context.Context, server *client.Client, p cli.Process) (err error) {
	to, begun := p.Out, false
	if c.output != "-" {
		f, err := os.OpenFile(c.output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, f.Close())
			if !begun {
				err = errors.Join(err, os.Remove(c.output))
			}
		}()
		to = f
	}
	if c.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.length)
		defer cancel()
	}
	c.Log = slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{ReplaceAttr: brief}))
	c.Begun = func(version string, objects int) {
		begun = true
		fmt.Fprintf(p.Err, "recording from resourceVersion %s, where there are %s\n", version, count(objects, "object"))
	}
	what, err := recording.Record(ctx, server, to, c.RecordOptions)
	if err != nil {
		return err
	}
	said := "recorded " + count(what.Changes, "change")
	if what.Gaps > 0 {
		said += fmt.Sprintf("; history was gone %s, after which changes are missing", count(what.Gaps, "time"))
	}
	fmt.Fprintln(p.Err, said)
	return nil
}

// brief leaves out of the log what a person at a terminal doesn't need.
func brief(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// speed is the flag that says how fast.
type speed recording.Speed

// Type is the name of the value in help.
func (s *speed) Type() string { return "speed" }

func (s *speed) String() string {
	switch recording.Speed(*s) {
	case recording.Step:
		return "step"
	case recording.Max:
		return "max"
	}
	return strconv.FormatFloat(float64(*s), 'g', -1, 64)
}

// Set takes a number of times, or a word.
func (s *speed) Set(text string) error {
	switch text {
	case "step":
		*s = speed(recording.Step)
	case "max":
		*s = speed(recording.Max)
	default:
		times, err := strconv.ParseFloat(text, 64)
		if err != nil || !(times > 0) || math.IsInf(times, 0) {
			return errors.New("must be a number above 0, such as 10 for ten times as fast as recorded, or max, or step")
		}
		*s = speed(times)
	}
	return nil
}

// replayCommand is what the arguments of replay say.
type replayCommand struct {
	speed speed
	file  string
}

func (c *replayCommand) addFlags(set *pflag.FlagSet) {
	set.Var(&c.speed, "speed", "how many times as fast as recorded, or max for as fast as it goes, or step for one change at a time in the recorded order")
}

func (c *replayCommand) parse(args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("which file? apiserver-lite replay recording.jsonl.gz, or - for the standard input")
	}
	c.file = args[0]
	return nil
}

// progressEvery is how often a person at a terminal is told how far it is.
const progressEvery = 2 * time.Second

func (c *replayCommand) run(ctx context.Context, server *client.Client, p cli.Process) error {
	from, name := io.Reader(nil), c.file
	if name == "-" {
		name = "the standard input"
		from = interruptible(ctx, p.In)
	} else {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	last := time.Now()
	o := recording.Options{Speed: recording.Speed(c.speed)}
	if cli.Terminal(p.Err) {
		o.Progress = func(changes int) {
			if time.Since(last) >= progressEvery {
				last = time.Now()
				fmt.Fprintf(p.Err, "%d changes\n", changes)
			}
		}
	}
	result, err := recording.Replay(ctx, server, from, o)
	fmt.Fprintln(p.Out, summary(result))
	for _, f := range result.Failures {
		fmt.Fprintln(p.Err, f.Error())
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case result.Failed > 0:
		return fmt.Errorf("%s failed", count(result.Failed, "change"))
	}
	return nil
}

// interruptible is a reader that ends with ctx, whatever the one below does.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	reads, writes := io.Pipe()
	go func() {
		_, err := io.Copy(writes, in)
		writes.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { reads.CloseWithError(context.Cause(ctx)) })
	return reads
}

// summary says what became of a recording's changes.
func summary(r recording.Result) string {
	said := fmt.Sprintf("replayed %s: %d created, %d updated, %d deleted, %d unchanged", count(r.Changes, "change"), r.Created, r.Updated, r.Deleted, r.Unchanged)
	for _, more := range []struct {
		n    int
		what string
	}{
		{r.Own, "left out %d of objects that a server makes by itself"},
		{r.Ownerless, "left out %d references to owners that aren't there"},
		{r.Gaps, "%d gaps in the recording"},
		{r.Failed, "%d failed"},
		{r.Unlisted, "%d of these aren't listed"},
	} {
		if more.n > 0 {
			said += "; " + strings.ReplaceAll(more.what, "%d", strconv.Itoa(more.n))
		}
	}
	return said
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
