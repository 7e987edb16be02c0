package reads

import (
	"fmt"
	"math"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Every way to open a watch, as the Kubernetes API has it.
func TestWatchOptions(t *testing.T) {
	const notOlder = "resourceVersionMatch=NotOlderThan"
	type want struct {
		initial  bool
		revision int64
		refused  string // a part of the message of a 422
	}
	for _, c := range []struct {
		query string
		want  want
	}{
		{"", want{initial: true}},
		{"resourceVersion=0", want{initial: true}},
		{"sendInitialEvents=true&" + notOlder, want{initial: true}},
		{"sendInitialEvents=true&resourceVersion=0&" + notOlder, want{initial: true}},
		{"sendInitialEvents=true&resourceVersion=7&" + notOlder, want{initial: true, revision: 7}},
		{"sendInitialEvents=false&" + notOlder, want{}},
		{"sendInitialEvents=false&resourceVersion=0&" + notOlder, want{}},
		{"resourceVersion=7", want{revision: 7}},
		{"sendInitialEvents=false&resourceVersion=7&" + notOlder, want{revision: 7}},
		{"sendInitialEvents=2", want{refused: "sendInitialEvents requires setting"}}, // which is true
		{"limit=-1&resourceVersion=7", want{revision: 7}},
		{"sendInitialEvents=true", want{refused: "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"}},
		{"sendInitialEvents=false&resourceVersion=7", want{refused: "sendInitialEvents requires"}},
		{"sendInitialEvents=true&resourceVersion=7&resourceVersionMatch=Exact", want{refused: `Unsupported value: "Exact"`}},
		{notOlder, want{refused: "forbidden for watch unless sendInitialEvents is provided"}},
		{"resourceVersion=7&" + notOlder, want{refused: "forbidden for watch unless sendInitialEvents is provided"}},
		{"resourceVersion=7&resourceVersionMatch=Exact", want{refused: `Unsupported value: "Exact"`}},
		{"resourceVersionMatch=Nearly", want{refused: `Unsupported value: "Nearly"`}},
		{"limit=500&continue=x&resourceVersion=7", want{revision: 7}}, // mean nothing to a watch from a version
		{"limit=500&continue=x", want{refused: "resourceVersionMatch is forbidden when continue is provided"}},
		{"continue=x&resourceVersion=0", want{refused: "resourceVersionMatch is forbidden when continue is provided"}},
	} {
		for _, bookmarks := range []bool{false, true} {
			q := params(c.query)
			q.Set("allowWatchBookmarks", fmt.Sprint(bookmarks))
			t.Run(q.Encode(), func(t *testing.T) {
				o, err := Of(emptyEndpoint()).parseWatchOptions(q)
				if c.want.refused != "" {
					status := wantStatus(t, err, 422, metav1.StatusReasonInvalid, c.want.refused)
					if status.Details.Kind != "ListOptions" || status.Details.Group != "meta.k8s.io" {
						t.Errorf("details %v", status.Details)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if o.initialEvents != c.want.initial || int64(o.revision) != c.want.revision || o.bookmarks != bookmarks {
					t.Errorf("got %+v, want %+v", o, c.want)
				}
			})
		}
	}
}

func TestWatchTimeout(t *testing.T) {
	for _, c := range []struct {
		query    string
		min, max time.Duration
	}{
		{"", 1800 * time.Second, 3600*time.Second - 1},
		{"timeoutSeconds=0", 1800 * time.Second, 3600*time.Second - 1},
		{"timeoutSeconds=", 1800 * time.Second, 3600*time.Second - 1},
		{"timeoutSeconds=7", 7 * time.Second, 7 * time.Second},
		{"timeoutSeconds=9223372036854775807", math.MaxInt64, math.MaxInt64},
	} {
		t.Run(c.query, func(t *testing.T) {
			for range 100 {
				o, err := Of(emptyEndpoint()).parseWatchOptions(params(c.query))
				if err != nil || o.timeout < c.min || o.timeout > c.max {
					t.Fatalf("got %v, %v", o.timeout, err)
				}
			}
		})
	}
}

// What doesn't parse is refused with the parser's words. Of a version, only lists know that it's the client's mistake.
func TestBadParameters(t *testing.T) {
	for _, c := range []struct {
		query, part string
		version     bool
	}{
		{"resourceVersion=abc", `resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`, true},
		{"resourceVersion=-1", "invalid syntax", true},
		{"resourceVersion=%2B1", "invalid syntax", true},
		{"resourceVersion=1.0", "invalid syntax", true},
		{"resourceVersion=18446744073709551616", "value out of range", true},
		{"limit=abc", `strconv.ParseInt: parsing "abc": invalid syntax`, false},
		{"timeoutSeconds=1s", `strconv.ParseInt: parsing "1s": invalid syntax`, false},
	} {
		t.Run(c.query, func(t *testing.T) {
			_, err := Of(emptyEndpoint()).parseListOptions(params(c.query))
			wantStatus(t, err, 400, metav1.StatusReasonBadRequest, c.part)
			_, err = Of(emptyEndpoint()).parseWatchOptions(params(c.query))
			if c.version {
				wantStatus(t, err, 500, "", c.part)
			} else {
				wantStatus(t, err, 400, metav1.StatusReasonBadRequest, c.part)
			}
		})
	}
	_, err := Of(emptyEndpoint()).parseWatchOptions(params("timeoutSeconds=-1"))
	wantStatus(t, err, 400, metav1.StatusReasonBadRequest, "timeoutSeconds")
}

func TestListOptions(t *testing.T) {
	for _, c := range []struct {
		query string
		code  int32 // 0: accepted
		part  string
	}{
		{"", 0, ""},
		{"resourceVersion=0", 0, ""},
		{"resourceVersion=5&limit=500&timeoutSeconds=10", 0, ""},
		{"limit=5&continue=abc", 400, "invalid continue token"},
		{"resourceVersion=0&continue=abc", 400, "invalid continue token"},
		{"resourceVersion=5&continue=abc", 400, "specifying resource version is not allowed when using continue"},
		{"resourceVersion=5&resourceVersionMatch=Exact", 0, ""},
		{"resourceVersion=5&resourceVersionMatch=NotOlderThan", 0, ""},
		{"resourceVersion=0&resourceVersionMatch=NotOlderThan", 0, ""},
		{"resourceVersionMatch=Exact", 422, "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"resourceVersionMatch=NotOlderThan&limit=5", 422, "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"resourceVersion=0&resourceVersionMatch=Exact", 422, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{"resourceVersion=5&resourceVersionMatch=Nearly", 422, `Unsupported value: "Nearly": supported values: "Exact", "NotOlderThan"`},
		{"continue=x&resourceVersion=5&resourceVersionMatch=Exact", 422, "resourceVersionMatch is forbidden when continue is provided"},
		{"continue=x&resourceVersion=0&resourceVersionMatch=NotOlderThan", 422, "resourceVersionMatch is forbidden when continue is provided"},
		{"continue=x&resourceVersionMatch=NotOlderThan", 422, "resourceVersionMatch is forbidden"},
		{"sendInitialEvents=true", 422, "sendInitialEvents"},
		{"sendInitialEvents=x", 422, "sendInitialEvents is forbidden for list"},
		{"limit=-1&timeoutSeconds=-1", 0, ""},
	} {
		t.Run(c.query, func(t *testing.T) {
			_, err := Of(emptyEndpoint()).parseListOptions(params(c.query))
			if c.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			reason := metav1.StatusReasonBadRequest
			if c.code == 422 {
				reason = metav1.StatusReasonInvalid
			}
			wantStatus(t, err, c.code, reason, c.part)
		})
	}
}

func TestFlag(t *testing.T) {
	for value, want := range map[string]bool{
		"true": true, "True": true, "1": true, "": true, "maybe": true, "t": true, "f": true, "2": true, " false": true,
		"false": false, "FALSE": false, "0": false,
	} {
		if got := Flag(url.Values{"watch": {value}}, "watch"); got != want {
			t.Errorf("watch=%s: %v", value, got)
		}
	}
	if Flag(nil, "watch") {
		t.Error("without watch it's true")
	}
}

// emptyEndpoint is of a custom resource.
func emptyEndpoint() *registry.Endpoint {
	return &registry.Endpoint{Res: &registry.Resource{Registry: new(registry.Registry)}}
}
