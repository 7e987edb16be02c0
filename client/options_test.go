package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted answers each request with one body, and notes their queries.
func scripted(t *testing.T, body string) (c *Client, queries *[]string) {
	t.Helper()
	queries = new([]string)
	var mu sync.Mutex // guards queries while requests come
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		*queries = append(*queries, r.URL.RawQuery)
		mu.Unlock()
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	c, err := New(s.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c, queries
}

// TestOptionsWithoutUseAreNotSent: an option that narrows no request isn't sent where it has no use.
func TestOptionsWithoutUseAreNotSent(t *testing.T) {
	c, queries := scripted(t, `{"kind":"ThingList","metadata":{"resourceVersion":"7","name":"x"},"items":[]}`)
	things, ctx := Resource[Object](c, "v1", "things"), t.Context()
	one := []Option{Since("3"), NotOlderThan("4"), DryRun(), Force(), Strict(), PageSize(0), CountIn(nil)}
	all := append(one[:len(one):len(one)], Labels("a=b"))
	object := Object(`{"kind":"Thing","metadata":{"name":"x"}}`)
	for _, tt := range []struct {
		name string
		do   func() error
		want string
	}{
		{"get", func() error { _, err := things.Get(ctx, "x", one...); return err }, "resourceVersion=4"},
		{"list", func() error { _, err := things.List(ctx, all...); return err }, "labelSelector=a%3Db&resourceVersion=4&resourceVersionMatch=NotOlderThan"},
		{"list by any field", func() error { _, err := things.List(ctx, Where("spec.size>3||!spec.x"), PageSize(0)); return err }, "fieldSelector=spec.size%3E3%7C%7C%21spec.x&lite=true"},
		{"sorted list", func() error { _, err := things.List(ctx, SortBy("-spec.size"), PageSize(0)); return err }, "lite=true&sortBy=-spec.size"},
		{"list of some fields", func() error { _, err := things.List(ctx, Only("spec.size,status"), PageSize(0)); return err }, "fields=spec.size%2Cstatus&lite=true"},
		{"get of some fields", func() error { _, err := things.Get(ctx, "x", Only("spec.size")); return err }, "fields=spec.size&lite=true"},
		{"watch of some fields", func() error {
			for range things.Watch(ctx, Since("3"), Only("spec.size"), Where("spec.x")) {
			}
			return nil
		}, "fieldSelector=spec.x&fields=spec.size&lite=true&resourceVersion=3&watch=true"},
		{"watch", func() error {
			for range things.Watch(ctx, all...) {
			}
			return nil
		}, "labelSelector=a%3Db&resourceVersion=3&watch=true"},
		{"follow", func() error {
			ctx, cancel := context.WithTimeout(ctx, time.Second/2) // before the second connection
			defer cancel()
			for range things.Follow(ctx, "5", all...) {
			}
			return nil
		}, "allowWatchBookmarks=true&labelSelector=a%3Db&resourceVersion=5&watch=true"},
		{"create", func() error { _, err := things.Create(ctx, &object, one...); return err }, "dryRun=All&fieldValidation=Strict"},
		{"patch", func() error { _, err := things.Patch(ctx, "x", Merge(1), one...); return err }, "dryRun=All&fieldValidation=Strict"},
		{"apply", func() error { _, err := things.Apply(ctx, "me", &object, one...); return err }, "dryRun=All&fieldManager=me&fieldValidation=Strict&force=true"},
		{"delete", func() error { return things.Delete(ctx, "x", one...) }, "dryRun=All"},
		{"delete all", func() error { return things.In("default").DeleteCollection(ctx, all...) }, "dryRun=All&labelSelector=a%3Db"},
	} {
		*queries = nil
		if err := tt.do(); err != nil || len(*queries) == 0 || (*queries)[0] != tt.want {
			t.Errorf("%s: asked with %q, %v; want %q", tt.name, *queries, err, tt.want)
		}
	}
}

// TestUselessOptionsAreRefused: an option that would narrow a request is refused where it can't, and nothing is sent.
func TestUselessOptionsAreRefused(t *testing.T) {
	c, queries := scripted(t, `{}`)
	things, ctx := Resource[Object](c, "v1", "things"), t.Context()
	object := Object(`{"kind":"Thing","metadata":{"name":"x"}}`)
	for _, tt := range []struct {
		name string
		do   func() error
		want string
	}{
		{"get of labels", func() error { _, err := things.Get(ctx, "x", Labels("a=b")); return err }, "Labels has no use in a get"},
		{"create at a version", func() error { _, err := things.Create(ctx, &object, At("5")); return err }, "At has no use in a create"},
		{"read and patch at a version", func() error {
			_, err := Update(ctx, things, "x", func(*Object) error { return nil }, At("5"))
			return err
		}, "At has no use in a patch"},
		{"table of one", func() error { _, err := things.Table(ctx, "x", nil, Fields("a=b")); return err }, "Fields has no use in a get"},
		{"table of some fields", func() error { _, err := things.Table(ctx, "", nil, Only("spec")); return err }, "Only has no use in a table, which has columns"},
		{"create of some fields", func() error { _, err := things.Create(ctx, &object, Only("spec")); return err }, "Only has no use in a create"},
		{"delete of some fields", func() error { return things.DeleteCollection(ctx, Only("spec")) }, "Only has no use in a delete of a collection"},
		{"list of a version", func() error { _, err := things.List(ctx, IfVersion("5")); return err }, "IfVersion has no use in a list"},
		{"create", func() error { _, err := things.Create(ctx, &object, IfUID("u")); return err }, "IfUID has no use in a create"},
		{"update", func() error { _, err := things.Update(ctx, &object, IfVersion("5")); return err }, "IfVersion has no use in an update"},
		{"patch", func() error { _, err := things.Patch(ctx, "x", Merge(1), IfVersion("5")); return err }, "IfVersion has no use in a patch"},
		{"apply", func() error { _, err := things.Apply(ctx, "me", &object, IfUID("u")); return err }, "IfUID has no use in an apply"},
		{"read and patch", func() error {
			_, err := Update(ctx, things, "x", func(*Object) error { return nil }, IfVersion("5"))
			return err
		}, "IfVersion has no use in a patch"},
		{"delete", func() error { return things.Delete(ctx, "x", Labels("a=b")) }, "Labels has no use in a delete"},
		{"delete all of a version", func() error { return things.DeleteCollection(ctx, At("5")) }, "At has no use in a delete of a collection"},
		{"watch", func() error {
			for _, err := range things.Watch(ctx, IfUID("u")) {
				return err
			}
			return nil
		}, "IfUID has no use in a watch"},
		{"follow", func() error {
			for _, err := range things.Follow(ctx, "5", At("5")) {
				return err
			}
			return nil
		}, "At has no use in a watch"},
		{"reflect", func() error { return Reflect(ctx, things, &Cache[Object]{}, IfVersion("5")) }, "IfVersion has no use in a watch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.do(); err == nil || err.Error() != "client: "+tt.want || len(*queries) > 0 {
				t.Errorf("it asks with %q and ends with %v; want the error %s", *queries, err, tt.want)
			}
		})
	}
}

// TestNoTableIsQuoted: an answer that is no table is quoted.
func TestNoTableIsQuoted(t *testing.T) {
	c, _ := scripted(t, `{"kind":"ThingList"}`)
	_, err := Resource[Object](c, "v1", "things").Table(t.Context(), "", nil)
	if err == nil || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), "ThingList") {
		t.Errorf("it's refused with %v", err)
	}
}

// strict is a type that takes nothing without a spec.
type strict struct{ Meta }

func (s *strict) UnmarshalJSON(document []byte) error {
	if !strings.Contains(string(document), "spec") {
		return errors.New("no spec")
	}
	s.Name, s.ResourceVersion = "x", "5"
	return nil
}

// TestBookmarkOfStrictType: a bookmark is no object of the program's type.
func TestBookmarkOfStrictType(t *testing.T) {
	c, _ := scripted(t, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4"}}}`+"\n"+`{"type":"ADDED","object":{"spec":1}}`+"\n")
	var versions []string
	for event, err := range Resource[strict](c, "v1", "things").Watch(t.Context(), Bookmarks()) {
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, event.ResourceVersion)
	}
	if fmt.Sprint(versions) != "[4 5]" {
		t.Errorf("events have versions %v", versions)
	}
}

// TestListByMany: many goroutines may read one list.
func TestListByMany(t *testing.T) {
	c, _ := scripted(t, `{"kind":"ThingList","metadata":{"resourceVersion":"7","continue":""},"items":[]}`)
	list := &List[Object]{ResourceVersion: "7", from: Resource[Object](c, "v1", "things"), settings: newSettings(nil), first: page{version: "7", next: "more", items: []byte("[]")}}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			if _, err := list.Slice(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
}

// TestEveryChangeOfLargeCache: what there is when a subscription begins is no lag, however much it is.
func TestEveryChangeOfLargeCache(t *testing.T) {
	var cache Cache[Object]
	cache.Replace([]Event[Object]{{Key: Key{Name: "a"}}, {Key: Key{Name: "b"}}}, "5")
	s := cache.enter(func(objects int) queue[Object] { return &every[Object]{most: objects} })
	if changes, err := s.take(); len(changes) != 2 || err != nil {
		t.Errorf("it's told %d changes, %v", len(changes), err)
	}
	for range 3 {
		cache.Resync()
	}
	if _, err := s.take(); !errors.Is(err, ErrLagging) {
		t.Errorf("at its bound it gets %v", err)
	}
}
