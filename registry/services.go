package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Webhooks are called at services, too. Services are data here: nobody routes their ClusterIPs. So a webhook's service
// resolves to where its EndpointSlices or Endpoints say that it's served, and to its ClusterIP only without any: then
// somebody else may route it.

// Network is how the server's webhooks are reached.
func (r *Registry) Network() hookclient.Network {
	return hookclient.Network{Policy: r.Webhooks, Ways: r.Ways, Resolve: r.resolve, Log: r.Log}
}

// resolve finds the address at which a Service is served now.
func (r *Registry) resolve(ctx context.Context, s hookclient.Service) (string, error) {
	e := r.Catalog().Kind("v1", "Service")
	if e == nil {
		return "", errors.New("this server has no services that it could call; use url")
	}
	if err := e.Freshen(ctx); err != nil {
		return "", err
	}
	service := &corev1.Service{}
	switch err := e.decode(s.Namespace, s.Name, service); {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("service %q not found", s.Name)
	case err != nil:
		return "", err
	}
	number := cmp.Or(s.Port, hookclient.ServicePort)
	port := portOf(service, number)
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return join(service.Spec.ExternalName, number), nil
	case port == nil:
		return "", fmt.Errorf("no service port %d found for service %q", number, s.Name)
	}
	if at := r.endpointOf(s, port.Name); at != "" {
		return at, nil
	}
	if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		return join(ip, number), nil
	}
	return "", fmt.Errorf("no endpoints available for service %q", s.Name)
}

func portOf(s *corev1.Service, number int32) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Port == number {
			return p
		}
	}
	return nil
}

func join(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// endpointOf returns one of the addresses at which a service's port of a name is served; "" for none.
func (r *Registry) endpointOf(s hookclient.Service, port string) string {
	addresses := r.inSlices(s, port)
	if len(addresses) == 0 {
		addresses = r.inEndpoints(s, port)
	}
	if len(addresses) == 0 {
		return ""
	}
	return addresses[rand.IntN(len(addresses))]
}

// inSlices returns the addresses that EndpointSlices have.
func (r *Registry) inSlices(s hookclient.Service, port string) (addresses []string) {
	e := r.Catalog().Kind("discovery.k8s.io/v1", "EndpointSlice")
	if e == nil {
		return nil
	}
	prefix, err := e.Res.Prefix.Namespace(s.Namespace)
	if err != nil {
		return nil
	}
	for o := range e.Res.Cache.Snapshot().All(prefix) {
		slice := &discoveryv1.EndpointSlice{}
		if name, _ := o.Labels.Get(discoveryv1.LabelServiceName); name != s.Name || json.Unmarshal(o.Raw(), slice) != nil {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name != nil && *p.Name != port || p.Name == nil && port != "" {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; (ready == nil || *ready) && len(endpoint.Addresses) > 0 {
					addresses = append(addresses, join(endpoint.Addresses[0], *p.Port))
				}
			}
		}
	}
	return addresses
}

// inEndpoints returns the addresses that the Endpoints of the service's name have.
func (r *Registry) inEndpoints(s hookclient.Service, port string) (addresses []string) {
	e := r.Catalog().Kind("v1", "Endpoints")
	//lint:ignore SA1019 it's deprecated, and still written by hand for services without pods
	endpoints := &corev1.Endpoints{}
	if e == nil || e.decode(s.Namespace, s.Name, endpoints) != nil {
		return nil
	}
	for _, subset := range endpoints.Subsets {
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			for _, a := range subset.Addresses {
				addresses = append(addresses, join(a.IP, p.Port))
			}
		}
	}
	return addresses
}

// decode decodes an object of the cache's. An error is a Status.
func (e *Endpoint) decode(namespace, name string, into any) error {
	key, err := e.Key(namespace, name)
	if err != nil {
		return err
	}
	o := e.Res.Cache.Get(key)
	switch {
	case o == nil:
		return e.Fail(name, storage.ErrNotFound)
	case o.Err != nil:
		return e.Unreadable(name, o.Err)
	}
	return json.Unmarshal(o.Raw(), into)
}
