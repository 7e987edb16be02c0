package plugins

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The plug-ins of the group certificates.k8s.io: who may speak for a signer. A right to a signer is a verb on the resource
// signers, with the signer's name or DOMAIN/*.

const (
	certificatesGroup = "certificates.k8s.io"
	signingRequests   = "certificatesigningrequests"
)

// maySpeak tells whether a user may use a verb on a signer.
func maySpeak(ctx context.Context, ask authorizer.UnconditionalAuthorizer, who user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := ask.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: verb, Name: name, APIGroup: certificatesGroup, APIVersion: "*", Resource: "signers", ResourceRequest: true,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}

// part tells whether a request is about a part of a resource of the group, in one of these ways.
func part(a *registry.Attributes, plural, subresource string, operations ...registry.Operation) bool {
	return a.Resource.Resource == plural && a.Resource.Group == certificatesGroup && a.Subresource == subresource && slices.Contains(operations, a.Operation)
}

// CertificateSigner lets a user write a part of a signing request only with a verb on its signer.
type CertificateSigner struct {
	authorizer  authorizer.UnconditionalAuthorizer
	subresource string
	verb        string
	same        func(old, csr *certificatesv1.CertificateSigningRequest) bool // needs no verb
}

// NewCertificateApproval returns the plug-in that asks for the verb approve where a request is approved or denied.
func NewCertificateApproval(a authorizer.UnconditionalAuthorizer) *CertificateSigner {
	return &CertificateSigner{authorizer: a, subresource: "approval", verb: "approve", same: func(_, _ *certificatesv1.CertificateSigningRequest) bool { return false }}
}

// NewCertificateSigning returns the plug-in that asks for the verb sign where the certificate or the conditions are written.
func NewCertificateSigning(a authorizer.UnconditionalAuthorizer) *CertificateSigner {
	return &CertificateSigner{authorizer: a, subresource: "status", verb: "sign", same: func(old, csr *certificatesv1.CertificateSigningRequest) bool {
		return string(old.Status.Certificate) == string(csr.Status.Certificate) && equality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions)
	}}
}

// Concerns is about the part.
func (p *CertificateSigner) Concerns(a *registry.Attributes) bool {
	return part(a, signingRequests, p.subresource, registry.Update)
}

// Check goes by the stored request's signer.
func (p *CertificateSigner) Check(ctx context.Context, r *request) error {
	old, err := decode[certificatesv1.CertificateSigningRequest](r.Old)
	if err != nil {
		return err
	}
	csr, err := decode[certificatesv1.CertificateSigningRequest](r.Object)
	if err != nil {
		return err
	}
	if !p.same(old, csr) && !maySpeak(ctx, p.authorizer, r.User, p.verb, old.Spec.SignerName) {
		return fmt.Errorf("user not permitted to %s requests with signerName %q", p.verb, old.Spec.SignerName)
	}
	return nil
}

// CertificateSubjectRestriction refuses requests to the signer of the server's own clients by which somebody would become
// one of system:masters.
type CertificateSubjectRestriction struct{}

// Concerns is about new signing requests.
func (CertificateSubjectRestriction) Concerns(a *registry.Attributes) bool {
	return part(a, signingRequests, "", registry.Create)
}

// Check looks at the subject that is asked for.
func (CertificateSubjectRestriction) Check(_ context.Context, r *request) error {
	csr, err := decode[certificatesv1.CertificateSigningRequest](r.Object)
	if err != nil || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return err
	}
	asked, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return fmt.Errorf("failed to parse CSR: %v", err)
	}
	if slices.Contains(asked.Subject.Organization, user.SystemPrivilegedGroup) {
		return fmt.Errorf("use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName)
	}
	return nil
}

// parseRequest reads a signing request as PEM.
func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// ClusterTrustBundleAttest lets a user write the trust bundle of a signer only with the verb attest on the signer.
type ClusterTrustBundleAttest struct {
	authorizer authorizer.UnconditionalAuthorizer
}

// NewClusterTrustBundleAttest returns the plug-in.
func NewClusterTrustBundleAttest(a authorizer.UnconditionalAuthorizer) *ClusterTrustBundleAttest {
	return &ClusterTrustBundleAttest{authorizer: a}
}

// Concerns is about new and changed bundles.
func (*ClusterTrustBundleAttest) Concerns(a *registry.Attributes) bool {
	return part(a, "clustertrustbundles", "", registry.Create, registry.Update)
}

// Check goes by the signer that is to be stored, which an update can't change.
func (p *ClusterTrustBundleAttest) Check(ctx context.Context, r *request) error {
	bundle, err := decode[certificatesv1.ClusterTrustBundle](r.Object)
	if err != nil || bundle.Spec.SignerName == "" || sameButForCollector(r.Object, r.Old) {
		return err
	}
	if !maySpeak(ctx, p.authorizer, r.User, "attest", bundle.Spec.SignerName) {
		return fmt.Errorf("user not permitted to attest for signerName %q", bundle.Spec.SignerName)
	}
	return nil
}

// sameButForCollector tells whether an object differs only in what the garbage collector changes to get rid of it. old is nil
// for a new object.
func sameButForCollector(obj, old *unstructured.Unstructured) bool {
	if old == nil {
		return false
	}
	next := obj.DeepCopy()
	next.SetOwnerReferences(old.GetOwnerReferences())
	next.SetFinalizers(old.GetFinalizers())
	return equality.Semantic.DeepEqual(next.Object, old.Object)
}
