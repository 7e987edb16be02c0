package audit

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
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
)

// Log writes the events of requests to a file. A nil Log writes none.
type Log struct {
	options Options
	policy  audit.PolicyRuleEvaluator
	sink    *sink
	log     *slog.Logger

	events, rejected atomic.Int64
}

// Open begins to write. It returns nil if the options don't ask for that; a policy is checked in any case. Errors have one
// line and name the flag. log takes what is wrong with the writing.
func Open(o Options, log *slog.Logger) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.PolicyFile == "" {
		if o.Path != "" {
			log.Warn("--audit-log-path without --audit-policy-file: nothing is audited")
		}
		return nil, nil
	}
	rules, err := readPolicy(o.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("--audit-policy-file: %w", err)
	}
	if o.Path == "" {
		log.Warn("--audit-policy-file without --audit-log-path: nothing is audited")
		return nil, nil
	}
	out, err := openFile(o)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return &Log{options: o, policy: rules, sink: newSink(out, o, log), log: log}, nil
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

// Close writes what is queued, and closes the file. Nothing may begin after it. It takes two seconds at most, and its error
// says that something isn't written.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.sink.close()
}

// Counts are what there was to write.
type Counts struct {
	Events   int64 // that were made
	Lost     int64 // those of them that aren't in the file
	Rejected int64 // requests that were refused because their event couldn't be written
}

// Counts returns what was counted since the start.
func (l *Log) Counts() Counts {
	if l == nil {
		return Counts{}
	}
	return Counts{Events: l.events.Load(), Lost: l.sink.lost.Load(), Rejected: l.rejected.Load()}
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
	if err := r.received(); err != nil && l.options.Mode == ModeBlockingStrict {
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

// write writes a line, as the mode says. Its error has been counted.
func (l *Log) write(text []byte) error {
	l.events.Add(1)
	if l.options.Mode == ModeBatch {
		return l.sink.put(text)
	}
	return l.sink.write(text)
}

// omits tells whether a stage is one of those that aren't wanted.
func (r *Record) omits(stage auditv1.Stage) bool {
	return slices.Contains(r.omitted, auditinternal.Stage(stage))
}
