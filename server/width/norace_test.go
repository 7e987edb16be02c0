//go:build !race

package width_test

const race = false
