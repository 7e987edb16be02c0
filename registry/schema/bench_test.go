package schema

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// benched are schemas with an object of about 1 KB, which is valid, and one more that has defaults to fill in.
func benched(b *testing.B) []benchCase {
	return []benchCase{
		{"widget", Props(b, Widget), `
apiVersion: bench.example.com/v1
kind: Widget
metadata: {name: w, namespace: default, labels: {app: bench}}
spec: {size: 5, color: red, owner: somebody, replicas: 3, ratio: 0.5, tags: [a, b, c], payload: ` + strings.Repeat("x", 800) + "}"},
		{"thirty", Thirty(b), gizmo},
	}
}

type benchCase struct {
	name   string
	schema *apiextensionsv1.JSONSchemaProps
	object string
}

const gizmo = `
apiVersion: bench.example.com/v1
kind: Gizmo
metadata: {name: g, namespace: default, labels: {app: bench}}
spec:
  image: registry.example.com/team/gizmo:1.2.3
  imagePullPolicy: Always
  minReplicas: 1
  maxReplicas: 10
  paused: false
  priority: 1000
  weight: 0.25
  storageClass: fast
  storageSize: 10Gi
  serviceAccountName: gizmo
  schedule: "*/5 * * * *"
  timeoutSeconds: 60
  startAt: "2026-01-02T03:04:05Z"
  endpoint: https://gizmo.example.com/api
  owner: null
  port: 8080
  nodeSelector: {disk: ssd, zone: a, arch: arm64}
  args: [--verbose, --level=3, --name=gizmo, --config=/etc/gizmo/config.yaml]
  zones: [a, b, c]
  ports:
  - {name: http, number: 80, protocol: TCP}
  - {name: metrics, number: 9090, protocol: TCP}
  parameters: {depth: 3, mode: {fast: true, limit: 10}}
status:
  phase: Running
  replicas: 3
  observedGeneration: 4
  conditions:
  - {type: Ready, status: "True", reason: AllGood}
  - {type: Synced, status: "True", reason: AllGood}
`

func BenchmarkShape(b *testing.B) {
	for _, c := range benched(b) {
		s := New(c.schema)
		object := tree(b, c.object)
		b.Run(c.name+"/complete", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ShapeReporting(object); err != nil {
					b.Fatal(err)
				}
			}
		})
		sparse := runtime.DeepCopyJSON(object)
		spec := sparse["spec"].(map[string]any)
		b.Run(c.name+"/defaulting", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				delete(spec, "timeoutSeconds")
				if _, err := s.ShapeReporting(sparse); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/pruning", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				spec["none"] = true
				if _, err := s.ShapeReporting(sparse); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, c := range benched(b) {
		s := New(c.schema)
		object := tree(b, c.object)
		changed := runtime.DeepCopyJSON(object)
		changed["metadata"].(map[string]any)["labels"] = map[string]any{"app": "other"}
		wrong := runtime.DeepCopyJSON(object)
		wrong["spec"].(map[string]any)["minReplicas"] = int64(-1)
		wrong["spec"].(map[string]any)["size"] = int64(-1)
		b.Run(c.name+"/create", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if errs := s.Validate(b.Context(), object, nil, Found{}); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
		b.Run(c.name+"/update", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if errs := s.Validate(b.Context(), changed, object, Found{}); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
		b.Run(c.name+"/invalid", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if errs := s.Validate(b.Context(), wrong, object, Found{}); len(errs) == 0 {
					b.Fatal("no errors")
				}
			}
		})
	}
}
