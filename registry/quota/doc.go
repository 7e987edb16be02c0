// Package quota knows what counts against a ResourceQuota: objects, by their number. The admission plug-in that charges new
// objects and the controller that counts those there are share it.
//
// What it counts are count/<resource>[.<group>] for every resource with namespaces, and the names that Kubernetes
// had before: pods, services (with services.nodeports and services.loadbalancers), configmaps, secrets,
// persistentvolumeclaims, replicationcontrollers, resourcequotas. Other names, such as requests.cpu, aren't
// counted, and so they limit nothing.
//
// The package starts no goroutine. Ledger.mu is a leaf. A Ledger has as many charges as writes are under way.
package quota
