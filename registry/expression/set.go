package expression

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/traits"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Use is what an expression is for. It decides what the expression may name and must return.
type Use int

// The uses.
const (
	Condition          Use = iota // a boolean: validations and match conditions
	Message                       // text: messageExpression, which has no authorizer
	Annotation                    // text or null: the value of an audit annotation
	ApplyConfiguration            // an Object
	JSONPatch                     // a list of JSONPatch
	variable                      // anything
)

// returns are the types that an expression may have; none is any.
func (u Use) returns() []*cel.Type {
	switch u {
	case Condition:
		return []*cel.Type{cel.BoolType}
	case Message:
		return []*cel.Type{cel.StringType}
	case Annotation:
		return []*cel.Type{cel.StringType, cel.NullType}
	case ApplyConfiguration:
		return []*cel.Type{cel.ObjectType(mutation.ObjectTypeName)}
	case JSONPatch:
		return []*cel.Type{cel.ListType(cel.ObjectType(mutation.JSONPatchTypeName))}
	}
	return nil
}

// Set is the expressions of one policy. See the package's comment.
type Set struct {
	params    bool
	composed  bool                   // whether expressions may name variables
	variables *apiservercel.DeclType // the type of `variables`; has a field for each
	defined   []definition
	envs      map[scope]*cel.Env

	check  *types            // of objects, where expressions are checked and not evaluated
	parsed map[string]parsed // what sets that check have parsed, by its text; theirs together
}

// definition is a variable.
type definition struct {
	name    string
	program *Program
}

// New returns an empty Set. params tells whether its expressions may name params.
func New(params bool) *Set {
	return &Set{
		params:    params,
		variables: apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{}),
		envs:      map[scope]*cel.Env{},
	}
}

// Program is a compiled expression.
type Program struct {
	text    string
	program cel.Program
	err     error // why it doesn't compile
}

// Text is the expression's source.
func (p *Program) Text() string { return p.text }

// Compose lets expressions name variables, though there may be none, before anything is compiled. Define does so, too.
func (s *Set) Compose() { s.composed = true }

// Define compiles a variable. The error says why it doesn't compile. What uses it fails then.
func (s *Set) Define(name, text string) error {
	s.Compose()
	p, returns := s.compile(text, variable)
	s.variables.Fields[name] = apiservercel.NewDeclField(name, declared(returns), true, nil, nil)
	s.defined = append(s.defined, definition{name, p})
	return p.err
}

// Compile compiles an expression. The error says why it doesn't compile. The Program is usable then, too: its evaluation
// fails.
func (s *Set) Compile(text string, use Use) (*Program, error) {
	p, _ := s.compile(text, use)
	return p, p.err
}

// compile returns what an expression was compiled to, and the type that it has, nil if it doesn't compile.
func (s *Set) compile(text string, use Use) (*Program, *cel.Type) {
	p := &Program{text: text}
	env, err := s.env(use)
	if err != nil {
		p.err = fmt.Errorf("unexpected error loading CEL environment: %w", err)
		return p, nil
	}
	compile := env.Compile
	if s.check != nil {
		compile = func(text string) (*cel.Ast, *cel.Issues) { return s.checked(env, text) }
	}
	ast, issues := compile(text)
	if issues.Err() != nil {
		p.err = compilationError(s, issues)
		return p, nil
	}
	if s.check != nil {
		return p, ast.OutputType()
	}
	if allowed := use.returns(); len(allowed) > 0 && !slices.ContainsFunc(allowed, ast.OutputType().IsExactType) {
		p.err = fmt.Errorf("must evaluate to one of %v but got %v", allowed, ast.OutputType())
		if len(allowed) == 1 {
			p.err = fmt.Errorf("must evaluate to %v but got %v", allowed[0], ast.OutputType())
		}
		return p, nil
	}
	if p.program, err = env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency)); err != nil {
		p.err = fmt.Errorf("program instantiation failed: %w", err)
	}
	return p, ast.OutputType()
}

func compilationError(s *Set, issues *cel.Issues) error {
	if s.check != nil {
		return fmt.Errorf("%s", issues)
	}
	return fmt.Errorf("compilation failed: %s", issues)
}

// env returns the environment of a use, with the variables.
func (s *Set) env(use Use) (*cel.Env, error) {
	sc := scope{params: s.params, authorizer: use != Message, patches: use == ApplyConfiguration || use == JSONPatch}
	if env, ok := s.envs[sc]; ok {
		return env, nil
	}
	var base *cel.Env
	var err error
	if s.check != nil {
		base, err = newEnvironment(sc, *s.check)
	} else {
		base, err = environmentOf(sc)
	}
	if err != nil {
		return nil, err
	}
	env := base
	if s.composed {
		if env, err = withVariables(base, s.variables); err != nil {
			return nil, err
		}
	}
	s.envs[sc] = env
	return env, nil
}

// declared returns a type as that of a field. Lists and maps keep the types of what they have; what isn't one of CEL's own
// types is any.
func declared(t *cel.Type) *apiservercel.DeclType {
	if t == nil {
		return apiservercel.DynType
	}
	for _, known := range []*apiservercel.DeclType{
		apiservercel.AnyType, apiservercel.BoolType, apiservercel.BytesType, apiservercel.DoubleType, apiservercel.DurationType,
		apiservercel.IntType, apiservercel.NullType, apiservercel.StringType, apiservercel.TimestampType, apiservercel.UintType,
	} {
		if known.CelType() == t {
			return known
		}
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch of := t.Parameters(); len(of) {
		case 1:
			return apiservercel.NewListType(declared(of[0]), -1)
		case 2:
			return apiservercel.NewMapType(declared(of[0]), declared(of[1]), -1)
		}
	}
	return apiservercel.DynType
}
