// Package admission is what has a say about clients' writes besides the rules of their kinds: built-in plug-ins, policies and
// webhooks, in Kubernetes' order.
//
// A Chain is one hook of the registry's. When an object is to be written, its Admit asks the plug-ins that change objects,
// one after the other: the built-in ones, then mutating policies, then mutating webhooks. If a policy or a webhook has changed
// the object, there's a second round, in which the built-in plug-ins are asked again, and of policies and webhooks those whose
// reinvocation policy is IfNeeded. There's no third round, so rules that undo each other end. Then the registry validates the object, and Validate asks
// those that only judge: policies, then webhooks, then quotas.
//
// At the subresource scale the chain shows a Scale instead of the whole object, as Kubernetes does.
//
// The packages below have one sort of plug-in each: match has the rules by which webhooks and policies choose requests, webhook
// calls webhooks, policy evaluates policies, and plugins has the built-in ones. plugins.go lists all plug-ins of Kubernetes'.
//
// The package starts no goroutine. Close waits for those of plug-ins.
package admission
