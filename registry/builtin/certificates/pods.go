package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of PodCertificateRequests.

// validatePodCertificate checks a PodCertificateRequest, of which only the status changes, once.
func (s signers) validatePodCertificate(ctx context.Context, obj, before registry.Typed, subresource string) field.ErrorList {
	r := obj.(*certificatesv1.PodCertificateRequest)
	old, _ := before.(*certificatesv1.PodCertificateRequest)
	switch {
	case old == nil:
		return validatePodCertificateSpec(&r.Spec)
	case subresource == "":
		return apivalidation.ValidateImmutableField(earlierSpec(r.Spec), earlierSpec(old.Spec), field.NewPath("spec"))
	}
	if errs := s.validatePodCertificateStatus(r, old); len(errs) > 0 {
		return errs
	}
	return s.maySign(ctx, obj, before, subresource)
}

// earlierSpec is a spec with the members that only earlier versions have, which a refusal shows.
func earlierSpec(s certificatesv1.PodCertificateRequestSpec) certificatesv1beta1.PodCertificateRequestSpec {
	return certificatesv1beta1.PodCertificateRequestSpec{
		SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID, ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
		NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds, StubPKCS10Request: s.StubPKCS10Request,
		UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
	}
}

func validatePodCertificateSpec(s *certificatesv1.PodCertificateRequestSpec) field.ErrorList {
	spec := field.NewPath("spec")
	c := &rules.Check{}
	c.Add(ValidateSignerName(spec.Child("signerName"), s.SignerName)...)
	c.Add(ValidateUserAnnotations(spec.Child("unverifiedUserAnnotations"), s.UnverifiedUserAnnotations)...)
	name := func(member, value string, is func(string, bool) []string) {
		c.Texts(spec.Child(member), value, is(value, false))
	}
	uid := func(member string, value any, length int) {
		c.Refuse(length == 0, spec.Child(member), value, "must not be empty")
		c.NoLonger(spec.Child(member), length, maxUIDText)
	}
	name("podName", s.PodName, apivalidation.NameIsDNSSubdomain)
	uid("podUID", s.PodUID, len(s.PodUID))
	name("serviceAccountName", s.ServiceAccountName, apivalidation.ValidateServiceAccountName)
	uid("serviceAccountUID", s.ServiceAccountUID, len(s.ServiceAccountUID))
	name("nodeName", string(s.NodeName), apivalidation.NameIsDNSSubdomain)
	uid("nodeUID", s.NodeUID, len(s.NodeUID))

	lifetime := spec.Child("maxExpirationSeconds")
	if s.MaxExpirationSeconds == nil {
		c.Add(field.Required(lifetime, "must be set"))
		return c.Errs
	}
	longest := maxPodCertificate
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		longest = maxOwnCertificate
	}
	if *s.MaxExpirationSeconds < minPodCertificate || *s.MaxExpirationSeconds > longest {
		c.Add(field.Invalid(lifetime, s.MaxExpirationSeconds, fmt.Sprintf("must be in the range [%d, %d]", minPodCertificate, longest)))
	}
	if len(s.StubPKCS10Request) == 0 { // version v1 has no other way to name a key
		c.Add(field.Invalid(spec, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
		return c.Errs
	}
	if err := validateStub(spec.Child("stubPKCS10Request"), s.StubPKCS10Request); err != nil {
		c.Add(err)
	}
	return c.Errs
}

// validateStub wants a PKCS#10 request, signed by its own key, which is of a kind that signers take.
func validateStub(at *field.Path, stub []byte) *field.Error {
	if len(stub) > maxStubRequest {
		return field.TooLong(at, stub, maxStubRequest)
	}
	r, err := x509.ParseCertificateRequest(stub)
	if err != nil {
		return field.Invalid(at, field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	switch key := r.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return field.Invalid(at, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return field.Invalid(at, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return field.Invalid(at, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if r.CheckSignature() != nil {
		return field.Invalid(at, field.OmitValueType{}, "invalid signature")
	}
	return nil
}

// podCertificateStates are the conditions in which a request ends, one of them.
var podCertificateStates = []string{
	certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed,
}

// concluded returns the condition in which a request has ended; "" for none.
func concluded(r *certificatesv1.PodCertificateRequest) string {
	for _, c := range r.Status.Conditions {
		if slices.Contains(podCertificateStates, c.Type) && c.Status == metav1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

func (s signers) validatePodCertificateStatus(r, old *certificatesv1.PodCertificateRequest) (errs field.ErrorList) {
	status := field.NewPath("status")
	conditions := status.Child("conditions")
	ends := 0
	for i, c := range r.Status.Conditions {
		at := conditions.Child(fmt.Sprintf("[%d]", i)) // so kube-apiserver writes it here
		if !slices.Contains(podCertificateStates, c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, podCertificateStates))
			continue
		}
		if ends++; ends > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	if errs = append(errs, rules.Conditions(r.Status.Conditions, conditions)...); len(errs) > 0 {
		return errs
	}
	same := func(want certificatesv1.PodCertificateRequestStatus, why string) field.ErrorList {
		if equality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(status, field.OmitValueType{}, why)}
	}
	switch end := concluded(r); {
	case concluded(old) != "":
		return same(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case end == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return s.validateIssued(r)
	case end != "":
		return same(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return same(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
}

// refuse is an error alone.
func refuse(at *field.Path, value any, why string) field.ErrorList {
	return field.ErrorList{field.Invalid(at, value, why)}
}

// validateIssued wants a certificate for the request's key, with the times that the status says.
func (s signers) validateIssued(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	at, chain := field.NewPath("status", "certificateChain"), r.Status.CertificateChain
	if len(chain) > maxCertificateChain {
		return field.ErrorList{field.TooLong(at, chain, maxCertificateChain)}
	}
	block, rest := pem.Decode([]byte(chain))
	switch {
	case block == nil:
		return refuse(at, chain, "issued certificate chain must contain at least one certificate")
	case block.Type != "CERTIFICATE":
		return refuse(at, chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return refuse(at, chain, "leaf certificate does not parse as valid X.509")
	}
	errs := validateLeafNames(leaf, at)
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, refuse(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR")...)
	}
	if key, ok := stub.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return append(errs, refuse(at, chain, "leaf certificate was not issued to the requested public key")...)
	}
	if errs = append(errs, s.validateLeafTimes(r, leaf, len(errs) == 0)...); len(errs) > 0 {
		return errs
	}
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return refuse(at, chain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return refuse(at, chain, "intermediate certificate does not parse as valid X.509")
		}
	}
	return nil
}

func validateLeafNames(leaf *x509.Certificate, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	for _, name := range leaf.DNSNames {
		c.Refuse(name == "", at, name, "leaf certificate should not contain empty DNSName")
		c.Refuse(strings.Contains(name, ".."), at, name, "leaf certificate's DNSName should not contain '..'")
		c.Refuse(strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."), at, name, "leaf certificate's DNSName should not start or end with '.'")
	}
	for _, address := range leaf.EmailAddresses {
		_, err := mail.ParseAddress(address)
		c.Refuse(err != nil, at, address, "leaf certificate should not contain invalid EmailAddress")
	}
	return c.Errs
}

// validateLeafTimes wants the times that the status says to be there, and if nothing else is wrong to be those of the certificate.
func (by signers) validateLeafTimes(r *certificatesv1.PodCertificateRequest, leaf *x509.Certificate, right bool) field.ErrorList {
	status, s, c := field.NewPath("status"), &r.Status, &rules.Check{}
	begin, end, refresh := status.Child("notBefore"), status.Child("notAfter"), status.Child("beginRefreshAt")
	c.Lack(s.NotBefore == nil, begin, "must be present and consistent with the issued certificate")
	c.Lack(s.NotAfter == nil, end, "must be present and consistent with the issued certificate")
	c.Lack(s.BeginRefreshAt == nil, refresh, "must be present and in the range [notbefore+10min, notafter-10min]")
	if len(c.Errs) > 0 || !right {
		return c.Errs
	}
	at, longest := status.Child("certificateChain"), *r.Spec.MaxExpirationSeconds
	switch lifetime := leaf.NotAfter.Sub(leaf.NotBefore); {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return refuse(begin, s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case by.clock.Since(s.NotBefore.Time).Abs() >= maxClockSkew:
		return refuse(begin, s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return refuse(end, s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case lifetime < time.Hour:
		return refuse(at, lifetime, "leaf certificate lifetime must be >= 1 hour")
	case lifetime > time.Duration(longest)*time.Second:
		return refuse(at, lifetime, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", longest))
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshMargin)):
		return refuse(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-refreshMargin)):
		return refuse(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}

func defaultPodCertificateRequest(r *certificatesv1.PodCertificateRequest) {
	const day int32 = 86400 // seconds
	line.OrPointTo(&r.Spec.MaxExpirationSeconds, day)
}

// ValidateUserAnnotations checks what a pod's author says of a certificate that its signer may heed.
func ValidateUserAnnotations(at *field.Path, annotations map[string]string) (errs field.ErrorList) {
	for key := range annotations {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// signers are what users may sign for.
type signers struct {
	authorizer authorizer.UnconditionalAuthorizer // nil: everybody may do everything
	clock      *clock.Clock
}

// maySign asks for the verb sign on the signer of a PodCertificateRequest whose status is written. Of
// CertificateSigningRequests, an admission plug-in asks for it.
func (s signers) maySign(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	if s.authorizer == nil || subresource != "status" {
		return nil
	}
	before := old.(*certificatesv1.PodCertificateRequest)
	if equality.Semantic.DeepEqual(obj.(*certificatesv1.PodCertificateRequest).Status, before.Status) {
		return nil
	}
	who, signer := registry.UserFrom(ctx), before.Spec.SignerName
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := s.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: "sign", Name: name, APIGroup: certificatesGroup, APIVersion: "*", Resource: "signers", ResourceRequest: true,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return nil
		}
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"), fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", who.GetName(), signer))}
}
