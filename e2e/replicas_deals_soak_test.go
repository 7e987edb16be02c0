//go:build soak

package e2e

import (
	"testing"
	"time"
)

// TestSoakReplicasTransactions is TestReplicasTransactions with all faults that leave history alone, for longer, again and again.
func TestSoakReplicasTransactions(t *testing.T) {
	r := newRemote(t, 3)
	soakReplicas(t, r.deals, func(length time.Duration) []fault { return withHistory(r.faults(length)) })
}
