package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Encodings of a request's body. All are made of JSON.
const (
	asJSON     = "application/json"
	asYAML     = "application/yaml"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// Methods that aren't HTTP's: GET again and again until the answer is 200, or 404, to give upstream the time in which what was
// written comes into effect, and to wait for another second, so that the time that a write puts into an object isn't that of the last
// one. Their answer is that it came to it.
const (
	untilFound  = "WAIT"
	untilGone   = "GONE"
	untilEffect = "SETTLE"
	untilSecond = "TICK"
)

// step is a request. In path, headers and body, ${rv:NAME} and ${uid:NAME} stand for what the server said last of the object NAME,
// ${continue} for the last continue token and ${gen} for the last generated name; for ${at:} and ${leaf:} see issued.
type step struct {
	name     string // FAMILY/DETAIL, unique in its scenario; differences are counted by family
	method   string
	path     string
	header   map[string]string
	body     string
	over     string   // a name: the body is merged into what was last read of this object, as a client does that changes what it has read
	captures []string // NAME=PATH into the answer, for ${cap:NAME} in later requests
	as       string   // the encoding that a body of JSON is sent in; "" leaves it as it is, with the Content-Type among the headers
}

func (s step) String() string { return s.method + " " + s.path }

// fingerprint tells one request from another: the recording of one is no answer to the other.
func (s step) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n%s\n", s.method, s.path, s.over, s.as, s.body)
	for _, capture := range s.captures {
		fmt.Fprintf(h, "> %s\n", capture)
	}
	names := make([]string, 0, len(s.header))
	for name := range s.header {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(h, "%s: %s\n", name, s.header[name])
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// family is the part of the name by which differences are counted.
func (s step) family() string {
	family, _, _ := strings.Cut(s.name, "/")
	return family
}

// changes tells whether the request can change something that is stored.
func (s step) changes() bool {
	return !slices.Contains([]string{"GET", "HEAD", "OPTIONS", untilFound, untilGone, untilEffect, untilSecond}, s.method) && !strings.Contains(s.path, "dryRun=")
}

// scenario is a list of steps that stand on each other.
type scenario struct {
	name    string
	watch   string   // the collection that is watched meanwhile; "" for none
	own     string   // a prefix: of a cluster-scoped collection, what the scenario made
	after   string   // the scenario that comes before, if both are run: they use the same names
	alone   bool     // no other scenario may run meanwhile
	seconds bool     // each request has a second of its own, so that times tell which request they are of
	flags   []string // further ones of the server; $DIR is a directory with testdata/admission.yaml
	steps   []step
}

// add appends a step; a name that is there already gets a number.
func (s *scenario) add(steps ...step) {
	for _, st := range steps {
		base := st.name
		for n := 2; slices.ContainsFunc(s.steps, func(o step) bool { return o.name == st.name }); n++ {
			st.name = fmt.Sprintf("%s#%d", base, n)
		}
		s.steps = append(s.steps, st)
	}
}
