// Package quota knows what counts against a ResourceQuota, as Kubernetes' evaluators do. The admission plug-in that charges
// objects and the controller that counts those there are share it.
//
// What it counts: count/<resource>[.<group>] for every resource with namespaces; pods, services (with services.nodeports and
// services.loadbalancers), configmaps, secrets, persistentvolumeclaims, replicationcontrollers, resourcequotas; what pods request
// and are limited to, of processor, memory, ephemeral storage, huge pages and extended resources (pods.go); storage, and claims,
// together and by storage class; devices of ResourceClaims by device class, and as the extended resources that their classes
// stand for (devices.go). Scopes say which pods and claims count.
//
// The package starts no goroutine. Ledger.mu is a leaf. A Ledger has as many charges as writes are under way.
package quota
