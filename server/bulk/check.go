package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// checkEnvironment has Kubernetes' functions, and the variable object.
var checkEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("object", cel.DynType)},
	})
	if err != nil {
		return nil, err
	}
	return set.Env(environment.StoredExpressions)
})

// compile makes a program of an expression that is true or false.
func compile(expression string) (cel.Program, error) {
	env, err := checkEnvironment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("the expression %q can't be compiled: %w", clip.Text(expression), err)
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the expression %q is a %s, and must be true or false", clip.Text(expression), out)
	}
	return env.Program(ast, cel.CostLimit(celconfig.PerCallLimit))
}

// judge says whether an object is as it's to be before the transaction, and sees to it that it still is when that is written. got is
// what the object's get was answered. again tells that somebody else has written it meanwhile.
func (c *checked) judge(ctx context.Context, e *registry.Endpoint, namespace string, got result, op *transaction.Operation) (_ result, again bool) {
	absent := got.Code == http.StatusNotFound
	switch {
	case got.Code >= http.StatusBadRequest && !absent:
		return got, false
	case e == nil: // it wasn't served a moment ago
		return refused(registry.Refusal(http.StatusNotFound, metav1.StatusReasonNotFound, "nothing of that kind is served: see /apis")), false
	case e.Typed != nil && (e.Typed.Unstored.Answer != nil || e.Typed.Unstored.Forward != nil || e.Typed.Unstored.Shown != nil):
		return refused(registry.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, e.Plural+" aren't stored, so there's nothing to check")), false
	}
	var at storage.Revision
	if !absent {
		var err error
		if at, err = versionOf(got.Object); err != nil {
			return refused(err), false
		}
	}
	if why := c.fails(ctx, absent, at, got.Object); why != "" {
		return refused(registry.Refusal(http.StatusConflict, metav1.StatusReasonConflict, "the check failed: "+why)), false
	}
	if !e.Namespaced {
		namespace = ""
	}
	key, err := e.Key(namespace, c.Name)
	if err == nil && !op.DryRun {
		err = op.Keep(ctx, key, at, 0)
	}
	switch {
	case errors.Is(err, storage.ErrConflict):
		return result{}, true
	case err != nil && !errors.Is(err, transaction.ErrAborted): // whose answer nobody gets
		return refused(e.Fail(c.Name, err)), false
	}
	return result{Code: http.StatusOK}, false
}

// versionOf returns the version of an object as it's answered.
func versionOf(object []byte) (storage.Revision, error) {
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return 0, err
	}
	return reads.ParseRevision(o.Metadata.ResourceVersion)
}

// fails says why an object isn't as it's to be; "" if it is.
func (c *checked) fails(ctx context.Context, absent bool, at storage.Revision, object []byte) string {
	switch {
	case c.Absent && absent:
		return ""
	case c.Absent:
		return fmt.Sprintf("it exists, with the resourceVersion %s", at)
	case absent:
		return "it doesn't exist"
	case c.ResourceVersion != "" && c.ResourceVersion != at.String():
		return fmt.Sprintf("its resourceVersion is %s, and not %s", at, clip.Text(c.ResourceVersion))
	}
	if c.CEL == "" {
		return ""
	}
	if err := c.evaluate(ctx, object); err != nil {
		return err.Error()
	}
	return ""
}

// evaluate returns nil if the expression is true of an object.
func (c *checked) evaluate(ctx context.Context, object []byte) error {
	var tree map[string]any
	if err := utiljson.Unmarshal(object, &tree); err != nil {
		return err
	}
	out, _, err := c.program.ContextEval(ctx, map[string]any{"object": tree})
	switch {
	case err != nil:
		return fmt.Errorf("%q can't be evaluated: %w", clip.Text(c.CEL), err)
	case out.Value() != true:
		return fmt.Errorf("%q isn't true", clip.Text(c.CEL))
	}
	return nil
}
