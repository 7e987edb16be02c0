package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// ServiceAccount gives each new pod its ServiceAccount, "default" if it names none, refuses one whose account is missing, and has
// the account's token mounted where nobody says otherwise.
type ServiceAccount struct{ registry *registry.Registry }

// NewServiceAccount returns the plug-in.
func NewServiceAccount(r *registry.Registry) *ServiceAccount { return &ServiceAccount{r} }

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
	return writes(a, "", "pods", registry.Create)
}

// Admit completes a pod.
func (s *ServiceAccount) Admit(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return registry.Refuse(err), nil
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror {
		return pass, nil // a node's own pods are as the node says; see Validate
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := s.account(ctx, r.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return pass, err
	}
	if account == nil {
		return refuseMissing(r.Namespace, pod.Spec.ServiceAccountName), nil
	}
	if mountsToken(account, pod) {
		mountToken(&pod.Spec)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return pass, setSpec(r.Object, &pod.Spec)
}

// Validate judges a pod as the other plug-ins have left it.
func (s *ServiceAccount) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return registry.Refuse(err), nil
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror {
		return registry.Refuse(checkMirror(pod)), nil
	}
	account, err := s.account(ctx, r.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return pass, err
	}
	if account == nil {
		return refuseMissing(r.Namespace, pod.Spec.ServiceAccountName), nil
	}
	if only, _ := strconv.ParseBool(account.Annotations[mountableOnly]); only {
		return registry.Refuse(checkMountable(account, pod)), nil
	}
	return pass, nil
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

// account reads a ServiceAccount from the store; nil if there is none. For "default" it waits for the controller that makes it.
func (s *ServiceAccount) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	key, err := storage.PrefixOf("", "serviceaccounts").Key(namespace, name)
	if err != nil {
		return nil, nil // no account can have such a name
	}
	for deadline := time.Now().Add(accountWait); ; {
		stored, err := s.registry.Read(ctx, key)
		switch {
		case err != nil:
			return nil, err
		case stored != nil && stored.Err != nil:
			return nil, stored.Err
		case stored != nil:
			account := &corev1.ServiceAccount{}
			return account, json.Unmarshal(stored.Raw(), account)
		case name != defaultAccount || time.Now().After(deadline):
			return nil, nil
		}
		select {
		case <-time.After(accountPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// mountsToken tells whether a pod gets its account's token. The pod has the last word.
func mountsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

// mountToken mounts the account's token in each container that has nothing at its path, from a volume that is added if a
// container needs it.
func mountToken(spec *corev1.PodSpec) {
	name := ""
	for _, v := range spec.Volumes {
		if len(v.Name) == len(tokenVolume)+tokenVolumeRandoms && v.Name[:len(tokenVolume)] == tokenVolume && v.Projected != nil {
			name = v.Name // of an earlier round, or a copied pod's
		}
	}
	added := name == ""
	if added {
		name = tokenVolume + rand.String(tokenVolumeRandoms)
	}
	needed := false
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			mounts := &containers[i].VolumeMounts
			if !slices.ContainsFunc(*mounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				*mounts = append(*mounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
				needed = true
			}
		}
	}
	if needed && added {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSources()}})
	}
}

// tokenSources are what is mounted: the token, the certificate to trust, and the namespace.
func tokenSources() *corev1.ProjectedVolumeSource {
	seconds, mode := int64(tokenSeconds), int32(0o644)
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: rootCA},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}
}

// checkMountable refuses a pod that uses a Secret which its ServiceAccount doesn't list.
func checkMountable(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	listed := map[string]bool{}
	for _, s := range account.Secrets {
		listed[s.Name] = true
	}
	refused := func(what, secret string) error {
		return fmt.Errorf("%s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret", what, secret, account.Name)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !listed[v.Secret.SecretName] {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
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
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, s.Name, account.Name)
		}
	}
	return nil
}
