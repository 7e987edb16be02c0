package devices

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// mayWriteClaimStatus asks for the rights that a change of a ResourceClaim's status needs besides that to its status: to bind, for
// who has it and what it has, and for a driver's devices to speak for the driver. Source: KEP-4817, and the feature
// DRAResourceClaimGranularStatusAuthorization.
func (o judge) mayWriteClaimStatus(ctx context.Context, c *check, claim, old *resourcev1.ResourceClaim) {
	if o.authorizer == nil {
		return
	}
	at, is, was := field.NewPath("status"), &claim.Status, &old.Status
	asks := authorizer.AttributesRecord{
		User: registry.UserFrom(ctx), Verb: registry.VerbFrom(ctx),
		APIGroup: resourceGroup, APIVersion: "v1", Resource: "resourceclaims", ResourceRequest: true,
	}
	if !equality.Semantic.DeepEqual(is.Allocation, was.Allocation) || !equality.Semantic.DeepEqual(is.ReservedFor, was.ReservedFor) {
		asks := asks
		asks.Subresource = resourcev1.SubresourceBinding
		if err := o.authorizer.Ask(ctx, asks); err != nil {
			c.Add(field.Forbidden(at.Child("allocation"),
				fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, asks.Verb, err)))
		}
	}
	if is.Allocation == nil { // then the devices go
		return
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + asks.Verb}
	if node := allocatedNode(is.Allocation); node != "" && node == nodeOf(asks.User) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+asks.Verb)
	}
	asks.Subresource, asks.Namespace = resourcev1.SubresourceDriver, claim.Namespace
	changed := changedDrivers(is, was)
	if most := 2 * resourcev1.AllocationResultsMaxSize; len(changed) > most { // more than two allocations can have: each is a question
		c.Add(field.TooMany(at.Child("devices"), len(changed), most))
		return
	}
	for _, driver := range changed {
		asks.Name = driver
		var refused error
		for _, verb := range verbs {
			asks.Verb = verb
			err := o.authorizer.Ask(ctx, asks)
			if err == nil {
				refused = nil
				break
			}
			if refused == nil {
				refused = err
			}
		}
		if refused != nil {
			c.Add(field.Forbidden(at.Child("devices"), fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, refused)))
		}
	}
}

// changedDrivers are the drivers of which a device's status is new, changed or gone, sorted.
func changedDrivers(is, was *resourcev1.ResourceClaimStatus) []string {
	before, changed := map[deviceID]*resourcev1.AllocatedDeviceStatus{}, sets.New[string]()
	for i := range was.Devices {
		before[idOf(was.Devices[i])] = &was.Devices[i]
	}
	for i := range is.Devices {
		d := &is.Devices[i]
		if old := before[idOf(*d)]; old == nil || !equality.Semantic.DeepEqual(old, d) {
			changed.Insert(d.Driver)
		}
		delete(before, idOf(*d))
	}
	for gone := range before {
		changed.Insert(gone.Driver)
	}
	return sets.List(changed)
}

// allocatedNode is the one node at which a claim's devices are; "" if they're elsewhere, too, or anywhere.
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// nodeOf is the node of a ServiceAccount whose token is bound to one; "" for other users.
func nodeOf(u user.Info) string {
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return ""
	}
	if nodes := u.GetExtra()[serviceaccount.NodeNameKey]; len(nodes) == 1 {
		return nodes[0]
	}
	return ""
}
