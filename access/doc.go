// Package access tells who a request comes from, and what that user may do.
//
// An Authenticator looks at what a request shows: a front proxy's headers, a client certificate, a bearer token. The first that is
// right counts, and its error says what's wrong with all of them, for the log. Accounts issues the tokens of ServiceAccounts
// and knows them again. Impersonate makes the user another one, if the rules allow that: each of its modes asks for
// other rights.
//
// AttributesOf reads what a request asks for from its method and path. RBAC decides about it, by rules that are stored as
// objects: it looks the user and the groups up in an index, which is made anew after one of those objects has changed.
// Bootstrap writes the rules that every cluster of Kubernetes has. MayGrant keeps users from giving what they don't have.
//
// # Goroutines
//
// Each OIDC issuer has one until it has answered where its keys are, or Close. A file of --authentication-config has one, which
// reads it again, and one for each file that it has replaced in the last 30 s (issuerTimeout); Close waits for them. Bootstrap uses at most bootstrapAtOnce, and waits for them. Everything else runs in its caller's.
//
// # Locks
//
// An authorities' mutex is held while its file is read. A memo's is held for a look into a map. RBAC.making is held
// while an index is made, and under it only the lock of a registry.Derived and those of the cacher are taken.
// RBAC.bootstrapping is held during writes, and writer.mu guards which of them was the last. The mutex of onceDone is held while
// the keys of ServiceAccounts are read. No other lock is taken while one is held.
//
// # Bounds
//
// A bearer token has 64 KiB (maxToken). What signatures have proven is remembered for 4,096 credentials of each kind
// (maxVerified). A file counts as read for a second (rereadAfter). A file of --authentication-config has
// 1 MiB (maxConfiguration), and its issuers have 30 s to answer when it has changed (issuersWait). The index grows with the rules and bindings that are stored. A request to an issuer takes 30 s (issuerTimeout).
package access
