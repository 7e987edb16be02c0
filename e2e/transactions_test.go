package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestKillTransactions kills the server while clients make transactions, several times on one data directory: of each transaction
// everything is there afterwards or nothing, at one version, and of those that were acknowledged everything.
func TestKillTransactions(t *testing.T) {
	t.Parallel()
	const rounds, clients = 4, 8
	dir := t.TempDir()
	configMaps := "/api/v1/namespaces/default/configmaps"
	for round := range rounds {
		p := start(t, "--data-dir", dir)
		if round == 0 {
			p.define()
		}
		var (
			all   sync.WaitGroup
			mu    sync.Mutex // guards acked
			acked = map[string]bool{}
			some  = make(chan struct{}, 1<<20)
		)
		for c := range clients {
			all.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("t%d-%d-%d", round, c, n)
					a, err := p.try("POST", "/apiserver-lite/v1/transactions", fmt.Sprintf(
						`{"operations":[{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}},{"create":%s},{"patch":{"resource":"configmaps","name":%[1]q,"type":"merge","body":{"data":{"last":"yes"}}}}]}`,
						name, widget(name, 1)))
					if err != nil {
						return // the server is gone
					}
					if a.code != http.StatusOK {
						t.Errorf("%s: %d %s", name, a.code, a.body)
						return
					}
					mu.Lock()
					acked[name] = true
					mu.Unlock()
					some <- struct{}{}
				}
			})
		}
		for range 20 + rand.IntN(300) {
			select {
			case <-some:
			case <-time.After(patience):
				t.Fatal("no transaction was acknowledged")
			}
		}
		p.kill()
		all.Wait()

		p = start(t, "--data-dir", dir)
		versions := map[string]string{}
		for _, o := range p.do(http.StatusOK, "GET", widgets, "").object.Items {
			versions[o.Metadata.Name] = o.Metadata.ResourceVersion
		}
		for _, o := range p.do(http.StatusOK, "GET", configMaps, "").object.Items {
			name := o.Metadata.Name
			if name[0] != 't' {
				continue
			}
			if versions[name] != o.Metadata.ResourceVersion {
				t.Errorf("%s: the ConfigMap has the version %s, and the widget %q", name, o.Metadata.ResourceVersion, versions[name])
			}
			if o.Data["last"] != "yes" {
				t.Errorf("%s was created and not patched: %v", name, o.Data)
			}
			delete(versions, name)
			delete(acked, name)
		}
		if len(versions) > 0 || len(acked) > 0 {
			t.Errorf("round %d: widgets without ConfigMaps: %v; acknowledged, and not there: %v", round, versions, acked)
		}
		p.stop()
	}
}
