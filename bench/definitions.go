package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"strings"
	"time"
)

// definitions posts the same definition under many names.
func definitions(f *flag.FlagSet) measure {
	count := f.Int("n", 500, "definitions")
	file := f.String("kind", "thirty", "which: plain or thirty")
	used := f.Int("used", 50, "further ones that get an object each, right after the answer to their POST")
	starts := f.Int("starts", 3, "starts with and without them, of which the median counts")
	return func(ctx context.Context, b *bench) error {
		text, err := testdata.ReadFile("testdata/" + *file + ".yaml")
		if err != nil {
			return err
		}
		k, err := kindNamed(*file)
		if err != nil {
			return err
		}
		without, err := b.starts(ctx, *starts)
		if err != nil {
			return err
		}
		d := defined{bench: b, text: text, kind: k}
		before := b.settled()
		for i := range *count {
			if err := d.define(i); err != nil {
				return err
			}
		}
		after := b.settled()
		document, err := d.document()
		if err != nil {
			return err
		}
		for i := range *used {
			if err := d.use(*count + i); err != nil {
				return err
			}
		}
		b.report(pairs{"kind", *file, "n", *count}, append(pairs{"post_p50_ms", percentile(d.posts, 50), "post_p99_ms", percentile(d.posts, 99),
			"first_object_p50_ms", percentile(d.firsts, 50), "refused_first_objects", d.refused,
			"before_mb", before, "after_mb", after, "kb_each", (after - before) * 1024 / float64(*count)}, document...))
		if !b.restarts() {
			return nil
		}
		with, err := b.starts(ctx, *starts)
		if err != nil {
			return err
		}
		missing, err := d.missing(*count + *used)
		if err != nil {
			return err
		}
		b.report(pairs{"kind", *file, "n", *count, "restarted", true}, pairs{"start_without_ms", without, "start_with_ms", with,
			"ms_each", (with - without) / float64(*count+*used), "unserved_when_ready", missing, "after_mb", b.settled()})
		return nil
	}
}

// document asks for OpenAPI's document of all definitions for the first time, and returns what that costs.
func (b *bench) document() (pairs, error) {
	b.resetPeak()
	end := b.begin()
	text, err := b.expect("GET", "/openapi/v2", "", nil, 200)
	if err != nil {
		return nil, err
	}
	wall, cpu := end()
	return pairs{"openapi_ms", wall * 1000, "openapi_cpu_ms", cpu * 1000, "openapi_peak_mb", b.peak(), "openapi_mb", float64(len(text)) / (1 << 20)}, nil
}

// starts restarts the server and returns the median of how long that took, in milliseconds; 0 if it can't.
func (b *bench) starts(ctx context.Context, count int) (float64, error) {
	if !b.restarts() {
		return 0, nil
	}
	var all []float64
	for range count {
		took, err := b.restart(ctx)
		if err != nil {
			return 0, err
		}
		all = append(all, milliseconds(took))
	}
	return median(all), nil
}

// defined is definitions that were posted.
type defined struct {
	*bench
	text          []byte
	kind          kind
	posts, firsts []time.Duration
	refused       int // first objects, right after the answer to the definition
}

// named is the kind under its i-th name.
func (d *defined) named(i int) kind {
	k := d.kind
	k.name, k.plural = fmt.Sprintf("%s%d", k.name, i), fmt.Sprintf("%s%d", strings.ToLower(k.name), i)
	return k
}

// define posts the i-th definition.
func (d *defined) define(i int) error {
	k := d.named(i)
	text := bytes.ReplaceAll(d.text, []byte(d.kind.plural), []byte(k.plural))
	text = bytes.ReplaceAll(text, []byte("singular: "+strings.ToLower(d.kind.name)), []byte("singular: one-"+k.plural))
	text = bytes.ReplaceAll(text, []byte(d.kind.name), []byte(k.name))
	begin := time.Now()
	if _, err := d.expect("POST", definitionsPath, "application/yaml", text, 201); err != nil {
		return err
	}
	d.posts = append(d.posts, time.Since(begin))
	return nil
}

// use posts the i-th definition, and then its first object without a second try.
func (d *defined) use(i int) error {
	if err := d.define(i); err != nil {
		return err
	}
	k, begin := d.named(i), time.Now()
	code, _, err := d.send("POST", k.path(), "application/json", k.body("first", 0, 0))
	if err != nil {
		return err
	}
	if code != 201 {
		d.refused++
	}
	d.firsts = append(d.firsts, time.Since(begin))
	return nil
}

// missing is how many definitions aren't served.
func (d *defined) missing(count int) (n int, err error) {
	for i := range count {
		code, _, err := d.send("GET", d.named(i).path()+"?limit=1", "", nil)
		if err != nil {
			return 0, err
		}
		if code != 200 {
			n++
		}
	}
	return n, nil
}
