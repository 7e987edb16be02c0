package cacher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestLabelled: a scan by a label leaves out none that has it, and nearly all that don't.
func TestLabelled(t *testing.T) {
	b := newBench(defaultBounds)
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 2000 {
		o := randomThing(rng)
		o.key += fmt.Sprint("-", i)
		o.tier = fmt.Sprint("t", i%50)
		b.put(o)
	}
	s := b.Snapshot()
	many := make([]string, 2*maxLabelBits)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for _, values := range [][]string{{"t7"}, {"t7", "t8", "t9"}, {"missing"}, {""}, many} {
		for _, prefix := range []string{string(widgets), string(widgets) + "ns1/"} {
			for _, key := range []string{prefix, string(widgets) + "ns1/w2"} {
				keys := storage.Range{Prefix: prefix, From: key}
				name := fmt.Sprint(values, keys)
				sel, err := selectors.ParseLabels("tier in (" + strings.Join(values, ",") + ")")
				if err != nil {
					t.Fatal(err)
				}
				var want, got []string
				for o := range s.In(keys) {
					if sel.Matches(o.Labels) {
						want = append(want, o.Key)
					}
				}
				visited := 0
				for o := range s.Labelled("tier", values, keys) {
					visited++
					if sel.Matches(o.Labels) {
						got = append(got, o.Key)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d were found of %d", name, len(got), len(want))
				}
				if others := visited - len(want); len(values) <= maxLabelBits && others > 100 {
					t.Errorf("%s: %d others were visited", name, others)
				}
			}
		}
	}
}
