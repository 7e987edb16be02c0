// Package system makes what kube-apiserver makes for itself, and keeps it as kube-apiserver does: namespaces, the Service
// default/kubernetes with its Endpoints and EndpointSlices, the ServiceCIDR and the IPAddresses of Services, PriorityClasses,
// APIServices, FlowSchemas and PriorityLevelConfigurations, the Lease by which the server is known, and the ConfigMaps of
// kube-system. Roles and their bindings are package access's.
//
// Duties returns all of that as a list for package controllers, which does it after the start, again when somebody changes
// what matters to it, and at kube-apiserver's intervals. Whatever isn't served isn't made. Labels, annotations, managedFields
// and intervals are those of kube-apiserver 1.37.
//
// What differs: with several servers over one store, one does all of it. So there is one Lease.
//
// Files: addresses.go has Services, their addresses and Endpoints; apiservices.go, flowcontrol.go, authentication.go and
// lease.go what they are named after; objects.go how objects are read and written.
//
// The package starts no goroutine, and has no lock. What it keeps in memory is bounded by what kube-apiserver makes.
package system
