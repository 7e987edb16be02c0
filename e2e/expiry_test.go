package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestExpiryAcrossKills: objects expire after the server was killed and started again, those whose time was over meanwhile
// at once, none before its time, and each once.
func TestExpiryAcrossKills(t *testing.T) {
	t.Parallel()
	const objects = 30
	dir := t.TempDir()
	p := start(t, "--data-dir", dir)
	p.define()
	made := map[string]time.Time{} // before each was created
	lives := map[string]time.Duration{}
	create := func(name string, ttl time.Duration) {
		t.Helper()
		made[name], lives[name] = time.Now(), ttl
		p.do(http.StatusCreated, "POST", widgets, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",
			"metadata":{"name":%q,"annotations":{"apiserver-lite/ttl":%q}},"spec":{"size":1}}`, name, ttl))
	}
	for i := range objects {
		create(fmt.Sprintf("w%02d", i), time.Duration(i%6)*500*time.Millisecond)
	}
	create("stays", time.Hour)
	p.do(http.StatusCreated, "POST", widgets, widget("without", 1))
	from := p.do(http.StatusOK, "GET", widgets, "").object
	left := map[string]bool{}
	for _, o := range from.Items {
		left[o.Metadata.Name] = true
	}
	last, deleted := from.rv(t), map[string]bool{}
	for round := 0; len(left) > 2; round++ {
		s := p.watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d", widgets, last))
		for range 1 + 5*round { // then it's killed, in the middle
			if len(left) == 2 {
				break
			}
			e, err := s.next()
			if err != nil {
				t.Fatal(err)
			}
			name, rv := e.Object.Metadata.Name, e.Object.rv(t)
			if e.Type != "DELETED" || deleted[name] || rv <= last {
				t.Errorf("%s %s at %d, after %d", e.Type, name, rv, last)
			}
			if age := time.Since(made[name]); age < lives[name] {
				t.Errorf("%s was deleted after %v, and lives %v", name, age, lives[name])
			}
			last, deleted[name] = rv, true
			delete(left, name)
		}
		s.body.Close()
		p.kill()
		p = start(t, "--data-dir", dir)
	}
	if !left["stays"] || !left["without"] {
		t.Errorf("left are %v", left)
	}
	for name := range left {
		p.do(http.StatusOK, "GET", widgets+"/"+name, "")
	}
}
