package ruleset

import (
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// What expressions may name.
const (
	selfName  = "self"  // the object as it was, or in a list its item
	valueName = "value" // the field that is taken, if it's one
)

// maxNesting bounds how deep an expression nests: checking its types takes the third power of that.
const maxNesting = 50

// environmentOfRules has the language, the libraries and the costs by which schemas of definitions are validated. It's made once
// in a process.
var environmentOfRules = sync.OnceValues(func() (*cel.Env, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: utilversion.MajorMinor(1, 0), // always
		EnvOptions:        []cel.EnvOption{cel.ParserRecursionLimit(maxNesting), cel.Variable(selfName, cel.DynType), cel.Variable(valueName, cel.DynType)},
	}, environment.StrictCostOpt)
	if err != nil {
		return nil, err
	}
	return set.StoredExpressionsEnv(), nil
})

// cel makes each field of a side by an expression. If no field of the other side is there, none is made.
func (r *rule) cel(toSecond, toFirst []string) *field.Error {
	r.early = true
	var programs [2][]cel.Program
	for d, texts := range [2][]string{toSecond, toFirst} {
		at := r.at.Child([2]string{"forth", "back"}[d])
		if want := len(r.sides[1-d]); want == 0 || len(texts) != want {
			return field.Invalid(at, len(texts), fmt.Sprintf("must have an expression for each field of %s, of which there are %d", sideNames[1-d], want))
		}
		for _, text := range texts {
			p, err := compile(text)
			if err != nil {
				return field.Invalid(at, clip.Text(text), clip.Text(err.Error()))
			}
			programs[d] = append(programs[d], p)
		}
	}
	r.make = func(c *conversion, d direction, self map[string]any, in, out []any) (err error) {
		some := false
		for _, v := range in {
			some = some || v != absent
		}
		for i := range out {
			out[i] = absent
			if some {
				if out[i], err = c.evaluate(programs[d][i], self, in); err != nil {
					return fmt.Errorf("%s: %w", r.about[1-d][i], err)
				}
			}
		}
		return nil
	}
	return nil
}

func compile(text string) (cel.Program, error) {
	env, err := environmentOfRules()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	return env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
}

// evaluate returns what an expression makes of fields; absent for null.
func (c *conversion) evaluate(p cel.Program, self map[string]any, in []any) (any, error) {
	names := map[string]any{selfName: self}
	if len(in) == 1 {
		names[valueName] = in[0]
	}
	v, details, err := p.ContextEval(c.ctx, names)
	cost := uint64(math.MaxInt64)
	if details != nil && details.ActualCost() != nil {
		cost = min(cost, *details.ActualCost())
	}
	if c.budget -= int64(cost); c.budget < 0 {
		return nil, fmt.Errorf("the expressions cost more than the %d units that an object's conversion may", celconfig.RuntimeCELCostBudget)
	}
	if err != nil {
		return nil, fmt.Errorf("%s", clip.Text(err.Error()))
	}
	if v.Type() == celtypes.NullType {
		return absent, nil
	}
	return c.native(v)
}

// native returns a value of CEL as objects have it. It shares nothing with them: of what CEL shares each is another one.
func (c *conversion) native(v ref.Val) (any, error) {
	size := valueSize
	if text, ok := v.(celtypes.String); ok {
		size += len(text)
	}
	if err := c.grow(size); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case celtypes.Null:
		return nil, nil
	case celtypes.Bool:
		return bool(v), nil
	case celtypes.Int:
		return int64(v), nil
	case celtypes.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("%d is too large", v)
		}
		return int64(v), nil
	case celtypes.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%v isn't a number of JSON", f)
		}
		return float64(v), nil
	case celtypes.String:
		return string(v), nil
	case traits.Mapper:
		return c.nativeMap(v)
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == celtypes.True; {
			item, err := c.native(it.Next())
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	case celtypes.Duration, celtypes.Timestamp, celtypes.Bytes:
		return nil, fmt.Errorf("the expression returns a %s: use string()", v.Type().TypeName())
	}
	return nil, fmt.Errorf("the expression returns a %s, which JSON doesn't have", v.Type().TypeName())
}

func (c *conversion) nativeMap(v traits.Mapper) (any, error) {
	m := map[string]any{}
	for it := v.Iterator(); it.HasNext() == celtypes.True; {
		key := it.Next()
		name, ok := key.(celtypes.String)
		if !ok {
			return nil, fmt.Errorf("the expression returns a map with a key that isn't text, but a %s", key.Type().TypeName())
		}
		if err := c.grow(len(name)); err != nil {
			return nil, err
		}
		value, err := c.native(v.Get(key))
		if err != nil {
			return nil, err
		}
		m[string(name)] = value
	}
	return m, nil
}
