package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	// podName stands in a Pod for a name of the same length.
	podName = "any-name"
	// podClients are how many clients create and get.
	podClients = 16
)

// pods creates and reads Pods as protobuf. A server that has no Pods gets custom resources with the same fields, as JSON.
func pods(f *flag.FlagSet) measure {
	count := f.Int("n", 2000, "Pods")
	lists := f.Int("lists", 20, "lists, and initial states of watches, of all of them")
	custom := f.Bool("custom", false, "custom resources as JSON at any server")
	return func(_ context.Context, b *bench) error {
		p, err := b.podsAs(*custom)
		if err != nil {
			return err
		}
		what := func(op string, clients, n int) pairs {
			return pairs{"as", p.mediaType, "op", op, "clients", clients, "pods", *count, "n", n}
		}
		name := func(i int) string { return fmt.Sprintf("p%0*d", len(podName)-1, i) }
		err = b.requests(what("create", podClients, *count), podClients, *count, func(i int) error {
			_, err := p.request("POST", p.path, bytes.ReplaceAll(p.body, []byte(podName), []byte(name(i))), http.StatusCreated)
			return err
		})
		if err != nil {
			return err
		}
		if err := p.list(*count); err != nil { // makes what the server keeps
			return err
		}
		err = b.requests(what("get", podClients, 4**count), podClients, 4**count, func(i int) error {
			_, err := p.request("GET", p.path+"/"+name(i%*count), nil, http.StatusOK)
			return err
		})
		if err != nil {
			return err
		}
		err = b.requests(what("list", 1, *lists), 1, *lists, func(int) error { return p.list(*count) })
		if err != nil {
			return err
		}
		return b.requests(what("watch", 1, *lists), 1, *lists, func(int) error { return p.watch(*count) })
	}
}

// podsAs are Pods in one form, as one server has them.
type podsAs struct {
	*bench
	path      string
	mediaType string
	body      []byte // of one that is named podName
}

// podsAs finds out how the server has Pods, and makes room for them.
func (b *bench) podsAs(custom bool) (*podsAs, error) {
	code, _, err := b.do("GET", "/api/v1/namespaces/default/pods?limit=1", "", nil)
	if err != nil {
		return nil, err
	}
	p := &podsAs{bench: b, mediaType: jsonType}
	pod := examplePod()
	if code == http.StatusOK && !custom {
		p.mediaType = protobufType
		k, err := b.room(plain) // for its namespace
		if err != nil {
			return nil, err
		}
		p.path = "/api/v1/namespaces/" + k.namespace + "/pods"
		raw, err := pod.Marshal()
		if err != nil {
			return nil, err
		}
		message, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
		p.body = append([]byte("k8s\x00"), message...)
		return p, err
	}
	k, err := b.room(kind{name: "Pod", plural: "pods", file: "pods.yaml", namespace: "default"})
	if err != nil {
		return nil, err
	}
	p.path = k.path()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "bench.example.com/v1", Kind: "Pod"}
	p.body, err = json.Marshal(pod)
	return p, err
}

// examplePod is as large as an ordinary Pod: some 2.5 KB of JSON.
func examplePod() *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName, Labels: map[string]string{"app": "web", "tier": "front", "pod-template-hash": "5d59d67564"}},
		Spec:       corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"},
	}
	for i := range 2 {
		c := corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/web:1.2.3", Command: []string{"/bin/web", "--port=8080"},
			Ports:        []corev1.ContainerPort{{Name: fmt.Sprint("http", i), ContainerPort: int32(8080 + i), Protocol: corev1.ProtocolTCP}},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", j), Value: strings.Repeat("v", 30)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	return p
}

// open sends a request in the Pods' form.
func (p *podsAs) open(method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequest(method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", p.mediaType)
	r.Header.Set("Content-Type", p.mediaType)
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	return p.http.Do(r)
}

// request sends a request and reads the answer, which must have a code.
func (p *podsAs) request(method, path string, body []byte, want int) ([]byte, error) {
	res, err := p.open(method, path, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s %s: %d %.500q", method, path, res.StatusCode, answer)
	}
	return answer, err
}

// eachPod is in each Pod once.
const eachPod = "5d59d67564"

// list lists all Pods. Another number of them is an error.
func (p *podsAs) list(want int) error {
	answer, err := p.request("GET", p.path, nil, http.StatusOK)
	if n := bytes.Count(answer, []byte(eachPod)); err == nil && n != want {
		err = fmt.Errorf("a list has %d Pods, want %d", n, want)
	}
	return err
}

// watch reads the state with which a watch begins.
func (p *podsAs) watch(want int) error {
	res, err := p.open("GET", p.path+"?watch=true&resourceVersion=0", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	part, kept := make([]byte, 64<<10), 0
	for n := 0; n < want; {
		more, err := res.Body.Read(part[kept:])
		if err != nil {
			return fmt.Errorf("a watch ended after %d Pods of %d: %w", n, want, err)
		}
		have := part[:kept+more]
		n += bytes.Count(have, []byte(eachPod))
		// The text may be cut. What is kept is shorter than it, so that none counts twice.
		kept = copy(part, have[max(0, len(have)-len(eachPod)+1):])
	}
	return nil
}
