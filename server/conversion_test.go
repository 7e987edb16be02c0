package server_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// convertedByRules returns a definition of things with rules, stored in v1; the schemas are the properties of the spec of v1, v2 and so on.
func convertedByRules(t testing.TB, rules string, specs ...string) string {
	t.Helper()
	text, _ := json.Marshal(rules)
	var versions []string
	for i, spec := range specs {
		versions = append(versions, versionOf("v"+string(rune('1'+i)), true, i == 0, spec))
	}
	return defined(t, "things", "Thing", "metadata.annotations."+strings.ReplaceAll(ruleset.Annotation, ".", "~")+"="+string(text),
		"spec.versions=["+strings.Join(versions, ",")+"]")
}

// TestRulesAreTried: a write is tried as it would be stored and read again, with the defaults of the stored version, and with the labels by which
// expressions go; a list tells which object can't be converted.
func TestRulesAreTried(t *testing.T) {
	t.Parallel()
	const text = `{"type":"string"}`
	for _, c := range []struct{ name, rule, v1, v2, path, body, lost string }{
		{"a default of the stored version", `{"join":{"from":["spec.first","spec.last"],"to":"spec.name","separator":" "}}`, `"first":` + text + `,"last":{"type":"string","default":"z"}`, `"name":` + text,
			things2Path, thing("v2", "a", `,"spec":{"name":"b"}`), "spec.name"},
		{"null, for which there's a default", `{"rename":{"from":"spec.a","to":"spec.b"}}`, `"a":{"type":"string","default":"z"}`, `"b":{"type":"string","nullable":true}`,
			things2Path, thing("v2", "a", `,"spec":{"b":null}`), "spec.b"},
		{"an integer that's no float64", `{"cel":{"from":"spec.a","to":"spec.b","forth":"double(value)","back":"value"}}`, `"a":{"type":"integer"}`, `"b":{"type":"number"}`,
			thingsPath, thing("v1", "a", `,"spec":{"a":9007199254740993}`), "spec.a"},
		{"a text too long for an annotation", `{"move":{"from":"spec.a","to":"metadata.annotations[example.com/a]"}}`, `"a":` + text + `,"b":` + text, `"b":` + text,
			thingsPath, thing("v1", "a", `,"spec":{"a":"`+strings.Repeat("x", 300_000)+`"}`), "metadata.annotations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := servertest.New(t)
			s.PostYAML(definitionsPath, convertedByRules(t, `[{"versions":["v1","v2"],"rules":[`+c.rule+`]}]`, c.v1, c.v2))
			if res, body := s.Do("POST", c.path, c.body, "Content-Type", "application/yaml"); res.StatusCode != 422 || !strings.Contains(body, `"field":"`+c.lost+`"`) {
				t.Errorf("%s %s", res.Status, body)
			}
		})
	}
	s := servertest.New(t)
	s.PostYAML(definitionsPath, convertedByRules(t, `[{"versions":["v1","v2"],"rules":[{"cel":{"from":"spec.a","to":"spec.b","forth":"self.metadata.labels.tier + value","back":"value.substring(self.metadata.labels.tier.size())"}}]}]`,
		`"a":`+text, `"b":`+text))
	labelled := strings.Replace(thing("v1", "a", `,"spec":{"a":"y"}`), `"name":"a"`, `"name":"a","labels":{"tier":"x"}`, 1)
	check(t, s.PostYAML(thingsPath, labelled), "spec.a=y")
	check(t, s.Get(things2Path+"/a"), "spec.b=xy")
	send(t, s, 422, "PATCH", thingsPath+"/a", mergePatch, `{"metadata":{"labels":{"tier":null}}}`)

	s = servertest.New(t)
	plain := convertedByRules(t, `[{"versions":["v1","v2"]}]`, `"at":`+text, `"at":`+text)
	s.PostYAML(definitionsPath, plain)
	s.PostYAML(thingsPath, thing("v1", "a-good", `,"spec":{"at":"h:80"}`))
	s.PostYAML(thingsPath, thing("v1", "b-bad", `,"spec":{"at":"h:x"}`))
	ruled := convertedByRules(t, `[{"versions":["v1","v2"],"rules":[{"split":{"from":"spec.at","to":["spec.host","spec.port"],"separator":":"}}]}]`, `"at":`+text, `"host":`+text+`,"port":{"type":"integer"}`)
	send(t, s, 200, "PATCH", definitionsPath+"/things.example.com?fieldManager=m&force=true", applyPatch, ruled)
	if _, body := s.Do("GET", things2Path, ""); !strings.Contains(body, "b-bad") || strings.Contains(body, "a-good") {
		t.Errorf("a list of which one can't be converted says %s", body)
	}
	for w := s.Watch(things2Path + "?watch=true"); ; {
		if line := nextLine(t, w); !strings.HasPrefix(line, `{"type":"ADDED"`) {
			if !strings.Contains(line, "the watch can't go on: default/b-bad: object not decodable revision=") || !strings.Contains(line, "spec.port") {
				t.Errorf("a watch of which one can't be converted says %s", line)
			}
			break
		}
	}
}

// TestRules: what is created in one version is read and watched in the other one, by the rules of the definition.
func TestRules(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, convertedByRules(t, `[{"versions":["v1","v2"],"rules":[{"rename":{"from":"spec.size","to":"spec.length"}}]}]`,
		`"size":{"type":"string"},"note":{"type":"string"}`, `"length":{"type":"string"},"note":{"type":"string"}`))
	v1, v2 := thingsPath, things2Path
	w1, w2 := s.Watch(v1+"?watch=true"), s.Watch(v2+"?watch=true")
	both := bothWatch(t, w1, w2, "object.spec.size= ")
	check(t, s.PostYAML(v1, thing("v1", "a", `,"spec":{"size":"abc","note":"n"}`)), "apiVersion=example.com/v1 spec.size=abc")
	both("type=ADDED object.spec.size=abc", "type=ADDED object.spec.length=abc")
	check(t, s.Get(v2+"/a"), "apiVersion=example.com/v2 spec.length=abc spec.size= spec.note=n")
	check(t, s.Get(v2), "apiVersion=example.com/v2 items.0.apiVersion=example.com/v2 items.0.spec.length=abc items.0.spec.size=")
	check(t, s.PostYAML(v2, thing("v2", "b", `,"spec":{"length":"x"}`)), "apiVersion=example.com/v2 spec.length=x")
	both("type=ADDED object.spec.size=x", "type=ADDED object.spec.length=x")
	check(t, send(t, s, 200, "PATCH", v2+"/b", mergePatch, `{"spec":{"length":"y"}}`), "spec.length=y metadata.generation=2")
	both("type=MODIFIED object.spec.size=y", "type=MODIFIED object.spec.length=y")
	check(t, send(t, s, 201, "PATCH", v2+"/c?fieldManager=m", applyPatch, thing("v2", "c", `,"spec":{"length":"z"}`)), "spec.length=z metadata.managedFields.0.apiVersion=example.com/v2")
	both("type=ADDED object.spec.size=z", "type=ADDED object.spec.length=z")
	check(t, send(t, s, 200, "PATCH", v1+"/c?fieldManager=m", applyPatch, thing("v1", "c", `,"spec":{"size":"zz"}`)), "spec.size=zz")
	both("object.spec.size=zz", "object.spec.length=zz")
	for _, path := range []string{v1 + "/c", v2 + "/c"} { // an unchanged object is none in either version
		was := s.Get(path)
		if got := send(t, s, 200, "PUT", path, "", was); got != was {
			t.Errorf("%s is %s\nand was %s", path, got, was)
		}
	}
}

// TestRulesThatLose: a definition whose rules lose what a schema keeps is refused, and so is an object of which they'd lose something.
func TestRulesThatLose(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	const at = "metadata.annotations[apiserver-lite/conversion]"
	for _, tc := range []struct{ name, rules, v1, v2, want string }{
		{"a field that isn't there", `[{versions: [v1, v2]}]`, `"size":{"type":"string"}`, `"note":{"type":"string"}`,
			"FieldValueInvalid " + at + "[0] spec.size v2, FieldValueInvalid " + at + "[0] spec.note v1"},
		{"rules that overlap", `[{versions: [v1, v2], rules: [{rename: {from: spec.size, to: spec.length}}, {move: {from: spec.size, to: spec.note}}]}]`,
			`"size":{"type":"string"}`, `"length":{"type":"string"},"note":{"type":"string"}`, "FieldValueInvalid " + at + "[0].rules[1].move.from " + at + "[0].rules[0].rename"},
		{"no YAML", `{`, ``, ``, "FieldValueInvalid " + at},
	} {
		res, body := s.Do("POST", definitionsPath, convertedByRules(t, tc.rules, tc.v1, tc.v2))
		got := status(t, res, body)
		if res.StatusCode != 422 || got.Reason != "Invalid" {
			t.Fatalf("%s: %s %s", tc.name, res.Status, body)
		}
		wants := strings.Split(tc.want, ", ")
		if len(got.Details.Causes) != len(wants) {
			t.Fatalf("%s: %s", tc.name, body)
		}
		for i, want := range wants {
			words := strings.Fields(want)
			cause := got.Details.Causes[i]
			if string(cause.Type) != words[0] || cause.Field != words[1] {
				t.Errorf("%s: %s %s: %s", tc.name, cause.Type, cause.Field, cause.Message)
			}
			for _, word := range words[2:] {
				if !strings.Contains(cause.Message, word) {
					t.Errorf("%s: %s has no %s", tc.name, cause.Message, word)
				}
			}
		}
	}
	s.PostYAML(definitionsPath, convertedByRules(t, `[{versions: [v1, v2], rules: [{default: {to: spec.mode, value: auto}}, {split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}}]}]`,
		`"at":{"type":"string"}`, `"mode":{"type":"string"},"host":{"type":"string"},"port":{"type":"integer"}`))
	check(t, s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"at":"h:1"}`)), "spec.at=h:1")
	check(t, s.Get(things2Path+"/a"), "spec.host=h spec.port=1 spec.mode=auto spec.at=")
	check(t, s.PostYAML(things2Path, thing("v2", "b", `,"spec":{"host":"i"}`)), "spec.host=i spec.mode=auto")
	for _, tc := range []struct{ name, path, object, field, message string }{
		{"another value than the default", things2Path, thing("v2", "c", `,"spec":{"mode":"manual"}`), "spec.mode", "version v1 would lose it"},
		{"a part that isn't an integer", thingsPath, thing("v1", "c", `,"spec":{"at":"h:x"}`), "spec.at", "conversion from v1 to v2 by [0].rules[1].split: spec.port must be an integer"},
		{"a part that isn't written so", thingsPath, thing("v1", "c", `,"spec":{"at":"h:01"}`), "spec.at", "version v2 would lose it"},
	} {
		res, body := s.Do("POST", tc.path, tc.object)
		got := status(t, res, body)
		if res.StatusCode != 422 || causesOf(got) != "FieldValueInvalid "+tc.field || !strings.Contains(got.Message, tc.message) || strings.Contains(got.Message, "Omit") {
			t.Errorf("%s: %s %s", tc.name, res.Status, body)
		}
	}
	// A changed annotation counts at once, and raises the generation. What was there before can still be written elsewhere.
	path := definitionsPath + "/things.example.com"
	generation := value(s.Get(path), "metadata.generation")
	changed := strings.NewReplacer("value: auto", "value: manual").Replace(s.Get(path))
	if got := send(t, s, 200, "PUT", path, "", changed); value(got, "metadata.generation") == generation {
		t.Errorf("the generation is still %s", generation)
	}
	check(t, s.Get(things2Path+"/a"), "spec.mode=manual")
	check(t, send(t, s, 200, "PATCH", path+"/status", mergePatch, `{"metadata":{"annotations":{"apiserver-lite/conversion":"["}}}`), "kind=CustomResourceDefinition")
	check(t, s.Get(things2Path+"/a"), "spec.mode=manual spec.host=h")
}

// TestRulesBesideAWebhook: where the annotation is, the webhook isn't asked; without it, it is.
func TestRulesBesideAWebhook(t *testing.T) {
	t.Parallel()
	h := newWebhook(t)
	s := servertest.New(t, func(s *server.Server) {
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	def := convertedByRules(t, `[{versions: [v1, v2], rules: [{cel: {from: spec.size, to: spec.length, forth: size(value), back: "'' + ['', 'y', 'yy', 'yyy'][value]"}}]}]`,
		`"size":{"type":"string"}`, `"length":{"type":"integer"}`)
	s.PostYAML(definitionsPath, strings.Replace(def, `"group":`, `"conversion":`+h.conversion()+`,"group":`, 1))
	s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"size":"yyy"}`))
	check(t, s.Get(things2Path+"/a"), "spec.length=3 spec.junk=")
	if n := h.converted.Load(); n != 0 {
		t.Errorf("the webhook was asked for %d objects", n)
	}
	w := s.Watch(things2Path + "?watch=true")
	send(t, s, 200, "PATCH", definitionsPath+"/things.example.com", mergePatch, `{"metadata":{"annotations":{"apiserver-lite/conversion":null}}}`)
	for { // the watch ends, because its objects are others now
		if _, err := w.Next(); err != nil {
			break
		}
	}
	check(t, s.Get(things2Path+"/a"), "spec.length=3")
	if h.converted.Load() == 0 {
		t.Error("the webhook wasn't asked")
	}
}

// TestRulesAfterObjects: objects that are older than the rules, and that lose something by them, can be read, changed elsewhere and
// deleted.
func TestRulesAfterObjects(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	const schema1, schema2 = `"at":{"type":"string"},"n":{"type":"integer"}`, `"host":{"type":"string"},"port":{"type":"string"},"n":{"type":"integer"}`
	def := convertedByRules(t, `[{versions: [v1, v2], rules: [{split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}}]}]`, schema1, schema2)
	plain := strings.Replace(def, ruleset.Annotation, "example.com/none", 1)
	s.PostYAML(definitionsPath, plain)
	s.PostYAML(thingsPath, thing("v1", "a", `,"metadata":{"name":"a","finalizers":["example.com/f"]},"spec":{"at":"h:01","n":1}`))
	path := definitionsPath + "/things.example.com"
	ruled := func(kind string) {
		t.Helper()
		rules := `[{versions: [v1, v2], rules: [{split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}}]}]`
		text, _ := json.Marshal(rules)
		send(t, s, 200, "PATCH", path, jsonPatch, fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/apiserver-lite~1conversion","value":%s},
			{"op":"replace","path":"/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/port/type","value":"%s"}]`, text, kind))
	}
	ruled("integer")
	check(t, s.Get(things2Path+"/a"), "spec.host=h spec.port=1")
	check(t, send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"spec":{"n":2}}`), "spec.n=2 spec.at=h:01")
	check(t, send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`), "metadata.labels.a=b spec.at=h:01")
	res, body := s.Do("POST", thingsPath, thing("v1", "b", `,"spec":{"at":"h:01"}`))
	if res.StatusCode != 422 {
		t.Errorf("%s %s", res.Status, body)
	}
	// What can't be converted at all is a corrupt object in that version, and an object in its own.
	send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"spec":{"at":"h:1"}}`)
	ruled("string")
	check(t, send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"spec":{"at":"h:x"}}`), "spec.at=h:x")
	ruled("integer")
	res, body = s.Do("GET", things2Path+"/a", "")
	if got := status(t, res, body); res.StatusCode != 500 || !strings.Contains(got.Message, "conversion from v1 to v2 by [0].rules[0].split: spec.port must be an integer") {
		t.Errorf("%s %s", res.Status, body)
	}
	check(t, send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"spec":{"n":3}}`), "spec.n=3 spec.at=h:x")
	check(t, send(t, s, 200, "DELETE", thingsPath+"/a", "", ""), "metadata.deletionTimestamp!=")
	send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"metadata":{"finalizers":null}}`)
	send(t, s, 404, "GET", thingsPath+"/a", "", "")
}

// TestRulesOfThreeVersions: an object goes through a version that isn't served, and is stored in one that isn't the first.
func TestRulesOfThreeVersions(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	def := convertedByRules(t, `[{versions: [v1, v2], rules: [{rename: {from: spec.a, to: spec.b}}]}, {versions: [v2, v3], rules: [{rename: {from: spec.b, to: spec.c}}, {default: {to: spec.d, value: 5}}]}]`,
		`"a":{"type":"string"}`, `"b":{"type":"string"}`, `"c":{"type":"string"},"d":{"type":"integer"}`)
	var d map[string]any
	if err := json.Unmarshal([]byte(def), &d); err != nil {
		t.Fatal(err)
	}
	versions := d["spec"].(map[string]any)["versions"].([]any)
	versions[0].(map[string]any)["storage"], versions[1].(map[string]any)["storage"], versions[1].(map[string]any)["served"] = false, true, false
	text, _ := json.Marshal(d)
	s.PostYAML(definitionsPath, string(text))
	v3 := strings.Replace(thingsPath, "v1", "v3", 1)
	check(t, s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"a":"x"}`)), "spec.a=x")
	check(t, s.Get(v3+"/a"), "apiVersion=example.com/v3 spec.c=x spec.d=5 spec.a= spec.b=")
	check(t, send(t, s, 200, "PATCH", v3+"/a", mergePatch, `{"spec":{"c":"y"}}`), "spec.c=y")
	check(t, s.Get(thingsPath+"/a"), "apiVersion=example.com/v1 spec.a=y spec.d= metadata.generation=2")
	res, body := s.Do("PATCH", v3+"/a", `{"spec":{"d":6}}`, "Content-Type", mergePatch)
	if got := status(t, res, body); res.StatusCode != 422 || !strings.Contains(got.Message, "spec.d") || !strings.Contains(got.Message, "v1") {
		t.Errorf("%s %s", res.Status, body)
	}
}
