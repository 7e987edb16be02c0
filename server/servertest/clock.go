package servertest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// FakeClock is an option of New: the server's clock stands still until Advance moves it.
func FakeClock(s *server.Server) { s.API.FakeClock = true }

// Advance moves the server's clock, and returns what it says when everything is done that has come due: what has expired is gone, tokens whose time is
// over are refused, watches have their bookmarks, history is compacted. The server must have been started with FakeClock. It fails the test if that takes
// too long, and says what is left to do.
func (s *Server) Advance(d time.Duration) time.Time {
	s.t.Helper()
	return s.clock(http.MethodPost, "?advance="+url.QueryEscape(d.String())+"&timeout="+patience.String())
}

// Now returns what the server's clock says. The server must have been started with FakeClock.
func (s *Server) Now() time.Time {
	s.t.Helper()
	return s.clock(http.MethodGet, "")
}

func (s *Server) clock(method, query string) time.Time {
	s.t.Helper()
	res, answer := s.Do(method, "/debug/clock"+query, "")
	var page struct{ Time time.Time }
	switch err := json.Unmarshal([]byte(answer), &page); {
	case res.StatusCode == http.StatusNotFound:
		s.t.Fatal("the server goes by the machine's clock: start it with the option servertest.FakeClock")
	case res.StatusCode != http.StatusOK || err != nil:
		s.t.Fatalf("%s /debug/clock%s: %s\n%s", method, query, res.Status, answer)
	}
	return page.Time
}
