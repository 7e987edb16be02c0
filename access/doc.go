// Package access tells who a request comes from, and what that user may do.
//
// AttributesOf reads what a request asks for from its method and path. RBAC decides about it, by rules that are stored as
// objects: it looks the user and the groups up in an index, which is made anew after one of those objects has changed.
// Bootstrap writes the rules that every cluster of Kubernetes has. MayGrant keeps users from giving what they don't have.
package access
