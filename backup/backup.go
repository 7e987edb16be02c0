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
	"time"

	"github.com/spf13/cobra"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// attempts is how often a snapshot is begun that doesn't come whole, and pause is between two of them.
const (
	attempts = 3
	pause    = time.Second
)

// command is what the arguments say.
type command struct {
	file   string // the snapshot
	dir    string
	output string
	to     cli.Connection
}

const (
	saves = `Writes everything that a server has stored into a file, while it runs; with --data-dir what a directory has whose server is stopped. All
Secrets are in it.`
	all = `Save writes everything that a server has stored into a file, while it runs; with --data-dir what a directory has whose server is stopped.
All Secrets are in it. Status checks a file and says what it holds. Restore makes a new data directory of it, which must be missing or empty.`
)

// Command returns the command of a process. It ends with exit code 0 when all is done, 1 if it can't be, 2 if the arguments are wrong, 130 if its
// context ended first.
func Command(p cli.Process) *cobra.Command {
	var save, status, restore command
	saving := word("save FILE [--server URL | --data-dir DIR]", "Save what a server has stored", saves, p, &save, save.save)
	saving.Flags().StringVar(&save.dir, "data-dir", "", "the directory to read, instead of a server")
	save.to.AddFlags(saving.Flags())
	looking := word("status FILE [-o json]", "Check a file, and say what it holds", "", p, &status, status.status)
	looking.Flags().StringVarP(&status.output, "output", "o", "", "json (default text)")
	restoring := word("restore FILE --data-dir DIR", "Make a new data directory of it", "", p, &restore, restore.restore)
	restoring.Flags().StringVar(&restore.dir, "data-dir", "", "the directory to make")
	return commandline.Parent("snapshot", "Back up and restore what a server has stored", all, saving, looking, restoring)
}

// word returns a command that does something with a file, and prints what is to be said then.
func word(use, short, long string, p cli.Process, c *command, do func(context.Context, *cobra.Command, cli.Process) (string, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	cmd.Flags().SortFlags = false
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return exit.With(exit.Usage, errors.New("apiserver-lite snapshot save FILE, status FILE, or restore FILE --data-dir DIR: see apiserver-lite snapshot --help"))
		}
		c.file = args[0]
		said, err := do(cmd.Context(), cmd, p)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(p.Out, said); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		return nil
	}
	return cmd
}

func newLog(p cli.Process) *slog.Logger {
	return slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (c *command) save(ctx context.Context, cmd *cobra.Command, p cli.Process) (said string, err error) {
	if c.file == "-" {
		return "", exit.With(exit.Usage, errors.New("name a file: a snapshot isn't written to the standard output"))
	}
	if c.dir != "" && cmd.Flags().NFlag() > 1 {
		return "", exit.With(exit.Usage, errors.New("--data-dir reads a directory, and takes no flag of a server's"))
	}
	st, err := c.write(ctx, p, newLog(p))
	return "saved " + c.file + ": " + text(st), err
}

func (c *command) restore(ctx context.Context, _ *cobra.Command, p cli.Process) (said string, err error) {
	if c.dir == "" {
		return "", exit.With(exit.Usage, errors.New("--data-dir says where to restore to"))
	}
	st, err := etcd.Restore(ctx, c.file, c.dir, newLog(p))
	return fmt.Sprintf("restored %s into %s: %s. Start the server with --data-dir %s", c.file, c.dir, text(st), c.dir), err
}

func (c *command) status(ctx context.Context, _ *cobra.Command, _ cli.Process) (said string, err error) {
	if c.output != "" && c.output != "json" {
		return "", exit.With(exit.Usage, fmt.Errorf("-o %s: only json is there, besides text", c.output))
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

// write writes a snapshot beside the file, and gives it the file's name when it's whole.
func (c *command) write(ctx context.Context, p cli.Process, log *slog.Logger) (st snapshot.Status, err error) {
	source, done, err := c.source(ctx, p, log)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, done()) }()
	for attempt := 1; ; attempt++ {
		st, err := c.attempt(ctx, source)
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
