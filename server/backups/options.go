package backups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

// DefaultKeep is how many snapshots are kept by default.
const DefaultKeep = 7

// Options say whether and where a server takes snapshots of itself. With the zero value it takes none.
type Options struct {
	// Schedule says when: see ParseSchedule. Defaults to never.
	Schedule Schedule
	// Dir is the directory that gets them, of this server alone. It's made with mode 0700 if it's missing; what is above it must be there.
	Dir string
	// Keep is how many stay there: the oldest go when there are more. At least 1. Defaults to 7 by the flag.
	Keep int
}

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.Var(&o.Schedule, "snapshot-schedule", "when the server takes a snapshot of itself: an interval such as 6h, or a cron expression such as '0 3 * * *'")
	set.StringVar(&o.Dir, "snapshot-dir", "", "directory for these snapshots, of this server alone; made with mode 0700 if it's missing")
	set.IntVar(&o.Keep, "snapshot-keep", DefaultKeep, "how many of these snapshots stay; the oldest go")
}

// Validate tells the first option that can't work, by the name of its flag. It leaves nothing.
func (o *Options) Validate() error {
	switch {
	case !o.Schedule.On() && o.Dir != "":
		return errors.New("--snapshot-dir needs --snapshot-schedule, which says when")
	case !o.Schedule.On():
		return nil
	case o.Dir == "":
		return errors.New("--snapshot-schedule needs --snapshot-dir, which says where")
	case o.Keep < 1:
		return fmt.Errorf("--snapshot-keep must be at least 1: %d", o.Keep)
	}
	made, err := o.makeDir()
	if err == nil && made {
		err = os.Remove(o.Dir)
	}
	return err
}

// makeDir makes the directory if it's missing, and looks whether it's in nobody else's hands and can be written.
func (o *Options) makeDir() (made bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("--snapshot-dir %s %w", o.Dir, err)
		}
	}()
	switch err := os.Mkdir(o.Dir, 0o700); {
	case err == nil:
		made = true
		if err := os.Chmod(o.Dir, 0o700); err != nil { // whatever the umask
			return made, fmt.Errorf("can't be made: %w", err)
		}
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("can't be made: %w", err)
	}
	info, err := os.Stat(o.Dir)
	switch {
	case err != nil:
		return made, fmt.Errorf("can't be used: %w", err)
	case !info.IsDir():
		return made, errors.New("is a file: name a directory")
	case info.Mode().Perm()&0o022 != 0:
		return made, fmt.Errorf("has mode %04o, so that others can put files there: chmod 700 it", info.Mode().Perm())
	}
	if err := private.Dir(o.Dir, lockName); err != nil {
		return made, err
	}
	f, err := os.CreateTemp(o.Dir, ".*.tmp")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return made, fmt.Errorf("can't be written: %w", err)
	}
	return made, nil
}
