// Package transaction has several writes done in one revision, each of which is decided by an operation of its own.
//
// An operation is a write as any other, up to the moment at which it would be stored. There it puts what it would write into the
// transaction (Create, Update, Delete, Keep) and waits. Then it's the next one's turn (InTurn), which finds what those before it have put
// there (Pending). A few have begun before their turn, and have read what they need by then. When all of them wait, everything is written at once, and each goes on with the revision. Where somebody else has written
// first, the operations that this concerns are told so, as a single write would be, and decide again. If an operation fails, nothing is
// written, and those that wait are told (ErrAborted).
//
// Goroutines: Run starts one for each operation, and waits for all of them. Locks: that of a Transaction, a leaf.
package transaction
