package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
)

// growth measures a write, a read, an event and a start at growing numbers of objects. What it writes, reads and watches is in a namespace with
// the same thousand objects each time; the others are in the way only.
func growth(f *flag.FlagSet) measure {
	sizes := f.String("sizes", "1000,10000,100000", "numbers of objects, growing; 1,000 at least")
	n := f.Int("n", 2000, "creates, gets and updates at each size")
	lists := f.Int("lists", 50, "lists at each size")
	watches := f.Int("watches", 100, "watchers of the updates")
	return func(ctx context.Context, b *bench) error {
		all, err := integers(*sizes)
		if err != nil {
			return err
		}
		k, objects, err := b.createObjects(plain, grownFrom)
		if err != nil {
			return err
		}
		g := &grown{bench: b, kind: k, objects: objects, n: *n, lists: *lists, watches: *watches, there: len(objects)}
		if g.others, err = b.ownNamespace(plain); err != nil {
			return err
		}
		for _, size := range all {
			if err := g.measure(ctx, size); err != nil {
				return err
			}
		}
		return nil
	}
}

// grownFrom is how many objects are written, read and watched.
const grownFrom = 1000

// grown is a server with more and more objects.
type grown struct {
	*bench
	kind, others      kind // in the namespace that is measured, and in the one that grows
	objects           []*object
	n, lists, watches int
	there             int // objects in both
}

func (g *grown) measure(ctx context.Context, size int) error {
	if err := g.fill(size); err != nil {
		return err
	}
	figures := pairs{"resident_mb", g.settled()}
	for _, op := range []struct {
		name  string
		count int
		do    func(i int) error
	}{
		{"create", g.n, g.create},
		{"get", g.n, func(i int) error {
			_, err := g.expect("GET", g.kind.path()+"/"+g.objects[i%len(g.objects)].name, "", nil, http.StatusOK)
			return err
		}},
		{"list", g.lists, func(int) error {
			_, err := g.expect("GET", g.kind.path(), "", nil, http.StatusOK)
			return err
		}},
	} {
		const clients = 16
		used := g.begin()
		if _, err := parallel(clients, op.count, op.do); err != nil {
			return fmt.Errorf("%s with %d objects: %w", op.name, size, err)
		}
		_, cpu := used()
		figures = append(figures, op.name+"_cpu_ms", cpu*1000/float64(op.count))
	}
	g.there += g.n
	d := delivery{bench: g.bench, kind: g.kind, readers: g.watches, updates: g.n}
	if err := d.measure(g.objects); err != nil {
		return err
	}
	figures = append(figures, "event_cpu_us", d.used/float64(g.watches*g.n)*1e6)
	if g.restarts() {
		started, err := g.restart(ctx)
		if err != nil {
			return err
		}
		figures = append(figures, "restart_ms", milliseconds(started))
	}
	g.report(pairs{"objects", size}, figures)
	return nil
}

// create makes one of those that are in the way.
func (g *grown) create(i int) error {
	_, err := g.expect("POST", g.others.path(), "application/json", g.others.body(fmt.Sprint("g", g.there+i), 0, 0), http.StatusCreated)
	return err
}

// fill creates objects until there are so many.
func (g *grown) fill(size int) error {
	count := max(0, size-g.there)
	_, err := parallel(64, count, g.create)
	g.there += count
	return err
}
