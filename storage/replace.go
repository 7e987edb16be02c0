package storage

// ReplacedKey is written by each Replace, as the last key of its revision. It belongs to no object. Whoever follows the
// changes knows by it that the revision is a Replace and no write of single objects.
const ReplacedKey = Own + "replaced"

// Replacement is what a Replace writes. No key may be in it twice.
type Replacement struct {
	Puts    []KeyValue // the Revision of each means nothing
	Deletes []Span
}

// Span is the keys with First <= key <= Last.
type Span struct{ First, Last string }
