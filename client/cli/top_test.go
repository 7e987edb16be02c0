package cli

import (
	"fmt"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// TestBusiest: five clients are shown, those first that had most requests answered, or whose watches were sent most since the last look, and their names can't move a
// terminal's cursor.
func TestBusiest(t *testing.T) {
	c := &topCommand{}
	var watchers []client.Watcher
	for i := range 7 {
		watchers = append(watchers, client.Watcher{UserAgent: fmt.Sprintf("agent-%d\x1b[2J", i), BytesSent: int64(i)})
	}
	watchers = append(watchers, client.Watcher{UserAgent: "agent-6\x1b[2J", BytesSent: 1, LagSeconds: 2})
	got := c.busiest(nil, watchers)
	if len(got) != topClients || got[0].agent != "agent-6[2J" || got[0].watches != 2 || got[0].sent != 7 || got[0].lag != 2 || got[0].news != 0 {
		t.Errorf("the busiest are %+v", got)
	}
	watchers[0].BytesSent = 3
	if got = c.busiest(nil, watchers); got[0].agent != "agent-0[2J" || got[0].news != 3 {
		t.Errorf("after agent 0 was sent something, the busiest are %+v", got)
	}
	asks := []client.Busy{{UserAgent: "agent-3\x1b[2J", Requests: 2}, {UserAgent: "lister", Requests: 7}}
	if got = c.busiest(asks, watchers); got[0].agent != "lister" || got[0].watches != 0 || got[1].agent != "agent-3[2J" || got[1].asks != 2 || got[1].watches != 1 {
		t.Errorf("with requests, the busiest are %+v", got)
	}
}
