// Package clip shortens what others wrote before it is repeated in an error message or a log line. So a message
// stays small whatever came in, and is valid UTF-8.
package clip

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MaxBytes is how much Text keeps of a text, in bytes: enough to recognise it.
const MaxBytes = 1024

// Text keeps at most MaxBytes of a text.
func Text(s string) string { return To(s, MaxBytes) }

// To keeps at most so many bytes of a text. If there was more, three dots follow, which aren't counted.
func To(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// Whole keeps a text of at most so many bytes, and MaxBytes of a longer one.
func Whole(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Text(s)
}

// Value keeps a value that a field error quotes if its text has at most so many bytes, and MaxBytes of the text of others. A value that is
// kept has its type, because that decides how it is printed.
func Value(v any, most int) any {
	switch v := v.(type) {
	case nil, bool, int, int32, int64, float64, *bool, *int32, *int64:
		return v
	case string:
		return Whole(v, most)
	}
	// What Kubernetes' types print themselves takes time with the square of a map's length, and has addresses in memory.
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Appendf(nil, "%v", v)
	}
	if len(text) > max(most, MaxBytes) {
		return Text(string(text))
	}
	return v
}
