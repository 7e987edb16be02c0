// Package backup is the command apiserver-lite snapshot: it saves all that a server has stored, or a data directory, says what such a file
// holds, and makes a new data directory of it. Package storage/etcd does the work.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// Name is the command's.
const Name = "snapshot"

const help = `Usage: apiserver-lite snapshot save FILE [--server URL | --data-dir DIR]
       apiserver-lite snapshot status FILE [-o json]
       apiserver-lite snapshot restore FILE --data-dir DIR

Save writes everything that a server has stored into a file, while it runs; with --data-dir what a directory has whose server is stopped.
All Secrets are in it. Status checks a file and says what it holds. Restore makes a new data directory of it, which must be missing or empty.

`

// attempts is how often a snapshot is begun that doesn't come whole, and pause is between two of them.
const (
	attempts = 3
	pause    = time.Second
)

// command is what the arguments say.
type command struct {
	do, file string // save, status or restore; the snapshot
	dir      string
	output   string
	to       cli.Connection
	set      *pflag.FlagSet
}

func (c *command) flagSet() *pflag.FlagSet {
	set := cli.NewFlagSet(Name)
	set.StringVar(&c.dir, "data-dir", "", "of restore: the directory to make; of save: the directory to read, instead of a server")
	set.StringVarP(&c.output, "output", "o", "", "of status: json")
	c.to.AddFlags(set)
	c.set = set
	return set
}

// FlagNames returns the names of the flags, for a test of the documentation.
func FlagNames() (names []string) {
	new(command).flagSet().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// Run runs the command with its arguments, and returns its exit code: 0 when all is done, 1 if it can't be, 2 if the arguments are wrong,
// 130 if ctx ended first.
func Run(ctx context.Context, args []string, p cli.Process) int {
	var c command
	set := c.flagSet()
	err := set.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(p.Out, help+set.FlagUsages())
		return exit.OK
	case err == nil:
		err = c.parse(set.Args())
	}
	if err != nil {
		return exit.Why(p.Err, "apiserver-lite", exit.Usage, err)
	}
	said, err := c.run(ctx, p)
	switch {
	case err != nil && ctx.Err() != nil:
		return exit.Why(p.Err, "apiserver-lite", exit.Interrupted, fmt.Errorf("interrupted: %w", err))
	case cli.IsUsage(err):
		return exit.Why(p.Err, "apiserver-lite", exit.Usage, err)
	case err != nil:
		return exit.Why(p.Err, "apiserver-lite", exit.Failure, err)
	}
	if _, err := fmt.Fprintln(p.Out, said); err != nil {
		return exit.Why(p.Err, "apiserver-lite", exit.Failure, fmt.Errorf("write the output: %w", err))
	}
	return exit.OK
}

// parse takes the arguments, after the flags have their values.
func (c *command) parse(args []string) error {
	if len(args) != 2 || args[1] == "" {
		return errors.New("apiserver-lite snapshot save FILE, status FILE, or restore FILE --data-dir DIR: see apiserver-lite snapshot --help")
	}
	c.do, c.file = args[0], args[1]
	of := map[string][]string{"save": {"data-dir", "server", "token-file", "ca-file", "kubeconfig", "context"}, "status": {"output"}, "restore": {"data-dir"}}
	takes, known := of[c.do]
	if !known {
		return fmt.Errorf("there is no snapshot %s: save, status or restore", c.do)
	}
	var err error
	given := 0
	c.set.Visit(func(f *pflag.Flag) {
		if given++; !slices.Contains(takes, f.Name) && err == nil {
			err = fmt.Errorf("--%s is not for snapshot %s", f.Name, c.do)
		}
	})
	switch {
	case err != nil:
		return err
	case c.output != "" && c.output != "json":
		return fmt.Errorf("-o %s: only json is there, besides text", c.output)
	case c.do == "restore" && c.dir == "":
		return errors.New("--data-dir says where to restore to")
	case c.do == "save" && c.dir != "" && given > 1:
		return errors.New("--data-dir reads a directory, and takes no flag of a server's")
	}
	return nil
}

// run does what is asked for, and returns what to say then.
func (c *command) run(ctx context.Context, p cli.Process) (said string, err error) {
	log := slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	switch c.do {
	case "save":
		st, err := c.save(ctx, p, log)
		return "saved " + c.file + ": " + text(st), err
	case "restore":
		st, err := etcd.Restore(ctx, c.file, c.dir, log)
		return fmt.Sprintf("restored %s into %s: %s. Start the server with --data-dir %s", c.file, c.dir, text(st), c.dir), err
	}
	st, err := snapshot.Read(ctx, c.file)
	if err != nil || c.output == "" {
		return c.file + ": " + text(st), err
	}
	page, err := json.Marshal(map[string]any{"revision": st.Revision, "objects": st.Objects, "bytes": st.Bytes, "sha256": fmt.Sprintf("%x", st.SHA256)})
	return string(page), err
}

func text(st snapshot.Status) string {
	return fmt.Sprintf("%d objects of revision %d, %d bytes", st.Objects, st.Revision, st.Bytes)
}

// errCut means that a snapshot didn't come whole.
var errCut = errors.New("the snapshot was cut")

// cutting says of a reader's errors that they cut the snapshot.
type cutting struct{ io.Reader }

func (c cutting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", errCut, err)
	}
	return n, err
}

// save writes a snapshot beside the file, and gives it the file's name when it's whole.
func (c *command) save(ctx context.Context, p cli.Process, log *slog.Logger) (st snapshot.Status, err error) {
	write, done, err := c.source(ctx, p, log)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, done()) }()
	for attempt := 1; ; attempt++ {
		st, err := c.attempt(ctx, write)
		var refused *client.StatusError
		again := errors.Is(err, errCut) || attempt > 1 && !errors.As(err, &refused) // which comes back, perhaps
		if err == nil || !again || attempt == attempts {
			return st, err
		}
		log.Warn("the snapshot is begun again", "error", err)
		select {
		case <-ctx.Done():
			return st, err
		case <-time.After(pause):
		}
	}
}

// attempt writes a snapshot into a file of its own, which others neither see nor have, and checks it. Then it gets its name.
func (c *command) attempt(ctx context.Context, write func(io.Writer) error) (st snapshot.Status, err error) {
	err = snapshot.Save(c.file, write, func(part string) (err error) {
		st, err = snapshot.Read(ctx, part)
		return err
	})
	return st, err
}

// source returns what writes a snapshot of what the flags name, and what ends that.
func (c *command) source(ctx context.Context, p cli.Process, log *slog.Logger) (write func(io.Writer) error, done func() error, err error) {
	if c.dir != "" {
		return c.directory(ctx, log)
	}
	server, err := c.to.Open(p.Getenv, p.Err)
	if err != nil {
		return nil, nil, err
	}
	return func(f io.Writer) error {
		body, err := server.Snapshot(ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(f, cutting{body})
		return err
	}, func() error { server.CloseIdleConnections(); return nil }, nil
}

// forEver keeps all history that a directory has.
const forEver = 100 * 365 * 24 * time.Hour

// directory is source for --data-dir. The directory stays as it is.
func (c *command) directory(ctx context.Context, log *slog.Logger) (write func(io.Writer) error, done func() error, err error) {
	if _, err := os.Stat(filepath.Join(c.dir, "member")); err != nil {
		return nil, nil, fmt.Errorf("--data-dir %s holds no store: %w", c.dir, err)
	}
	if member, err := etcd.SnapshotOfMember(ctx, c.dir, log); err != nil || member != nil {
		return func(f io.Writer) error {
			_, err := member.WriteTo(snapshot.Until(ctx, f))
			return err
		}, func() error { return member.Close() }, err
	}
	store, err := etcd.Open(ctx, etcd.Options{DataDir: c.dir, Log: log, History: forEver, QuotaBytes: 1 << 40, HistoryBytes: 1 << 38})
	if err != nil {
		return nil, nil, err
	}
	return func(f io.Writer) error {
		content, err := store.Snapshot(ctx)
		if err != nil {
			return err
		}
		defer content.Close()
		_, err = content.WriteTo(snapshot.Until(ctx, f))
		return err
	}, store.Close, nil
}
