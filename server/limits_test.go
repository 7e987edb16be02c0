package server

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
)

func code(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// TestMaxWatches: watches beyond the bound get a 429, and one flow leaves others a quarter of them.
func TestMaxWatches(t *testing.T) {
	h := &handler{capacity: newCapacity(nil, fair.NewLevel(fair.Limits{Most: 8, Times: watches.Share}))}
	one, other := fair.Flow{Who: "one"}, fair.Flow{Who: "other"}
	open := func(flow fair.Flow) (fair.Seat, error) { return h.enterWatches(&response{held: held{flow: flow}}, 1) }
	first, err := open(one)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := open(one); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(one); code(err) != http.StatusTooManyRequests {
		t.Errorf("more than the part of one flow: %v, want 429", err)
	}
	if _, err := open(other); err != nil {
		t.Errorf("the other flow: %v", err)
	}
	first.Leave()
	if _, err := open(other); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
