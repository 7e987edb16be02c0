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

// Value clips a value that a field error quotes to so many bytes, MaxBytes or more. Smaller values keep their type, because it decides
// how they are printed.
func Value(v any, most int) any {
	switch v := v.(type) {
	case nil, bool, int, int32, int64, float64, *bool, *int32, *int64:
		return v
	case string:
		return To(v, most)
	}
	// What Kubernetes' types print themselves takes time with the square of a map's length, and has addresses in memory.
	if text, err := json.Marshal(v); err == nil {
		if len(text) > most {
			return To(string(text), most)
		}
		return v
	}
	if s := fmt.Sprintf("%v", v); len(s) > most {
		return To(s, most)
	}
	return v
}
