package servertest_test

import (
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestVoucherExpires(t *testing.T) {
	s := servertest.New(t, servertest.FakeClock)
	s.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: voucher, annotations: {apiserver-lite/ttl: 720h}}")
	s.Advance(719 * time.Hour)
	s.Get("/api/v1/namespaces/default/configmaps/voucher")
	s.Advance(time.Hour)
	if res, _ := s.Do("GET", "/api/v1/namespaces/default/configmaps/voucher", ""); res.StatusCode != 404 {
		t.Errorf("the voucher is still %s", res.Status)
	}
}
