package builtin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const servicesPath = "/api/v1/namespaces/default/services"

// TestNodePorts: services get ports of nodes as kube-apiserver gives them.
func TestNodePorts(t *testing.T) {
	s := servertest.New(t, all)
	create := func(t *testing.T, name, spec string) map[string]any {
		t.Helper()
		return parse(t, must(t, s, http.MethodPost, servicesPath, fmt.Sprintf(`{"metadata":{"name":"%s"},"spec":%s}`, name, spec), http.StatusCreated))
	}
	patch := func(t *testing.T, name, spec string, code int) map[string]any {
		t.Helper()
		return parse(t, must(t, s, http.MethodPatch, servicesPath+"/"+name, `{"spec":`+spec+`}`, code, "Content-Type", "application/merge-patch+json"))
	}
	port := func(t *testing.T, service map[string]any, path string) int {
		t.Helper()
		n, _ := in(service, path).(float64)
		if n < 30000 || n > 32767 {
			t.Errorf("%s is %v of %v", path, in(service, path), service["spec"])
		}
		return int(n)
	}
	absent := func(t *testing.T, service map[string]any, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if v := in(service, path); v != nil {
				t.Errorf("%s is %v", path, v)
			}
		}
	}
	t.Run("given and kept", func(t *testing.T) {
		made := create(t, "a", `{"type":"NodePort","ports":[{"name":"x","port":80},{"name":"y","port":81}]}`)
		x, y := port(t, made, "spec.ports.0.nodePort"), port(t, made, "spec.ports.1.nodePort")
		if x == y {
			t.Errorf("both ports have %d", x)
		}
		// A PUT that says nothing of them, in another order.
		put := parse(t, must(t, s, http.MethodPut, servicesPath+"/a", `{"metadata":{"name":"a"},"spec":{"type":"NodePort","ports":[{"name":"y","port":81},{"name":"x","port":8080},{"name":"z","port":82}]}}`, http.StatusOK))
		if port(t, put, "spec.ports.0.nodePort") != y || port(t, put, "spec.ports.1.nodePort") != x || at(put, "spec.clusterIP") != at(made, "spec.clusterIP") {
			t.Errorf("it was %v and is %v", made["spec"], put["spec"])
		}
		if z := port(t, put, "spec.ports.2.nodePort"); z == x || z == y {
			t.Errorf("the new port has %d", z)
		}
		absent(t, patch(t, "a", `{"type":"ClusterIP"}`, http.StatusOK), "spec.ports.0.nodePort", "spec.ports.1.nodePort", "spec.externalTrafficPolicy")
		again := patch(t, "a", `{"type":"LoadBalancer"}`, http.StatusOK)
		port(t, again, "spec.ports.0.nodePort")
		left := patch(t, "a", `{"type":"ExternalName","externalName":"example.com"}`, http.StatusOK)
		absent(t, left, "spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.ports.0.nodePort", "spec.allocateLoadBalancerNodePorts")
	})
	t.Run("one number for two protocols", func(t *testing.T) {
		made := create(t, "dns", `{"type":"NodePort","ports":[{"name":"u","port":53,"protocol":"UDP"},{"name":"t","port":53,"protocol":"TCP"}]}`)
		if u, tcp := port(t, made, "spec.ports.0.nodePort"), port(t, made, "spec.ports.1.nodePort"); u != tcp {
			t.Errorf("%d and %d", u, tcp)
		}
	})
	t.Run("chosen", func(t *testing.T) {
		s := s.In(t)
		create(t, "b", `{"type":"NodePort","ports":[{"port":80,"nodePort":31234}]}`)
		for name, test := range map[string]struct{ spec, field string }{
			"taken":             {`{"type":"LoadBalancer","ports":[{"port":80,"nodePort":31234}]}`, "spec.ports[0].nodePort"},
			"outside":           {`{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81,"nodePort":80}]}`, "spec.ports[1].nodePort"},
			"twice":             {`{"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":31000},{"name":"b","port":81,"nodePort":31000}]}`, "spec.ports[1].nodePort"},
			"of the wrong type": {`{"ports":[{"port":80,"nodePort":31000}]}`, "spec.ports[0].nodePort"},
			"for health":        {`{"type":"NodePort","healthCheckNodePort":31000,"ports":[{"port":80}]}`, "spec.healthCheckNodePort"},
		} {
			status := parse(t, must(t, s, http.MethodPost, servicesPath, `{"metadata":{"name":"c"},"spec":`+test.spec+`}`, http.StatusUnprocessableEntity))
			if got := in(status, "details.causes.0.field"); got != test.field {
				t.Errorf("%s: refused for %v: %v", name, got, status["message"])
			}
		}
		if refused := patch(t, "dns", `{"ports":[{"port":53,"nodePort":31234}]}`, http.StatusUnprocessableEntity); !strings.Contains(str(refused["message"]), "already allocated") {
			t.Errorf("%v", refused["message"])
		}
		must(t, s, http.MethodDelete, servicesPath+"/b", "", http.StatusOK)
		s.Quiescent()
		create(t, "c", `{"type":"NodePort","ports":[{"port":80,"nodePort":31234}]}`)
	})
	t.Run("load balancers", func(t *testing.T) {
		made := create(t, "l", `{"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]}`)
		if port(t, made, "spec.healthCheckNodePort") == port(t, made, "spec.ports.0.nodePort") {
			t.Errorf("one port for two: %v", made["spec"])
		}
		absent(t, patch(t, "l", `{"externalTrafficPolicy":"Cluster"}`, http.StatusOK), "spec.healthCheckNodePort")
		absent(t, create(t, "m", `{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"port":80}]}`), "spec.ports.0.nodePort")
	})
}

// wideRange has addresses for thousands of Services.
func wideRange(s *server.Server) { s.API.ServiceIPs = netip.MustParsePrefix("10.0.0.0/16") }

// fillServices makes so many Services of a type, and returns their ports of nodes by their names.
func fillServices(t testing.TB, s *servertest.Server, kind string, n int) map[string]int {
	t.Helper()
	var mu sync.Mutex // guards ports
	ports := map[string]int{}
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := c; i < n; i += 8 {
				code, text := do(s, http.MethodPost, servicesPath, `{"metadata":{"generateName":"many-"},"spec":{"type":"`+kind+`","ports":[{"port":80}]}}`)
				var made struct {
					Metadata struct{ Name string }
					Spec     struct{ Ports []struct{ NodePort int } }
				}
				if err := json.Unmarshal([]byte(text), &made); code != http.StatusCreated || err != nil || len(made.Spec.Ports) != 1 {
					t.Errorf("%d %s", code, text)
					return
				}
				mu.Lock()
				ports[made.Metadata.Name] = made.Spec.Ports[0].NodePort
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return ports
}

// TestNodePortsOfMany: where Services are so many that an index finds who has a port, each has one of its own, one that is taken is refused, and
// one that is given back can be had.
func TestNodePortsOfMany(t *testing.T) {
	s := servertest.New(t, all, wideRange)
	fillServices(t, s, "ClusterIP", 1030) // with the 1,024th there may be an index, from the second Service on that needs it
	ports, of := fillServices(t, s, "NodePort", 40), map[int]string{}
	for name, port := range ports {
		if other, taken := of[port]; taken {
			t.Errorf("%s and %s have port %d", name, other, port)
		}
		of[port] = name
	}
	first := slices.Min(slices.Collect(maps.Keys(ports)))
	port := ports[first]
	with := func(name, kind string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":%q,"ports":[{"port":80,"nodePort":%d}]}}`, name, kind, port)
	}
	must(t, s, http.MethodPost, servicesPath, with("a", "LoadBalancer"), http.StatusUnprocessableEntity)
	must(t, s, http.MethodPatch, servicesPath+"/"+first, `{"spec":{"type":"ClusterIP"}}`, http.StatusOK, "Content-Type", "application/merge-patch+json")
	must(t, s, http.MethodPost, servicesPath, with("a", "LoadBalancer"), http.StatusCreated)
	must(t, s, http.MethodPost, servicesPath, with("b", "NodePort"), http.StatusUnprocessableEntity)
	must(t, s, http.MethodDelete, servicesPath+"/a", "", http.StatusOK)
	s.Quiescent()
	must(t, s, http.MethodPost, servicesPath, with("b", "NodePort"), http.StatusCreated)
}

// TestPortGivenBack: who is told that a Service has lost its port may give that to another one at once, whatever the caches know by then.
func TestPortGivenBack(t *testing.T) {
	s := servertest.New(t, all, wideRange)
	for _, name := range []string{"a", "b"} {
		must(t, s, http.MethodPost, servicesPath, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"ClusterIP","ports":[{"port":80}]}}`, name), http.StatusCreated)
	}
	patch := func(name, spec string) {
		must(t, s, http.MethodPatch, servicesPath+"/"+name, `{"spec":`+spec+`}`, http.StatusOK, "Content-Type", "application/merge-patch+json")
	}
	for range 200 {
		for _, name := range []string{"a", "b"} {
			patch(name, `{"type":"NodePort","ports":[{"port":80,"nodePort":31000}]}`)
			patch(name, `{"type":"ClusterIP"}`)
		}
	}
}

// BenchmarkNodePort is what a Service with a port of nodes costs that is the first one, and among 2,000.
func BenchmarkNodePort(b *testing.B) {
	for _, others := range []int{0, 2000} {
		if testing.Short() {
			others /= 100
		}
		b.Run(fmt.Sprint("others=", others), func(b *testing.B) {
			s := servertest.New(b, all, wideRange)
			fillServices(b, s, "NodePort", others)
			for b.Loop() {
				if code, text := do(s, http.MethodPost, servicesPath, `{"metadata":{"name":"a"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`); code != http.StatusCreated {
					b.Fatal(text)
				}
				b.StopTimer()
				do(s, http.MethodDelete, servicesPath+"/a", "")
				b.StartTimer()
			}
		})
	}
}

// TestFamilies: services say of which family their addresses are, of which the server has one.
func TestFamilies(t *testing.T) {
	s := servertest.New(t, all)
	for _, test := range []struct{ name, spec, want string }{
		{"a", `{"ports":[{"port":80}]}`, "SingleStack [IPv4]"},
		{"b", `{"ipFamilyPolicy":"PreferDualStack","ports":[{"port":80}]}`, "PreferDualStack [IPv4]"},
		{"c", `{"clusterIP":"None","selector":{"a":"b"}}`, "SingleStack [IPv4]"},
		{"d", `{"clusterIP":"None"}`, "RequireDualStack [IPv4 IPv6]"},
		{"e", `{"ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}`, "spec.ipFamilyPolicy"},
		{"f", `{"ipFamilies":["IPv6"],"ports":[{"port":80}]}`, "spec.ipFamilies[0]"},
		{"g", `{"type":"ExternalName","externalName":"example.com","ipFamilies":["IPv4"]}`, "spec.ipFamilies"},
	} {
		_, text := do(s, http.MethodPost, servicesPath, `{"metadata":{"name":"`+test.name+`"},"spec":`+test.spec+`}`)
		answer := parse(t, text)
		got := str(in(answer, "details.causes.0.field"))
		if got == "<nil>" || got == "" {
			got = fmt.Sprint(at(answer, "spec.ipFamilyPolicy"), " ", at(answer, "spec.ipFamilies"))
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.spec, got, test.want)
		}
	}
	released := parse(t, must(t, s, http.MethodPatch, servicesPath+"/d", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`, http.StatusOK, "Content-Type", "application/merge-patch+json"))
	if got := fmt.Sprint(at(released, "spec.ipFamilies")); got != "[IPv4]" {
		t.Errorf("a service that releases the second family has %s", got)
	}
}

// TestAddressesAtOnce: many clients at once never get one address twice, whatever else fails and whoever leaves early, and get all
// that there are.
func TestAddressesAtOnce(t *testing.T) {
	const free = 13 // of 16: without the network's, the last and that of default/kubernetes
	s := servertest.New(t, all, func(s *server.Server) { s.API.ServiceIPs = netip.MustParsePrefix("10.0.0.16/28") })
	var (
		mu     sync.Mutex // guards codes
		codes  = map[int]int{}
		writes sync.WaitGroup
	)
	send := func(path, body string) {
		writes.Go(func() {
			code, text := do(s, http.MethodPost, path, body)
			mu.Lock()
			defer mu.Unlock()
			if codes[code]++; code == http.StatusInternalServerError && !strings.Contains(text, "range is full") {
				t.Errorf("answered %s", text)
			}
		})
	}
	for i := range 40 {
		send(servicesPath, fmt.Sprintf(`{"metadata":{"name":"s-%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i))
		send(servicesPath+"?dryRun=All", fmt.Sprintf(`{"metadata":{"name":"d-%d"},"spec":{"ports":[{"port":80}]}}`, i))
		send(servicesPath, `{"metadata":{"name":"kubernetes"},"spec":{"ports":[{"port":80}]}}`) // there is one
		send(servicesPath+fmt.Sprintf("?timeout=%dms", 1+i%8), fmt.Sprintf(`{"metadata":{"name":"l-%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i))
		send("/api/v1/namespaces/none/services", `{"metadata":{"name":"x"},"spec":{"ports":[{"port":80}]}}`)
	}
	writes.Wait()
	// What failed gave back what it had taken.
	for i := 0; ; i++ {
		code, _ := do(s, http.MethodPost, servicesPath, fmt.Sprintf(`{"metadata":{"name":"t-%d"},"spec":{"ports":[{"port":80}]}}`, i))
		if code != http.StatusCreated {
			break
		}
	}
	ips, ports := map[string]string{}, map[string]string{}
	list := parse(t, must(t, s, http.MethodGet, servicesPath, "", http.StatusOK))
	items, _ := list["items"].([]any)
	for _, item := range items {
		name, ip, port := str(at(item, "metadata.name")), str(at(item, "spec.clusterIP")), in(item, "spec.ports.0.nodePort")
		if other := ips[ip]; other != "" {
			t.Errorf("%s and %s have %s", name, other, ip)
		}
		if other := ports[fmt.Sprint(port)]; other != "" && port != nil {
			t.Errorf("%s and %s have port %v", name, other, port)
		}
		ips[ip], ports[fmt.Sprint(port)] = name, name
	}
	if len(items) != free+1 {
		t.Errorf("%d services have addresses, want %d and default/kubernetes; answers by code: %v", len(items)-1, free, codes)
	}
}

// TestOneAddressForMany: of many clients that ask for one address and one port, one gets them.
func TestOneAddressForMany(t *testing.T) {
	s := servertest.New(t, all)
	var writes sync.WaitGroup
	created := make(chan string, 20)
	for i := range cap(created) {
		writes.Go(func() {
			code, text := do(s, http.MethodPost, servicesPath, fmt.Sprintf(`{"metadata":{"name":"s-%d"},"spec":{"type":"NodePort","clusterIP":"10.0.0.9","ports":[{"port":80,"nodePort":30009}]}}`, i))
			if code == http.StatusCreated {
				created <- text
			} else if code != http.StatusUnprocessableEntity {
				t.Errorf("answered %d %s", code, text)
			}
		})
	}
	writes.Wait()
	if n := len(created); n != 1 {
		t.Errorf("%d got it", n)
	}
}

// TestServicesOverRestart: what was given stays given, and default/kubernetes is written only where the server
// listens elsewhere.
func TestServicesOverRestart(t *testing.T) {
	const slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	var (
		dir      string
		made     map[string]any
		own      string
		led      map[string]any
		second   *server.Server
		durable  = func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }
		attempts = 0
	)
	for second == nil { // the second one needs the first one's port, which another process may take in between
		attempts++
		dir = filepath.Join(t.TempDir(), fmt.Sprint("data-", attempts))
		first := servertest.New(t, all, durable)
		made = parse(t, must(t, first, http.MethodPost, servicesPath, `{"metadata":{"name":"a"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, http.StatusCreated))
		own, led = first.Get(servicesPath+"/kubernetes"), parse(t, first.Get(slice))
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second = startAt(t, strings.TrimPrefix(first.URL, "http://"), all, durable)
	}
	ask := func(method, path, body string, code int) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, second.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Close = true
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != code {
			t.Fatalf("%s %s: %v, %d %s", method, path, err, res.StatusCode, text)
		}
		return string(text)
	}
	if now := ask(http.MethodGet, servicesPath+"/kubernetes", "", http.StatusOK); now != own {
		t.Errorf("default/kubernetes was\n%s\nand is\n%s", own, now)
	}
	if now := parse(t, ask(http.MethodGet, slice, "", http.StatusOK)); at(now, "metadata.resourceVersion") != at(led, "metadata.resourceVersion") {
		t.Errorf("its slice was\n%v\nand is\n%v", led, now)
	}
	for _, spec := range []string{`{"clusterIP":"` + str(at(made, "spec.clusterIP")) + `","ports":[{"port":80}]}`,
		fmt.Sprintf(`{"type":"NodePort","ports":[{"port":80,"nodePort":%v}]}`, in(made, "spec.ports.0.nodePort"))} {
		ask(http.MethodPost, servicesPath, `{"metadata":{"name":"b"},"spec":`+spec+`}`, http.StatusUnprocessableEntity)
	}
	if err := errors.Join(second.Verify(t.Context()), second.Close()); err != nil {
		t.Fatal(err)
	}

	third := servertest.New(t, all, durable)
	now := parse(t, third.Get(slice))
	if port := netip.MustParseAddrPort(strings.TrimPrefix(third.URL, "http://")).Port(); in(now, "ports.0.port") != float64(port) {
		t.Errorf("the slice leads to %v, not to %d", in(now, "ports.0.port"), port)
	}
	if at(now, "metadata.uid") != at(led, "metadata.uid") || at(now, "metadata.generation") == at(led, "metadata.generation") {
		t.Errorf("the slice is another: %v", now["metadata"])
	}
}

// startAt starts a server at an address, or returns nil if somebody else listens there.
func startAt(t *testing.T, address string, options ...func(*server.Server)) *server.Server {
	t.Helper()
	s := &server.Server{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, option := range options {
		option(s)
	}
	s.Serving.Listen = address
	err := s.Start(t.Context())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // if the test fails before it closes it
	return s
}

// TestLowNumbersAreLeft: what is given to a Service comes from above the addresses and ports that people choose by number, until
// these are all that is left.
func TestLowNumbersAreLeft(t *testing.T) {
	const ports, left = 34, 16
	s := servertest.New(t, all, func(s *server.Server) {
		s.API.ServiceIPs, s.API.NodePorts = netip.MustParsePrefix("10.7.0.0/26"), utilnet.PortRange{Base: 31000, Size: ports}
	})
	for n := range ports {
		made := parse(t, must(t, s, http.MethodPost, servicesPath, fmt.Sprintf(`{"metadata":{"name":"s-%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, n), http.StatusCreated))
		port, _ := in(made, "spec.ports.0.nodePort").(float64)
		ip, err := netip.ParseAddr(str(in(made, "spec.clusterIP")))
		if err != nil {
			t.Fatalf("%v", made["spec"])
		}
		if low := int(port) < 31000+left; low != (n >= ports-left) {
			t.Errorf("the %d. Service has port %v", n+1, port)
		}
		if ip.As4()[3] <= left {
			t.Errorf("the %d. Service has address %v", n+1, ip)
		}
	}
}
