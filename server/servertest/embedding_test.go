package servertest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestShopIsAnnounced(t *testing.T) {
	s := servertest.New(t)
	watch := s.Watch("/api/v1/namespaces?watch=true&fieldSelector=metadata.name=shop")
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	event, err := watch.Next()
	if err != nil || !strings.Contains(event, `"type":"ADDED"`) {
		t.Errorf("the watch gave %s, %v", event, err)
	}
}

func TestShopVanishes(t *testing.T) {
	s := servertest.New(t)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	s.Do("DELETE", "/api/v1/namespaces/shop", "")
	if held := s.Quiescent(); len(held) > 0 {
		t.Errorf("finalizers keep %+v", held)
	}
	if res, _ := s.Do("GET", "/api/v1/namespaces/shop", ""); res.StatusCode != 404 {
		t.Errorf("the namespace is still %s", res.Status)
	}
}

func TestShops(t *testing.T) {
	s := servertest.New(t)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	s.PostYAML("/api/v1/namespaces/shop/configmaps", "metadata: {name: opening-hours}")
	s.Snapshot("one-shop")
	t.Run("closes", func(t *testing.T) {
		s := s.In(t)
		s.ResetTo("one-shop")
		s.Do("DELETE", "/api/v1/namespaces/shop", "")
		s.Quiescent() // the namespace is gone, and all that was in it
		if res, _ := s.Do("GET", "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("the shop is still there: %s", res.Status)
		}
	})
	t.Run("opens", func(t *testing.T) {
		s := s.In(t)
		s.ResetTo("one-shop") // whatever the test before has left
		t.Log(s.Get("/api/v1/namespaces/shop/configmaps/opening-hours"))
	})
}

func TestShopCloses(t *testing.T) {
	s := servertest.New(t)
	servertest.Replay(t, s, "testdata/shop.jsonl")
	if hours := s.Get("/api/v1/namespaces/shop/configmaps/opening-hours"); !strings.Contains(hours, `"monday":"closed"`) {
		t.Errorf("the hours are %s", hours)
	}
}
