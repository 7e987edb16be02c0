package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// member lists the processes that have the server's store, or removes one.
func (c *command) member(ctx context.Context) error {
	var all []client.Member
	var err error
	switch {
	case len(c.args) == 1 && c.args[0] == "list":
		all, err = c.client.Members(ctx)
	case len(c.args) == 2 && c.args[0] == "remove" && c.args[1] != "":
		all, err = c.client.RemoveMember(ctx, c.args[1])
	default:
		return usageError("apiserver-lite member list, or apiserver-lite member remove NAME")
	}
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 3, ' ', 0)
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
