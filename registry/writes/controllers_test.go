package writes_test

import (
	"context"
	"log/slog"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

func init() {
	writes.RunControllers = func(ctx context.Context, r *registry.Registry, c *cacher.Cacher) error {
		on, err := controllers.ParseSet("namespace") // the collector would act on what tests of deletions look at
		if err != nil {
			return err
		}
		return controllers.New(controllers.Options{Registry: r.Door(), Cacher: c, On: on, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}
}
