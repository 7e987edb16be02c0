package registry

import (
	"encoding/base64"
	"encoding/json"
)

// Token says where a page of a list begins, in the form of kube-apiserver's tokens. It isn't signed, and the server
// remembers nothing for it. That is safe: whatever a client makes up, it names a place in the collection that it lists.
type Token struct {
	Version string `json:"v"`
	// Revision is that of all pages, or negative for the newest there is.
	Revision int64 `json:"rv"`
	// Start is the key from which the page goes on, relative to the collection.
	Start string `json:"start"`
}

const (
	TokenVersion = "meta.k8s.io/v1"
	// newest is the revision of a token whose page needn't be of one revision with those before.
	newest = -1
)

func (t Token) String() string {
	t.Start = "/" + t.Start
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
