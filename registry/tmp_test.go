package registry
import ("testing";"strings";"time";"fmt"; "k8s.io/apimachinery/pkg/types"; "github.com/apiserver-lite/apiserver-lite/storage/cacher")
func TestTmpDeep(t *testing.T) {
	e := fuzzEndpoint()
	old := cacher.NewObject(fuzzKey, []byte(fuzzPatched), 7)
	for _, depth := range []int{100, 1000, 3000} {
		patch := []byte(`{"spec":`+strings.Repeat(`{"a":`, depth)+`"`+strings.Repeat("x", 1<<20)+`"`+strings.Repeat(`}`, depth+1))
		d := decoder{endpoint: e, mode: "Warn"}
		apply, err := d.patch(types.MergePatchType, patch)
		t0 := time.Now()
		if err == nil { _, err = apply(e.render(old)) }
		fmt.Println("merge", depth, time.Since(t0), err)
		ops := `[{"op":"add","path":"/spec","value":{"x":"`+strings.Repeat("x", 1<<20)+`"}}`
		for i := range depth { ops += fmt.Sprintf(`,{"op":"add","path":"/n%d","value":{}},{"op":"move","from":"/spec","path":"/n%d/a"},{"op":"move","from":"/n%d","path":"/spec"}`, i,i,i) }
		ops += "]"
		apply, err = d.patch(types.JSONPatchType, []byte(ops))
		t0 = time.Now()
		if err == nil { _, err = apply(e.render(old)) }
		fmt.Println("json", depth, time.Since(t0), err)
	}
}
