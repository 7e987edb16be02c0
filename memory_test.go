package main

import "testing"

// TestPercentFor: a small heap may grow to leastHeap before it's collected, a larger one by three quarters.
func TestPercentFor(t *testing.T) {
	for _, tt := range []struct {
		name       string
		live, want int
	}{
		{"nothing is known yet", 0, 75},
		{"a byte", 1, 64<<20*100 - 100},
		{"a new server's", 12 << 20, 433},
		{"the largest that grows by more", 36 << 20, 77},
		{"three quarters", 37 << 20, 75},
		{"as much as is collected first", 64 << 20, 75},
		{"large", 4 << 30, 75},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentFor(tt.live); got != tt.want {
				t.Errorf("with %d bytes in use it's %d %%, want %d %%", tt.live, got, tt.want)
			}
		})
	}
}
