package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
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

// TestUploadsAreBounded: large bodies that come slowly don't add up in memory, and one client's leave room for another's. Small
// bodies wait for none of them, not even those of the same client.
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	const path = "/api/v1/namespaces/default/configmaps"
	const uploads = server.HalfOfRaw/server.LargestBody + 9
	body := bytes.Repeat([]byte(" "), server.LargestBody)
	var sending, answered sync.WaitGroup
	finish := make(chan struct{})
	for range uploads {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		sending.Go(func() { // all but the last byte
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
			conn.Write(body[1:]) // which fails where the answer is a 429
			<-finish
			conn.Write(body[:1])
		})
		answered.Go(func() {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Error(err)
				return
			}
			res.Body.Close()
			if res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("a body of blanks is answered %s", res.Status)
			}
		})
	}
	until(t, "some wait for room", func() bool { _, waiting := server.RawBodies(s.Server); return waiting > 0 })
	if taken, _ := server.RawBodies(s.Server); taken > server.HalfOfRaw+server.LargestBody {
		t.Errorf("one client has %d bytes of bodies on their way, more than %d and one body", taken, server.HalfOfRaw)
	}
	if res, text := s.Do("POST", path, `{"metadata":{"name":"small"}}`, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
		t.Errorf("a small body of the same client: %s %.300s", res.Status, text)
	}
	large := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 900<<10))
	if code, text := neighbour(t, s.URL)("POST", path, large); code != http.StatusCreated {
		t.Errorf("a large body of another client: %d %.300s", code, text)
	}
	close(finish)
	sending.Wait()
	answered.Wait()
	until(t, "no room is taken", func() bool { taken, waiting := server.RawBodies(s.Server); return taken+waiting == 0 })
}
