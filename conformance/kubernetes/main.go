// Command kubernetes runs Kubernetes' own conformance tests against a cluster on this machine: kube-apiserver and etcd, upstream's
// or ours in their place, with upstream's controller manager and scheduler and kwok's nodes, under RBAC, each part with an
// identity of its own. `make conformance` runs both.
//
//	go run ./kubernetes --as pair
//	go run ./kubernetes --as ours
//
// A run may be ended at any time, and the next one goes on where it was: a test's result is in testdata/AS.jsonl as soon as
// there is one. Tests that need a real container stand in testdata/containers.txt, each with the reason, and aren't run. Each run
// ends with docs/conformance.md, which has both results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/cluster"
)

var (
	as       = flag.String("as", "ours", "whose kube-apiserver and etcd: pair (upstream's) or ours")
	atOnce   = flag.Int("at-once", 6, "how many tests run at the same time, but those that are Serial")
	limit    = flag.Duration("for", 50*time.Minute, "end the tests after so long; one that runs then has no result, and runs again next time")
	only     = flag.String("only", "", "regular expression: run these tests, also if they have a result or need a container")
	quickest = flag.Int("quickest", 0, "run so many tests of sig-api-machinery, those that were the quickest with the pair, also if they have a result")
)

func main() { cluster.Main("kubernetes", run) }

func run(ctx context.Context, o cluster.Options) error {
	if !slices.Contains(cluster.Sides, *as) {
		return errors.New("--as is pair or ours")
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	e2e, err := filepath.Abs(filepath.Join(o.Programs, "e2e.test"))
	if err != nil {
		return err
	}
	tests, err := load(ctx, e2e)
	if err != nil {
		return err
	}
	var todo []string
	switch {
	case *only != "":
		todo = tests.where(wanted.MatchString)
	case *quickest > 0:
		todo = tests.quickest(*quickest)
	default:
		todo = tests.where(func(name string) bool { return tests.left(*as, name) })
	}
	fmt.Printf("%d conformance tests, of which %d need a container; %d to run\n", len(tests.names), len(tests.containers), len(todo))
	if len(todo) == 0 {
		return tests.writeTable()
	}
	o.As, o.Nodes = *as, fewNodes
	in, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	r := &runner{tests: tests, side: *as, e2e: e2e, in: in}
	failed, left, err := r.all(ctx, todo, *atOnce, time.Now().Add(*limit))
	if err := errors.Join(err, in.Stop(), tests.writeTable()); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d tests failed that passed with the pair", len(failed))
	}
	if left > 0 {
		return fmt.Errorf("%d tests are left: run it again", left)
	}
	return nil
}
