package access

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestReplacedIssuersAnswer: what a replaced configuration's issuers are asked isn't cut off before they must have answered.
func TestReplacedIssuersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closes := range []bool{false, true} {
			asked, stop := context.WithCancel(t.Context())
			ctx, end := context.WithCancel(t.Context())
			go (&configured{issuers: &issuers{stop: stop}}).closeLater(ctx)
			time.Sleep(issuerTimeout - time.Nanosecond)
			synctest.Wait()
			if asked.Err() != nil {
				t.Error("a question was cut off")
			}
			if closes {
				end()
			} else {
				time.Sleep(time.Nanosecond)
			}
			synctest.Wait()
			if asked.Err() == nil {
				t.Errorf("the issuers are still asked; Close was called: %t", closes)
			}
			end()
		}
	})
}
