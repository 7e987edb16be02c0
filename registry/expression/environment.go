package expression

import (
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// scope says what expressions may name besides what all may: object, oldObject, request and namespaceObject.
type scope struct {
	params     bool
	authorizer bool // and authorizer.requestResource
	patches    bool // the types Object and JSONPatch, and jsonpatch.escapeKey
}

// environments has what expressions of each scope are compiled in: a func() (*cel.Env, error) for each scope.
var environments sync.Map

// environmentOf returns the environment of a scope.
func environmentOf(s scope) (*cel.Env, error) {
	made, ok := environments.Load(s)
	if !ok {
		made, _ = environments.LoadOrStore(s, sync.OnceValues(func() (*cel.Env, error) { return newEnvironment(s, types{}) }))
	}
	return made.(func() (*cel.Env, error))()
}

// types are the types of objects, for checking expressions against them; nil is any.
type types struct{ object, params *apiservercel.DeclType }

// newEnvironment makes an environment. It takes whatever a stored expression may use: nothing goes back to an older version
// of Kubernetes, for which kube-apiserver refuses what is new in new expressions.
func newEnvironment(s scope, t types) (*cel.Env, error) {
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	declared := []*apiservercel.DeclType{request, namespace}
	typeOf := func(d *apiservercel.DeclType) *cel.Type {
		if d == nil {
			return cel.DynType
		}
		declared = append(declared, d)
		return d.CelType()
	}
	options := []cel.EnvOption{
		cel.Variable(plugincel.RequestVarName, request.CelType()),
		cel.Variable(plugincel.NamespaceVarName, namespace.CelType()),
	}
	object := typeOf(t.object)
	options = append(options, cel.Variable(plugincel.ObjectVarName, object), cel.Variable(plugincel.OldObjectVarName, object))
	if s.params {
		options = append(options, cel.Variable(plugincel.ParamsVarName, typeOf(t.params)))
	}
	if s.authorizer {
		options = append(options,
			cel.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
			cel.Variable(plugincel.RequestResourceAuthorizerVarName, library.ResourceCheckType))
	}
	since := version.MajorMinor(1, 0) // always
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(
		environment.VersionedOptions{IntroducedVersion: since, EnvOptions: options, DeclTypes: declared},
		environment.StrictCostOpt,
	)
	if err != nil {
		return nil, err
	}
	if !s.patches {
		return set.StoredExpressionsEnv(), nil
	}
	// The resolver goes over the declared types, so it comes after them.
	return set.StoredExpressionsEnv().Extend(
		common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
		environment.UnversionedLib(library.JSONPatch))
}

// withVariables adds the variables of a policy to an environment. The type gets its fields while they're defined.
func withVariables(env *cel.Env, variables *apiservercel.DeclType) (*cel.Env, error) {
	provider := apiservercel.NewDeclTypeProvider(variables)
	provider.SetRecognizeKeywordAsFieldName(true) // as environment.EnvSet does
	options, err := provider.EnvOptions(env.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	return env.Extend(append(options, cel.Variable(plugincel.VariableVarName, variables.CelType()))...)
}
