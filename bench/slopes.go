package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
)

// slopes starts clusters of several sizes, and tells what a further replica adds to the cost of a write and of an object.
// --members or --etcd says which sort; the numbers are its own flag's. docs/scale.md has the model that its figures fill.
// With --check it fails where they contradict the model.
func slopes(f *flag.FlagSet) measure {
	sizes := f.String("sizes", "1,3,5,7", "numbers of replicas; of members, the first three vote, or five with --args --cluster-voters=5")
	objects := f.Int("objects", 20_000, "objects")
	updates := f.Int("updates", 4000, "updates by 64 clients")
	watches := f.Int("watches", 200, "watchers, all at the last replica")
	check := f.Float64("check", 0, "fail if a figure is more than so many times what docs/scale.md says it is; 0 for never")
	return func(ctx context.Context, b *bench) error {
		all, err := integers(*sizes)
		if err != nil {
			return err
		}
		var costs []cost
		for _, n := range all {
			s := slope{bench: b, objects: *objects, updates: *updates, watches: *watches}
			c, err := s.measure(ctx, n)
			if err != nil {
				return fmt.Errorf("%d replicas: %w", n, err)
			}
			costs = append(costs, c)
		}
		if *check == 0 {
			return nil
		}
		return contradictions(costs, *check)
	}
}

// cost is what a size measures.
type cost struct {
	replicas        int
	write, delivery float64 // CPU time: of a write at all replicas, and of an event that is delivered to one watcher, in any unit
	object          float64 // memory at one replica
}

// perReplica is the share of a lone replica's CPU per write that each further replica may add: what the model says of a member
// that votes, which costs most.
const perReplica = 0.6

// contradictions compares each size with the first one. By the model, a write costs more with each replica, in proportion to
// their number, and what an object and a delivered event cost a replica doesn't depend on how many others there are.
func contradictions(costs []cost, factor float64) error {
	var errs []error
	one := costs[0]
	for _, c := range costs[1:] {
		for _, figure := range []struct {
			name       string
			is, should float64
		}{
			{"a write's CPU", c.write, one.write * (1 + perReplica*float64(c.replicas-one.replicas))},
			{"a delivered event's CPU", c.delivery, one.delivery},
			{"an object's memory at a replica", c.object, one.object},
		} {
			if figure.is > figure.should*factor {
				errs = append(errs, fmt.Errorf("%s with %d replicas is %.4g, and should be at most %.4g", figure.name, c.replicas, figure.is, figure.should))
			}
		}
	}
	return errors.Join(errs...)
}

// slope is one size.
type slope struct {
	*bench
	objects, updates, watches int
}

func (s *slope) measure(ctx context.Context, size int) (c cost, err error) {
	group := &server{binary: s.binary, args: s.args, token: s.token, secure: s.secure}
	group.replicas = replicas{members: size}
	if s.replicas.etcd != "" {
		group.replicas = replicas{etcd: s.replicas.etcd, count: size}
	}
	if err := group.open(ctx); err != nil {
		return c, err
	}
	b := &bench{server: group, name: s.name, settling: s.settling, out: s.out}
	defer func() { err = errors.Join(err, group.close()) }()
	last := group.each[size-1]
	empty := b.of(last).settled()
	k, objects, err := b.createObjects(plain, s.objects)
	if err != nil {
		return c, err
	}
	if err := last.sees(k, s.objects); err != nil {
		return c, err
	}
	full := b.of(last).settled()
	used := b.cpu()
	if _, err := parallel(64, s.updates, func(i int) error { return b.update(k, objects[i%len(objects)]) }); err != nil {
		return c, err
	}
	if err := last.sees(k, s.objects); err != nil { // consistently, so it has all updates
		return c, err
	}
	write := (b.cpu() - used) * 1000 / float64(s.updates)
	few, err := s.deliver(b.of(last), k, objects, s.watches/10)
	if err != nil {
		return c, err
	}
	many, err := s.deliver(b.of(last), k, objects, s.watches)
	if err != nil {
		return c, err
	}
	delivered := (s.watches - s.watches/10) * s.updates
	c = cost{size, write, (many - few) / float64(delivered) * 1e6, (full - empty) * 1024 / float64(s.objects)}
	b.report(pairs{"replicas", size, "objects", s.objects}, pairs{"write_cpu_ms", write, "replica_kb_per_object", c.object, "delivery_cpu_us", c.delivery,
		"empty_mb", empty, "full_mb", full})
	return c, nil
}

// deliveryRate is how many updates a second are delivered. At a rate that every size keeps up with, no event shares a
// write to its connection with another one, and what the process does by the clock takes as long for any number of
// watchers. As fast as it goes, the slower cluster would pay for more of both.
const deliveryRate = 200

// deliver updates objects, as often as s says, and returns the CPU time that the replica with so many watchers used. What the
// updates themselves cost is the same for any number of watchers.
func (s *slope) deliver(at *bench, k kind, objects []*object, watches int) (float64, error) {
	d := delivery{bench: at, kind: k, readers: watches, updates: s.updates, rate: deliveryRate}
	err := d.measure(objects)
	return d.used, err
}

// of is the bench of one replica.
func (b *bench) of(one *server) *bench {
	return &bench{server: one, name: b.name, settling: b.settling, out: b.out}
}

// sees makes sure that a replica has so many objects, by a consistent list that it gives from its own memory.
func (s *server) sees(k kind, count int) error {
	answer, err := s.expect("GET", k.path()+"?limit=1", "", nil, 200)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf(`"remainingItemCount":%d`, count-1); count > 1 && !strings.Contains(string(answer), want) {
		return fmt.Errorf("a list at %s has no %s: %.300s", s.url, want, answer)
	}
	return nil
}
