package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// normal replaces what must differ between two servers, and between two runs, by whose it is and its order of appearance among those of
// the same object: one that is given too many or too few of them doesn't shift those of others. It's used by one goroutine.
type normal struct {
	begun     time.Time
	oldest    uint64            // the resourceVersion at which the scenario began: a smaller one is the request's own
	newest    uint64            // that was seen
	seen      map[string]string // what was replaced by what, by class and value
	counts    map[string]int    // by class and object
	of        string            // the object that is looked at
	names     map[string]string // generated names, and what else has a word of its own
	generated int               // how many names were generated
	wellKnown map[string]string // uids that the server gave before, by whom they're of
}

func newNormal(begun time.Time, oldest uint64, wellKnown map[string]string) *normal {
	return &normal{begun: begun, oldest: oldest, newest: oldest, seen: map[string]string{}, counts: map[string]int{}, names: map[string]string{}, wellKnown: wellKnown}
}

// nth names a value by the place at which it came among those of its class and of its object.
func (n *normal) nth(class, value, of string) string {
	key := class + " " + value
	if n.seen[key] == "" {
		of = class + " " + of
		n.counts[of]++
		n.seen[key] = fmt.Sprintf("<%s %d>", of, n.counts[of])
	}
	return n.seen[key]
}

// introduce names what belongs to the objects of a document, before it's met elsewhere.
func (n *normal) introduce(v any) {
	switch v := v.(type) {
	case map[string]any:
		if name := n.nameOf(v); name != "" {
			meta := v["metadata"].(map[string]any)
			if uid, _ := meta["uid"].(string); uidText.MatchString(uid) && n.wellKnown[uid] == "" {
				n.nth("uid", uid, name)
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
		n.names[name] = prefix + fmt.Sprintf("<random %d>", n.generated)
	}
	if as := n.names[name]; as != "" {
		return as
	}
	return name
}

var (
	uidText     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timeText    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	addressText = regexp.MustCompile(`\b10\.0\.0\.(\d{1,3})\b`)
	hostText    = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	anyHost     = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)
	keyText     = regexp.MustCompile(`^[\w-]{43}$`)
	numberText  = regexp.MustCompile(`\b\d+\b`)
	tokenText   = regexp.MustCompile(`\beyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]+`)
	hashText    = regexp.MustCompile(`hash=[0-9A-F]{16,}`)
	ageText     = regexp.MustCompile(`^(\d+[smhdy])+$`)
	portText    = regexp.MustCompile(`\b3[0-2]\d{3}\b`)
	volumeText  = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)
	generated   = regexp.MustCompile(`\b(thingsgen-)[bcdfghjklmnpqrstvwxz2456789]{5}\b`) // in what is said of a definition that is refused
	credential  = regexp.MustCompile(`\bX509SHA256=[0-9a-f]{64}\b`)
	logDuration = regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs)\b`)
)

// near is how far apart a time and the clock may be for the time to be the server's "now": a certificate's NotAfter is further off.
const near = 400 * 24 * time.Hour

// text replaces what is in a string.
func (n *normal) text(s string) string {
	if len(s) < 5 {
		return s
	}
	for name, as := range n.names {
		s = strings.ReplaceAll(s, name, as)
	}
	s = tokenText.ReplaceAllStringFunc(s, func(token string) string {
		claims, err := base64.RawURLEncoding.DecodeString(tokenText.FindStringSubmatch(token)[1])
		var tree any
		if err != nil || json.Unmarshal(claims, &tree) != nil {
			return token
		}
		for _, name := range []string{"exp", "iat", "nbf", "warnafter"} { // seconds since 1970: that they're there
			hide(tree, name)
		}
		encoded, _ := json.Marshal(n.tree(tree, ""))
		return "<token of " + string(encoded) + ">"
	})
	s = uidText.ReplaceAllStringFunc(s, func(uid string) string {
		if of := n.wellKnown[uid]; of != "" {
			return "<uid of " + of + ">"
		}
		return n.nth("uid", uid, "?")
	})
	s = timeText.ReplaceAllStringFunc(s, n.time)
	s = addressText.ReplaceAllStringFunc(s, func(address string) string {
		if last := address[strings.LastIndexByte(address, '.')+1:]; last == "0" || last == "1" {
			return address
		}
		return n.nth("address", address, n.of)
	})
	s = volumeText.ReplaceAllString(s, "kube-api-access-<random>")
	s = hashText.ReplaceAllString(s, "hash=<hash>")
	s = generated.ReplaceAllString(s, "${1}<random>")
	s = credential.ReplaceAllString(s, "X509SHA256=<hash>")
	s = logDuration.ReplaceAllString(s, "<duration>")
	return hostText.ReplaceAllString(s, "<host>")
}

func hide(tree any, name string) {
	switch tree := tree.(type) {
	case map[string]any:
		if _, ok := tree[name]; ok {
			tree[name] = "<" + name + ">"
		}
		for _, v := range tree {
			hide(v, name)
		}
	}
}

// time names a time by how far it is from now: what lies between the server's start and now is now. Later ones are rounded.
func (n *normal) time(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	now := time.Now()
	const slack = 3 * time.Second // clocks that are cut to seconds
	fraction := ""
	if i := strings.IndexByte(s, '.'); i >= 0 { // microseconds stay that, of whichever value
		fraction = "." + strings.Repeat("0", len(s)-i-2)
	}
	switch {
	case err != nil || t.Before(n.begun.Add(-slack)) || t.After(now.Add(near)):
		return s
	case t.Before(now.Add(slack)):
		return "<now" + fraction + ">"
	default:
		const step = 10 * time.Second
		return fmt.Sprintf("<now+%v%s>", t.Sub(now).Round(step), fraction)
	}
}

// version names a resourceVersion.
func (n *normal) version(s, of string) string {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v <= n.oldest {
		return s
	}
	n.newest = max(n.newest, v)
	return n.nth("rv", s, of)
}

// document returns a document with everything replaced.
func (n *normal) document(v any) any {
	n.introduce(v)
	return n.tree(v, "")
}

func (n *normal) tree(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		if name := n.nameOf(v); name != "" {
			defer func(before string) { n.of = before }(n.of)
			n.of = name
		}
		if meta, ok := v["metadata"].(map[string]any); ok {
			_, items := v["items"].([]any)
			_, rows := v["rows"] // of an empty Table they may be null
			if version, _ := meta["resourceVersion"].(string); (items || rows || v["items"] != nil) && version != "" && meta["uid"] == nil {
				meta = maps.Clone(meta)
				v = maps.Clone(v)
				v["metadata"], meta["resourceVersion"] = meta, n.listVersion(version)
			}
		}
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[n.text(name)] = n.tree(v[name], name)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = n.tree(e, key)
		}
		return out
	case string:
		switch {
		case v == "":
			return v
		case key == "resourceVersion":
			return n.version(v, cmp.Or(n.of, "?"))
		case key == "serverAddress" || key == "jwks_uri": // which address it is depends on the machine's interfaces
			return anyHost.ReplaceAllString(v, "<host>")
		case (key == "kid" || key == "x" || key == "y") && keyText.MatchString(v): // of a public key, made at the start
			return "<key>"
		case key == "continue":
			return "<continue>" // it has the list's version, which writes of other scenarios move; the next page shows whether it's right
		case key == "cells" && ageText.MatchString(v):
			return "<age>"
		case key == "message" || key == "cells":
			v = numberText.ReplaceAllStringFunc(v, func(number string) string {
				if as := n.seen["rv "+number]; as != "" {
					return as
				}
				if as := n.seen["port "+number]; as != "" {
					return as
				}
				return number
			})
		}
		return n.text(v)
	case json.Number:
		if (key == "nodePort" || key == "healthCheckNodePort") && portText.MatchString(v.String()) {
			return n.nth("port", v.String(), n.of)
		}
		return v
	}
	return v
}

// listVersion names the resourceVersion of a list, which any write to the server moves.
func (n *normal) listVersion(s string) string {
	v, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil:
		return s
	case v >= n.newest:
		return "<latest>"
	case n.seen["rv "+s] != "":
		return n.seen["rv "+s]
	case v < n.oldest:
		return "<before>"
	}
	return "<older>"
}
