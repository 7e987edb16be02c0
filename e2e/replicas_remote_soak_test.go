//go:build soak

package e2e

import "testing"

// TestSoakReplicasRemote is TestReplicas with longer faults, again and again.
func TestSoakReplicasRemote(t *testing.T) {
	r := newRemote(t, 3)
	soakReplicas(t, r.run, r.faults)
}
