package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiservicehelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

const (
	// checkAttempts is how many requests look at once whether a server answers; one that it answers is enough.
	checkAttempts = 5
	// checkTimeout is how long the server has to answer.
	checkTimeout = 5 * time.Second
	// maxCondition bounds the message of the condition, in bytes: an error may quote what a server has sent.
	maxCondition = 4 << 10
)

// aggregatorUser is who asks the servers on this server's own account.
const aggregatorUser = "system:kube-aggregator"

// masters may ask everything.
var masters = []string{user.SystemPrivilegedGroup}

func isAvailable(s *apiregistrationv1.APIService) bool {
	return apiservicehelper.IsAPIServiceConditionTrue(s, apiregistrationv1.Available)
}

// checkAndReport looks whether a server is available, and notes it in the status of its APIService. The error is why the look
// has to be repeated soon.
func (a *Aggregator) checkAndReport(ctx context.Context, b *Backend) error {
	found, failure := a.check(ctx, b)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	found.Message = clip.To(found.Message, maxCondition)
	if err := a.report(ctx, b, found); err != nil {
		return err
	}
	return failure
}

// check returns the condition of a server, and why it should be looked at again soon. The reasons and messages are
// kube-apiserver's.
func (a *Aggregator) check(ctx context.Context, b *Backend) (found apiregistrationv1.APIServiceCondition, failure error) {
	at := b.spec.Service
	condition := func(status apiregistrationv1.ConditionStatus, reason, message string, args ...any) apiregistrationv1.APIServiceCondition {
		return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	no := func(reason, message string, args ...any) (apiregistrationv1.APIServiceCondition, error) {
		return condition(apiregistrationv1.ConditionFalse, reason, message, args...), nil
	}
	s, err := a.service(at.Namespace, at.Name)
	if apierrors.IsNotFound(err) {
		return no("ServiceNotFound", "service/%s in %q is not present", at.Name, at.Namespace)
	}
	if err != nil {
		return condition(apiregistrationv1.ConditionUnknown, "ServiceAccessError", "service/%s in %q cannot be checked due to: %v", at.Name, at.Namespace, err), nil
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		port := servicePort(s, portOf(b))
		if port == nil {
			return no("ServicePortError", "service/%s in %q is not listening on port %d", at.Name, at.Namespace, portOf(b))
		}
		all := a.endpointSlices(at.Namespace, at.Name)
		if len(all) == 0 {
			return no("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", at.Name, at.Namespace)
		}
		if !slices.ContainsFunc(all, func(s *discoveryv1.EndpointSlice) bool { return serves(s, port.Name) }) {
			return no("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", at.Name, at.Namespace, port.Name)
		}
	}
	if err := b.answers(ctx); err != nil {
		found, _ := no("FailedDiscoveryCheck", "%v", err)
		return found, err
	}
	return condition(apiregistrationv1.ConditionTrue, "Passed", "all checks passed"), nil
}

// serves tells whether a slice has an endpoint that's ready, and a port of a name.
func serves(s *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(s.Endpoints, isReady) && slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
		return p.Name != nil && *p.Name == port && p.Port != nil
	})
}

// answers returns nil if the server answers for its group version: one of several requests that are made at once is enough,
// because a Service may have endpoints that are gone.
func (b *Backend) answers(ctx context.Context) error {
	if b.clients.err != nil {
		return b.clients.err
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan error, checkAttempts)
	for range checkAttempts {
		go func() { results <- b.answersOnce(ctx) }() // waited for below
	}
	var last error
	answered := false
	for range checkAttempts {
		err := <-results
		switch {
		case answered:
		case err == nil:
			answered = true
			cancel()
		default:
			last = err
		}
	}
	cancel()
	if answered {
		return nil
	}
	b.clients.any.CloseIdleConnections()
	return last
}

func (b *Backend) answersOnce(ctx context.Context) error {
	host, err := b.aggregator.resolve(b)
	if err != nil {
		return err
	}
	where := "https://" + host + b.ownPath()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err == nil {
		setUser(request.Header, &user.DefaultInfo{Name: aggregatorUser, Groups: masters})
		client := &http.Client{Transport: b.clients.any, Timeout: checkTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		var response *http.Response
		if response, err = client.Do(request); err == nil {
			response.Body.Close()
			if code := response.StatusCode; code < http.StatusOK || code >= http.StatusMultipleChoices {
				err = fmt.Errorf("bad status from %s: %d", where, code)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("failing or missing response from %s: %w", where, err)
	}
	return nil
}

// ownPath is the path of the group version.
func (b *Backend) ownPath() string {
	if b.Group == "" {
		return "/api/" + b.Version
	}
	return "/apis/" + b.Group + "/" + b.Version
}

// report notes a condition in the status of a server's APIService, if it isn't there yet.
func (a *Aggregator) report(ctx context.Context, b *Backend, found apiregistrationv1.APIServiceCondition) error {
	e := a.registry.Catalog().Prefix(apiServices)
	if e == nil || e.Object("", b.Name) == nil {
		return nil
	}
	var counted string // the reason why the server isn't available any more
	_, err := writes.AmendManaged(a.registry.Pin(ctx), e, writes.Managed{Name: b.Name, UID: b.uid, Subresource: "status"}, func(s *apiregistrationv1.APIService) {
		if !equality.Semantic.DeepEqual(s.Spec.Service, b.spec.Service) { // there's another server by now
			return
		}
		was := isAvailable(s)
		found.LastTransitionTime = metav1.NewTime(a.registry.Clock.Now())
		apiservicehelper.SetAPIServiceCondition(s, found)
		if counted = ""; was && !isAvailable(s) {
			counted = found.Reason
		}
	})
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err == nil && counted != "" {
		a.unavailable.WithLabelValues(b.Name, counted).Inc()
		a.log.Warn("an aggregated API server isn't available", "apiservice", b.Name, "reason", found.Reason, "message", found.Message)
	}
	return err
}
