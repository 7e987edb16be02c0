// Package certificates has the group certificates.k8s.io: CertificateSigningRequests, ClusterTrustBundles and PodCertificateRequests.
package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const certificatesGroup = "certificates.k8s.io"

// Kinds are the lines of the table.
func Kinds(may authorizer.UnconditionalAuthorizer, c *clock.Clock) []registry.Type {
	s := signers{may, c}
	return []registry.Type{
		{Names: line.Names(certificatesGroup, "v1", "CertificateSigningRequest", "csr"), New: line.New[certificatesv1.CertificateSigningRequest], ClusterScoped: true, Status: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, Resets: []string{"spec"}, StatusResets: []string{"spec", "status.conditions"}},
			Selection: registry.Selection{Fields: []string{"spec.signerName"}}, Columns: requestColumns, Parts: registry.Parts{Own: requestParts}, ValidName: rules.PathSegment,
			Prepare: s.prepareRequest, Validate: validateRequest},
		{Names: line.Names(certificatesGroup, "v1", "ClusterTrustBundle"), New: line.New[certificatesv1.ClusterTrustBundle], ClusterScoped: true,
			Stored: registry.Stored{In: "v1beta1"}, Strategy: registry.Strategy{NoGeneration: true},
			Selection: registry.Selection{Fields: []string{"spec.signerName"}}, ValidName: rules.JudgedLater, Columns: trustBundleColumns, Validate: line.Rules(validateTrustBundle)},
		{Names: line.Names(certificatesGroup, "v1", "PodCertificateRequest"), New: line.New[certificatesv1.PodCertificateRequest], Status: true,
			Stored: registry.Stored{In: "v1beta1"}, Strategy: registry.Strategy{NoGeneration: true},
			Selection: registry.Selection{Fields: []string{"spec.signerName", "spec.podName", "spec.nodeName"}, NoNamespace: true}, Columns: podCertificateColumns, Default: line.Set(defaultPodCertificateRequest), Validate: s.validatePodCertificate},
	}
}
