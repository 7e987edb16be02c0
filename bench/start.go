package main

import (
	"context"
	"flag"
	"fmt"
	"time"
)

// start begins with an empty directory each time. The first object's time includes its definition.
func start(f *flag.FlagSet) measure {
	count := f.Int("n", 9, "starts, of which the median counts")
	watched := f.Duration("idle", 10*time.Second, "how long to look at what an idle server takes of the processors")
	return func(ctx context.Context, b *bench) error {
		idle := b.settled()
		taken := b.begin()
		time.Sleep(*watched)
		wall, cpu := taken()
		var readies, firsts []time.Duration
		for range *count {
			begin, err := b.startEmpty(ctx)
			if err != nil {
				return err
			}
			readies = append(readies, time.Since(begin))
			if err := b.firstObject(); err != nil {
				return err
			}
			firsts = append(firsts, time.Since(begin))
		}
		b.report(pairs{"n", *count}, pairs{"ready_ms", percentile(readies, 50), "first_object_ms", percentile(firsts, 50), "idle_mb", idle, "idle_cpu_ms_per_s", cpu / wall * 1000})
		return nil
	}
}

// firstObject posts a definition, and an object again and again until it's taken.
func (b *bench) firstObject() error {
	k, err := b.ownNamespace(plain)
	if err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		code, answer, err := b.send("POST", k.path(), "application/json", k.body("first", 0, 0))
		if err != nil || code == 201 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the first object isn't taken after %v: %d %.500s", patience, code, answer)
		}
	}
}
