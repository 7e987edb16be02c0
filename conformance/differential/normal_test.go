package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"testing"
	"time"
)

// TestNormal: what differs from server to server is named by whose it is, so that equal values stay equal, and nothing else changes.
func TestNormal(t *testing.T) {
	n := newNormal(time.Now(), time.Now(), 100, map[string]string{"99999999-0000-0000-0000-000000000000": "flowschemas/x"})
	n.port = "6443"
	const uid, other = "12345678-0000-0000-0000-000000000000", "22345678-0000-0000-0000-000000000000"
	now := time.Now().UTC().Format(time.RFC3339)
	for _, tt := range []struct{ name, in, want string }{
		{"an object", `{"metadata":{"name":"a","uid":"` + uid + `","resourceVersion":"105","creationTimestamp":"` + now + `"}}`,
			`{"metadata":{"creationTimestamp":"<now>","name":"a","resourceVersion":"<rv a 1>","uid":"<uid a 1>"}}`},
		{"the same again, and its owner's uid elsewhere", `{"metadata":{"name":"a","uid":"` + uid + `","resourceVersion":"107"},"owner":"` + uid + `"}`,
			`{"metadata":{"name":"a","resourceVersion":"<rv a 2>","uid":"<uid a 1>"},"owner":"<uid a 1>"}`},
		{"another under its name", `{"metadata":{"name":"a","uid":"` + other + `"}}`, `{"metadata":{"name":"a","uid":"<uid a 2>"}}`},
		{"a version in a message", `{"message":"ResourceVersion in precondition: 1, ResourceVersion in object meta: 107"}`, `{"message":"ResourceVersion in precondition: 1, ResourceVersion in object meta: <rv a 2>"}`},
		{"a number that's no version", `{"message":"it answered 107, and 10.0.0.0/105","cells":["107",105]}`, `{"cells":["107",105],"message":"it answered 107, and 10.0.0.0/105"}`},
		{"the server's version", `{"message":"Too large resource version: 99, current: 107"}`, `{"message":"Too large resource version: 99, current: <the server's>"}`},
		{"a version of the request", `{"metadata":{"name":"a","resourceVersion":"1"}}`, `{"metadata":{"name":"a","resourceVersion":"1"}}`},
		{"a time of the request", `{"time":"2020-01-01T00:00:00Z"}`, `{"time":"2020-01-01T00:00:00Z"}`},
		{"a list", `{"items":[],"metadata":{"resourceVersion":"109"}}`, `{"items":[],"metadata":{"resourceVersion":"<latest>"}}`},
		{"a bookmark", `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"109"}}}`, `{"object":{"metadata":{"resourceVersion":"<latest>"}},"type":"BOOKMARK"}`},
		{"an address", `{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.77"}}`, `{"metadata":{"name":"s"},"spec":{"clusterIP":"<address s 1>"}}`},
		{"a port", `{"metadata":{"name":"s"},"nodePort":31000,"port":31000}`, `{"metadata":{"name":"s"},"nodePort":"<port s 1>","port":31000}`},
		{"a port in a message", `{"message":"31000 is of 30000-31000"}`, `{"message":"<port s 1> is of 30000-31000"}`},
		{"an address and a port of another, and then their names", `{"items":[{"metadata":{"name":"t"},"spec":{"clusterIP":"10.0.0.77","nodePort":31000}}],"message":"31000"}`,
			`{"items":[{"metadata":{"name":"t"},"spec":{"clusterIP":"<address t 1>","nodePort":"<port t 1>"}}],"message":"<port t 1>"}`},
		{"the server's port", `{"port":6443,"targetPort":6443,"ports":6443,"cells":["6443"]}`, `{"cells":["<the server's port>"],"port":"<the server's port>","ports":6443,"targetPort":"<the server's port>"}`},
		{"when a grace period is over", `{"metadata":{"deletionGracePeriodSeconds":5,"deletionTimestamp":"` + inSeconds(5) + `"}}`, `{"metadata":{"deletionGracePeriodSeconds":5,"deletionTimestamp":"<now+5s>"}}`},
		{"a time to come", `{"expirationTimestamp":"` + inSeconds(3600) + `"}`, `{"expirationTimestamp":"<now+1h0m0s>"}`},
		{"a day", `{"since":"` + now[:len(time.DateOnly)] + `"}`, `{"since":"<today>"}`},
		{"a generated name", `{"metadata":{"generateName":"g-","name":"g-x2x4x"}}`, `{"metadata":{"generateName":"g-","name":"g-<random 1>"}}`},
		{"and in a message", `{"message":"pods \"g-x2x4x\""}`, `{"message":"pods \"g-<random 1>\""}`},
		{"a token", `{"token":"` + jwt(`{"alg":"ES256"}`) + "." + jwt(fmt.Sprintf(`{"exp":%d,"iat":%d,"sub":"a"}`, time.Now().Unix()+60, time.Now().Unix())) + `.abc"}`,
			`{"token":"<token of {\"alg\":\"ES256\"} {\"exp\":\"\\u003ciat+60\\u003e\",\"iat\":\"\\u003cnow\\u003e\",\"sub\":\"a\"} with 3 characters>"}`},
		{"a continue token", `{"continue":"` + jwt(`{"v":"v1","rv":5,"start":"/a"}`) + `"}`, `{"continue":"<continue {\"rv\":\"\\u003cbefore\\u003e\",\"start\":\"/a\",\"v\":\"v1\"}>"}`},
		{"a continue token that is none", `{"continue":"x"}`, `{"continue":"x"}`},
		{"a document's hash", `{"url":"/openapi/v3/apis/apps/v1?hash=0123456789ABCDEF"}`, `{"url":"/openapi/v3/apis/apps/v1?hash=<hash>"}`},
		{"one that the server had", `{"uid":"99999999-0000-0000-0000-000000000000"}`, `{"uid":"<uid of flowschemas/x>"}`},
	} {
		if got := text(n.document(parse(asJSON, []byte(tt.in)))); got != unescaped(tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func jwt(part string) string { return base64.RawURLEncoding.EncodeToString([]byte(part)) }

// TestSeconds: where each request has a second of its own, a time is that of one of them.
func TestSeconds(t *testing.T) {
	start := time.Now().Truncate(time.Second).Add(-9 * time.Second)
	n := newNormal(start.Add(-time.Minute), start, 0, nil)
	n.seconds = []time.Time{start.Add(time.Second), start.Add(3 * time.Second)}
	for after, want := range map[int]string{-120: "", -30: "<before>", 0: "<now>", 1: "<second of request 1>", 2: "<second of request 1>", 3: "<second of request 2>"} {
		in := start.Add(time.Duration(after) * time.Second).UTC().Format(time.RFC3339)
		if got := n.time(in); got != cmp.Or(want, in) {
			t.Errorf("%d seconds after the start: %s, want %s", after, got, want)
		}
	}
}

// TestForm: how a body is written is told.
func TestForm(t *testing.T) {
	for _, tt := range []struct{ contentType, body, want string }{
		{asJSON, "{\"a\":1}\n", ""}, {asJSON, "{\"a\":1}", "without a newline"}, {asJSON, "{\n  \"a\": 1\n}", "indented, without a newline"},
		{asJSON, "{\"a\": 1}\n", "with spaces"}, {asJSON, "{}\n{}\n", "lines"}, {asJSON, "{\"a\":\"<\"}\n", "with < > or &"}, {asJSON, "{", "not understood"},
		{asYAML, "a: 1\nb: 2\n", ""}, {asYAML, "b: 2\na: 1\n", "in other words"}, {"text/plain", "a", ""},
	} {
		if got := form(tt.contentType, []byte(tt.body)); got != tt.want {
			t.Errorf("%q is said to be %q, want %q", tt.body, got, tt.want)
		}
	}
}

func inSeconds(n int) string {
	return time.Now().Add(time.Duration(n) * time.Second).UTC().Format(time.RFC3339)
}

func unescaped(s string) string { return text(parse(asJSON, []byte(s))) }
