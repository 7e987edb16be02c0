package quiescence

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Quiescent is Controllers.Quiescent, or that of another replica's controllers.
type Quiescent func(ctx context.Context, rev storage.Revision) (controllers.Report, error)

// Page is the answer when nothing is left to do.
type Page struct {
	ResourceVersion string             `json:"resourceVersion"` // everything up to it was acted on, and what followed
	Held            []controllers.Held `json:"held"`            // objects that are being deleted, and that others hold
	HeldMore        int                `json:"heldMore,omitempty"`
}

// Answer waits as a query asks, for at most the longest time, and returns the answer. The error is a Status, ctx's, or the store's.
func (q Quiescent) Answer(ctx context.Context, query url.Values, longest time.Duration) (Page, error) {
	rev, timeout, err := Options(query, longest)
	if err != nil {
		return Page{}, err
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	report, err := q(within, rev)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return Page{}, Pending(report, fmt.Sprintf("the controllers have something left to do after %v", timeout))
	}
	return Page{report.Revision.String(), report.Held, report.HeldMore}, err
}

// Await waits until nothing is left to do. The error is a Status that says what is left, if ctx ends with its time, or the store's.
func (q Quiescent) Await(ctx context.Context) error {
	report, err := q(ctx, 0)
	if errors.Is(err, context.DeadlineExceeded) {
		return Pending(report, "the controllers have something left to do")
	}
	return err
}
