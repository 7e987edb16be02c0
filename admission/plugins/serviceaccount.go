package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// ServiceAccount gives each new pod its ServiceAccount, "default" if it names none, refuses one whose account is missing, and has
// the account's token mounted where nobody says otherwise.
type ServiceAccount struct {
	registry *registry.Registry
	last     atomic.Pointer[decodedAccount] // most pods that follow each other have the same
}

// NewServiceAccount returns the plug-in.
func NewServiceAccount(r *registry.Registry) *ServiceAccount { return &ServiceAccount{registry: r} }

const (
	defaultAccount = "default"
	// accountWait is how long a pod waits for the ServiceAccount "default", which a controller makes in each new namespace.
	accountWait = time.Second
	// accountPoll is how often it looks.
	accountPoll = 20 * time.Millisecond

	mirrorAnnotation   = "kubernetes.io/config.mirror"
	mountableOnly      = "kubernetes.io/enforce-mountable-secrets"
	tokenPath          = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenVolume        = "kube-api-access-"
	tokenVolumeRandoms = 5 // letters after it
	// tokenSeconds is how long a mounted token lives; kube-apiserver's figure, which tells its own apart from others.
	tokenSeconds = 3607
	rootCA       = "kube-root-ca.crt"
)

// Concerns is about new pods.
func (*ServiceAccount) Concerns(a *registry.Attributes) bool {
	return changes(a, "", "pods", registry.Create)
}

// Admit completes a pod.
func (s *ServiceAccount) Admit(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	if isMirror(r) {
		return judged(r, checkMirror), nil // a node's own pods are as the node says
	}
	spec := specOf(r.Object)
	name := cmp.Or(textOf(spec, "serviceAccountName"), defaultAccount)
	spec["serviceAccountName"], spec["serviceAccount"] = name, name
	account, err := s.account(ctx, r.Namespace, name)
	if err != nil {
		return pass, err
	}
	if account == nil {
		return refuseMissing(r.Namespace, name), nil
	}
	if mountsToken(account, spec) {
		mountToken(spec)
	}
	if len(items(spec["imagePullSecrets"])) == 0 && len(account.ImagePullSecrets) > 0 {
		var secrets []any
		for _, ref := range account.ImagePullSecrets {
			secrets = append(secrets, map[string]any{"name": ref.Name})
		}
		spec["imagePullSecrets"] = secrets
	}
	return pass, nil
}

// isMirror tells whether a pod stands for a file on its node.
func isMirror(r *request) bool {
	meta, _ := r.Object.Object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	_, mirror := annotations[mirrorAnnotation]
	return mirror
}

// Validate judges a pod as the other plug-ins have left it.
func (s *ServiceAccount) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	if isMirror(r) {
		return judged(r, checkMirror), nil
	}
	name := textOf(r.Object.Object["spec"], "serviceAccountName")
	account, err := s.account(ctx, r.Namespace, name)
	if err != nil {
		return pass, err
	}
	if account == nil {
		return refuseMissing(r.Namespace, name), nil
	}
	if only, _ := strconv.ParseBool(account.Metadata.Annotations[mountableOnly]); only {
		return judged(r, func(pod *corev1.Pod) error { return checkMountable(account, name, pod) }), nil
	}
	return pass, nil
}

// judged is what a check says of a pod.
func judged(r *request, check func(*corev1.Pod) error) registry.Verdict {
	pod, err := decode[corev1.Pod](r.Object)
	if err == nil {
		err = check(pod)
	}
	return registry.Refuse(err)
}

// refuseMissing refuses a pod whose account there isn't.
func refuseMissing(namespace, name string) registry.Verdict {
	return registry.Refuse(fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", namespace, name, name))
}

// checkMirror refuses a node's own pod that could get at secrets.
func checkMirror(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			return errors.New("a mirror pod may not reference secrets")
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.Secret != nil || source.ServiceAccountToken != nil {
				return errors.New("a mirror pod may not reference secrets or service account tokens")
			}
		}
	}
	return nil
}

// account is what a pod gets of its ServiceAccount: of its metadata, most of which nobody looks at here, only the annotations.
type account struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Secrets                      []corev1.ObjectReference      `json:"secrets"`
	ImagePullSecrets             []corev1.LocalObjectReference `json:"imagePullSecrets"`
	AutomountServiceAccountToken *bool                         `json:"automountServiceAccountToken"`
}

// decodedAccount is a stored account and what was decoded of it.
type decodedAccount struct {
	stored *kube.Object
	*account
}

// account finds a ServiceAccount, which nobody may change; nil if there is none. For "default" it waits for the controller that makes it.
func (s *ServiceAccount) account(ctx context.Context, namespace, name string) (*account, error) {
	for deadline := time.Now().Add(accountWait); ; {
		stored, err := lookUp(ctx, s.registry, accountsPrefix, namespace, name)
		if err != nil {
			return nil, err
		}
		if stored != nil {
			return s.decode(stored)
		}
		if name != defaultAccount || time.Now().After(deadline) {
			return nil, nil
		}
		select {
		case <-time.After(accountPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *ServiceAccount) decode(stored *kube.Object) (*account, error) {
	if last := s.last.Load(); last != nil && last.stored == stored {
		return last.account, nil
	}
	found, err := decodeStored[account](stored)
	if err == nil {
		s.last.Store(&decodedAccount{stored, found})
	}
	return found, err
}

// mountsToken tells whether a pod gets its account's token. The pod has the last word.
func mountsToken(account *account, spec map[string]any) bool {
	if mounts, says := spec["automountServiceAccountToken"].(bool); says {
		return mounts
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}

// mountToken mounts the account's token in each container that has nothing at its path, from a volume that is added if a
// container needs it.
func mountToken(spec map[string]any) {
	name := ""
	for _, v := range items(spec["volumes"]) {
		volume, _ := v.(map[string]any)
		known := textOf(volume, "name")
		if len(known) == len(tokenVolume)+tokenVolumeRandoms && strings.HasPrefix(known, tokenVolume) && volume["projected"] != nil {
			name = known // of an earlier round, or a copied pod's
		}
	}
	added := name == ""
	if added {
		name = tokenVolume + rand.String(tokenVolumeRandoms)
	}
	needed := false
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range items(spec[list]) {
			container, ok := c.(map[string]any)
			mounts := items(container["volumeMounts"])
			if ok && !slices.ContainsFunc(mounts, func(m any) bool { return textOf(m, "mountPath") == tokenPath }) {
				container["volumeMounts"] = append(mounts, map[string]any{"name": name, "readOnly": true, "mountPath": tokenPath})
				needed = true
			}
		}
	}
	if needed && added {
		spec["volumes"] = append(items(spec["volumes"]), map[string]any{"name": name, "projected": tokenSources()})
	}
}

// tokenSources are what is mounted: the token, the certificate to trust, and the namespace.
func tokenSources() map[string]any {
	const mode = 0o644
	return map[string]any{"defaultMode": int64(mode), "sources": []any{
		map[string]any{"serviceAccountToken": map[string]any{"path": "token", "expirationSeconds": int64(tokenSeconds)}},
		map[string]any{"configMap": map[string]any{"name": rootCA, "items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}}}},
		map[string]any{"downwardAPI": map[string]any{"items": []any{map[string]any{
			"path": "namespace", "fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "metadata.namespace"},
		}}}},
	}}
}

// checkMountable refuses a pod that uses a Secret which its ServiceAccount doesn't list.
func checkMountable(account *account, name string, pod *corev1.Pod) error {
	listed := map[string]bool{}
	for _, s := range account.Secrets {
		listed[s.Name] = true
	}
	refused := func(what, secret string) error {
		return fmt.Errorf("%s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret", what, secret, name)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !listed[v.Secret.SecretName] {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, name)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !listed[e.ValueFrom.SecretKeyRef.Name] {
				return refused(fmt.Sprintf("container %s with envVar %s", c.Name, e.Name), e.ValueFrom.SecretKeyRef.Name)
			}
		}
		for _, e := range c.EnvFrom {
			if e.SecretRef != nil && !listed[e.SecretRef.Name] {
				return refused("container "+c.Name+" with envFrom", e.SecretRef.Name)
			}
		}
	}
	for i, s := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, s) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, s.Name, name)
		}
	}
	return nil
}
