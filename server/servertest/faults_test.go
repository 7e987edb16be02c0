package servertest_test

import (
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestShopOpensOnce(t *testing.T) {
	s := servertest.New(t, servertest.Faults)
	lost := s.Fault("lost-answer", faults.Rule{
		Match: faults.Match{Verbs: []string{"create"}, Resources: []string{"namespaces"}},
		Times: 1, Status: &faults.Status{Code: 503, After: true},
	})
	for range 2 { // a controller that tries again
		s.Do("POST", "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`, "Content-Type", "application/json")
	}
	if met := lost.Log(); len(met) != 1 || met[0].Fault != "status 503 after" {
		t.Errorf("the log is %+v", met)
	}
	s.Get("/api/v1/namespaces/shop")
}

// TestFaultGoesWithTest: a rule is about no request after the test that armed it, and its log has nothing of a rule of the same name before it.
func TestFaultGoesWithTest(t *testing.T) {
	s := servertest.New(t, servertest.Faults)
	rule := faults.Rule{Match: faults.Match{Resources: []string{"namespaces"}}, Status: &faults.Status{Code: 503}}
	for range 2 {
		t.Run("armed", func(t *testing.T) {
			s := s.In(t)
			fault := s.Fault("all", rule)
			if n := len(fault.Log()); n != 0 {
				t.Errorf("the log has %d faults of before", n)
			}
			if res, _ := s.Do("GET", "/api/v1/namespaces", ""); res.StatusCode != 503 {
				t.Errorf("the answer is %s", res.Status)
			}
			if met := fault.Await(1); len(met) != 1 {
				t.Errorf("the log is %+v", met)
			}
		})
	}
	s.Get("/api/v1/namespaces")
}
