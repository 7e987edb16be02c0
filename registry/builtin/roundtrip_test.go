//lint:file-ignore SA1019 Endpoints are deprecated, and still served

package builtin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// all serves all kinds, and lets pods name a class that isn't there.
func all(s *server.Server) {
	s.API.Builtin = builtin.All
	s.Plugins.Disable = []string{"RuntimeClass"}
}

// filled returns an object of a line with all fields set, and changed where the kind's rules want other values.
func filled(t *testing.T, line registry.Type) registry.Typed {
	t.Helper()
	obj := line.New()
	v := reflect.ValueOf(obj).Elem()
	f := &filler{}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "TypeMeta" && name != "ObjectMeta" {
			f.fill(v.Field(i), map[reflect.Type]int{})
		}
	}
	meta := obj.GetObjectMeta().(*metav1.ObjectMeta)
	*meta = metav1.ObjectMeta{Name: "filled", Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"}, Finalizers: []string{"example.com/f"}}
	if !line.ClusterScoped {
		meta.Namespace = "default"
	}
	if slices.Contains(sampled, line.Group+"/"+line.Kind) {
		takeSample(t, line, obj)
	}
	if fit := fits[line.Group+"/"+line.Kind]; fit != nil {
		fit(obj)
	}
	return obj
}

// sampled are the kinds with so many rules that no filled object obeys them: the differential's full object stands for it, which kube-apiserver
// takes.
var sampled = []string{
	"/Node", "networking.k8s.io/Ingress", "networking.k8s.io/IngressClass", "networking.k8s.io/NetworkPolicy", "networking.k8s.io/ServiceCIDR",
	"policy/PodDisruptionBudget", "node.k8s.io/RuntimeClass", "scheduling.k8s.io/PriorityClass", "/PersistentVolume", "/PersistentVolumeClaim", "storage.k8s.io/StorageClass", "storage.k8s.io/VolumeAttachment", "storage.k8s.io/CSIDriver", "storage.k8s.io/CSINode",
	"storage.k8s.io/CSIStorageCapacity", "storage.k8s.io/VolumeAttributesClass", "/Service", "/Endpoints", "discovery.k8s.io/EndpointSlice",
	"flowcontrol.apiserver.k8s.io/FlowSchema", "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration", "resource.k8s.io/ResourceClaim",
	"resource.k8s.io/ResourceClaimTemplate", "resource.k8s.io/ResourceSlice", "resource.k8s.io/DeviceClass", "resource.k8s.io/DeviceTaintRule",
	"autoscaling/HorizontalPodAutoscaler", "/LimitRange",
}

// sample is one of the differential's objects.
type sample struct{ Name, Full, Status any }

// samples are the differential's objects, by plural, or by plural, group and version.
var samples = sync.OnceValues(func() (map[string]sample, error) {
	all := map[string]sample{}
	files, err := filepath.Glob("../../conformance/differential/testdata/kinds/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal([]byte(strings.NewReplacer("$NS", "default", "$NAME", "filled", "$N", "7").Replace(string(text))), &all); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, err
})

// takeSample makes obj the differential's full object of a kind.
func takeSample(t *testing.T, line registry.Type, obj registry.Typed) {
	t.Helper()
	all, err := samples()
	if err != nil {
		t.Fatal(err)
	}
	of, ok := all[line.Plural+"."+line.Group+"."+line.Version]
	if !ok {
		of = all[line.Plural]
	}
	full, _ := of.Full.(map[string]any)
	if len(full) == 0 {
		t.Fatalf("there is no full object of %s", line.Plural)
	}
	meta := obj.GetObjectMeta().(*metav1.ObjectMeta).DeepCopy()
	if pattern, ok := of.Name.(string); ok {
		meta.Name = strings.NewReplacer("%s", "filled", "%d", "7").Replace(pattern)
	}
	reflect.ValueOf(obj).Elem().SetZero()
	if of.Status != nil {
		full["status"] = of.Status
	}
	if err := json.Unmarshal([]byte(encode(t, full)), obj); err != nil {
		t.Fatal(err)
	}
	*obj.GetObjectMeta().(*metav1.ObjectMeta) = *meta
}

// fits change filled objects so that they're valid.
var fits = map[string]func(obj registry.Typed){}

// fit adds to fits.
func fit[T any](kind string, fn func(obj *T)) {
	fits[kind] = func(obj registry.Typed) { fn(any(obj).(*T)) }
}

func init() {
	fit("/ServiceAccount", func(a *corev1.ServiceAccount) { a.Secrets[0] = corev1.ObjectReference{Name: a.Secrets[0].Name} })
	fit("/Pod", func(p *corev1.Pod) {
		fitPod(&p.Spec)
		fitStatus(&p.Status)
	})
	fit("/PodTemplate", func(p *corev1.PodTemplate) { fitPod(&p.Template.Spec) })
	fit("/ReplicationController", func(r *corev1.ReplicationController) {
		r.Spec.Selector = map[string]string{"app": "a"}
		fitTemplate(r.Spec.Template)
		r.Status = corev1.ReplicationControllerStatus{Replicas: 9, FullyLabeledReplicas: 8, ReadyReplicas: 7, AvailableReplicas: 6, ObservedGeneration: 5, Conditions: r.Status.Conditions}
	})
	fit("apps/Deployment", func(d *appsv1.Deployment) {
		fitTemplate(&d.Spec.Template)
		*d.Spec.ProgressDeadlineSeconds, d.Spec.MinReadySeconds = 9, 8
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = 9, 8, 7, 6
	})
	fit("apps/StatefulSet", func(s *appsv1.StatefulSet) {
		fitTemplate(&s.Spec.Template)
		claim := &s.Spec.VolumeClaimTemplates[0]
		claim.Name = "claims"
		claim.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
		s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = "Delete", "Retain"
		s.Status.Replicas, s.Status.ReadyReplicas, s.Status.CurrentReplicas, s.Status.UpdatedReplicas, s.Status.AvailableReplicas = 9, 8, 7, 6, 5
	})
	fit("apps/DaemonSet", func(d *appsv1.DaemonSet) {
		fitTemplate(&d.Spec.Template)
		*d.Spec.UpdateStrategy.RollingUpdate.MaxSurge = intstr.FromInt32(0)
	})
	fit("apps/ReplicaSet", func(r *appsv1.ReplicaSet) {
		fitTemplate(&r.Spec.Template)
		r.Status.Replicas, r.Status.FullyLabeledReplicas, r.Status.ReadyReplicas, r.Status.AvailableReplicas = 9, 8, 7, 6
	})
	fit("batch/Job", func(j *batchv1.Job) {
		selector := j.Spec.Selector
		fitJob(&j.Spec)
		j.Spec.Selector, j.Spec.ManualSelector = selector, ptr.To(true)
		j.Status.Active, j.Status.Ready, j.Status.CompletionTime = 2, ptr.To(int32(1)), nil // it hasn't ended
		j.Status.CompletedIndexes, j.Status.FailedIndexes = "0", ptr.To("1")
	})
	fit("batch/CronJob", func(c *batchv1.CronJob) {
		c.Spec.Schedule, *c.Spec.TimeZone = "*/5 * * * *", "UTC"
		fitJob(&c.Spec.JobTemplate.Spec)
	})
	fit("coordination.k8s.io/Lease", func(l *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil }) // of a feature that is off there
	fit("networking.k8s.io/IPAddress", func(a *networkingv1.IPAddress) { a.Name = "192.0.2.8" })
	fit("/Service", func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.77", []string{"10.0.0.77"}
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.HealthCheckNodePort = ptr.To(true), 30078
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = int32(30070 + i)
		}
	})
	fit("discovery.k8s.io/EndpointSlice", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].DeprecatedTopology = nil })
	fit("/PersistentVolume", func(v *corev1.PersistentVolume) { v.Status.LastPhaseTransitionTime = ptr.To(metav1.Unix(1, 0)) })
	fit("/PersistentVolumeClaim", func(c *corev1.PersistentVolumeClaim) { // one is the older form of the other
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: c.Spec.DataSourceRef.APIGroup, Kind: c.Spec.DataSourceRef.Kind, Name: c.Spec.DataSourceRef.Name}
	})
	fit("certificates.k8s.io/CertificateSigningRequest", func(r *certificatesv1.CertificateSigningRequest) {
		r.Spec.SignerName = "example.com/signer" // the server says who asks
		r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "system:admin", "", []string{"system:masters", "system:authenticated"}, nil
		r.Spec.Request, *r.Spec.ExpirationSeconds, r.Spec.Usages[0] = asPEM("CERTIFICATE REQUEST", stubRequest()), 3600, certificatesv1.UsageClientAuth
		r.Status.Certificate, r.Status.Conditions[0].Status = certificate(false, time.Unix(0, 0), time.Unix(1, 0)), "True"
	})
	fit("certificates.k8s.io/ClusterTrustBundle", func(b *certificatesv1.ClusterTrustBundle) {
		b.Spec.SignerName, b.Spec.TrustBundle = "", string(certificate(true, time.Unix(0, 0), time.Unix(1, 0)))
	})
	fit("certificates.k8s.io/PodCertificateRequest", func(r *certificatesv1.PodCertificateRequest) {
		r.Spec.SignerName, *r.Spec.MaxExpirationSeconds, r.Spec.StubPKCS10Request = "example.com/signer", 86400, stubRequest()
		r.Spec.UnverifiedUserAnnotations = map[string]string{"example.com/a": "b"}
		c := r.Status.Conditions[0]
		c.Type, c.Status, c.Reason = certificatesv1.PodCertificateRequestConditionTypeDenied, metav1.ConditionTrue, "Reason"
		r.Status = certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{c}}
	})
	fit("/ResourceQuota", func(q *corev1.ResourceQuota) {
		pods := func(n int64) corev1.ResourceList {
			return corev1.ResourceList{"pods": *resource.NewQuantity(n, resource.DecimalSI)}
		}
		q.Spec.Hard, q.Status.Hard, q.Status.Used = pods(9), pods(8), pods(7)
		q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
		q.Spec.ScopeSelector.MatchExpressions[0].ScopeName, q.Spec.ScopeSelector.MatchExpressions[0].Operator = corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn
	})
	fit("apiregistration.k8s.io/APIService", func(s *apiregistrationv1.APIService) {
		s.Spec.Version, s.Spec.Group, s.Name = "v1", "example.com", "v1.example.com"
		s.Spec.CABundle = nil // without it certificates needn't be right
	})
	judged := func(c *metav1.Condition) { c.Status, c.Reason = metav1.ConditionTrue, "Reason" }
	fit("storagemigration.k8s.io/StorageVersionMigration", func(m *storagemigrationv1.StorageVersionMigration) {
		m.Status.ResourceVersion = "8"
		judged(&m.Status.Conditions[0])
	})
	fit("rbac.authorization.k8s.io/Role", func(r *rbacv1.Role) { r.Rules[0].NonResourceURLs = nil })
	fit("rbac.authorization.k8s.io/ClusterRole", func(r *rbacv1.ClusterRole) { r.Rules[0].NonResourceURLs = nil })
	fit("rbac.authorization.k8s.io/RoleBinding", func(b *rbacv1.RoleBinding) {
		b.RoleRef.APIGroup, b.RoleRef.Kind = rbacv1.GroupName, "Role"
		b.Subjects = subjects(b.Subjects[0])
	})
	fit("rbac.authorization.k8s.io/ClusterRoleBinding", func(b *rbacv1.ClusterRoleBinding) {
		b.RoleRef.APIGroup, b.RoleRef.Kind = rbacv1.GroupName, "ClusterRole"
		b.Subjects = subjects(b.Subjects[0])
	})
	fit("admissionregistration.k8s.io/ValidatingWebhookConfiguration", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		w := &c.Webhooks[0]
		w.Name, w.ClientConfig.URL, w.TimeoutSeconds = "a.example.com", nil, ptr.To[int32](7)
		*w.SideEffects, *w.ClientConfig.Service.Path, w.MatchConditions[0].Expression = admissionregistrationv1.SideEffectClassNone, "/path", "true"
		w.AdmissionReviewVersions = []string{"v1"}
	})
	fit("admissionregistration.k8s.io/MutatingWebhookConfiguration", func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		w := &c.Webhooks[0]
		w.Name, w.ClientConfig.URL, w.TimeoutSeconds = "a.example.com", nil, ptr.To[int32](7)
		*w.SideEffects, *w.ClientConfig.Service.Path, w.MatchConditions[0].Expression = admissionregistrationv1.SideEffectClassNone, "/path", "true"
		w.AdmissionReviewVersions = []string{"v1"}
	})
	fit("admissionregistration.k8s.io/ValidatingAdmissionPolicy", func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
		v, reason := &p.Spec.Validations[0], metav1.StatusReasonForbidden
		v.Expression, v.MessageExpression, v.Reason = "variables.v == 1", "'text'", &reason
		p.Spec.Variables[0] = admissionregistrationv1.Variable{Name: "v", Expression: "1"}
		p.Spec.MatchConditions[0].Expression, p.Spec.AuditAnnotations[0].ValueExpression = "true", "'text'"
		judged(&p.Status.Conditions[0])
	})
	fit("admissionregistration.k8s.io/MutatingAdmissionPolicy", func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		m := &p.Spec.Mutations[0]
		m.ApplyConfiguration, m.JSONPatch.Expression = nil, `[JSONPatch{op: "remove", path: "/a"}]`
		p.Spec.Variables[0] = admissionregistrationv1.Variable{Name: "v", Expression: "1"}
		p.Spec.MatchConditions[0].Expression = "true"
	})
	fit("admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding", func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) { b.Spec.ParamRef.Selector = nil })
	fit("admissionregistration.k8s.io/MutatingAdmissionPolicyBinding", func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) { b.Spec.ParamRef.Selector = nil })
	fit("/Event", func(e *corev1.Event) {
		e.InvolvedObject.Namespace, e.ReportingController, e.Type = "default", "example.com/c", corev1.EventTypeNormal
	})
	fit("events.k8s.io/Event", func(e *eventsv1.Event) {
		e.DeprecatedSource, e.DeprecatedFirstTimestamp, e.DeprecatedLastTimestamp, e.DeprecatedCount = corev1.EventSource{}, metav1.Time{}, metav1.Time{}, 0
		e.Regarding.Namespace, e.ReportingController, e.Type = "default", "example.com/c", corev1.EventTypeNormal
	})
	attributes := func(meta *metav1.ObjectMeta, a *authorizationv1.ResourceAttributes) {
		*meta = metav1.ObjectMeta{Namespace: meta.Namespace}
		a.FieldSelector.RawSelector, a.LabelSelector.RawSelector = "", ""
	}
	fit("authorization.k8s.io/SelfSubjectAccessReview", func(r *authorizationv1.SelfSubjectAccessReview) {
		r.Spec.NonResourceAttributes = nil
		attributes(&r.ObjectMeta, r.Spec.ResourceAttributes)
	})
	fit("authorization.k8s.io/SubjectAccessReview", func(r *authorizationv1.SubjectAccessReview) {
		r.Spec.NonResourceAttributes = nil
		attributes(&r.ObjectMeta, r.Spec.ResourceAttributes)
	})
	fit("authorization.k8s.io/LocalSubjectAccessReview", func(r *authorizationv1.LocalSubjectAccessReview) {
		r.Spec.NonResourceAttributes, r.Spec.ResourceAttributes.Namespace = nil, "default"
		attributes(&r.ObjectMeta, r.Spec.ResourceAttributes)
	})
}

// subjects are one of each kind, like a filled one.
func subjects(s rbacv1.Subject) []rbacv1.Subject {
	user, group, account := s, s, s
	user.Kind, user.APIGroup = rbacv1.UserKind, rbacv1.GroupName
	group.Kind, group.APIGroup = rbacv1.GroupKind, rbacv1.GroupName
	account.Kind, account.APIGroup = rbacv1.ServiceAccountKind, ""
	return []rbacv1.Subject{user, group, account}
}

// TestRoundTrip takes an object of each built-in kind and version, with all fields filled, through everything that a
// client can do with it as JSON: nothing is lost or changed on the way.
func TestRoundTrip(t *testing.T) {
	s := servertest.New(t, all, uncounted)
	for _, line := range builtin.Lines() {
		t.Run(strings.ReplaceAll(apiVersion(line)+" "+line.Kind, "/", "."), func(t *testing.T) {
			if !stored(line) || servers(line) {
				return // see TestBindings and TestComponents
			}
			sent := filled(t, line)
			body := withType(t, line, sent)
			if line.Unstored.Answer != nil {
				checkAnswered(t, s, line, body)
				return
			}
			created := parse(t, must(t, s, http.MethodPost, collection(line), body, http.StatusCreated))
			want := normalized(t, line, body)
			if line.Status { // a create has none
				delete(want, "status")
				delete(created, "status")
			}
			compare(t, "created", want, created)
			path := collection(line) + "/" + str(at(created, "metadata.name"))
			if line.Status {
				text := must(t, s, http.MethodPut, path+"/status", versioned(t, body, created), http.StatusOK)
				compare(t, "with its status", normalized(t, line, body), parse(t, text))
			}
			full := parse(t, must(t, s, http.MethodGet, path, "", http.StatusOK))
			compare(t, "read", normalized(t, line, body), full)

			checkPatched(t, s, path, full)
			checkApplied(t, s, line, path, body, full)
			checkListed(t, s, line, path, full)
			must(t, s, http.MethodPatch, path, `{"metadata":{"finalizers":null}}`, http.StatusOK, "Content-Type", "application/merge-patch+json")
			must(t, s, http.MethodDelete, path, "", http.StatusOK)
		})
	}
}

// stored tells whether clients can make objects of a kind, or ask its questions.
func stored(line registry.Type) bool {
	return line.Unstored.Forward == nil && line.Unstored.Shown == nil
}

// servers tells whether the server itself writes the status of a kind at any time, as aggregator does.
func servers(line registry.Type) bool { return line.Kind == "APIService" }

// checkAnswered posts a question.
func checkAnswered(t *testing.T, s *servertest.Server, line registry.Type, body string) {
	answer := parse(t, must(t, s, http.MethodPost, collection(line), body, http.StatusCreated))
	if line.Unstored.AnswerMeta == nil { // else nothing of the question is in it
		compare(t, "the question in the answer", parse(t, body)["spec"], answer["spec"])
	}
	if answer["kind"] != line.Kind || answer["status"] == nil {
		t.Errorf("answered %v", answer)
	}
	if code, _ := do(s, http.MethodGet, collection(line), ""); code != http.StatusMethodNotAllowed {
		t.Errorf("a list of questions is answered %d", code)
	}
}

// checkPatched changes an annotation by a strategic merge patch, and nothing else.
func checkPatched(t *testing.T, s *servertest.Server, path string, full map[string]any) {
	patched := parse(t, must(t, s, http.MethodPatch, path, `{"metadata":{"annotations":{"b":"w"}}}`, http.StatusOK,
		"Content-Type", "application/strategic-merge-patch+json"))
	if at(patched, "metadata.annotations.b") != "w" {
		t.Errorf("patched %v", patched["metadata"])
	}
	compare(t, "patched", full, patched)
}

// checkApplied applies the object as it was created: whoever applies it owns it from then on, and it stays as it is.
func checkApplied(t *testing.T, s *servertest.Server, line registry.Type, path, body string, full map[string]any) {
	applied := parse(t, must(t, s, http.MethodPatch, path+"?fieldManager=test&force=true", body, http.StatusOK, "Content-Type", "application/apply-patch+yaml"))
	compare(t, "applied", full, applied)
	entries, _ := at(applied, "metadata.managedFields").([]any)
	for _, e := range entries {
		if at(e, "manager") == "test" && at(e, "operation") == "Apply" && at(e, "apiVersion") == apiVersion(line) {
			return
		}
	}
	t.Errorf("nobody applied it: %v", entries)
}

// checkListed lists the object as it is and as a table, whose cells fit their columns.
func checkListed(t *testing.T, s *servertest.Server, line registry.Type, path string, full map[string]any) {
	list := parse(t, must(t, s, http.MethodGet, collection(line), "", http.StatusOK))
	found := false
	for _, item := range list["items"].([]any) {
		if at(item, "metadata.name") == at(full, "metadata.name") {
			found = true
			item := item.(map[string]any)
			if item["kind"] != nil || item["apiVersion"] != nil {
				t.Errorf("an item says what it is: %v %v", item["kind"], item["apiVersion"])
			}
			compare(t, "listed", full, item)
		}
	}
	if !found {
		t.Errorf("not in the list %v", list)
	}
	table := parse(t, must(t, s, http.MethodGet, path, "", http.StatusOK, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
	columns, rows := table["columnDefinitions"].([]any), table["rows"].([]any)
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	cells := rows[0].(map[string]any)["cells"].([]any)
	if at(full, "kind") == "IPAddress" {
		cells = cells[:len(cells)-1] // Kubernetes has no column for the last
	}
	if len(cells) != len(columns) {
		t.Errorf("%d cells in %d columns", len(cells), len(columns))
	}
	named := false
	for i, c := range columns {
		if at(c, "name") == "Name" {
			named = cells[i] == at(full, "metadata.name")
		}
		if cells[i] == nil {
			t.Errorf("the column %v is empty for an object with all fields", at(c, "name"))
		}
	}
	if !named {
		t.Errorf("no column has the name: %v", cells)
	}
}

func apiVersion(line registry.Type) string {
	return strings.TrimPrefix(line.Group+"/"+line.Version, "/")
}

func collection(line registry.Type) string {
	path := "/apis/" + line.Group + "/" + line.Version
	if line.Group == "" {
		path = "/api/" + line.Version
	}
	if !line.ClusterScoped {
		path += "/namespaces/default"
	}
	return path + "/" + line.Plural
}

func do(s *servertest.Server, method, path, body string, headers ...string) (code int, text string) {
	if body != "" && len(headers) == 0 {
		headers = []string{"Content-Type", "application/json"}
	}
	r, text := s.Do(method, path, body, headers...)
	return r.StatusCode, text
}

func must(t *testing.T, s *servertest.Server, method, path, body string, code int, headers ...string) string {
	t.Helper()
	got, text := do(s, method, path, body, headers...)
	if got != code {
		t.Fatalf("%s %s: %d %s\nsent %s", method, path, got, text, body)
	}
	return text
}

// withType encodes an object with its apiVersion and kind.
func withType(t *testing.T, line registry.Type, obj any) string {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	tree := parse(t, string(raw))
	tree["apiVersion"], tree["kind"] = apiVersion(line), line.Kind
	raw, err = json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// versioned returns a body with the resourceVersion of an object.
func versioned(t *testing.T, body string, obj map[string]any) string {
	t.Helper()
	tree := parse(t, body)
	tree["metadata"].(map[string]any)["resourceVersion"] = at(obj, "metadata.resourceVersion")
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// normalized is what a body is as the kind's Go type, with its defaults.
func normalized(t *testing.T, line registry.Type, body string) map[string]any {
	t.Helper()
	obj := line.New()
	if err := json.Unmarshal([]byte(body), obj); err != nil {
		t.Fatal(err)
	}
	if line.Default != nil {
		line.Default(obj)
	}
	return parse(t, withType(t, line, obj))
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return tree
}

// compare compares two objects but for their types and metadata.
func compare(t *testing.T, what string, want, got any) {
	t.Helper()
	for _, problem := range differences("", bare(want), bare(got)) {
		t.Errorf("%s: %s", what, problem)
	}
}

func bare(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for name, v := range m {
		if name != "metadata" && name != "kind" && name != "apiVersion" {
			out[name] = v
		}
	}
	return out
}

func differences(path string, want, got any) (all []string) {
	w, isMap := want.(map[string]any)
	g, alsoMap := got.(map[string]any)
	if !isMap || !alsoMap {
		if !reflect.DeepEqual(want, got) {
			all = append(all, fmt.Sprintf("%s is %v instead of %v", path, got, want))
		}
		return all
	}
	for name := range w {
		all = append(all, differences(path+"."+name, w[name], g[name])...)
	}
	for name := range g {
		if _, ok := w[name]; !ok {
			all = append(all, fmt.Sprintf("%s.%s is %v instead of nothing", path, name, g[name]))
		}
	}
	return all
}

// at returns what is at a path such as "spec.replicas".
func at(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// TestTreesOfValues: the trees that are made of values of all kinds are those that apimachinery makes.
func TestTreesOfValues(t *testing.T) {
	for _, line := range builtin.Lines() {
		for state, obj := range map[string]registry.Typed{"filled": filled(t, line), "empty": line.New()} {
			want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := jsontree.OfValue(obj); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s, %s: got %v, %v\nwant %v", line.Group, line.Kind, state, got, err, want)
			}
		}
	}
}

// uncounted leaves out the controller that counts what is used of quotas: what a test writes to their status stays.
func uncounted(s *server.Server) {
	s.API.Controllers = "garbage-collector,namespace,expiry,serviceaccount"
}
