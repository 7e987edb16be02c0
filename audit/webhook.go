package audit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/callout"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
)

const (
	// sendPatience is how long a request waits until its event is sent: as long as one attempt may take.
	sendPatience = 30 * time.Second
	// sendAttempts is how often events are sent before they're lost; kube-apiserver's figure, as the factor of the pauses between them.
	sendAttempts = 5
	sendFactor   = 1.5
	sendJitter   = 0.2
	// maxSends is how many batches, or events of requests that wait, are on their way at once: one that is tried again doesn't keep the others
	// waiting.
	maxSends = 32
)

// webhookSink sends lines to a webhook, as an EventList. It's an io.WriteCloser.
type webhookSink struct {
	config  Webhook
	calls   *callout.Calls
	files   reload.Named // that say where it is
	current atomic.Pointer[webhook.GenericWebhook]

	ctx     context.Context // of all that is sent, and of the goroutine that reads the files again
	abandon context.CancelFunc
	reading sync.WaitGroup
}

// openWebhook reads the kubeconfig of a webhook. What it returns must be closed.
func openWebhook(config Webhook, way egress.Dial, log *slog.Logger) (*webhookSink, error) {
	d := &webhookSink{config: config, calls: callout.New(way)}
	d.files = reload.Named{Read: d.read, Refused: func(err error) {
		log.Error("the webhook of the audit log can't be called as its changed kubeconfig says; what it said before stays in effect", "error", err)
	}}
	if err := d.files.Open(); err != nil {
		d.calls.Close()
		return nil, err
	}
	d.ctx, d.abandon = context.WithCancel(context.Background())
	d.reading.Go(func() { d.files.Watch(d.ctx) })
	return d, nil
}

// read has the kubeconfig take effect.
func (d *webhookSink) read() ([]string, error) {
	config, paths, err := d.calls.Read(d.config.ConfigFile)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := auditv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	backoff := wait.Backoff{Duration: d.config.InitialBackoff, Factor: sendFactor, Jitter: sendJitter, Steps: sendAttempts}
	made, err := webhook.NewGenericWebhook(scheme, serializer.NewCodecFactory(scheme), config, []schema.GroupVersion{auditv1.SchemeGroupVersion}, backoff)
	if err != nil {
		return nil, err
	}
	made.ShouldRetry = func(err error) bool { return err != nil } // of whatever nature, as kube-apiserver
	d.current.Store(made)
	return paths, nil
}

// typeOfEvent begins each line.
var typeOfEvent = []byte(`{"kind":"Event","apiVersion":"` + version + `",`)

// Write sends lines, and returns when the webhook has them, or with why it doesn't after the last attempt.
func (d *webhookSink) Write(lines []byte) (int, error) {
	var list bytes.Buffer
	list.WriteString(`{"kind":"EventList","apiVersion":"` + version + `","metadata":{},"items":[`)
	first := true
	for line := range bytes.Lines(lines) {
		if !first {
			list.WriteByte(',')
		}
		first = false
		if rest, ok := bytes.CutPrefix(line, typeOfEvent); ok { // an item of a list says no type
			list.WriteByte('{')
			line = rest
		}
		list.Write(line)
	}
	list.WriteString(`]}`)
	to := d.current.Load()
	sent := false
	result := to.WithExponentialBackoff(d.ctx, func() rest.Result {
		sent = true
		return to.RestClient.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(list.Bytes()).Do(d.ctx)
	})
	if !sent {
		return 0, d.ctx.Err()
	}
	if err := result.Error(); err != nil {
		return 0, fmt.Errorf("the webhook doesn't take them: %v", err) // no Status of its own is to become an answer
	}
	return len(lines), nil
}

// Close ends what openWebhook began.
func (d *webhookSink) Close() error {
	d.abandon()
	d.reading.Wait()
	d.calls.Close()
	return nil
}

// maxSent is how many bytes an event may have that is sent.
func maxSent(t Truncate) int {
	if t.Enabled {
		return min(maxQueuedBytes/4, int(t.MaxEventSize))
	}
	return maxQueuedBytes / 4
}
