package server_test

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestClockStands: with the flag time goes on only when it's told.
func TestClockStands(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	begin := s.Now()
	if d := time.Since(begin); d < 0 || d > time.Hour || begin.Nanosecond() != 0 {
		t.Errorf("it began at %v", begin)
	}
	if now := s.Advance(90 * time.Minute); now != begin.Add(90*time.Minute) || s.Now() != now {
		t.Errorf("after 90 minutes it's %v, and says %v", now, s.Now())
	}
	s.PostYAML(configMapsPath, `metadata: {name: a, annotations: {apiserver-lite/ttl: 10m}}`)
	created := decode[metav1.PartialObjectMetadata](t, s.Get(configMapsPath+"/a")).CreationTimestamp.UTC().Format(time.RFC3339)
	if want := begin.Add(90 * time.Minute).Format(time.RFC3339); created != want {
		t.Errorf("it was created at %s, want %s", created, want)
	}
	s.Advance(10*time.Minute - time.Nanosecond)
	s.Get(configMapsPath + "/a")
	s.Advance(time.Nanosecond)
	if res, _ := s.Do(http.MethodGet, configMapsPath+"/a", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("after its time it's %s", res.Status)
	}
}
