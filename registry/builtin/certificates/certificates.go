package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
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

// ValidateSignerName wants a domain and a path of it.
func ValidateSignerName(at *field.Path, name string) field.ErrorList {
	c := &rules.Check{}
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
				c.Add(field.Invalid(at, of, fmt.Sprintf("validating label %q: %s", label, why)))
			}
			if len(wrong) > 0 {
				return
			}
		}
	}
	c.NoLonger(at, len(domain), validation.DNS1123SubdomainMaxLength)
	labels := strings.Split(domain, ".")
	check(domain, labels, validation.IsDNS1123Label)
	c.Refuse(len(labels) < 2, at, domain, "should be a domain with at least two segments separated by dots")
	check(path, strings.Split(path, "."), validation.IsDNS1123Subdomain)
	const longest = validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength
	c.NoLonger(at, len(name), longest)
	return c.Errs
}

// validateRequest checks a CertificateSigningRequest. What is wrong with a stored one stays allowed.
func validateRequest(_ context.Context, obj, before registry.Typed, subresource string) field.ErrorList {
	r := obj.(*certificatesv1.CertificateSigningRequest)
	old, _ := before.(*certificatesv1.CertificateSigningRequest)
	c := &rules.Check{}
	spec := field.NewPath("spec")
	if err := checkRequest(r.Spec.Request); err != nil {
		c.Add(field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	c.Lack(len(r.Spec.Usages) == 0, spec.Child("usages"), "")
	unknown := func(u certificatesv1.KeyUsage) bool { return !slices.Contains(keyUsages, u) }
	twice := func(usages []certificatesv1.KeyUsage) bool {
		return len(slices.Compact(slices.Sorted(slices.Values(usages)))) < len(usages)
	}
	if old == nil || !slices.ContainsFunc(old.Spec.Usages, unknown) {
		for i, u := range r.Spec.Usages {
			if unknown(u) {
				c.Add(field.NotSupported(spec.Child("usages").Index(i), u, slices.Sorted(slices.Values(keyUsages))))
			}
		}
	}
	if old == nil || !twice(old.Spec.Usages) {
		known := rules.Earlier[certificatesv1.KeyUsage]{}
		for i, u := range r.Spec.Usages {
			c.Twice(known.Had(u), spec.Child("usages").Index(i), u)
		}
	}
	switch signer := spec.Child("signerName"); {
	case r.Spec.SignerName != legacySigner:
		c.Add(ValidateSignerName(signer, r.Spec.SignerName)...)
	case old == nil || old.Spec.SignerName != legacySigner:
		c.Add(field.Invalid(signer, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minRequestSeconds {
		c.Add(field.Invalid(spec.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	c.Add(validateRequestConditions(r, old)...)
	unchanged := old != nil && (bytes.Equal(r.Status.Certificate, old.Status.Certificate) || checkCertificates(old.Status.Certificate) != nil)
	if err := checkCertificates(r.Status.Certificate); err != nil && !unchanged {
		c.Add(field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
	}
	if old != nil {
		c.Add(validateRequestUpdate(r, old, subresource)...)
	}
	if isBoth(r) && (old == nil || !isBoth(old)) {
		c.Add(field.Invalid(field.NewPath("status", "conditions"), `{conditions[{"type": "Approved"}], conditions[{"type": "Denied"}]}`,
			"must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \"Denied\"}]`"))
	}
	return c.Errs
}

// isBoth tells whether a request is approved as well as denied.
func isBoth(r *certificatesv1.CertificateSigningRequest) bool {
	return len(ofType(r, certificatesv1.CertificateApproved)) > 0 && len(ofType(r, certificatesv1.CertificateDenied)) > 0
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

// finalConditions are True, and stay.
var finalConditions = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}

func validateRequestConditions(r, old *certificatesv1.CertificateSigningRequest) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	nameless, repeated := false, false // in the stored one
	if old != nil {
		nameless = len(ofType(old, "")) > 0
		for _, c := range old.Status.Conditions {
			repeated = repeated || len(ofType(old, c.Type)) > 1
		}
	}
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		if c.Type == "" && !nameless {
			errs = append(errs, field.Required(at.Index(i).Child("type"), ""))
		}
		states := []string{"False", "True", "Unknown"}
		if slices.Contains(finalConditions, c.Type) {
			states = []string{"True"}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Index(i).Child("status"), ""))
		case !slices.Contains(states, string(c.Status)):
			errs = append(errs, field.NotSupported(at.Index(i).Child("status"), c.Status, states))
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
	for _, kind := range finalConditions {
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
func validateTrustBundle(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	c := &rules.Check{}
	spec := field.NewPath("spec")
	if b.GenerateName != "" {
		c.Texts(field.NewPath("metadata", "generateName"), b.GenerateName, TrustBundleName(b.Spec.SignerName, b.GenerateName, true))
	}
	if b.Name != "" {
		c.Texts(field.NewPath("metadata", "name"), b.Name, TrustBundleName(b.Spec.SignerName, b.Name, false))
	}
	if b.Spec.SignerName != "" {
		c.Add(ValidateSignerName(spec.Child("signerName"), b.Spec.SignerName)...)
	}
	if old == nil || b.Spec.TrustBundle != old.Spec.TrustBundle {
		c.Add(validateAnchors(spec.Child("trustBundle"), b.Spec.TrustBundle)...)
	}
	if old != nil {
		c.Add(apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, spec.Child("signerName"))...)
	}
	return c.Errs
}

// TrustBundleName says what is wrong with a bundle's name: that of a signer's begins with the signer's.
func TrustBundleName(signer, name string, prefix bool) []string {
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

// prepareRequest notes who asks for a certificate, and keeps what is asked for.
func (s signers) prepareRequest(ctx context.Context, obj, before registry.Typed, subresource string) {
	r := obj.(*certificatesv1.CertificateSigningRequest)
	if old, ok := before.(*certificatesv1.CertificateSigningRequest); ok && old != nil {
		r.Spec = old.Spec
		if subresource == "status" { // approving is what the subresource approval is for
			keepConditions(r, old, certificatesv1.CertificateApproved)
			keepConditions(r, old, certificatesv1.CertificateDenied)
		}
		if subresource != "" {
			dateConditions(r.Status.Conditions, old.Status.Conditions, metav1.NewTime(s.clock.Now()))
		}
		return
	}
	who := registry.UserFrom(ctx)
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = who.GetName(), who.GetUID(), who.GetGroups(), nil
	for key, values := range who.GetExtra() {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[key] = values
	}
}

// keepConditions leaves a request's conditions of a type as they are, if a write has as many of them. Another number is refused.
func keepConditions(r, old *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	before := ofType(old, kind)
	if len(before) != len(ofType(r, kind)) {
		return
	}
	for i, c := range r.Status.Conditions {
		if c.Type == kind {
			r.Status.Conditions[i], before = before[0], before[1:]
		}
	}
}

// dateConditions sets the times that a writer of conditions has left out: a condition that was there with the same status keeps that
// of its transition.
func dateConditions(conditions, old []certificatesv1.CertificateSigningRequestCondition, now metav1.Time) {
	for i := range conditions {
		c := &conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		same := func(o certificatesv1.CertificateSigningRequestCondition) bool {
			return o.Type == c.Type && o.Status == c.Status && !o.LastTransitionTime.IsZero()
		}
		if was := slices.IndexFunc(old, same); was >= 0 {
			c.LastTransitionTime = old[was].LastTransitionTime
		}
	}
}

// requestParts are the parts of a signing request with paths of their own.
var requestParts = []registry.Subresource{{
	Name: "approval", Verbs: []string{"get", "patch", "update"}, Metadata: true, Reset: []string{"spec", "status.certificate"},
	Select: func(next, in map[string]any) { line.Carry(next, in, "status", "conditions") },
}}

func requestColumns() []registry.Column {
	doc := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return []registry.Column{
		column.Age(),
		column.Text("SignerName", "spec.signerName", doc["signerName"]),
		column.Text("Requestor", "spec.username", doc["request"]),
		column.Cell("RequestedDuration", doc["expirationSeconds"], func(o any) any {
			if s := column.At(o, "spec.expirationSeconds"); s != nil {
				return duration.HumanDuration(time.Duration(column.Num(s)) * time.Second)
			}
			return column.None
		}),
		column.Cell("Condition", certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"], func(o any) any {
			has := func(kind certificatesv1.RequestConditionType) bool {
				return slices.ContainsFunc(column.AsList(column.At(o, "status.conditions")), func(c any) bool { return column.At(c, "type") == string(kind) })
			}
			all := []string{"Pending"}
			if has(certificatesv1.CertificateDenied) {
				all[0] = "Denied"
			} else if has(certificatesv1.CertificateApproved) {
				all[0] = "Approved"
			}
			if has(certificatesv1.CertificateFailed) {
				all = append(all, "Failed")
			}
			if column.Str(column.At(o, "status.certificate")) != "" {
				all = append(all, "Issued")
			}
			return strings.Join(all, ",")
		}),
	}
}

func trustBundleColumns() []registry.Column {
	return []registry.Column{column.OrNone("SignerName", "spec.signerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"])}
}

// podCertificateColumns show the last state that a request got into.
func podCertificateColumns() []registry.Column {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return []registry.Column{
		column.Text("PodName", "spec.podName", doc["podName"]),
		column.Text("ServiceAccountName", "spec.serviceAccountName", doc["serviceAccountName"]),
		column.Text("NodeName", "spec.nodeName", doc["nodeName"]),
		column.Text("SignerName", "spec.signerName", doc["signerName"]),
		column.Cell("State", "Is the request Pending, Issued, Denied, or Failed?", func(o any) any {
			state := "Pending"
			for _, c := range column.AsList(column.At(o, "status.conditions")) {
				switch kind := column.Str(column.At(c, "type")); kind {
				case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
					state = kind
				}
			}
			return state
		}),
		column.Cell("UnverifiedUserAnnotations", doc["unverifiedUserAnnotations"], func(o any) any { return column.LabelsText(column.At(o, "spec.unverifiedUserAnnotations")) }),
	}
}
