package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestLargeBodiesWait: what becomes of large bodies doesn't add up in memory. One more of them waits until there is room, and a
// small one doesn't.
func TestLargeBodiesWait(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	const path = "/api/v1/namespaces/default/configmaps"
	post := func(path, body string, want int) {
		t.Helper()
		if res, text := s.Do("POST", path, body, "Content-Type", "application/json"); res.StatusCode != want {
			t.Errorf("POST %s of %d bytes: %d %.200s; want %d", path, len(body), res.StatusCode, text, want)
		}
	}
	for name, what := range map[string]string{
		"text":   `"data":{"a":"` + strings.Repeat("x", 100<<10) + `"}`,
		"values": `"data":{` + strings.Repeat(`"a":"",`, 1000) + `"a":""}`,
	} {
		large := `{"metadata":{"name":"` + name + `"},` + what + `}`
		release := server.OccupyBodies(t, s.Server)
		post(path+"?timeout=200ms", large, http.StatusGatewayTimeout)
		post(path, `{"metadata":{"name":"small-`+name+`"}}`, http.StatusCreated)
		release()
		post(path, large, http.StatusCreated)
	}
}
