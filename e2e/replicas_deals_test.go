package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	transactions = "/apiserver-lite/v1/transactions"
	configMaps   = "/api/v1/namespaces/default/configmaps"
	// dealers is how many clients make deals, each with any replica.
	dealers = 4
)

// table is where clients make deals: those of one round.
type table struct {
	t        *testing.T
	replicas *replicas
	book     *book
	round    string // what the names of the round's objects begin with
	from     int64  // the version at which the round begins

	mu   sync.Mutex // guards last
	last int64      // the version of the round's last write; 0 before it
}

// end returns the version of the round's last write, or 0.
func (c *table) end() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// name is that of a group's object.
func (c *table) name(of, key int) string { return fmt.Sprintf("%sg%dk%d", c.round, of, key) }

// place is the other way round.
func (c *table) place(name string) (of, key int, is bool) {
	rest, is := strings.CutPrefix(name, c.round+"g")
	if _, err := fmt.Sscanf(rest, "%dk%d", &of, &key); !is || err != nil {
		return 0, 0, false
	}
	return of, key, true
}

// isWidget tells whether that object of each group is one.
func isWidget(key int) bool { return key%2 == 0 }

// collection is where such an object is created.
func collection(key int) string {
	if isWidget(key) {
		return widgets
	}
	return configMaps
}

// resource is how operations and watches name its kind.
func resource(key int) string {
	if isWidget(key) {
		return "widgets.example.com"
	}
	return "configmaps"
}

// valueOf returns the number that an object holds.
func valueOf(o object) int64 {
	if o.Kind == "ConfigMap" || o.Data != nil {
		n, _ := strconv.ParseInt(o.Data["value"], 10, 64)
		return n
	}
	return o.Spec.Size
}

// document is an object that holds a number.
func (c *table) document(of, key int, value int64, rv string) string {
	more := ""
	if rv != "" {
		more = fmt.Sprintf(`,"resourceVersion":%q`, rv)
	}
	if isWidget(key) {
		return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q%s},"spec":{"size":%d}}`, c.name(of, key), more, value)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{"value":"%d"}}`, c.name(of, key), more, value)
}

// known is what a client has read of all groups.
type known struct {
	groups   [dealGroups]group
	versions [dealGroups][groupKeys]string
}

// present returns a replica that is up.
func (c *table) present() *replica {
	for {
		if r := c.replicas.any(); r.base() != "" {
			return r
		}
	}
}

// list reads both kinds as they were at one moment: widgets, and then ConfigMaps at the same version, through any replicas.
func (c *table) list(id int, first *replica) (k known, ok bool) {
	call, l := c.book.now(), dealList{}
	back := int64(0)
	for kind, path := range []string{widgets, configMaps} {
		r := first
		if kind == 1 {
			r, path = c.present(), fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", path, l.rv)
		}
		_, a, err := r.ask("GET", path, "")
		switch {
		case err != nil || retry(a.code):
			return k, false
		case a.code != http.StatusOK:
			c.book.wrong("%s answered GET %s with %d: %s", r.name, path, a.code, a.body)
			return k, false
		case kind == 0:
			back, l.who, l.rv = c.book.now(), r.name, a.object.rv(c.t)
		}
		for _, o := range a.object.Items {
			if of, key, is := c.place(o.Metadata.Name); is {
				k.groups[of][key], k.versions[of][key] = valueOf(o), o.Metadata.ResourceVersion
			}
		}
	}
	l.groups = k.groups
	c.book.listed(id, call, back, l)
	return k, true
}

// get reads one object.
func (c *table) get(id int) {
	of, key := rand.IntN(dealGroups), rand.IntN(groupKeys)
	values, call, r := nothing, c.book.now(), c.present()
	_, a, err := r.ask("GET", collection(key)+"/"+c.name(of, key), "")
	switch {
	case err != nil || retry(a.code):
		return
	case a.code == http.StatusOK:
		values[key] = valueOf(a.object)
	case a.code == http.StatusNotFound && strings.Contains(a.object.Message, c.name(of, key)):
		values[key] = 0
	default:
		c.book.wrong("%s answered a get with %d: %s", r.name, a.code, a.body)
		return
	}
	c.book.looked(id, of, call, c.book.now(), values)
}

// deal makes deals until ctx ends.
func (c *table) deal(ctx context.Context, id int) {
	for ctx.Err() == nil && !c.book.failed() {
		c.get(id)
		k, ok := c.list(id, c.present())
		for range 1 + rand.IntN(3) { // from what it knows, which may be old
			if !ok {
				break
			}
			of := rand.IntN(dealGroups)
			if rand.IntN(4) == 0 {
				c.write(id, of, k)
			} else {
				c.transact(id, of, k)
			}
		}
	}
}

// write writes one object by itself.
func (c *table) write(id, of int, k known) {
	d := deal{id: c.book.next.Add(1), group: of, expected: nothing, written: nothing}
	key := rand.IntN(groupKeys)
	d.expected[key], d.written[key] = k.groups[of][key], d.id
	method, path := "POST", collection(key)
	if d.expected[key] != 0 {
		method, path = "PUT", path+"/"+c.name(of, key)
	}
	c.send(id, d, method, path, c.document(of, key, d.id, k.versions[of][key]))
}

// transact writes some objects of a group, and asks that others are as they're known.
func (c *table) transact(id, of int, k known) {
	d := deal{id: c.book.next.Add(1), group: of, expected: nothing, written: nothing}
	var operations []string
	for n, key := range rand.Perm(groupKeys)[:2+rand.IntN(groupKeys-1)] {
		value, rv := k.groups[of][key], k.versions[of][key]
		named := fmt.Sprintf(`"resource":%q,"name":%q`, resource(key), c.name(of, key))
		check := fmt.Sprintf(`{"check":{%s,"resourceVersion":%q}}`, named, rv)
		switch field := "object.data.value == '%d'"; {
		case value == 0:
			check = fmt.Sprintf(`{"check":{%s,"absent":true}}`, named)
		case rand.IntN(2) == 0 && isWidget(key):
			field = "object.spec.size == %d"
			fallthrough
		case rand.IntN(2) == 0 && !isWidget(key):
			check = fmt.Sprintf(`{"check":{%s,"cel":%q}}`, named, fmt.Sprintf(field, value))
		}
		d.expected[key] = value
		if n > 1 && rand.IntN(3) == 0 {
			operations = append(operations, check)
			continue
		}
		d.written[key] = d.id
		switch way := rand.IntN(4); {
		case value == 0:
			operations = append(operations, fmt.Sprintf(`{"create":%s}`, c.document(of, key, d.id, "")))
		case n > 0 && way == 0:
			d.written[key] = 0
			operations = append(operations, fmt.Sprintf(`{"delete":{%s,"options":{"preconditions":{"resourceVersion":%q}}}}`, named, rv))
		case way == 1:
			operations = append(operations, fmt.Sprintf(`{"update":%s}`, c.document(of, key, d.id, rv)))
		default: // by a patch that names no version: if others come first it's tried again, with its check
			operations = append(operations, check, fmt.Sprintf(`{"patch":{%s,"type":"merge","body":%s}}`, named, c.document(of, key, d.id, "")))
		}
	}
	c.send(id, d, "POST", transactions, `{"operations":[`+strings.Join(operations, ",")+`]}`)
}

// send sends a deal to any replica, and notes what becomes of it.
func (c *table) send(id int, d deal, method, path, body string) {
	within := requestPatience
	if rand.IntN(16) == 0 { // some clients give up while it's done
		within = rand.N(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, call := c.present(), c.book.now()
	to := client{base: r.base(), http: r.http}
	a, err := to.tryWithin(ctx, method, path, body)
	switch {
	case err != nil || retry(a.code): // nobody knows
	case a.code == http.StatusOK || a.code == http.StatusCreated:
		d.answered, d.rv = done, writtenAt(a)
	case a.code == http.StatusConflict, a.code == http.StatusNotFound && strings.Contains(a.object.Message, c.round):
		d.answered = refused
	default:
		c.book.wrong("%s answered %s %s with %d: %s\n%s", r.name, method, path, a.code, a.body, body)
	}
	c.book.dealt(id, d, call)
}

// writtenAt returns the version of a write's answer, or 0.
func writtenAt(a answer) int64 {
	var result struct{ ResourceVersion string }
	if json.Unmarshal([]byte(a.body), &result) != nil || result.ResourceVersion == "" {
		result.ResourceVersion = a.object.Metadata.ResourceVersion
	}
	rv, _ := strconv.ParseInt(result.ResourceVersion, 10, 64)
	return rv
}

// watcher is a watch of both kinds on one stream of one replica, through as many connections as it takes.
type watcher struct {
	*table
	of *replica

	rv      int64 // of the last event
	pending []event
	resumed bool // no event has come since
}

// run watches until the round's last write has come.
func (w *watcher) run() {
	for w.rv = w.from; (w.end() == 0 || w.rv < w.end()) && !w.book.failed() && !w.t.Failed(); {
		w.connection()
		w.resumed = true
	}
}

// connection watches for one connection.
func (w *watcher) connection() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	base := w.of.base()
	for ; base == "" && !w.book.failed() && !w.t.Failed(); base = w.of.base() { // the replica is away
		<-tick.C
	}
	request, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s/apiserver-lite/v1/watch?resource=configmaps&resource=widgets.example.com&timeoutSeconds=%d&resourceVersion=%d", base, 1+rand.IntN(3), w.rv), nil)
	if base == "" || err != nil {
		return
	}
	res, err := w.of.http.Do(request)
	if err != nil {
		return
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		if body, _ := io.ReadAll(res.Body); !retry(res.StatusCode) {
			w.book.wrong("a watch at %s from %d was answered %d: %s", w.of.name, w.rv, res.StatusCode, body)
		}
		return
	}
	for lines := bufio.NewReader(res.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Type == "ERROR" {
			if !retry(e.Object.Code) {
				w.book.wrong("a watch at %s from %d got %q: %v", w.of.name, w.rv, line, err)
			}
			return
		}
		if !w.take(e) {
			return
		}
	}
}

// take takes an event, and tells whether the watch goes on. What comes at one version belongs together; after a resume all of it comes again.
func (w *watcher) take(e event) bool {
	rv := e.Object.rv(w.t)
	switch {
	case rv < w.rv:
		w.book.wrong("a watch at %s went back: after %d comes %+v", w.of.name, w.rv, e)
		return false
	case rv > w.rv:
		w.whole()
	case w.resumed && e.Type != "BOOKMARK":
		w.pending = nil
	}
	w.rv, w.resumed = rv, w.resumed && e.Type == "BOOKMARK"
	if _, _, ours := w.place(e.Object.Metadata.Name); ours && e.Type != "BOOKMARK" {
		w.pending = append(w.pending, e)
	}
	return w.end() == 0 || w.rv < w.end()
}

// whole notes what has come at one version.
func (w *watcher) whole() {
	s := seenDeal{values: nothing}
	for i, e := range w.pending {
		of, key, _ := w.place(e.Object.Metadata.Name)
		if i > 0 && of != s.group || s.values[key] != untouched {
			w.book.wrong("a watch at %s got %+v at %d, of several deals", w.of.name, w.pending, w.rv)
		}
		s.group = of
		if s.values[key] = 0; e.Type != "DELETED" {
			s.values[key], s.added[key] = valueOf(e.Object), e.Type == "ADDED"
		}
	}
	if len(w.pending) > 0 {
		w.book.saw("a watch at "+w.of.name, w.rv, s)
	}
	w.pending = nil
}

// deals lets clients make deals while faults happen, one after the other, and compares all that the clients were told.
func (rs *replicas) deals(round int, faults []fault) {
	rs.t.Helper()
	c := &table{t: rs.t, replicas: rs, book: newBook(), round: fmt.Sprintf("d%d-", round)}
	c.from = rs.insist("GET", widgets, "", http.StatusOK).object.rv(rs.t)
	ctx, stop := context.WithCancel(context.Background())
	var dealing, watching sync.WaitGroup
	defer watching.Wait()
	defer dealing.Wait()
	defer stop()
	for id := range dealers {
		dealing.Go(func() { c.deal(ctx, id) })
	}
	for _, r := range rs.all {
		watching.Go((&watcher{table: c, of: r}).run)
	}
	for _, f := range faults {
		c.more(dealsBetween)
		if f.do(nil); rs.t.Failed() || c.book.failed() {
			break
		}
		rs.t.Logf("%s: %d deals by now", f.name, c.book.next.Load())
	}
	c.more(dealsBetween)
	stop()
	dealing.Wait()
	rs.insist("POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"%slast"}}`, c.round), http.StatusCreated, http.StatusConflict)
	last := rs.insist("GET", configMaps+"/"+c.round+"last", "", http.StatusOK).object.rv(rs.t)
	c.mu.Lock()
	c.last = last
	c.mu.Unlock()
	watching.Wait()
	for _, r := range rs.all {
		eventually(rs.t, r.name+" lists", func() bool {
			_, ok := c.list(dealers, r)
			return ok || c.book.failed()
		})
	}
	for _, problem := range c.book.check() {
		rs.t.Error(problem)
	}
	rs.t.Logf("round %d: %s", round, c.book.summary())
}

// dealsBetween is how many deals are made, at least, before and after a fault, so that there are some that it doesn't touch.
const dealsBetween = 100

// more waits until so many more deals are begun.
func (c *table) more(n int64) {
	from := c.book.next.Load()
	eventually(c.t, "clients make deals", func() bool { return c.book.failed() || c.book.next.Load() >= from+n })
}

// TestReplicasTransactions: transactions over objects of two kinds, made through any of three replicas over one etcd, are one step each for those
// who read and list through any replica, and for who watches both kinds on one stream of one: also while a replica is killed, connections to etcd
// break, and a replica is cut off, so that nobody knows whether a transaction happened.
func TestReplicasTransactions(t *testing.T) {
	t.Parallel()
	r := newRemote(t, 3)
	r.deals(0, []fault{
		{"a replica is killed", r.one(r.kill, time.Second)},
		{"connections to etcd break", func(*clients) { r.links[r.any().name].drop() }},
		{"the replica that acts is killed", func(*clients) { one := r.acting(); r.kill(one, r.goOn(time.Second/2, one)) }},
		{"a replica is cut off", r.one(r.split, time.Second)},
	})
}
