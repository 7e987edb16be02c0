// Package age says how history gets older: by what looks at a clock count, and not by what a clock says.
package age

import "time"

// Step returns how much older history is at a look than it was at the look before: never less than nothing, and at most a
// bound, which is somewhat more than what lies between two looks. Between two values of time.Now it's monotonic, so a machine's
// clock that is set counts for nothing. The bound is for a clock that jumps all the same, as a virtual machine's does when it
// goes on after a pause. So a jump of any clock removes no history.
func Step(last, now time.Time, most time.Duration) time.Duration {
	return min(max(0, now.Sub(last)), most)
}
