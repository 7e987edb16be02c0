package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
)

// writers is how many write at the same time where a scenario isn't about writes.
const writers = 4

const mergePatch = "application/merge-patch+json"

// writes has objects of its own in each case, each of which one client writes: none was applied to before, and none
// is written with what it holds already.
func writes(f *flag.FlagSet) measure {
	count := f.Int("n", 2000, "writes in each case")
	counts := f.String("clients", "1,16,64", "numbers of clients")
	kinds := f.String("kinds", "plain,thirty", "what to write: plain, thirty")
	ops := f.String("ops", "create,update,patch,apply,patch-one", "how: create, update, patch, apply; patch-one, by which all clients patch one object")
	return func(ctx context.Context, b *bench) error {
		clients, err := integers(*counts)
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(*kinds, ",") {
			k, err := kindNamed(name)
			if err != nil {
				return err
			}
			for op := range strings.SplitSeq(*ops, ",") {
				for _, c := range clients {
					if err := b.writeCase(k, op, c, *count); err != nil {
						return fmt.Errorf("%s of %s: %w", op, k.plural, err)
					}
				}
			}
		}
		return nil
	}
}

func kindNamed(name string) (kind, error) {
	switch name {
	case "plain":
		return plain, nil
	case "thirty":
		return thirty, nil
	}
	return kind{}, fmt.Errorf("there is no kind %q", name)
}

// errUnsupported is an answer that says the server doesn't do this.
var errUnsupported = errors.New("not supported")

func (b *bench) writeCase(k kind, op string, clients, count int) error {
	k, objects, err := b.createObjects(k, 10*clients) // so that each has one client
	if err != nil {
		return err
	}
	write := func(i int) error { return b.change(k, op, objects[i%len(objects)]) }
	switch op {
	case "create":
		write = func(i int) error {
			_, err := b.expect("POST", k.path(), "application/json", k.body(fmt.Sprint("c", i), i, 0), 201)
			return err
		}
	case "patch-one":
		write = func(i int) error {
			_, err := b.expect("PATCH", k.path()+"/"+objects[0].name, mergePatch, fmt.Appendf(nil, `{"spec":{"count":%d}}`, i+1), 200)
			return err
		}
	}
	what := pairs{"kind", k.plural, "op", op, "clients", clients, "n", count}
	if err := b.requests(what, clients, count, write); !errors.Is(err, errUnsupported) {
		return err
	}
	b.report(append(what, "unsupported", true), nil)
	return nil
}

// requests measures calls of f from so many clients. Some calls before, with numbers from count on, don't count: they
// open connections and wake what sleeps.
func (b *bench) requests(what pairs, clients, count int, f func(i int) error) error {
	const unmeasured = 100
	if _, err := parallel(clients, unmeasured, func(i int) error { return f(count + i) }); err != nil {
		return err
	}
	used := b.begin()
	took, err := parallel(clients, count, f)
	wall, cpu := used()
	if err != nil {
		return err
	}
	b.report(what, pairs{"ops_per_s", float64(count) / wall, "cpu_ms_per_op", cpu * 1000 / float64(count),
		"p50_ms", percentile(took, 50), "p99_ms", percentile(took, 99)})
	return nil
}

// change writes an object in one of the ways to do that.
func (b *bench) change(k kind, op string, o *object) error {
	if op == "update" {
		return b.update(k, o)
	}
	o.n++
	path, contentType, body := k.path()+"/"+o.name, mergePatch, fmt.Appendf(nil, `{"spec":{"count":%d}}`, o.n)
	if op == "apply" {
		path += "?fieldManager=bench&force=true"
		contentType, body = "application/apply-patch+yaml", k.body(o.name, o.n, 0)
	}
	code, answer, err := b.send("PATCH", path, contentType, body)
	if err == nil && code == http.StatusUnsupportedMediaType {
		return errUnsupported
	}
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d %.500s", code, answer)
	}
	if version := versionIn(answer); err == nil && version == o.version {
		err = fmt.Errorf("%s of %s has changed nothing", op, o.name)
	} else {
		o.version = version
	}
	return err
}
