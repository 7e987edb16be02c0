package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// Chain asks the plug-ins that are on. It's safe for concurrent use.
type Chain struct {
	registry   *registry.Registry
	members    []member // in Kubernetes' order
	collectors []prometheus.Collector
}

// member is a plug-in, and what it can do: to ask an interface for another one takes a look-up, and each write asks for many.
type member struct {
	plugin          any
	name            string // for traces
	took            *took
	selective       registry.Selective // nil if it's asked about every request
	admit, validate verdictOf          // nil if it doesn't change objects, or doesn't judge them
}

type verdictOf = func(context.Context, *request) (registry.Verdict, error)

// completer changes objects as Admit does, and checker judges them as Validate does; an error of theirs refuses the request.
type (
	completer interface {
		Complete(ctx context.Context, r *request) error
	}
	checker interface {
		Check(ctx context.Context, r *request) error
	}
)

func memberOf(name string, plugin any, durations *prometheus.HistogramVec) member {
	m := member{plugin: plugin, name: "admission " + name, took: &took{name: name, in: durations}}
	m.selective, _ = plugin.(registry.Selective)
	switch p := plugin.(type) {
	case registry.Admission[unstructured.Unstructured]:
		m.admit = p.Admit
	case completer:
		m.admit = refusing(p.Complete)
	}
	switch p := plugin.(type) {
	case registry.Validator:
		m.validate = p.Validate
	case checker:
		m.validate = refusing(p.Check)
	}
	if m.admit == nil && m.validate == nil {
		panic(fmt.Sprintf("admission: %T neither changes objects nor judges them", plugin))
	}
	return m
}

func refusing(ask func(context.Context, *request) error) verdictOf {
	return func(ctx context.Context, r *request) (registry.Verdict, error) {
		return registry.Refuse(ask(ctx, r)), nil
	}
}

// request is what plug-ins are asked about.
type request = registry.AdmissionRequest[unstructured.Unstructured]

// Concerns tells whether a plug-in has to be asked. The Kind isn't a Scale's yet.
func (c *Chain) Concerns(a *registry.Attributes) bool {
	return slices.ContainsFunc(c.members, func(m member) bool { return m.concerned(a) })
}

func (m *member) concerned(a *registry.Attributes) bool {
	return m.selective == nil || m.selective.Concerns(a)
}

// Admit lets the plug-ins change an object, in one round or in two.
func (c *Chain) Admit(ctx context.Context, r *request) (registry.Verdict, error) {
	return c.shown(r, func(r *request) (registry.Verdict, error) {
		ctx, round := match.WithRounds(ctx)
		if said, err := c.round(ctx, r); err != nil || said.Refused() || !round.Next() {
			return said, err
		}
		return c.round(ctx, r)
	})
}

// asked asks the plug-in, and notes how long it took.
func (m *member) asked(ctx context.Context, kind int, ask verdictOf, r *request) (registry.Verdict, error) {
	ctx, step := tracing.Begin(ctx, tracing.Admission, m.name)
	began := time.Now()
	said, err := ask(ctx, r)
	m.took.note(began, kind, r.Operation, err != nil || said.Refused())
	step.End(err)
	return said, err
}

// round asks each plug-in once. In the second round it notes when a plug-in has changed the object: policies and webhooks
// note that themselves.
func (c *Chain) round(ctx context.Context, r *request) (registry.Verdict, error) {
	round := match.RoundOf(ctx)
	for _, m := range c.members {
		if m.admit == nil || !m.concerned(&r.Attributes) {
			continue
		}
		var before *unstructured.Unstructured
		if round.Second() && r.Object != nil {
			before = r.Object.DeepCopy()
		}
		if said, err := m.asked(ctx, admitting, m.admit, r); err != nil || said.Refused() {
			return said, err
		}
		if before != nil && !equality.Semantic.DeepEqual(before, r.Object) {
			round.Changed()
		}
	}
	return registry.Verdict{}, nil
}

// Validate lets the plug-ins judge an object as it would be stored.
func (c *Chain) Validate(ctx context.Context, r *request) (registry.Verdict, error) {
	return c.shown(r, func(r *request) (registry.Verdict, error) {
		for _, m := range c.members {
			if m.validate == nil || !m.concerned(&r.Attributes) {
				continue
			}
			if said, err := m.asked(ctx, validating, m.validate, r); err != nil || said.Refused() {
				return said, err
			}
		}
		return registry.Verdict{}, nil
	})
}

// shown has plug-ins asked about what the request's path shows: at the subresource scale that's a Scale. What they make of
// it goes into the object.
func (c *Chain) shown(r *request, ask func(*request) (registry.Verdict, error)) (said registry.Verdict, err error) {
	e := c.registry.Catalog().Endpoint(r.Resource)
	if r.Subresource != "scale" || e == nil {
		return ask(r)
	}
	scaled := &request{Attributes: r.Attributes}
	scaled.Kind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	if scaled.Object, scaled.Old, err = reads.Of(e).Scales(r); err != nil {
		return said, err
	}
	said, err = ask(scaled)
	r.Warnings = scaled.Warnings
	if err != nil || said.Refused() || r.Object == nil {
		return said, err
	}
	return said, reads.Of(e).Rescale(r.Object, scaled.Object)
}

// allowAll is who is asked where nobody else decides.
type allowAll struct{}

func (allowAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}
