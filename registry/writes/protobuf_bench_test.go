package writes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// benchPod is as large as an ordinary Pod: some 3 KB of JSON.
func benchPod(name string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "pods.example.com/v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", "tier": "front", "pod-template-hash": "5d59d67564"}},
		Spec:       corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways},
	}
	for i := range 2 {
		c := corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/web:1.2.3", Command: []string{"/bin/web", "--port=8080"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: quantity.MustParse("100m"), corev1.ResourceMemory: quantity.MustParse("64Mi"),
			}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz"}}, PeriodSeconds: 10},
			VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", j), Value: strings.Repeat("v", 30)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}}
	return p
}

// anyName stands in a body for a name of the same length.
const anyName = "any-name"

// named returns a body with another name, so that what a client does isn't measured.
func named(body []byte, name string) []byte {
	return bytes.ReplaceAll(body, []byte(anyName), []byte(name))
}

// benched is a kind of objects in one form. Its names have the length of anyName.
type benched struct {
	name   string
	client *client
	create func(b *testing.B, name string)
}

// BenchmarkProtobuf compares Pods as protobuf with custom resources of the same content as JSON: what a create, a
// get, a list, the initial state of a watch, and an event cost. Reads come after each object's protobuf was made.
func BenchmarkProtobuf(b *testing.B) {
	s := start(b, "", registry.Options{}, func(r *registry.Registry) {
		registry.Register(r, registry.Definition[corev1.Pod]{
			Group: "pods.example.com", Version: "v1", Kind: "Pod",
			Default:  func(*corev1.Pod) {}, // as all built-in kinds have some
			Validate: func(_ context.Context, _, _ *corev1.Pod, _ string) field.ErrorList { return nil },
		})
	})
	ctx := context.Background()
	widgets, pods := s.widgets(), s.at("pods.example.com", "v1", "pods").In(form.Form{Encoding: form.Protobuf})
	create := func(b *testing.B, r *registry.Request, c *client) {
		r.Namespace, r.Form = "default", c.form
		if _, err := c.Writer.Create(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
	custom := benchPod(anyName)
	custom.APIVersion, custom.Kind = "example.com/v1", "Widget"
	asJSON, err := json.Marshal(custom)
	if err != nil {
		b.Fatal(err)
	}
	message, err := benchPod(anyName).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	asProtobuf := kubeproto.TypeOf("pods.example.com/v1", "Pod").Append(nil, message)
	for _, of := range []benched{
		{"custom resource as JSON", widgets, func(b *testing.B, name string) {
			create(b, &registry.Request{Body: named(asJSON, name)}, widgets)
		}},
		{"Pod as protobuf", pods, func(b *testing.B, name string) {
			r := &registry.Request{}
			if err := pods.OpenProtobuf(r, named(asProtobuf, name)); err != nil {
				b.Fatal(err)
			}
			create(b, r, pods)
		}},
	} {
		b.Run(of.name, func(b *testing.B) { of.run(ctx, b, many(5000)) })
	}
}

func (of benched) run(ctx context.Context, b *testing.B, objects int) {
	for i := range objects {
		of.create(b, fmt.Sprintf("p%07d", i))
	}
	l, err := of.client.List(ctx, "default", nil) // makes what is kept
	if err == nil {
		err = l.Write(ctx, io.Discard)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Run("get", func(b *testing.B) {
		loopCPU(b, func() {
			res, err := of.client.Get(ctx, "default", "p0000000", "", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(res.Object)))
		})
	})
	b.Run("list", func(b *testing.B) {
		loopCPU(b, func() {
			l, err := of.client.List(ctx, "default", nil)
			if err == nil {
				err = l.Write(ctx, io.Discard)
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("state", func(b *testing.B) {
		var buf []byte
		loopCPU(b, func() {
			cursor, _, err := of.client.Watch(ctx, "default", "", nil)
			for err == nil && !cursor.Synced() {
				buf, _, err = cursor.Next(ctx, buf[:0])
			}
			if err != nil {
				b.Fatal(err)
			}
			cursor.Close()
		})
	})
	n := 0
	b.Run("create", func(b *testing.B) {
		loopCPU(b, func() {
			n++
			of.create(b, fmt.Sprintf("n%07d", n))
		})
	})
	b.Run("create and event", func(b *testing.B) {
		cursor, _, err := of.client.Watch(ctx, "default", "", params("resourceVersion="+fmt.Sprint(of.client.Cache().Snapshot().Revision)))
		if err != nil {
			b.Fatal(err)
		}
		defer cursor.Close()
		var buf []byte
		loopCPU(b, func() {
			n++
			of.create(b, fmt.Sprintf("w%07d", n))
			for buf = buf[:0]; len(buf) == 0; {
				var wait <-chan struct{}
				if buf, wait, err = cursor.Next(ctx, buf); err != nil {
					b.Fatal(err)
				}
				if len(buf) == 0 {
					<-wait
				}
			}
		})
	})
}
