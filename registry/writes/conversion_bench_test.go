package writes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

const (
	tenRules = `[{"versions": ["v1", "v2"], "rules": [
{"rename": {"from": "spec.size", "to": "spec.length"}}, {"rename": {"from": "spec.replicas", "to": "spec.count"}},
{"move": {"from": "spec.host", "to": "spec.server.host"}}, {"move": {"from": "spec.port", "to": "spec.server.port"}},
{"move": {"from": "spec.old", "to": "metadata.annotations[example.com/old]"}}, {"default": {"to": "spec.mode", "value": "auto"}},
{"map": {"from": "spec.level", "to": "spec.level", "values": {"low": "LOW", "high": "HIGH"}}},
{"split": {"from": "spec.image", "to": ["spec.repository", "spec.tag"], "separator": ":"}},
{"join": {"from": ["spec.first", "spec.last"], "to": "spec.name", "separator": " "}},
{"rename": {"from": "spec.ports[*].port", "to": "spec.ports[*].number"}}]}]`
	convertedV1 = `{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
"size": {"type": "string"}, "replicas": {"type": "integer"}, "host": {"type": "string"}, "port": {"type": "integer"}, "old": {"type": "string"}, "level": {"type": "string"}, "image": {"type": "string"},
"first": {"type": "string"}, "last": {"type": "string"}, "text": {"type": "string"}, "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}}}}}}}}}`
	convertedV2 = `{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
"length": {"type": "string"}, "count": {"type": "integer"}, "server": {"type": "object", "properties": {"host": {"type": "string"}, "port": {"type": "integer"}}}, "mode": {"type": "string"}, "level": {"type": "string"},
"repository": {"type": "string"}, "tag": {"type": "string"}, "name": {"type": "string"}, "text": {"type": "string"}, "ports": {"type": "array", "items": {"type": "object", "properties": {"number": {"type": "integer"}, "name": {"type": "string"}}}}}}}}}}`
	convertedSpec = `{"size": "large", "replicas": 3, "host": "example.com", "port": 80, "old": "kept", "level": "low", "image": "registry/app:1.2.3", "first": "Ada", "last": "Lovelace",
"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}, {"port": 9090, "name": "metrics"}], "text": "%s"}`
)

func convertedBy(b *testing.B, rules string) []byte {
	text, _ := json.Marshal(rules)
	return crdOf(b, "gadgets", "Gadget", fmt.Sprintf(`metadata={"name":"gadgets.example.com","annotations":{"%s":%s}}`, ruleset.Annotation, text), "spec.versions=["+convertedV1+","+convertedV2+"]")
}

// BenchmarkConvertedList lists objects of a kilobyte in the version in which they're stored, and in another one by ten rules: the first time,
// and again. The goals are 45 us of CPU an object, and twice a list in its own version.
func BenchmarkConvertedList(b *testing.B) {
	s := start(b, "", registry.Options{})
	s.ok(s.crds().Create(s.ctx, "", nil, convertedBy(b, tenRules)))
	v1, v2 := s.at("example.com", "v1", "gadgets"), s.at("example.com", "v2", "gadgets")
	objects := many(5000)
	var work errgroup.Group
	work.SetLimit(64)
	for i := range objects {
		work.Go(func() error {
			body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"w%04d","labels":{"app":"a"}},"spec":%s}`, i, fmt.Sprintf(convertedSpec, strings.Repeat("lorem ipsum ", 40)))
			_, err := v1.Create(s.ctx, "default", nil, []byte(body))
			return err
		})
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
	list := func(e *client) {
		l, err := e.List(context.Background(), "default", nil)
		if err == nil {
			err = l.Write(context.Background(), io.Discard)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	perObject := func(b *testing.B, ns float64) {
		b.ReportMetric(ns/1000/float64(b.N)/float64(objects), "cpu-us/object")
	}
	for _, again := range []struct {
		name string
		of   *client
	}{{"own", v1}, {"again", v2}} {
		b.Run(again.name, func(b *testing.B) {
			list(again.of)
			began := cpuTime(b)
			for b.Loop() {
				list(again.of)
			}
			perObject(b, float64(cpuTime(b)-began))
		})
	}
	b.Run("first", func(b *testing.B) {
		used := 0.0
		for n := 0; b.Loop(); n++ {
			b.StopTimer()
			def := s.ok(s.crds().Get(s.ctx, "", "gadgets.example.com", "", nil))
			def["metadata"].(map[string]any)["annotations"] = map[string]any{ruleset.Annotation: fmt.Sprint(tenRules, " # ", b.N, n)}
			body, _ := json.Marshal(def)
			s.ok(s.crds().Update(s.ctx, "", "gadgets.example.com", "", nil, body))
			changed := s.at("example.com", "v2", "gadgets")
			b.StartTimer()
			began := cpuTime(b)
			list(changed)
			used += float64(cpuTime(b) - began)
		}
		perObject(b, used)
	})
}

// BenchmarkTrial is what a write of an object of a kilobyte takes more because of ten rules: there and back.
func BenchmarkTrial(b *testing.B) {
	s := start(b, "", registry.Options{})
	s.ok(s.crds().Create(s.ctx, "", nil, convertedBy(b, tenRules)))
	e := s.at("example.com", "v1", "gadgets").Endpoint
	body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"w","labels":{"app":"a"}},"spec":%s}`, fmt.Sprintf(convertedSpec, strings.Repeat("lorem ipsum ", 40)))
	o, err := object.DecodeStored([]byte(body))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if lost, err := e.Losses(s.ctx, o, nil); err != nil || len(lost) > 0 {
			b.Fatal(lost, err)
		}
	}
}
