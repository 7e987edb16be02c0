//go:build soak

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSoakReplicasTransactions is TestReplicasTransactions with all faults that leave history alone, for longer, again and again.
func TestSoakReplicasTransactions(t *testing.T) {
	r := newRemote(t, 3)
	soakReplicas(t, r.deals, func(length time.Duration) []fault { return withHistory(r.faults(length)) })
}

// withHistory are the faults that leave history alone, from which the watches of deals go on.
func withHistory(all []fault) []fault {
	return slices.DeleteFunc(all, func(f fault) bool { return strings.HasPrefix(f.name, "history") })
}
