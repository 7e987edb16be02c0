package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// memberCommand lists the processes that have the server's store, after it has removed one of them if it's told to.
type memberCommand struct {
	removes bool
	remove  string // its address or id
}

func (c *memberCommand) addFlags(*pflag.FlagSet) {}

func (c *memberCommand) parse(args []string) error {
	switch {
	case !c.removes && len(args) == 0:
	case c.removes && len(args) == 1 && args[0] != "":
		c.remove = args[0]
	default:
		return usageError("apiserver-lite member list, or apiserver-lite member remove NAME")
	}
	return nil
}

func (c *memberCommand) run(ctx context.Context, s *session) error {
	var all []client.Member
	var err error
	if c.remove == "" {
		all, err = s.client.Members(ctx)
	} else {
		all, err = s.client.RemoveMember(ctx, c.remove)
	}
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tANSWERS\tLAG\tID")
	for _, m := range all {
		role, answers := "learner", "no"
		switch {
		case m.Leader:
			role = "leader"
		case m.Voter:
			role = "voter"
		}
		if m.Answers {
			answers = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", m.Address, role, answers, m.Lag, m.ID)
	}
	return w.Flush()
}
