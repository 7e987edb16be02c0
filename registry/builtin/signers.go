package builtin

import (
	"context"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// maySign asks for the verb sign on the signer of a PodCertificateRequest whose status is written. Of
// CertificateSigningRequests, an admission plug-in asks for it.
func (o Options) maySign(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	if o.Authorizer == nil || subresource != "status" {
		return nil
	}
	before := old.(*certificatesv1.PodCertificateRequest)
	if equality.Semantic.DeepEqual(obj.(*certificatesv1.PodCertificateRequest).Status, before.Status) {
		return nil
	}
	who, signer := registry.UserFrom(ctx), before.Spec.SignerName
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := o.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: "sign", Name: name, APIGroup: certificatesGroup, APIVersion: "*", Resource: "signers", ResourceRequest: true,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return nil
		}
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"), fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", who.GetName(), signer))}
}
