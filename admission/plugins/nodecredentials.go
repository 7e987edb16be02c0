package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

// token lets a node issue tokens for the accounts of its pods, bound to the pods.
func (n *NodeRestriction) token(ctx context.Context, node string, r *request) error {
	if r.Operation != registry.Create || r.Subresource != "token" {
		return nil
	}
	asked, err := decode[authenticationv1.TokenRequest](r.Object)
	if err != nil {
		return err
	}
	ref := asked.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return errors.New("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := found[corev1.Pod](ctx, n, podsPrefix, r.Namespace, ref.Name)
	switch {
	case err != nil:
		return err
	case ref.UID != pod.UID:
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != node:
		return errors.New("node requested token bound to a pod scheduled on a different node")
	case len(asked.Spec.Audiences) > 1:
		return errors.New("node may only request 0 or 1 audiences")
	}
	audience := strings.Join(asked.Spec.Audiences, "")
	uses, err := n.usesAudience(ctx, pod, audience)
	switch {
	case registry.Unable(err):
		return err
	case err != nil:
		return fmt.Errorf("error validating audience %q: %w", audience, stripped(err))
	case uses || n.may(ctx, r, "request-serviceaccounts-token-audience", audience, r.Name):
		return nil
	}
	return fmt.Errorf("%s is not authorized to request tokens for audience %q", r.User.GetName(), audience)
}

// stripped is an error without the Status that it may be, so that it's told as a reason and not as the answer.
func stripped(err error) error { return errors.New(err.Error()) }

// may tells whether the node's user has a verb on something of the resource's group.
func (n *NodeRestriction) may(ctx context.Context, r *request, verb, resource, name string) bool {
	decision, _, _ := n.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: r.User, Verb: verb, APIGroup: r.Resource.Group, APIVersion: r.Resource.Version, Resource: resource, Namespace: r.Namespace, Name: name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

// usesAudience tells whether a volume of a pod needs tokens for an audience: a projected one, or one whose CSI driver asks for them.
// The errors of volumes that can't be followed count only if no other one needs the tokens.
func (n *NodeRestriction) usesAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var unknown []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience {
					return true, nil
				}
			}
		}
		name, err := n.driver(ctx, pod, v)
		if err == nil && name != "" {
			var driver *storagev1.CSIDriver
			if driver, err = found[storagev1.CSIDriver](ctx, n, driversPrefix, "", name); err == nil &&
				slices.ContainsFunc(driver.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }) {
				return true, nil
			}
		}
		if registry.Unable(err) {
			return false, err
		}
		unknown = append(unknown, err)
	}
	return false, utilerrors.NewAggregate(unknown)
}

// migrated knows the CSI drivers that stand in for volumes of Kubernetes' own.
var migrated = csitranslation.New()

// driver returns the name of a volume's CSI driver; "" if it has none.
func (n *NodeRestriction) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	claim := ""
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		claim = pod.Name + "-" + v.Name
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.CSI != nil:
		return v.CSI.Driver, nil
	case migrated.IsInlineMigratable(v):
		return driverOf(migrated.TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), v, pod.Namespace))
	default:
		return "", nil
	}
	pvc, err := found[corev1.PersistentVolumeClaim](ctx, n, claimsPrefix, pod.Namespace, claim)
	if err != nil {
		return "", err
	}
	pv, err := found[corev1.PersistentVolume](ctx, n, volumesPrefix, "", pvc.Spec.VolumeName)
	if err == nil && pv.Spec.CSI == nil && migrated.IsPVMigratable(pv) {
		pv, err = migrated.TranslateInTreePVToCSI(klog.FromContext(ctx), pv)
	}
	return driverOf(pv, err)
}

// driverOf returns the name of a PersistentVolume's CSI driver; "" if it has none.
func driverOf(pv *corev1.PersistentVolume, err error) (string, error) {
	if err != nil || pv == nil || pv.Spec.CSI == nil {
		return "", err
	}
	return pv.Spec.CSI.Driver, nil
}

// podCertificate lets a node ask for certificates of its pods. What a cache that is behind could explain isn't Forbidden.
func (n *NodeRestriction) podCertificate(ctx context.Context, name string, r *request) error {
	if r.Operation != registry.Create {
		return fmt.Errorf("unexpected operation %v", r.Operation)
	}
	if r.Subresource != "" {
		return fmt.Errorf("unexpected subresource %v", r.Subresource)
	}
	asked, err := decode[certificatesv1.PodCertificateRequest](r.Object)
	if err != nil {
		return err
	}
	s := &asked.Spec
	if string(s.NodeName) != name {
		return fmt.Errorf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", s.NodeName, name)
	}
	node, err := found[metav1.PartialObjectMetadata](ctx, n, nodesPrefix, "", name)
	if err != nil {
		return retrieving(err, "node", name)
	}
	if node.UID != s.NodeUID {
		return answerless(fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", r.Namespace+"/"+s.PodName, s.NodeUID, node.UID))
	}
	at := r.Namespace + "/" + s.PodName
	pod, err := found[corev1.Pod](ctx, n, podsPrefix, r.Namespace, s.PodName)
	if err != nil {
		return retrieving(err, "pod", at)
	}
	if s.PodUID != pod.UID {
		return answerless(fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", at, s.PodUID, string(pod.UID)))
	}
	if pod.Spec.NodeName != string(s.NodeName) {
		return fmt.Errorf("pod %q is not running on node %q named in the PodCertificateRequest", at, s.NodeName)
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror {
		return fmt.Errorf("pod %q is a mirror pod", at)
	}
	if s.ServiceAccountName != pod.Spec.ServiceAccountName {
		return fmt.Errorf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", at, s.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	account, err := found[metav1.PartialObjectMetadata](ctx, n, accountsPrefix, r.Namespace, s.ServiceAccountName)
	if err != nil {
		return retrieving(err, "service account", r.Namespace+"/"+s.ServiceAccountName)
	}
	if s.ServiceAccountUID != account.UID {
		return answerless(fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", at, s.ServiceAccountUID, account.UID))
	}
	mounts := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.PodCertificate != nil && p.PodCertificate.SignerName == s.SignerName
		})
	})
	// A signer's slash is a colon in names of rules, as in names of ClusterTrustBundles.
	if !mounts && !n.may(ctx, r, "request-serviceaccounts-podcertificate-signer", strings.ReplaceAll(s.SignerName, "/", ":"), s.ServiceAccountName) {
		return fmt.Errorf("pod %q does not mount a podCertificate projected volume for signer %q", at, s.SignerName)
	}
	return nil
}

// retrieving is the error of something that a request for a pod's certificate names and that isn't there.
func retrieving(err error, what, name string) error {
	if registry.Unable(err) {
		return err
	}
	return answerless(fmt.Errorf("while retrieving %s %q named in the PodCertificateRequest: %w", what, name, err))
}

// signing lets a node ask for certificates of its own name.
func (n *NodeRestriction) signing(_ context.Context, node string, r *request) error {
	if r.Operation != registry.Create {
		return nil
	}
	csr, err := decode[certificatesv1.CertificateSigningRequest](r.Object)
	if err != nil {
		return err
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	asked, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if asked.Subject.CommonName != access.NodeUserPrefix+node {
		return fmt.Errorf("can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}
