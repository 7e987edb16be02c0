package cli

import (
	"errors"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
)

// failures is what went wrong with some of several objects, whose others go on. All are printed but the last, which is left for the end of the command.
type failures struct {
	to   *session
	last error
}

// pass takes the error of one object, if there's one. It returns those that the others would have, too: the server can't be reached, or knows nobody.
func (f *failures) pass(err error) error {
	var refusal *client.StatusError
	if err != nil && (!errors.As(err, &refusal) && !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrUnauthorized)) {
		return err
	}
	return f.add(err)
}

func (f *failures) add(err error) error {
	if err == nil {
		return nil
	}
	if f.last != nil {
		exit.Why(f.to.err, commandline.Program, exit.Failure, f.last)
	}
	f.last = err
	return nil
}

// end returns the last error of all, of which err is the one that ended the work.
func (f *failures) end(err error) error {
	f.add(err)
	return f.last
}
