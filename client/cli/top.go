package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
)

const (
	// topInterval is how often top looks.
	topInterval = time.Second
	// topClients is how many clients it shows.
	topClients = 5
	// topAgent is how much of a client's name for itself it shows, in characters: what fits in a line of a terminal.
	topAgent = 48
	// clearScreen has a terminal begin at its top.
	clearScreen = "\x1b[H\x1b[2J"
)

// topCommand shows what a server does, again and again.
type topCommand struct {
	once bool
	sent map[string]int64 // bytes that each client's watches had been sent when it was looked at the last time
}

func (c *topCommand) addFlags(set *pflag.FlagSet) {
	set.BoolVar(&c.once, "once", false, "print it once, and end")
}

func (c *topCommand) parse(args []string) error {
	if len(args) > 0 {
		return usageError("top takes no argument, and has %q", args[0])
	}
	return nil
}

func (c *topCommand) run(ctx context.Context, s *session) error {
	tick := time.NewTicker(topInterval)
	defer tick.Stop()
	for {
		page, err := c.page(ctx, s.client)
		if ctx.Err() != nil {
			return nil // it was ended, as it's meant to be
		}
		if err != nil {
			return err
		}
		if !c.once && Terminal(s.out) {
			page = clearScreen + page
		}
		if _, err := fmt.Fprint(s.out, page); err != nil || c.once {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// topClient is what the requests and watches of a client add up to.
type topClient struct {
	agent   string
	watches int
	lag     float64 // of the one that is furthest behind, in seconds
	sent    int64
	news    int64   // of that, since the last look
	asks    float64 // requests in a second
}

// work is what a client costs the server now.
func (t topClient) work() float64 { return t.asks + float64(t.news)/(1<<10) }

// page is what is shown.
func (c *topCommand) page(ctx context.Context, of *client.Client) (string, error) {
	now, err := of.Traffic(ctx)
	if err != nil {
		return "", err
	}
	watchers, err := of.Watchers(ctx)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "writes %.0f/s   events %.0f/s   watchers %d   lag %.1fs   memory %.0f MiB   refused %.0f/s\n\n",
		now.Writes, now.Events, now.Watchers, now.Lag, now.Memory/(1<<20), now.Refusals)
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tREQUESTS\tWATCHES\tLAG\tSENT\tNOW")
	for _, one := range c.busiest(now.Clients, watchers) {
		fmt.Fprintf(w, "%s\t%.1f/s\t%d\t%.1fs\t%.1f MiB\t%.1f KiB\n", one.agent, one.asks, one.watches, one.lag, float64(one.sent)/(1<<20), float64(one.news)/(1<<10))
	}
	err = w.Flush()
	return text.String(), err
}

// busiest are the clients that had most requests answered, of which each counts as much as a KiB that watches were sent since the last look; and of
// equal ones those that were sent most in all.
func (c *topCommand) busiest(busy []client.Busy, watchers []client.Watcher) []topClient {
	by := map[string]*topClient{}
	of := func(agent string) *topClient {
		agent = printableAgent(agent)
		if by[agent] == nil {
			by[agent] = &topClient{agent: agent}
		}
		return by[agent]
	}
	for _, b := range busy {
		of(b.UserAgent).asks += b.Requests
	}
	for _, w := range watchers {
		one := of(w.UserAgent)
		one.watches++
		one.sent += w.BytesSent
		one.lag = max(one.lag, w.LagSeconds)
	}
	before := c.sent
	c.sent = map[string]int64{}
	var all []topClient
	for agent, one := range by {
		c.sent[agent] = one.sent
		if was, ok := before[agent]; ok {
			one.news = max(0, one.sent-was)
		}
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b topClient) int {
		return cmp.Or(cmp.Compare(b.work(), a.work()), cmp.Compare(b.sent, a.sent), cmp.Compare(a.agent, b.agent))
	})
	return all[:min(len(all), topClients)]
}

// printableAgent is a client's name for itself, as a terminal may have it.
func printableAgent(agent string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, agent)
	if runes := []rune(clean); len(runes) > topAgent {
		clean = string(runes[:topAgent])
	}
	return cmp.Or(clean, "-")
}
