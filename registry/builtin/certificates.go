package builtin

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The rules of certificates.k8s.io are those of Kubernetes' pkg/apis/certificates/validation.

// The bounds of what certificates are asked for, and given, with.
const (
	minRequestSeconds         = 600        // of a CertificateSigningRequest's expirationSeconds
	maxTrustBundle            = 1 << 20    // bytes
	maxStubRequest            = 10 << 10   // bytes
	maxCertificateChain       = 100 << 10  // bytes
	maxUIDText                = 128        // bytes
	minPodCertificate   int32 = 60 * 60    // seconds
	maxPodCertificate   int32 = 91 * 86400 // seconds
	maxOwnCertificate   int32 = 86400      // seconds, of Kubernetes' own signers
	maxClockSkew              = 5 * time.Minute
	refreshMargin             = 10 * time.Minute // between a certificate's ends and its refresh
)

const omitted = "<value omitted>"

// keyUsages are those that a request may name.
var keyUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageContentCommitment,
	certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment, certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement,
	certificatesv1.UsageKeyEncipherment, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning, certificatesv1.UsageSMIME,
	certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

// legacySigner is one that requests of version v1 may not name.
const legacySigner = "kubernetes.io/legacy-unknown"

// validateSignerName wants a domain and a path of it.
func validateSignerName(at *field.Path, name string) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	// check refuses the first label that is none.
	check := func(of string, labels []string, is func(string) []string) {
		for _, label := range labels {
			wrong := is(label)
			for _, why := range wrong {
				errs = append(errs, field.Invalid(at, of, fmt.Sprintf("validating label %q: %s", label, why)))
			}
			if len(wrong) > 0 {
				return
			}
		}
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	labels := strings.Split(domain, ".")
	check(domain, labels, validation.IsDNS1123Label)
	if len(labels) < 2 {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	check(path, strings.Split(path, "."), validation.IsDNS1123Subdomain)
	const longest = validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength
	if len(name) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	return errs
}

// validateRequest checks a CertificateSigningRequest. What is wrong with a stored one stays allowed.
func validateRequest(_ context.Context, obj, before registry.Typed, subresource string) field.ErrorList {
	r := obj.(*certificatesv1.CertificateSigningRequest)
	old, _ := before.(*certificatesv1.CertificateSigningRequest)
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if err := checkRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(spec.Child("usages"), ""))
	}
	unknown := func(u certificatesv1.KeyUsage) bool { return !slices.Contains(keyUsages, u) }
	twice := func(usages []certificatesv1.KeyUsage) bool {
		return len(slices.Compact(slices.Sorted(slices.Values(usages)))) < len(usages)
	}
	if old == nil || !slices.ContainsFunc(old.Spec.Usages, unknown) {
		for i, u := range r.Spec.Usages {
			if unknown(u) {
				errs = append(errs, field.NotSupported(spec.Child("usages").Index(i), u, slices.Sorted(slices.Values(keyUsages))))
			}
		}
	}
	if old == nil || !twice(old.Spec.Usages) {
		known := earlier[certificatesv1.KeyUsage]{}
		for i, u := range r.Spec.Usages {
			if known.had(u) {
				errs = append(errs, field.Duplicate(spec.Child("usages").Index(i), u))
			}
		}
	}
	switch signer := spec.Child("signerName"); {
	case r.Spec.SignerName != legacySigner:
		errs = append(errs, validateSignerName(signer, r.Spec.SignerName)...)
	case old == nil || old.Spec.SignerName != legacySigner:
		errs = append(errs, field.Invalid(signer, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minRequestSeconds {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	errs = append(errs, validateRequestConditions(r, old)...)
	unchanged := old != nil && (bytes.Equal(r.Status.Certificate, old.Status.Certificate) || checkCertificates(old.Status.Certificate) != nil)
	if err := checkCertificates(r.Status.Certificate); err != nil && !unchanged {
		errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
	}
	if old == nil {
		return errs
	}
	return append(errs, validateRequestUpdate(r, old, subresource)...)
}

// checkRequest wants one PKCS#10 request as PEM, signed by its own key.
func checkRequest(text []byte) error {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return r.CheckSignature()
}

// checkCertificates wants at least one certificate as PEM, and nothing else; or nothing.
func checkCertificates(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	blocks := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

// ofType returns a request's conditions of a type.
func ofType(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) (all []certificatesv1.CertificateSigningRequestCondition) {
	for _, c := range r.Status.Conditions {
		if c.Type == kind {
			all = append(all, c)
		}
	}
	return all
}

func validateRequestConditions(r, old *certificatesv1.CertificateSigningRequest) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	both, nameless, repeated := false, false, false // in the stored one
	if old != nil {
		both = len(ofType(old, certificatesv1.CertificateApproved)) > 0 && len(ofType(old, certificatesv1.CertificateDenied)) > 0
		nameless = len(ofType(old, "")) > 0
		for _, c := range old.Status.Conditions {
			repeated = repeated || len(ofType(old, c.Type)) > 1
		}
	}
	seen := map[certificatesv1.RequestConditionType]bool{}
	other := map[certificatesv1.RequestConditionType]certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved: certificatesv1.CertificateDenied, certificatesv1.CertificateDenied: certificatesv1.CertificateApproved,
	}
	for i, c := range r.Status.Conditions {
		if c.Type == "" && !nameless {
			errs = append(errs, field.Required(at.Index(i).Child("type"), ""))
		}
		states := []string{"False", "True", "Unknown"}
		if other[c.Type] != "" || c.Type == certificatesv1.CertificateFailed {
			states = []string{"True"}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Index(i).Child("status"), ""))
		case !slices.Contains(states, string(c.Status)):
			errs = append(errs, field.NotSupported(at.Index(i).Child("status"), c.Status, states))
		}
		if seen[other[c.Type]] && other[c.Type] != "" && !both {
			errs = append(errs, field.Invalid(at, c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
		if seen[c.Type] && !repeated {
			errs = append(errs, field.Duplicate(at.Index(i).Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	return errs
}

// validateRequestUpdate keeps each part of a request to those that may write it.
func validateRequestUpdate(r, old *certificatesv1.CertificateSigningRequest, subresource string) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		if len(ofType(r, kind)) < len(ofType(old, kind)) {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		}
	}
	if subresource != "approval" {
		for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
			before, after := ofType(old, kind), ofType(r, kind)
			switch {
			case len(after) > len(before):
				errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not add a condition of type %q", kind)))
			case len(after) == len(before) && !equality.Semantic.DeepEqual(before, after):
				errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not modify a condition of type %q\n%v", kind, diff.Diff(before, after))))
			}
		}
	}
	if !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		at := field.NewPath("status", "certificate")
		switch {
		case subresource != "status":
			errs = append(errs, field.Forbidden(at, "updates may not set certificate content"))
		case len(old.Status.Certificate) > 0:
			errs = append(errs, field.Forbidden(at, "updates may not modify existing certificate content"))
		}
	}
	return errs
}

// validateTrustBundle checks a ClusterTrustBundle. One that doesn't change isn't read.
func validateTrustBundle(b, old *certificatesv1.ClusterTrustBundle) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if b.GenerateName != "" {
		for _, why := range trustBundleName(b.Spec.SignerName, b.GenerateName, true) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "generateName"), b.GenerateName, why))
		}
	}
	if b.Name != "" {
		for _, why := range trustBundleName(b.Spec.SignerName, b.Name, false) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), b.Name, why))
		}
	}
	if b.Spec.SignerName != "" {
		errs = append(errs, validateSignerName(spec.Child("signerName"), b.Spec.SignerName)...)
	}
	if old == nil || b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, validateAnchors(spec.Child("trustBundle"), b.Spec.TrustBundle)...)
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, spec.Child("signerName"))...)
	}
	return errs
}

// trustBundleName says what is wrong with a bundle's name: that of a signer's begins with the signer's.
func trustBundleName(signer, name string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{"ClusterTrustBundle without signer name must not have \":\" in its name"}
		}
		return apivalidation.NameIsDNSSubdomain(name, prefix)
	}
	begin := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, begin)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, begin)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, prefix)
}

// validateAnchors wants certificates of authorities as PEM, each once.
func validateAnchors(at *field.Path, text string) (errs field.ErrorList) {
	if len(text) > maxTrustBundle {
		return field.ErrorList{field.TooLong(at, "", maxTrustBundle)}
	}
	wrong := func(format string, args ...any) {
		errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf(format, args...)))
	}
	found := map[string][]int{}
	i := 0
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			wrong("entry %d has bad block type: %v", i, block.Type)
		case len(block.Headers) > 0:
			wrong("entry %d has PEM block headers", i)
		case err != nil:
			wrong("entry %d does not parse as X.509", i)
		case !certificate.IsCA:
			wrong("entry %d does not have the CA bit set", i)
		case !certificate.BasicConstraintsValid:
			wrong("entry %d has invalid basic constraints", i)
		default:
			found[string(block.Bytes)] = append(found[string(block.Bytes)], i)
		}
		i++
	}
	if len(errs) > 0 {
		return errs
	}
	if len(found) == 0 {
		wrong("at least one trust anchor must be provided")
	}
	for _, at := range found {
		if len(at) > 1 {
			wrong("duplicate trust anchor (indices %v)", at)
		}
	}
	return errs
}

// validatePodCertificate checks a PodCertificateRequest, of which only the status changes, once.
func (o Options) validatePodCertificate(ctx context.Context, obj, before registry.Typed, subresource string) field.ErrorList {
	r := obj.(*certificatesv1.PodCertificateRequest)
	old, _ := before.(*certificatesv1.PodCertificateRequest)
	switch {
	case old == nil:
		return validatePodCertificateSpec(&r.Spec)
	case subresource == "":
		return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
	}
	if errs := validatePodCertificateStatus(r, old); len(errs) > 0 {
		return errs
	}
	return o.maySign(ctx, obj, before, subresource)
}

func validatePodCertificateSpec(s *certificatesv1.PodCertificateRequestSpec) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateSignerName(spec.Child("signerName"), s.SignerName)
	errs = append(errs, validateUserAnnotations(spec.Child("unverifiedUserAnnotations"), s.UnverifiedUserAnnotations)...)
	name := func(member, value string, is func(string, bool) []string) {
		for _, why := range is(value, false) {
			errs = append(errs, field.Invalid(spec.Child(member), value, why))
		}
	}
	uid := func(member string, value any, length int) {
		if length == 0 {
			errs = append(errs, field.Invalid(spec.Child(member), value, "must not be empty"))
		}
		if length > maxUIDText {
			errs = append(errs, field.TooLong(spec.Child(member), value, maxUIDText))
		}
	}
	name("podName", s.PodName, apivalidation.NameIsDNSSubdomain)
	uid("podUID", s.PodUID, len(s.PodUID))
	name("serviceAccountName", s.ServiceAccountName, apivalidation.ValidateServiceAccountName)
	uid("serviceAccountUID", s.ServiceAccountUID, len(s.ServiceAccountUID))
	name("nodeName", string(s.NodeName), apivalidation.NameIsDNSSubdomain)
	uid("nodeUID", s.NodeUID, len(s.NodeUID))

	lifetime := spec.Child("maxExpirationSeconds")
	if s.MaxExpirationSeconds == nil {
		return append(errs, field.Required(lifetime, "must be set"))
	}
	longest := maxPodCertificate
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		longest = maxOwnCertificate
	}
	if *s.MaxExpirationSeconds < minPodCertificate || *s.MaxExpirationSeconds > longest {
		errs = append(errs, field.Invalid(lifetime, s.MaxExpirationSeconds, fmt.Sprintf("must be in the range [%d, %d]", minPodCertificate, longest)))
	}
	if len(s.StubPKCS10Request) == 0 { // version v1 has no other way to name a key
		return append(errs, field.Invalid(spec, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	if err := validateStub(spec.Child("stubPKCS10Request"), s.StubPKCS10Request); err != nil {
		errs = append(errs, err)
	}
	return errs
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

func validatePodCertificateStatus(r, old *certificatesv1.PodCertificateRequest) (errs field.ErrorList) {
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
	if errs = append(errs, metav1validation.ValidateConditions(r.Status.Conditions, conditions)...); len(errs) > 0 {
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
		return validateIssued(r)
	case end != "":
		return same(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return same(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
}

// validateIssued wants a certificate for the request's key, with the times that the status says.
func validateIssued(r *certificatesv1.PodCertificateRequest) (errs field.ErrorList) {
	status := field.NewPath("status")
	at, s := status.Child("certificateChain"), &r.Status
	if len(s.CertificateChain) > maxCertificateChain {
		return field.ErrorList{field.TooLong(at, s.CertificateChain, maxCertificateChain)}
	}
	refuse := func(at *field.Path, value any, why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, value, why)}
	}
	block, rest := pem.Decode([]byte(s.CertificateChain))
	switch {
	case block == nil:
		return refuse(at, s.CertificateChain, "issued certificate chain must contain at least one certificate")
	case block.Type != "CERTIFICATE":
		return refuse(at, s.CertificateChain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return refuse(at, s.CertificateChain, "leaf certificate does not parse as valid X.509")
	}
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, refuse(at, name, "leaf certificate should not contain empty DNSName")...)
		}
		if strings.Contains(name, "..") {
			errs = append(errs, refuse(at, name, "leaf certificate's DNSName should not contain '..'")...)
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, refuse(at, name, "leaf certificate's DNSName should not start or end with '.'")...)
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, refuse(at, address, "leaf certificate should not contain invalid EmailAddress")...)
		}
	}
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, refuse(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR")...)
	}
	if key, ok := stub.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return append(errs, refuse(at, s.CertificateChain, "leaf certificate was not issued to the requested public key")...)
	}
	begin, end, refresh := status.Child("notBefore"), status.Child("notAfter"), status.Child("beginRefreshAt")
	if s.NotBefore == nil {
		errs = append(errs, field.Required(begin, "must be present and consistent with the issued certificate"))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(end, "must be present and consistent with the issued certificate"))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(refresh, "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	if len(errs) > 0 {
		return errs
	}
	longest := *r.Spec.MaxExpirationSeconds
	switch lifetime := leaf.NotAfter.Sub(leaf.NotBefore); {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return refuse(begin, s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case time.Since(s.NotBefore.Time).Abs() >= maxClockSkew:
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
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return refuse(at, s.CertificateChain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return refuse(at, s.CertificateChain, "intermediate certificate does not parse as valid X.509")
		}
	}
	return nil
}
