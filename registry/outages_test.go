package registry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestOutagesAreLogged: why storage can't answer is in the log and not in the answers, once in a while and not for every
// request.
func TestOutagesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &Registry{}
		r.outages.log = slog.New(slog.NewTextHandler(&log, nil))
		e := &Endpoint{res: &resource{registry: r}}
		fail := func(cause string) {
			t.Helper()
			err := e.fail("a", fmt.Errorf("get %q: %w: %w", "a", storage.ErrUnavailable, errors.New(cause)))
			var answer apierrors.APIStatus
			if !errors.As(err, &answer) || answer.Status().Code != http.StatusServiceUnavailable || strings.Contains(answer.Status().Message, cause) {
				t.Errorf("the answer is %v", err)
			}
		}
		logged := func(want ...string) {
			t.Helper()
			lines := strings.Count(log.String(), "\n")
			for _, text := range want {
				if lines != 1 || !strings.Contains(log.String(), text) {
					t.Errorf("the log has %d lines: %q, want one with %q", lines, log.String(), text)
				}
			}
			if len(want) == 0 && lines > 0 {
				t.Errorf("the log has %q", log.String())
			}
			log.Reset()
		}
		fail("the first cause")
		logged("the first cause", "omitted=0")
		for range 1000 {
			fail("the same again")
		}
		logged()
		time.Sleep(outageInterval)
		fail("the second cause")
		logged("the second cause", "omitted=1000")
	})
}
