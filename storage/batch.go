package storage

// Batch is what a Store's Commit writes, and under what. No key may be written twice in it.
type Batch struct {
	Conditions []Condition // of which all must hold
	Writes     []Write     // in the order in which their changes come
	Touched    []string    // keys that belong to no object, and only get the batch's revision
}

// Write is what is done to one key.
type Write struct {
	Key     string
	Value   []byte
	Removed bool // the key is removed, and Value means nothing
}

// TransactionKey is written by each Commit of several writes, unless all are deletions and there's no space for it. Its value is the author
// (WithAuthor). It belongs to no object. Whoever wants the changes of a revision that history doesn't have any more learns by it whether that may
// have been a transaction.
const TransactionKey = Own + "transaction"
