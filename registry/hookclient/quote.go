package hookclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
)

// maxQuoted bounds, in bytes, the message of a webhook, or a certificate's names, in an error.
const maxQuoted = 1024

// WithoutValues returns an error of decoding JSON without what was decoded, which encoding/json quotes.
func WithoutValues(err error) error {
	if isSyntax, offset := kjson.SyntaxErrorOffset(err); isSyntax {
		return fmt.Errorf("it's not valid JSON at byte %d", offset)
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("%s has the wrong type", wrong.Field)
	}
	return errors.New("it has the wrong type")
}

// Quote returns what others wrote so that it fits into an error.
func Quote(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
}
