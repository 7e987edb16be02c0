// Package quota knows what counts against a ResourceQuota: objects, by their number. The admission plug-in that charges new
// objects and the controller that counts those there are share it.
//
// What it counts are count/<resource>[.<group>] for every resource with namespaces, and the names that Kubernetes
// had before: pods, services (with services.nodeports and services.loadbalancers), configmaps, secrets,
// persistentvolumeclaims, replicationcontrollers, resourcequotas. Other names, such as requests.cpu, aren't
// counted, and so they limit nothing.
//
// Ledger.Begin notes the end of a request by context.AfterFunc: on a goroutine that takes Ledger.mu and ends at once, and for
// which nobody waits. The package starts no other. Ledger.mu is a leaf.
package quota
