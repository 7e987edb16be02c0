package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Record is what is noted about one request, and writes its events. A nil Record notes nothing. Its methods may be called from
// many goroutines at once.
type Record struct {
	log               *Log
	omitted           []auditinternal.Stage
	omitManagedFields bool
	bodies            bodies
	longRunning       bool // it has ResponseStarted
	refused           bool // it has ResponseStarted and nothing else

	mu      sync.Mutex // guards the following
	event   auditv1.Event
	started bool     // ResponseStarted is over
	telling []string // the annotations that tell as much as a body
}

// maxAnnotations bounds the annotations of a request, as webhooks and policies may bring any number.
const maxAnnotations = 256

// Annotate adds an annotation, see the function Annotate.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.annotateLocked(key, value)
}

// AnnotateBody adds an annotation, see the function AnnotateBody.
func (r *Record) AnnotateBody(key, value string) {
	if r == nil || !r.bodies.request {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.telling = append(r.telling, key)
	r.annotateLocked(key, value)
}

func (r *Record) annotateLocked(key, value string) {
	if r.event.Annotations == nil {
		r.event.Annotations = map[string]string{}
	}
	if _, known := r.event.Annotations[key]; !known && len(r.event.Annotations) < maxAnnotations {
		r.event.Annotations[key] = value
	}
}

// Impersonate notes as whom the user acts, and by which verb, "" for impersonate.
func (r *Record) Impersonate(as user.Info, constraint string) {
	if r == nil {
		return
	}
	info := userInfo(as)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ImpersonatedUser = &info
	if constraint != "" {
		r.event.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// Status notes the Status that is the answer.
func (r *Record) Status(s metav1.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
}

// Started notes the head of the answer. For a watch that is the stage ResponseStarted.
func (r *Record) Started(code int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codeLocked(code)
	if !r.started {
		r.started = true
		if r.longRunning {
			r.writeLocked(context.Background(), auditv1.StageResponseStarted)
		}
	}
}

func (r *Record) codeLocked(code int) {
	if r.event.ResponseStatus == nil {
		r.event.ResponseStatus = &metav1.Status{}
	}
	r.event.ResponseStatus.Code = int32(code)
}

// Completed notes the end of the answer. code is 0 if nothing was answered.
func (r *Record) Completed(code int) {
	if r == nil || r.refused {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if code != 0 {
		r.codeLocked(code)
	} else if r.event.ResponseStatus == nil {
		r.event.ResponseStatus = &metav1.Status{Status: metav1.StatusSuccess, Code: 200, Message: "Connection closed early"}
	}
	r.writeLocked(context.Background(), auditv1.StageResponseComplete)
}

// Panicked notes that the server failed. It takes the place of Completed.
func (r *Record) Panicked(cause any) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseStatus = &metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: fmt.Sprintf("the server panicked: %v", cause),
	}
	r.writeLocked(context.Background(), auditv1.StagePanic)
}

// received notes the request itself. It waits no longer than ctx for who takes the event.
func (r *Record) received(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(ctx, auditv1.StageRequestReceived)
}

// writeLocked delivers the event of a stage. An error has been counted and logged; the one that it returns is of ModeBlockingStrict.
func (r *Record) writeLocked(ctx context.Context, stage auditv1.Stage) (refused error) {
	if r.omits(stage) {
		return nil
	}
	r.event.Stage = stage
	if stage != auditv1.StageRequestReceived {
		r.event.StageTimestamp = metav1.NewMicroTime(time.Now())
	}
	r.log.events.Add(1)
	line, err := json.Marshal(&r.event)
	line = append(line, '\n')
	for _, s := range r.log.sinks {
		if failed := r.deliverLocked(ctx, s, line, err); failed != nil && s.mode == ModeBlockingStrict {
			refused = failed
		}
	}
	return refused
}

// deliverLocked gives an event to a sink. line is all of it, unless err says that it couldn't be made. Of one that is too large the bodies are
// left out.
func (r *Record) deliverLocked(ctx context.Context, s *sink, line []byte, err error) error {
	if err == nil && len(line) <= s.most {
		return s.deliver(ctx, line)
	}
	if r.event.RequestObject != nil || r.event.ResponseObject != nil || len(r.telling) > 0 {
		if line, err = r.withoutBodiesLocked(); err == nil && len(line) <= s.most {
			return s.deliver(ctx, line)
		}
	}
	if err == nil {
		err = fmt.Errorf("an event has %d bytes, more than %d", len(line), s.most)
	}
	return s.lose(1, err)
}

// truncated is the annotation of an event whose bodies are left out; kube-apiserver's name.
const truncated = "audit.k8s.io/truncated"

func (r *Record) withoutBodiesLocked() ([]byte, error) {
	event := r.event
	event.RequestObject, event.ResponseObject = nil, nil
	event.Annotations = map[string]string{truncated: "true"}
	for key, value := range r.event.Annotations {
		if !slices.Contains(r.telling, key) {
			event.Annotations[key] = value
		}
	}
	line, err := json.Marshal(&event)
	return append(line, '\n'), err
}

// body is a JSON document in an event.
func body(document []byte) *runtime.Unknown {
	return &runtime.Unknown{Raw: document, ContentType: runtime.ContentTypeJSON}
}
