package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// normal replaces what must differ between two servers, and between two runs, by whose it is and its order of appearance among those of
// the same object: one that is given too many or too few of them doesn't shift those of others. It's used by one goroutine.
type normal struct {
	begun     time.Time         // times since then are now's: when the scenario began, or the server where nothing is changed
	started   time.Time         // when the server was started
	seconds   []time.Time       // when each request was sent, if each has a second of its own; else none
	asked     time.Time         // when the request was sent whose answer is looked at
	port      string            // the server's own
	oldest    uint64            // the resourceVersion at which the scenario began: a smaller one is the request's own
	newest    uint64            // that was seen
	seen      map[string]string // what was replaced by what, by class, value and object
	owners    map[string]string // the object that a value is of by now, by class and value: addresses and ports are given out again
	counts    map[string]int    // by class and object
	of        string            // the object that is looked at
	names     map[string]string // generated names, and what else has a word of its own
	longest   []string          // the keys of names, none of them after a part of it
	host      string            // the machine's name
	generated int               // how many names were generated
	wellKnown map[string]string // uids that the server gave before, by whom they're of
	hashes    map[string]string // of OpenAPI documents, by path, as the list of them has them
	path      string            // that was asked for
}

func newNormal(started, begun time.Time, oldest uint64, wellKnown map[string]string) *normal {
	return &normal{started: started, begun: begun, asked: time.Now(), hashes: map[string]string{}, oldest: oldest, newest: oldest, seen: map[string]string{}, owners: map[string]string{}, counts: map[string]int{}, names: map[string]string{}, wellKnown: wellKnown}
}

// nth names a value of an object's by the place at which it came among those of its class and of the object.
func (n *normal) nth(class, value, of string) string {
	key := class + " " + value
	n.owners[key] = of
	key += " " + of
	if n.seen[key] == "" {
		of = class + " " + of
		n.counts[of]++
		n.seen[key] = fmt.Sprintf("<%s %d>", of, n.counts[of])
	}
	return n.seen[key]
}

// named names a value by whose it is. If it's nobody's so far, it's that object's.
func (n *normal) named(class, value, of string) string {
	if as := n.whose(class, value); as != "" {
		return as
	}
	return n.nth(class, value, of)
}

// call gives a word of its own to a text.
func (n *normal) call(text, as string) {
	n.names[text] = as
	n.longest = slices.SortedFunc(maps.Keys(n.names), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
}

// whose names a value by whose it is; "" if it's nobody's.
func (n *normal) whose(class, value string) string {
	key := class + " " + value
	of, known := n.owners[key]
	if !known {
		return ""
	}
	return n.seen[key+" "+of]
}

// introduce names what belongs to the objects of a document, before it's met elsewhere.
func (n *normal) introduce(v any) {
	switch v := v.(type) {
	case map[string]any:
		if name := n.nameOf(v); name != "" {
			meta := v["metadata"].(map[string]any)
			if uid, _ := meta["uid"].(string); uidText.MatchString(uid) && n.wellKnown[uid] == "" {
				n.named("uid", uid, name)
			}
			if version, _ := meta["resourceVersion"].(string); version != "" {
				n.version(version, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.introduce(v[name])
		}
	case []any:
		for _, e := range v {
			n.introduce(e)
		}
	}
}

// nameOf returns an object's name, normalized; "" if it's none.
func (n *normal) nameOf(object map[string]any) string {
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if name == "" {
		return ""
	}
	if prefix, _ := meta["generateName"].(string); prefix != "" && strings.HasPrefix(name, prefix) && len(name) > len(prefix) && n.names[name] == "" {
		n.generated++
		n.call(name, prefix+fmt.Sprintf("<random %d>", n.generated))
	}
	if uidText.FindString(name) == name && n.names[name] == "" { // of an object that may be without a name, such as a LimitRange
		n.generated++
		n.call(name, fmt.Sprintf("<random %d>", n.generated))
	}
	if as := n.names[name]; as != "" {
		return as
	}
	return identityText.ReplaceAllString(name, "apiserver-<identity>")
}

var (
	uidText      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timeText     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	addressText  = regexp.MustCompile(`\b10\.0\.0\.(\d{1,3})\b`)
	hostText     = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	anyHost      = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)
	keyText      = regexp.MustCompile(`^[\w-]{43}$`)
	dayText      = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	httpTime     = regexp.MustCompile(`^([A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d) (GMT|UTC)$`)
	versionText  = regexp.MustCompile(`(?i)(resource ?version[^0-9]{0,40}?|decodable revision=)(\d+)`)
	currentText  = regexp.MustCompile(`(resource version: \d+(?:, current: | \())\d+`) // the server's newest or oldest, which other scenarios move
	identityText = regexp.MustCompile(`\bapiserver-[a-z2-7]{26}\b`)                    // made of the machine's name
	ageText      = regexp.MustCompile(`^(\d+[smhdy])+$`)
	portText     = regexp.MustCompile(`\b\d+-\d+\b|\b3[0-2]\d{3}\b`) // a range isn't its ends
	volumeText   = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)
	generated    = regexp.MustCompile(`\b(\w*gen-|g-)[bcdfghjklmnpqrstvwxz2456789]{5}\b`) // in what is said of an object that is refused
	selfType     = regexp.MustCompile(`\bselfType\d+\b`)                                  // that CEL expressions are checked with
	credential   = regexp.MustCompile(`\bX509SHA256=[0-9a-f]{64}\b`)
)

// near is how far apart a time and the clock may be for the time to be the server's "now": a certificate's NotAfter is further off.
const near = 400 * 24 * time.Hour

// text replaces what is in a string.
func (n *normal) text(s string) string {
	if len(s) < 5 {
		return s
	}
	for _, name := range n.longest {
		s = strings.ReplaceAll(s, name, n.names[name])
	}
	s = tokenText.ReplaceAllStringFunc(s, n.token)
	s = uidText.ReplaceAllStringFunc(s, func(uid string) string {
		if of := n.wellKnown[uid]; of != "" {
			return "<uid of " + of + ">"
		}
		return n.named("uid", uid, "?")
	})
	s = timeText.ReplaceAllStringFunc(s, n.time)
	if parts := httpTime.FindStringSubmatch(s); parts != nil {
		if t, err := time.Parse(time.RFC1123, s); err == nil {
			return n.time(t.Format(time.RFC3339)) + " " + parts[2]
		}
	}
	s = addressText.ReplaceAllStringFunc(s, func(address string) string {
		if !isGiven(address) {
			return address
		}
		return n.named("address", address, n.of)
	})
	s = currentText.ReplaceAllString(s, "$1<the server's>")
	s = replaceGroup(versionText, s, func(version string) string { return n.whose("rv", version) })
	s = identityText.ReplaceAllString(s, "apiserver-<identity>")
	s = volumeText.ReplaceAllString(s, "kube-api-access-<random>")
	s = hashText.ReplaceAllStringFunc(s, n.hash)
	s = generated.ReplaceAllString(s, "${1}<random>")
	s = selfType.ReplaceAllString(s, "selfType<random>")
	s = credential.ReplaceAllString(s, "X509SHA256=<hash>")
	return hostText.ReplaceAllString(s, "<host>")
}

// isGiven tells whether an address is one that Services get: neither that of the network nor that of default/kubernetes.
func isGiven(address string) bool {
	return !strings.HasSuffix(address, ".0") && !strings.HasSuffix(address, ".1")
}

// replaceGroup replaces what the second group of an expression matches, unless that comes to "".
func replaceGroup(e *regexp.Regexp, s string, by func(string) string) string {
	return e.ReplaceAllStringFunc(s, func(match string) string {
		parts := e.FindStringSubmatch(match)
		return parts[1] + cmp.Or(by(parts[2]), parts[2])
	})
}

// time names a time. What lies between the scenario's beginning and now is now, or the second of one of its requests where each has
// one of its own. A later one is named by how far it was from the request, rounded so that it doesn't matter how long the server took for it.
func (n *normal) time(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	fraction := ""
	if i := strings.IndexByte(s, '.'); i >= 0 { // microseconds stay that, of whichever value
		fraction = "." + strings.Repeat("0", len(s)-i-2)
	}
	now := time.Now()
	switch {
	case err != nil || t.Before(n.started.Truncate(time.Second)) || t.After(now.Add(near)):
		return s
	case t.Before(n.begun.Truncate(time.Second)):
		return "<before" + fraction + ">"
	case !t.After(now):
		for i, asked := range slices.Backward(n.seconds) {
			if !t.Before(asked.Truncate(time.Second)) {
				return fmt.Sprintf("<second of request %d%s>", i+1, fraction)
			}
		}
		return "<now" + fraction + ">"
	}
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	step := time.Minute
	if t.Sub(now) > day { // years have leap days
		step = week
	}
	return fmt.Sprintf("<now+%v%s>", t.Sub(n.asked).Round(step), fraction)
}

// deletion names when an object that has a grace period is to be gone: that's so long after a time that is now.
func (n *normal) deletion(meta map[string]any) string {
	s, _ := meta["deletionTimestamp"].(string)
	seconds, _ := meta["deletionGracePeriodSeconds"].(json.Number)
	period, err := seconds.Int64()
	at, timeErr := time.Parse(time.RFC3339, s)
	if err != nil || timeErr != nil || period <= 0 {
		return ""
	}
	grace := time.Duration(period) * time.Second
	begun := n.time(at.Add(-grace).Format(time.RFC3339))
	if begun != "<now>" && !strings.HasPrefix(begun, "<second ") {
		return ""
	}
	return fmt.Sprintf("%s+%v>", strings.TrimSuffix(begun, ">"), grace)
}

// today names a day that the server has been running on.
func (n *normal) today(s string) string {
	for day := n.begun; day.Before(time.Now().Add(24 * time.Hour)); day = day.Add(24 * time.Hour) {
		if s == day.UTC().Format(time.DateOnly) {
			return "<today>"
		}
	}
	return s
}

// version names a resourceVersion.
func (n *normal) version(s, of string) string {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v <= n.oldest {
		return s
	}
	n.newest = max(n.newest, v)
	return n.named("rv", s, of)
}

// document returns a document with everything replaced.
func (n *normal) document(v any) any {
	n.introduce(v)
	return n.tree(v, "")
}

// tree returns what a member of an object is, with everything replaced; the key is "" of a document.
func (n *normal) tree(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		return n.object(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = n.tree(e, key)
		}
		return out
	case string:
		return n.string(v, key)
	case json.Number:
		switch {
		case (key == "nodePort" || key == "healthCheckNodePort") && portText.MatchString(v.String()):
			return n.nth("port", v.String(), n.of)
		case (key == "port" || key == "targetPort") && v.String() == n.port:
			return "<the server's port>"
		}
	}
	return v
}

func (n *normal) object(v map[string]any) map[string]any {
	if name := n.nameOf(v); name != "" {
		defer func(before string) { n.of = before }(n.of)
		n.of = name
	}
	if object, ok := v["object"].(map[string]any); ok && v["type"] == "BOOKMARK" {
		v = maps.Clone(v)
		v["object"] = n.ofList(object)
	}
	meta, _ := v["metadata"].(map[string]any)
	_, rows := v["rows"] // of an empty Table they may be null
	if version, _ := meta["resourceVersion"].(string); (rows || v["items"] != nil) && version != "" && meta["uid"] == nil {
		v = n.ofList(v)
	}
	out := make(map[string]any, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		out[n.text(name)] = n.tree(v[name], name)
	}
	if at := n.deletion(v); at != "" {
		out["deletionTimestamp"] = at
	}
	return out
}

// ofList returns a list, or a bookmark's object, with its resourceVersion named.
func (n *normal) ofList(v map[string]any) map[string]any {
	meta, ok := v["metadata"].(map[string]any)
	if !ok {
		return v
	}
	version, _ := meta["resourceVersion"].(string)
	v, meta = maps.Clone(v), maps.Clone(meta)
	v["metadata"], meta["resourceVersion"] = meta, n.listVersion(version)
	return v
}

func (n *normal) string(v, key string) string {
	switch {
	case v == "":
		return v
	case key == "resourceVersion":
		return n.version(v, cmp.Or(n.of, "?"))
	case key == "serverAddress" || key == "jwks_uri": // which address it is depends on the machine's interfaces
		return anyHost.ReplaceAllString(v, "<host>")
	case (key == "kid" || key == "x" || key == "y") && keyText.MatchString(v): // of a public key, made at the start
		return "<key>"
	case key == "expirationTimestamp": // of a token, which may live for a century
		if t, err := time.Parse(time.RFC3339, v); err == nil && t.After(n.asked.Add(near)) {
			return fmt.Sprintf("<now+%v>", t.Sub(n.asked).Round(time.Minute))
		}
		return n.text(v)
	case key == "continue":
		return n.continueToken(v)
	case key == "cells" && ageText.MatchString(v):
		return "<age>"
	case (key == "clusterIP" || key == "clusterIPs") && addressText.MatchString(v) && isGiven(v):
		return n.nth("address", v, n.of)
	case key == "kubernetes.io/hostname" && v == n.host:
		return "<host>"
	case key == "cells" && v == n.port:
		return "<the server's port>"
	case dayText.MatchString(v):
		return n.today(v)
	case key == "message" || key == "cells":
		v = portText.ReplaceAllStringFunc(v, func(port string) string { return cmp.Or(n.whose("port", port), port) })
	}
	return n.text(v)
}

// header returns an answer's headers with everything replaced.
func (n *normal) header(of http.Header) map[string][]string {
	out := map[string][]string{}
	for name, values := range of {
		switch name {
		case "Content-Length": // it follows from the body before that was normalized, and an answer that is longer or shorter is none
			values = []string{"<length>"}
		case "Date":
			if at, err := http.ParseTime(values[0]); err == nil && !at.Before(n.asked.Truncate(time.Second)) && !at.After(time.Now()) {
				values = []string{"<now>"}
			}
		case "Audit-Id":
			values = []string{uidText.ReplaceAllString(values[0], "<audit id>")}
		case "Etag":
			values = []string{n.tag(values[0])}
		case "Last-Modified": // a document is made when it's asked for, or before
			if at, err := http.ParseTime(values[0]); err == nil && !at.Before(n.started.Truncate(time.Second)) && !at.After(time.Now()) {
				values = []string{"<since the start>"}
			}
		}
		for _, value := range values {
			out[name] = append(out[name], n.text(value))
		}
	}
	return out
}

// listVersion names the resourceVersion of a list or of a bookmark, which any write to the server moves.
func (n *normal) listVersion(s string) string {
	v, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil:
		return s
	case v >= n.newest:
		return "<latest>"
	case n.whose("rv", s) != "":
		return n.whose("rv", s)
	case v < n.oldest:
		return "<before>"
	}
	return "<older>"
}
