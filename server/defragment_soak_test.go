//go:build soak

package server_test

import "time"

// With the tag the database is large, and the time counts: go test -tags soak ./server -run TestAnswersBesideDatabase.
func init() { ballastMiB, mostWait = 1024, 100*time.Millisecond }
