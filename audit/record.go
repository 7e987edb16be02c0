package audit

import (
	"encoding/json"
	"fmt"
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
			r.writeLocked(auditv1.StageResponseStarted)
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
	r.writeLocked(auditv1.StageResponseComplete)
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
	r.writeLocked(auditv1.StagePanic)
}

func (r *Record) received() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(auditv1.StageRequestReceived)
}

// writeLocked writes the event of a stage. An error has been counted and logged.
func (r *Record) writeLocked(stage auditv1.Stage) error {
	if r.omits(stage) {
		return nil
	}
	r.event.Stage = stage
	if stage != auditv1.StageRequestReceived {
		r.event.StageTimestamp = metav1.NewMicroTime(time.Now())
	}
	line, err := r.lineLocked()
	if err != nil {
		r.log.events.Add(1)
		return r.log.sink.lose(1, err)
	}
	return r.log.write(line)
}

// lineLocked returns the event as a line. One that is too large has no bodies.
func (r *Record) lineLocked() ([]byte, error) {
	line, err := json.Marshal(&r.event)
	if most := r.log.maxEvent(); err != nil || len(line) >= most {
		if r.event.RequestObject == nil && r.event.ResponseObject == nil && len(r.telling) == 0 {
			if err == nil {
				err = fmt.Errorf("an event has %d bytes, more than %d", len(line), most)
			}
			return nil, err
		}
		r.dropBodiesLocked()
		return r.lineLocked()
	}
	return append(line, '\n'), nil
}

// truncated is the annotation of an event whose bodies are left out; kube-apiserver's name.
const truncated = "audit.k8s.io/truncated"

func (r *Record) dropBodiesLocked() {
	r.event.RequestObject, r.event.ResponseObject = nil, nil
	for _, key := range r.telling {
		delete(r.event.Annotations, key)
	}
	r.telling = nil
	r.annotateLocked(truncated, "true")
}

// maxEvent is how many bytes a line may have, with its newline: what fits into a file, and no more than may wait.
func (l *Log) maxEvent() int {
	most := maxQueuedBytes / 4
	if l.options.MaxSize > 0 && l.options.Path != "-" {
		most = min(most, l.options.MaxSize<<20)
	}
	if l.options.Truncate.Enabled {
		most = min(most, int(l.options.Truncate.MaxEventSize))
	}
	return most
}

// body is a JSON document in an event.
func body(document []byte) *runtime.Unknown {
	return &runtime.Unknown{Raw: document, ContentType: runtime.ContentTypeJSON}
}
