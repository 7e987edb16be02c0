// Package webhook calls admission webhooks: those of MutatingWebhookConfigurations, which may change objects, and those of
// ValidatingWebhookConfigurations, which only judge them. What is sent, what is checked, and the words of errors are
// Kubernetes'.
//
// The configurations are read from the caches (registry.Derive), as what is derived from all of them: the webhooks in the
// order of their configurations' names. Which webhooks a path can concern at all is remembered for each path, so a write
// that concerns none costs one look-up.
//
// Mutating webhooks are called one after the other, each with the object as the one before it left it. Validating ones
// are called at once; the first refusal, in their order, is answered. A webhook that can't be called, or that answers
// nonsense, another uid, a patch that doesn't apply, too much, too late or with a redirect, has failed: its failurePolicy says whether the request fails, too.
//
// # Goroutines and locks
//
// A validation starts a goroutine for each webhook that it calls, and waits for them. Webhooks of configurations that were
// replaced are closed by goroutines for which Close waits. Under clients.mu a client's own lock is taken (Begin), and nothing
// is waited for. Under Metrics.mu Prometheus takes its own.
//
// # Bounds
//
// For each call timeoutSeconds (30 s at most) and the request's own deadline, the answer (maxAnswer), what is repeated of its message
// (maxMessage); for each webhook the calls at once (maxCalls). See package hookclient for connections and addresses.
package webhook
