// Package monitoring tries the rules and the dashboard beside it: with Prometheus' own parser, over what a server shows.
package monitoring
