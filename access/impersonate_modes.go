package access

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// mode is a way in which impersonation may be allowed.
type mode struct {
	name string
	fits func(wanted, by user.Info) bool // whether it's for such users; nil: for all
}

// ownNode is the mode of a ServiceAccount that acts as the node on which its pod runs.
const ownNode = "associated-node"

// modes are those of Kubernetes (KEP-5284), in the order in which they're tried. Those with a name ask for two rights: to
// be taken for somebody (impersonate:MODE), and to do that for a request like this one (impersonate-on:MODE:VERB). The last
// one is Kubernetes' first, the verb impersonate.
var modes = []mode{
	{ownNode, func(wanted, by user.Info) bool { return onlyNamed(wanted) && runsOn(by, wanted.GetName()) }},
	{"arbitrary-node", func(wanted, _ user.Info) bool { return onlyNamed(wanted) && isNode(wanted.GetName()) }},
	{"serviceaccount", func(wanted, _ user.Info) bool { return onlyNamed(wanted) && isServiceAccount(wanted.GetName()) }},
	{"user-info", func(wanted, _ user.Info) bool {
		return !isNode(wanted.GetName()) && !isServiceAccount(wanted.GetName())
	}},
	{},
}

// onlyNamed tells whether nothing but a user's name is wanted: the groups of nodes and of ServiceAccounts are known.
func onlyNamed(u user.Info) bool {
	return u.GetUID() == "" && len(u.GetGroups()) == 0 && len(u.GetExtra()) == 0
}

// nodeOf returns the node that has a user's name.
func nodeOf(name string) (node string, ok bool) {
	node, ok = strings.CutPrefix(name, NodeUserPrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

func isNode(name string) bool {
	_, ok := nodeOf(name)
	return ok
}

func isServiceAccount(name string) bool {
	_, _, err := serviceaccount.SplitUsername(name)
	return err == nil
}

// runsOn tells whether a user is a ServiceAccount whose token says that its pod runs on the node of a name.
func runsOn(by user.Info, name string) bool {
	node, ok := nodeOf(name)
	at := by.GetExtra()[serviceaccount.NodeNameKey]
	return ok && isServiceAccount(by.GetName()) && len(at) == 1 && at[0] == node
}

// validExtra returns what is wrong with something extra; the verb impersonate takes it nevertheless.
func validExtra(key string, values []string) error {
	const refused = "impersonating %s in extra is not allowed"
	if key == "" {
		return fmt.Errorf(refused, "the empty string key")
	}
	if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
		return fmt.Errorf(refused+": %w", "an invalid key", err)
	}
	switch {
	case key != strings.ToLower(key):
		return fmt.Errorf(refused+": %q", "a non-lowercase key", key)
	case len(values) == 0:
		return fmt.Errorf(refused, "empty values")
	case slices.Contains(values, ""):
		return fmt.Errorf(refused, "the empty string value")
	}
	return nil
}
