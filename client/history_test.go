package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// TestHistory: a Go program reads what happened to an object, page by page, and what it was.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := define(t)
	widgets := collection(t, s.URL)
	ctx := bounded(t)
	made := must(widgets.Create(ctx, widget("a", 1)))(t)
	for size := 2; size < 6; size++ {
		must(resize(ctx, widgets, "a", size))(t)
	}
	if err := widgets.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for _, page := range []int{0, 1, 4, 6} {
		var told []string
		for v, err := range widgets.History(ctx, "a", client.PageSize(page)) {
			if err != nil {
				t.Fatal(err)
			}
			value := ""
			for _, op := range v.Patch {
				if op.Path == "/spec/size" {
					value = string(op.Value)
				}
			}
			told = append(told, v.Change+value)
			again, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var read client.Version
			if err := json.Unmarshal(again, &read); err != nil || fmt.Sprint(read) != fmt.Sprint(v) {
				t.Errorf("%v became %v, %v", v, read, err)
			}
		}
		if got := strings.Join(told, " "); got != "deleted changed5 changed4 changed3 changed2 created" {
			t.Errorf("in pages of %d: %s", page, got)
		}
	}
	if first := must(widgets.Get(ctx, "a", client.At(made.ResourceVersion)))(t); first.Spec.Size != 1 {
		t.Errorf("at first it was %+v", first)
	}
	for v, err := range widgets.History(ctx, "a", client.At(made.ResourceVersion)) {
		if err != nil || v.Change != "created" || v.UID != made.UID {
			t.Errorf("from the first version: %+v, %v", v, err)
		}
	}
	for _, err := range widgets.History(ctx, "never") {
		if !errors.Is(err, client.ErrNotFound) {
			t.Errorf("of what never was: %v", err)
		}
	}
	if _, err := widgets.Get(ctx, "a", client.AtTime(time.Now().Add(-time.Hour))); !errors.Is(err, client.ErrExpired) {
		t.Errorf("an hour ago: %v", err)
	}
	if _, err := widgets.Create(ctx, &Widget{}, client.AtTime(time.Now())); err == nil || !strings.Contains(err.Error(), "AtTime has no use in a create") {
		t.Errorf("AtTime in a create: %v", err)
	}
}
