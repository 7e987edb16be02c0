package aggregator

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// service returns a Service from the cache. An error is a Status if there is none.
func (a *Aggregator) service(namespace, name string) (*corev1.Service, error) {
	o := a.registry.Catalog().Object(services, namespace, name)
	if o == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name)
	}
	if o.Err != nil {
		return nil, o.Err
	}
	s := &corev1.Service{}
	return s, json.Unmarshal(o.Raw(), s)
}

// slicesOf yields the EndpointSlices of a Service, as they're cached.
func (a *Aggregator) slicesOf(namespace, name string) iter.Seq[*kube.Object] {
	return func(yield func(*kube.Object) bool) {
		e := a.registry.Catalog().Prefix(endpointSlices)
		if e == nil {
			return
		}
		in, err := endpointSlices.Namespace(namespace)
		if err != nil {
			return
		}
		for o := range e.Cache().Snapshot().Labelled(serviceLabel, []string{name}, storage.Range{Prefix: in}) {
			if of, _ := o.Labels.Get(serviceLabel); of == name && !yield(o) {
				return
			}
		}
	}
}

func (a *Aggregator) endpointSlices(namespace, name string) (all []*discoveryv1.EndpointSlice) {
	for o := range a.slicesOf(namespace, name) {
		s := &discoveryv1.EndpointSlice{}
		if o.Err == nil && json.Unmarshal(o.Raw(), s) == nil {
			all = append(all, s)
		}
	}
	return all
}

func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

func join(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// resolve returns where a server is now, as host and port. The rules and the errors are kube-apiserver's.
func (a *Aggregator) resolve(b *Backend) (string, error) {
	at := b.spec.Service
	s, err := a.service(at.Namespace, at.Name)
	if err != nil {
		return "", err
	}
	switch t := s.Spec.Type; {
	case t == corev1.ServiceTypeExternalName && !a.options.EndpointRouting:
		return join(s.Spec.ExternalName, portOf(b)), nil
	case t != corev1.ServiceTypeClusterIP && t != corev1.ServiceTypeLoadBalancer && t != corev1.ServiceTypeNodePort:
		return "", fmt.Errorf("unsupported service type %q", t)
	case t == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone && !a.options.EndpointRouting:
		return "", errors.New(`cannot route to service with ClusterIP "None"`)
	}
	port := servicePort(s, portOf(b))
	if port == nil {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", portOf(b), s.Name))
	}
	if !a.options.EndpointRouting {
		return join(s.Spec.ClusterIP, port.Port), nil
	}
	if address := randomEndpoint(s, a.endpointSlices(at.Namespace, at.Name), port.Name); address != "" {
		return address, nil
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", s.Name))
}

// defaultPort is the port of a Service of which none is named.
const defaultPort = 443

func portOf(b *Backend) int32 {
	if p := b.spec.Service.Port; p != nil {
		return *p
	}
	return defaultPort
}

func servicePort(s *corev1.Service, number int32) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		if s.Spec.Ports[i].Port == number {
			return &s.Spec.Ports[i]
		}
	}
	return nil
}

// randomEndpoint returns where a port of a Service is served: one of the endpoints that are ready, of the Service's first
// family of addresses if there's any. It's "" for none.
func randomEndpoint(s *corev1.Service, all []*discoveryv1.EndpointSlice, port string) string {
	var preferred discoveryv1.AddressType
	if len(s.Spec.IPFamilies) > 0 {
		preferred = discoveryv1.AddressType(s.Spec.IPFamilies[0])
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(x, y *discoveryv1.EndpointSlice) int {
		switch {
		case x.AddressType == y.AddressType:
			return 0
		case x.AddressType == preferred:
			return -1
		case y.AddressType == preferred:
			return 1
		}
		return 0
	})
	for _, slice := range all {
		for _, p := range slice.Ports {
			if p.Name == nil || *p.Name != port || p.Port == nil || len(slice.Endpoints) == 0 {
				continue
			}
			first := rand.IntN(len(slice.Endpoints))
			for i := range slice.Endpoints {
				e := slice.Endpoints[(first+i)%len(slice.Endpoints)]
				if isReady(e) && len(e.Addresses) > 0 {
					return join(e.Addresses[0], *p.Port)
				}
			}
		}
	}
	return ""
}
