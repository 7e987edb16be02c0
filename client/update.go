package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

const (
	// conflictFirst and conflictMost are the pauses after conflicts. Another writer is usually done within the first.
	conflictFirst = 5 * time.Millisecond
	conflictMost  = time.Second
)

// Update reads the object with that name, lets change edit it, and writes what has changed, all again as often as another
// writer comes first, until ctx ends. It returns the object as it was stored. An error of change ends it, and nothing is
// written; nor is it when change changes nothing.
//
// What is sent is a merge patch of what has changed, which holds only for the version that was read. So fields that T
// doesn't have stay as they are, but for those within lists: a list that has changed is replaced as a whole.
func Update[T any](ctx context.Context, c Collection[T], name string, change func(*T) error, options ...Option) (*T, error) {
	if err := newSettings(options).check(aPatch); err != nil {
		return nil, err
	}
	backoff := (&settings{}).backoff(conflictFirst, conflictMost)
	for {
		stored, err := updateOnce(ctx, c, name, change, options)
		if !errors.Is(err, ErrConflict) {
			return stored, err
		}
		if ended := sleep(ctx, backoff.next()); ended != nil {
			return nil, errors.Join(ended, err)
		}
	}
}

func updateOnce[T any](ctx context.Context, c Collection[T], name string, change func(*T) error, options []Option) (*T, error) {
	document, err := c.get(ctx, name, &settings{query: map[string][]string{}, subresource: newSettings(options).subresource})
	if err != nil {
		return nil, err
	}
	object, h, err := decode[T](document)
	if err != nil {
		return nil, err
	}
	before, err := tree(object)
	if err != nil {
		return nil, err
	}
	if err := change(object); err != nil {
		return nil, err
	}
	after, err := tree(object)
	if err != nil {
		return nil, err
	}
	patch := difference(before, after)
	if len(patch) == 0 {
		return object, nil
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = h.version
	patch["metadata"] = metadata
	return c.Patch(ctx, name, Merge(patch), options...)
}

// tree returns the object as JSON's values. Numbers stay text, so that large ones don't change.
func tree(object any) (map[string]any, error) {
	document, err := encode(object)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var t map[string]any
	if err := decoder.Decode(&t); err != nil {
		return nil, fmt.Errorf("the object isn't a JSON object: %w", err)
	}
	return t, nil
}

// difference is the merge patch that makes after of before (RFC 7386).
func difference(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range before {
		if _, stays := after[name]; !stays {
			patch[name] = nil
		}
	}
	for name, new := range after {
		old, was := before[name]
		oldMap, oldIs := old.(map[string]any)
		newMap, newIs := new.(map[string]any)
		switch {
		case was && oldIs && newIs:
			if inner := difference(oldMap, newMap); len(inner) > 0 {
				patch[name] = inner
			}
		case !was || !reflect.DeepEqual(old, new):
			patch[name] = new
		}
	}
	return patch
}
