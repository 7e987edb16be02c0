package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/egress"
)

// Log writes the events of requests to a file, and sends them to a webhook. A nil Log does neither.
type Log struct {
	policy audit.PolicyRuleEvaluator
	sinks  []*sink // at least one

	events, rejected atomic.Int64
}

// Open begins to write. A webhook is reached by a way. It returns nil if the options don't ask for that; a policy is checked in any case. Errors have one
// line and name the flag. log takes what is wrong with the writing.
func Open(o Options, way egress.Dial, log *slog.Logger) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.PolicyFile == "" {
		if o.Path != "" || o.Webhook.ConfigFile != "" {
			log.Warn("--audit-log-path or --audit-webhook-config-file without --audit-policy-file: nothing is audited")
		}
		return nil, nil
	}
	rules, err := readPolicy(o.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("--audit-policy-file: %w", err)
	}
	if o.Path == "" && o.Webhook.ConfigFile == "" {
		log.Warn("--audit-policy-file without --audit-log-path or --audit-webhook-config-file: nothing is audited")
		return nil, nil
	}
	l := &Log{policy: rules}
	if o.Webhook.ConfigFile != "" { // first: it leaves nothing if it's refused
		to, err := openWebhook(o.Webhook, way, log)
		if err != nil {
			return nil, fmt.Errorf("--audit-webhook-config-file: %w", err)
		}
		w := o.Webhook
		l.sinks = append(l.sinks, newSink(destination{WriteCloser: to, flag: "--audit-webhook-config-file", patience: sendPatience, atOnce: maxSends, abandon: to.abandon, most: maxSent(w.Truncate)}, delivery{w.Mode, w.Batch, w.Truncate}, log))
	}
	if o.Path != "" {
		out, err := openFile(o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--audit-log-path: %w", err), l.Close())
		}
		l.sinks = append(l.sinks, newSink(destination{WriteCloser: out, flag: "--audit-log-path", patience: writeTimeout, most: maxLine(o)}, delivery{o.Mode, o.Batch, o.Truncate}, log))
	}
	return l, nil
}

// maxPolicy is how large a policy may be, in bytes. kube-apiserver's own, generated for clusters, have some 10 KiB.
const maxPolicy = 1 << 20

func readPolicy(path string) (audit.PolicyRuleEvaluator, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxPolicy {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxPolicy)
	}
	rules, err := policy.LoadPolicyFromFile(path)
	if err != nil {
		return nil, err
	}
	return policy.NewPolicyRuleEvaluator(rules), nil
}

// Close delivers what is queued, and closes the file. Nothing may begin after it. It takes closeTimeout at most, and its error
// says that something isn't delivered.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	errs := make([]error, len(l.sinks))
	var closing sync.WaitGroup
	for i, s := range l.sinks {
		closing.Go(func() { errs[i] = s.close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// Counts are what there was to write.
type Counts struct {
	Events   int64 // that were made
	Lost     int64 // those of them that didn't get where they go, once for each place
	Rejected int64 // requests that were refused because their event couldn't be written
}

// Counts returns what was counted since the start.
func (l *Log) Counts() Counts {
	if l == nil {
		return Counts{}
	}
	c := Counts{Events: l.events.Load(), Rejected: l.rejected.Load()}
	for _, s := range l.sinks {
		c.Lost += s.lost.Load()
	}
	return c
}

// Request is what's known of a request when it begins.
type Request struct {
	*http.Request
	ID         string
	Received   time.Time
	Attributes *authorizer.AttributesRecord // who asks for what
	// Refused says that a request is refused before it's known who asks, such as for a wrong credential. Its only event is ResponseStarted.
	Refused bool
}

// maxUserAgent is how much of a User-Agent is noted, in bytes; kube-apiserver's figure.
const maxUserAgent = 1024

// Begin notes that a request was received. It returns nil if the policy wants no event of it. An error means that the request must be
// refused, because its event can't be written and the mode is ModeBlockingStrict.
func (l *Log) Begin(about Request) (*Record, error) {
	config := l.policy.EvaluatePolicyRule(about.Attributes)
	if config.Level == auditinternal.LevelNone {
		return nil, nil
	}
	r := &Record{log: l, omitted: config.OmitStages, omitManagedFields: config.OmitManagedFields, event: event(about, config.Level)}
	r.bodies = bodiesOf(about.Attributes, config.Level)
	r.longRunning = about.Attributes.GetVerb() == "watch"
	if about.Refused {
		r.longRunning, r.refused = true, true
		return r, nil
	}
	if err := r.received(about.Context()); err != nil {
		l.rejected.Add(1)
		return nil, err
	}
	return r, nil
}

// event is what all events of a request have in common.
func event(about Request, level auditinternal.Level) auditv1.Event {
	a := about.Attributes
	received := metav1.NewMicroTime(about.Received)
	e := auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: version},
		Level:                    auditv1.Level(level),
		AuditID:                  types.UID(about.ID),
		RequestURI:               requestURI(about.URL),
		Verb:                     a.GetVerb(),
		UserAgent:                about.UserAgent(),
		RequestReceivedTimestamp: received,
		StageTimestamp:           received,
	}
	if u := a.GetUser(); u != nil {
		e.User = userInfo(u)
	}
	if len(e.UserAgent) > maxUserAgent {
		e.UserAgent = e.UserAgent[:maxUserAgent] + "...TRUNCATED"
	}
	for _, ip := range utilnet.SourceIPs(about.Request) {
		e.SourceIPs = append(e.SourceIPs, ip.String())
	}
	if a.IsResourceRequest() {
		e.ObjectRef = &auditv1.ObjectReference{
			Namespace: a.GetNamespace(), Name: a.GetName(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
			APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(),
		}
	}
	return e
}

// omits tells whether a stage is one of those that aren't wanted.
func (r *Record) omits(stage auditv1.Stage) bool {
	return slices.Contains(r.omitted, auditinternal.Stage(stage))
}
