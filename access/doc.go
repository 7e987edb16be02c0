// Package access tells who a request comes from, and what that user may do.
//
// An Authenticator looks at what a request shows: a front proxy's headers, a client certificate, a bearer token. The first that is
// right counts, and its error says what's wrong with all of them, for the log. Accounts issues the tokens of ServiceAccounts
// and knows them again. Impersonate makes the user another one, if the rules allow that: each of its modes asks for
// other rights.
//
// AttributesOf reads what a request asks for from its method and path. RBAC decides about it, by rules that are stored as
// objects: it looks the user and the groups up in an index. After one of those objects has changed, the next index is made of the one
// before, with which it shares what didn't change. With the Node authorizer (nodes.go), a decision about a kubelet decodes the pods of its node.
// Bootstrap writes the rules that every cluster of Kubernetes has. MayGrant keeps users from giving what they don't have.
//
// # Goroutines
//
// Each OIDC issuer has one until it has answered where its keys are, or Close. A file of --authentication-config has one, which
// reads it again, and one for each file that it has replaced in the last 30 s (issuerTimeout); Close waits for them. Bootstrap uses at most bootstrapAtOnce, and waits for them. Everything else runs in its caller's.
//
// # Locks
//
// Under RBAC.making, which is held while an index is made, the lock of a registry.Derived is taken and then the cacher's. Under
// RBAC.bootstrapping those of writes are, and writer.mu, which guards which of them was the last. The other locks are leaves. Two
// are held while something is read: that of an authorities (its file), and that of onceDone (the keys of ServiceAccounts, from
// the store, for at most 5 s).
//
// # Bounds
//
// A bearer token has 64 KiB (maxToken). What signatures have proven is remembered for 4,096 credentials of each kind
// (maxVerified). A file counts as read for a second (rereadAfter). A file of --authentication-config has
// 1 MiB (maxConfiguration), and its issuers have 30 s to answer when it has changed (issuersWait). The index grows with the rules and bindings that are stored. It has
// numbers of at most twice as many roles as there are objects, and 1,024 (spareNumbers). A request to an issuer takes 30 s (issuerTimeout).
package access
