package servertest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
)

// Faults is an option of New: the server fails on purpose where rules of Fault say so.
func Faults(s *server.Server) { s.API.Faults = true }

// Fault is a rule by which a server fails on purpose.
type Fault struct {
	// Name is the rule's.
	Name string

	t testing.TB
	s *Server
	// before is the number of the last fault in the log when the rule was armed.
	before int64
}

// Fault arms a rule, in the place of one of the same name, and removes it when the test ends. The server must have been started with Faults. It fails the
// test if the server refuses the rule.
//
//	conflict := s.Fault("conflict", faults.Rule{
//		Match: faults.Match{Verbs: []string{"update"}, Resources: []string{"widgets.example.com"}},
//		Times: 1, Status: &faults.Status{Code: 409},
//	})
//	…
//	conflict.Await(1)
func (s *Server) Fault(name string, rule faults.Rule) *Fault {
	s.t.Helper()
	body, err := json.Marshal(rule)
	if err != nil {
		s.t.Fatal(err)
	}
	f := &Fault{Name: name, t: s.t, s: s}
	if all := f.read(faults.LogPath); len(all) > 0 {
		f.before = all[len(all)-1].Number
	}
	res, answer := s.Do(http.MethodPut, faults.Path+"/"+url.PathEscape(name), string(body), "Content-Type", "application/json")
	if res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusOK {
		s.t.Fatalf("the rule for faults is refused: %s\n%s", res.Status, answer)
	}
	s.t.Cleanup(f.Remove)
	return f
}

// Log returns the faults that requests have met by the rule, as far as the server's log keeps them.
func (f *Fault) Log() []faults.Entry {
	f.t.Helper()
	var own []faults.Entry
	for _, e := range f.read(faults.LogPath + "?rule=" + url.QueryEscape(f.Name)) {
		if e.Number > f.before {
			own = append(own, e)
		}
	}
	return own
}

// Await waits until n requests have met the fault, and returns the log. It fails the test if that takes too long.
func (f *Fault) Await(n int) []faults.Entry {
	f.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond) // between two looks
	defer tick.Stop()
	for over := time.Now().Add(patience); ; <-tick.C {
		own := f.Log()
		if len(own) >= n {
			return own
		}
		if time.Now().After(over) {
			f.t.Fatalf("%d requests have met the fault %s, want %d: %+v", len(own), f.Name, n, own)
		}
	}
}

// Remove disarms the rule. It can be called again.
func (f *Fault) Remove() {
	f.t.Helper()
	r, err := http.NewRequest(http.MethodDelete, f.s.URL+faults.Path+"/"+url.PathEscape(f.Name), nil) // the test's context has ended in its cleanup
	if err != nil {
		f.t.Fatal(err)
	}
	select {
	case <-f.s.Closed():
		return
	default:
	}
	res, err := f.s.Client.Do(r)
	if err != nil {
		f.t.Fatalf("remove the fault %s: %v", f.Name, err)
	}
	res.Body.Close()
}

func (f *Fault) read(path string) []faults.Entry {
	f.t.Helper()
	res, answer := f.s.Do(http.MethodGet, path, "")
	if res.StatusCode == http.StatusNotFound {
		f.t.Fatal("the server has no faults: start it with the option servertest.Faults")
	}
	var page struct{ Items []faults.Entry }
	if err := json.Unmarshal([]byte(answer), &page); err != nil {
		f.t.Fatalf("GET %s: %s\n%s", path, res.Status, answer)
	}
	return page.Items
}
