package metrics

import (
	"fmt"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// TestMetricsOfManyResources: definitions come and go, and their series don't stay, except those of open watches.
func TestMetricsOfManyResources(t *testing.T) {
	m := New(nil)
	endpoint := func(i int) *registry.Endpoint {
		e := &registry.Endpoint{}
		e.Group, e.Version, e.Plural = "example.com", "v1", fmt.Sprintf("r%d", i)
		return e
	}
	var open []func()
	for i := range 10 {
		open = append(open, m.Watching(endpoint(i)))
	}
	held := m.WatchEvents(endpoint(0)) // as an open watch has it
	for i := range 3 * maxResources {
		m.Watching(endpoint(10 + i))()
	}
	series := func() (all, watching int) {
		families, err := m.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "apiserver_longrunning_requests" {
				for _, metric := range family.GetMetric() {
					all++
					watching += int(metric.GetGauge().GetValue())
				}
			}
		}
		return all, watching
	}
	if all, watching := series(); all > maxResources+10 || watching != 10 {
		t.Errorf("%d series say that %d watches are open, want at most %d and 10", all, watching, maxResources+10)
	}
	held.Inc()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, family := range families {
		if family.GetName() == "apiserver_watch_events_total" {
			counted = family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != 1 {
		t.Errorf("%v events are counted of a watch that stayed open, want 1", counted)
	}
	for _, closed := range open {
		closed()
	}
	if _, watching := series(); watching != 0 || len(m.watches) != 0 {
		t.Errorf("%d watches are open after all have ended", watching)
	}
}
