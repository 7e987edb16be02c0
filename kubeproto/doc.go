// Package kubeproto knows the wire form that Kubernetes gives protobuf messages: the envelope around one (k8s, a zero byte,
// and a runtime.Unknown that names the kind), lists, and the frames of watches.
//
// It doesn't know the messages themselves, only that metadata comes first in each, as in every kind of Kubernetes. A Message is
// kept without its resourceVersion and cut where that belongs, so that one encoding serves a get, each list and each event: they
// copy it, with a header before it and the resourceVersion in its middle. The bytes are the same that kube-apiserver sends.
//
// Source: k8s.io/apimachinery's pkg/runtime/serializer/protobuf and generated.proto of meta/v1 and runtime.
//
// It starts no goroutine, holds no lock, and keeps nothing.
package kubeproto
