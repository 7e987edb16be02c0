package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// follower is a watch.
type follower struct {
	own string

	mu    sync.Mutex // guards all below
	new   []any
	seen  map[string]event // the last of each object, by name
	ended bool
}

// event is what a watch said last of an object.
type event struct {
	version uint64
	gone    bool
}

// follow reads events until the context ends.
func (f *follower) follow(ctx context.Context, t *target, path string, from uint64) {
	defer func() {
		f.mu.Lock()
		f.ended = true
		f.mu.Unlock()
	}()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	res, err := t.do(ctx, "GET", fmt.Sprintf("%s%swatch=true&resourceVersion=%d", path, join, from), nil, nil)
	if err != nil {
		return
	}
	defer res.Body.Close()
	for decoder := json.NewDecoder(res.Body); ; {
		decoder.UseNumber()
		var e map[string]any
		if decoder.Decode(&e) != nil {
			return
		}
		object, _ := e["object"].(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		if !strings.HasPrefix(name, f.own) {
			continue
		}
		version, _ := meta["resourceVersion"].(string)
		v, _ := strconv.ParseUint(version, 10, 64)
		f.mu.Lock()
		f.new = append(f.new, e)
		f.seen[name] = event{version: v, gone: e["type"] == "DELETED"}
		f.mu.Unlock()
	}
}

// take returns the events that came since.
func (f *follower) take() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.new
	f.new = nil
	return taken
}

// alive names the objects that the watch knows to be there.
func (f *follower) alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.seen)) {
		if !f.seen[name].gone {
			names = append(names, name)
		}
	}
	return names
}

// reached tells whether the watch has shown an object at a version or later; 0 is its end.
func (f *follower) reached(name string, version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, known := f.seen[name]
	if f.ended || version == 0 {
		return f.ended || !known || e.gone
	}
	return known && e.version >= version
}

// settle waits until the watch has seen what a write did: until it has seen the state that a read shows then.
func (r *run) settle(ctx context.Context, path string, answered any) error {
	collection, _, _ := strings.Cut(r.watch, "?")
	path, _, _ = strings.Cut(path, "?")
	names := []string{}
	object, _ := answered.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	rest, below := strings.CutPrefix(path, collection+"/")
	switch {
	case below:
		name, _, _ := strings.Cut(rest, "/")
		names = append(names, name)
	case path != collection:
		return nil // of another resource
	case meta["name"] != nil:
		names = append(names, fmt.Sprint(meta["name"]))
	default: // a collection's deletion
		names = r.events.alive()
	}
	deadline := time.Now().Add(eventPatience)
	for _, name := range names {
		if !strings.HasPrefix(name, r.own) {
			continue
		}
		code, content, err := r.readComplete(ctx, collection+"/"+name, deadline)
		if err != nil {
			return err
		}
		var now struct {
			Metadata struct{ ResourceVersion string }
		}
		json.Unmarshal(content, &now)
		version, _ := strconv.ParseUint(now.Metadata.ResourceVersion, 10, 64)
		if code != http.StatusOK {
			version = 0
		} else if followsUp(kindOf(content)) { // later requests go by what the server has made of it
			r.capture(path, parse(asJSON, content), content)
		}
		for !r.events.reached(name, version) && time.Now().Before(deadline) {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}

// readComplete reads an object until it's complete, or the deadline is over.
func (r *run) readComplete(ctx context.Context, path string, deadline time.Time) (code int, content []byte, err error) {
	for {
		res, err := r.do(ctx, "GET", path, nil, map[string]string{"Accept": asJSON})
		if err != nil {
			return 0, nil, err
		}
		content, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || isComplete(content) || time.Now().After(deadline) {
			return res.StatusCode, content, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// followsUp tells whether a server changes an object of a kind after the write of it was answered.
func followsUp(kind string) bool {
	return slices.Contains([]string{"CustomResourceDefinition", "APIService", "FlowSchema"}, kind)
}

func kindOf(content []byte) string {
	var o struct{ Kind string }
	json.Unmarshal(content, &o)
	return o.Kind
}

// cleanup is the finalizer of definitions that the server itself takes away.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

// isComplete tells whether a server has said what it says of an object after the write of it: of a definition, that it's established or
// why not, or after its deletion that its objects are gone; of an APIService, whether it's available; and
// of a FlowSchema, whether its level is there.
func isComplete(content []byte) bool {
	type condition struct{ Type, Status, Message string }
	var o struct {
		Kind     string
		Metadata struct {
			DeletionTimestamp string
			Finalizers        []string
		}
		Spec struct {
			PriorityLevelConfiguration struct{ Name string }
			Names                      map[string]any
		}
		Status struct {
			Conditions    []condition
			AcceptedNames map[string]any
		}
	}
	if json.Unmarshal(content, &o) != nil {
		return true
	}
	if o.Metadata.DeletionTimestamp != "" {
		return !slices.Contains(o.Metadata.Finalizers, cleanup)
	}
	switch o.Kind {
	case "CustomResourceDefinition":
		is := map[string]string{} // a client may have taken conditions away
		for _, c := range o.Status.Conditions {
			is[c.Type] = c.Status
		}
		named := short(o.Spec.Names) == short(o.Status.AcceptedNames) && (is["NamesAccepted"] != "True" || is["Established"] == "True")
		return named || is["NamesAccepted"] == "False"
	case "APIService":
		return slices.ContainsFunc(o.Status.Conditions, func(c condition) bool { return c.Type == "Available" && c.Message != "" })
	case "FlowSchema":
		return slices.ContainsFunc(o.Status.Conditions, func(c condition) bool {
			return c.Type == "Dangling" && strings.Contains(c.Message, strconv.Quote(o.Spec.PriorityLevelConfiguration.Name))
		})
	}
	return true
}
