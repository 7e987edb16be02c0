package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
)

const transactionsPath = "/apiserver-lite/v1/transactions"

// transactions has objects created in transactions of so many, and one by one, which is a transaction of 1. The server works for 16 transactions of one
// address at once, so with more clients a request's time is that of waiting, too.
func transactions(f *flag.FlagSet) measure {
	count := f.Int("n", 20000, "objects in each case")
	counts := f.String("clients", "1,64", "numbers of clients")
	sizes := f.String("together", "1,10,100", "objects in a transaction; 1 for none")
	return func(ctx context.Context, b *bench) error {
		clients, err := integers(*counts)
		if err != nil {
			return err
		}
		together, err := integers(*sizes)
		if err != nil {
			return err
		}
		for _, c := range clients {
			for _, size := range together {
				if err := b.createTogether(c, size, *count); err != nil {
					return fmt.Errorf("transactions of %d: %w", size, err)
				}
			}
		}
		return nil
	}
}

// createTogether measures requests that create so many objects each. Their bodies are made before.
func (b *bench) createTogether(clients, size, count int) error {
	k, err := b.ownNamespace(plain)
	if err != nil {
		return err
	}
	path, code := transactionsPath, 200
	if size == 1 {
		path, code = k.path(), 201
	}
	unmeasured := max(clients, 10) // they open connections and wake what sleeps
	bodies := make([][]byte, unmeasured+max(1, count/size))
	for i := range bodies {
		bodies[i] = k.together(i*size, size)
	}
	send := func(i int) error {
		_, err := b.expect("POST", path, "application/json", bodies[i], code)
		return err
	}
	if _, err := parallel(clients, unmeasured, send); err != nil {
		return err
	}
	used := b.begin()
	took, err := parallel(clients, len(bodies)-unmeasured, func(i int) error { return send(unmeasured + i) })
	wall, cpu := used()
	if err != nil {
		return err
	}
	objects := float64(len(took) * size)
	b.report(pairs{"clients", clients, "together", size, "n", len(took) * size}, pairs{"objects_per_s", objects / wall, "us_per_object", wall * 1e6 / objects,
		"cpu_ms_per_object", cpu * 1000 / objects, "p50_ms", percentile(took, 50), "p99_ms", percentile(took, 99)})
	return nil
}

// together is the body of a request that creates objects: of one, or of a transaction of several.
func (k kind) together(first, size int) []byte {
	if size == 1 {
		return k.body(fmt.Sprint("c", first), first, 0)
	}
	operations := make([][]byte, size)
	for i := range operations {
		operations[i] = fmt.Appendf(nil, `{"create":%s}`, k.body(fmt.Sprint("c", first+i), first+i, 0))
	}
	return fmt.Appendf(nil, `{"operations":[%s]}`, bytes.Join(operations, []byte{','}))
}
