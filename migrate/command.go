package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// command is what the flags say.
type command struct {
	from, to string
	listen   string
	raise    bool
	etcd     remote.Options
}

const help = `Moves the content of a data directory into an etcd cluster, or back. Stop the servers first. The source stays as it is. The
target must have no keys. After an interruption the same command goes on.

Of a store with several members, remove all but one with "apiserver-lite member remove", stop that one, and move its directory
with --cluster-listen.`

// Command returns the command. It ends with exit code 0 when all is moved, 1 if it can't be or its context ended first, 2 if the arguments are wrong.
func Command(stdout, stderr io.Writer) *cobra.Command {
	var c command
	cmd := &cobra.Command{Use: "migrate --from DIR|--to DIR --etcd-servers URL,...", Short: "Move data into an etcd cluster, or back", Long: help}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&c.from, "from", "", "data directory to move into the cluster; no server may run on it")
	set.StringVar(&c.to, "to", "", "data directory to move the cluster's content into; it's made if it's missing")
	set.StringVar(&c.listen, "cluster-listen", "", "with --from, if other processes had joined the directory's: the --cluster-listen of its server; it must be the only member")
	set.BoolVar(&c.raise, "raise-revision", false, "with --from: raise the cluster's revision above the directory's first, by as many writes as it takes")
	elsewhere := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.etcd.AddFlags(elsewhere)
	commandline.Titled("The etcd cluster", elsewhere)
	set.AddFlagSet(elsewhere)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.validate(args); err != nil {
			return exit.With(exit.Usage, err)
		}
		said, err := c.run(cmd.Context(), stderr)
		switch {
		case err == nil:
			fmt.Fprintln(stdout, said)
			return nil
		case cmd.Context().Err() != nil:
			return exit.With(exit.Failure, errors.New("interrupted; nothing is served from the target yet, and the same command goes on from here"))
		}
		return err
	}
	return cmd
}

func (c *command) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: see apiserver-lite migrate --help", args[0])
	case (c.from == "") == (c.to == ""):
		return errors.New("either --from or --to names a data directory")
	case !c.etcd.On():
		return errors.New("--etcd-servers names no cluster")
	case c.listen != "" && c.to != "":
		return errors.New("--cluster-listen needs --from: name a directory for --to that no other process has joined")
	case c.raise && c.to != "":
		return errors.New("--raise-revision needs --from: a directory's revision is raised without it")
	}
	return c.etcd.Validate()
}

// run moves the content, and returns what to say then.
func (c *command) run(ctx context.Context, stderr io.Writer) (said string, err error) {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c.etcd.Log = log
	client, err := remote.Connect(ctx, c.etcd)
	if err != nil {
		return "", err
	}
	defer client.Close()
	prefix := strings.TrimSuffix(c.etcd.Prefix, "/")
	cluster := store{client: client, name: strings.Join(c.etcd.Servers, ",") + " " + prefix, prefix: prefix}
	if c.from != "" {
		return c.intoCluster(ctx, cluster, log, stderr)
	}
	return c.intoDirectory(ctx, cluster, log, stderr)
}

// intoCluster moves the content of --from.
func (c *command) intoCluster(ctx context.Context, cluster store, log *slog.Logger, stderr io.Writer) (said string, err error) {
	if _, err := os.Stat(c.from); err != nil {
		return "", fmt.Errorf("--from: %w", err)
	}
	server, dir, err := openSource(ctx, c.from, c.listen, log)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	account, err := accountKey(ctx, server.Dir(), dir)
	if err != nil {
		return "", err
	}
	m := migration{source: dir, target: cluster, out: stderr, marker: true, account: account}
	if c.raise {
		m.raise = raiseByWrites(cluster, stderr)
	}
	if err := m.run(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("moved %d objects of revision %d; %s has them still. Start each replica with --etcd-servers %s --etcd-prefix %s",
		m.at.Keys, m.at.Revision, server.Dir(), strings.Join(c.etcd.Servers, ","), c.etcd.Prefix), nil
}

// intoDirectory moves the cluster's content into --to.
func (c *command) intoDirectory(ctx context.Context, cluster store, log *slog.Logger, stderr io.Writer) (said string, err error) {
	marker, err := cluster.get(ctx, storage.MarkerKey)
	if err != nil {
		return "", err
	}
	if len(marker.Kvs) == 0 {
		return "", fmt.Errorf("%s isn't this program's: it has no %s", cluster.name, storage.MarkerKey)
	}
	if _, err := storage.ParseMarker(marker.Kvs[0].Value); err != nil {
		return "", fmt.Errorf("%s: %w", cluster.name, err)
	}
	server, dir, err := openDirectory(ctx, c.to, log)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	m := migration{source: cluster, target: dir, out: stderr}
	m.prepare = func(ctx context.Context) error { return keepAccountKey(ctx, cluster, server) }
	m.raise = func(ctx context.Context, _, to storage.Revision) error {
		if err := errors.Join(server.RaiseRevision(raiseKey, int64(to)), server.Close()); err != nil {
			return err
		}
		reopened, again, err := openDirectory(ctx, c.to, log)
		if err != nil {
			return err
		}
		server, m.target = reopened, again
		return nil
	}
	if err := m.run(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("moved %d objects of revision %d; %s has them still. Start the server with --data-dir %s", m.at.Keys, m.at.Revision, cluster.name, server.Dir()), nil
}

// accountKey returns the key of ServiceAccounts' tokens that a directory has, as a member's in its store, or else as a file; nil
// for none.
func accountKey(ctx context.Context, path string, dir store) ([]byte, error) {
	got, err := dir.get(ctx, storage.AccountKey)
	if err != nil || len(got.Kvs) > 0 {
		if err != nil {
			return nil, err
		}
		return got.Kvs[0].Value, nil
	}
	text, err := os.ReadFile(filepath.Join(path, storage.AccountKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// keepAccountKey writes the cluster's key of ServiceAccounts' tokens into a directory. It replaces no other one.
func keepAccountKey(ctx context.Context, cluster store, dir *etcd.Server) error {
	got, err := cluster.get(ctx, storage.AccountKey)
	if err != nil || len(got.Kvs) == 0 {
		return err
	}
	name := filepath.Join(dir.Dir(), storage.AccountKeyFile)
	switch text, err := os.ReadFile(name); {
	case err == nil && !bytes.Equal(text, got.Kvs[0].Value):
		return fmt.Errorf("%s is another key than that of %s: move it away", name, cluster.name)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return dir.WriteFile(storage.AccountKeyFile, got.Kvs[0].Value)
}

// openDirectory opens and locks a data directory.
func openDirectory(ctx context.Context, path string, log *slog.Logger) (*etcd.Server, store, error) {
	server, err := etcd.Open(ctx, etcd.Options{DataDir: path, Log: log})
	if err != nil {
		return nil, store{}, err
	}
	return server, directory(server), nil
}

func directory(server *etcd.Server) store {
	return store{client: server.Client, name: "the directory " + server.Dir(), locked: true}
}

// majorityTimeout is how long a member may wait for the others. The only one needs none, and starts within seconds.
const majorityTimeout = time.Minute

// openSource opens and locks a data directory that is moved. With an address it's that of a member, which must be the only one:
// others could write meanwhile.
func openSource(ctx context.Context, path, listen string, log *slog.Logger) (*etcd.Server, store, error) {
	if listen == "" {
		return openDirectory(ctx, path, log)
	}
	within, cancel := context.WithTimeout(ctx, majorityTimeout)
	defer cancel()
	server, err := etcd.Open(within, etcd.Options{DataDir: path, Log: log, Cluster: etcd.ClusterOptions{Listen: listen}})
	switch {
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return nil, store{}, fmt.Errorf("%w: if it has other members, %s", err, alone)
	case err != nil:
		return nil, store{}, err
	}
	members, err := server.Members(ctx)
	if err == nil && len(members) > 1 {
		err = fmt.Errorf("%s is one of %d members: %s", server.Dir(), len(members), alone)
	}
	if err != nil {
		return nil, store{}, errors.Join(err, server.Close())
	}
	return server, directory(server), nil
}

// alone says how a member becomes the only one.
const alone = "start their servers, remove all members but this one with apiserver-lite member remove, stop its server, and move it then"
