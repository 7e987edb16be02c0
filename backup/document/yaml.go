// Package document reads and writes objects as YAML: streams of documents, each with an object in it, in a form that is the same for equal
// objects. It knows in which order kinds are applied, and what of an object the server sets. It starts no goroutine.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Object is an object as encoding/json has it, with numbers as json.Number.
type Object = map[string]any

// Decode reads an object's JSON.
func Decode(text []byte) (o Object, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&o)
	return o, err
}

// Append appends the object to a stream, as a document of its own. Members have the order of their names. Strings of several lines
// are blocks, so that they can be read, and that a comparison by lines shows what has changed.
func Append(to []byte, o Object) []byte {
	to = append(to, "---\n"...)
	if len(o) == 0 {
		return append(to, "{}\n"...)
	}
	return appendMap(to, o, 0, false)
}

// appendValue appends what follows a name or the dash of a list: on the same line what fits there. within is the indentation of the
// mapping or list that it's in.
func appendValue(to []byte, v any, within int, inList bool) []byte {
	switch v := v.(type) {
	case map[string]any:
		switch {
		case len(v) == 0:
			return append(to, " {}\n"...)
		case inList:
			return appendMap(append(to, ' '), v, within+2, true)
		}
		return appendMap(append(to, '\n'), v, within+2, false)
	case []any:
		switch {
		case len(v) == 0:
			return append(to, " []\n"...)
		case inList:
			return appendList(append(to, ' '), v, within+2, true)
		}
		return appendList(append(to, '\n'), v, within, false)
	case string:
		if block, ok := appendBlock(to, v, within+2); ok {
			return block
		}
		return append(appendString(append(to, ' '), v), '\n')
	}
	return append(appendScalar(append(to, ' '), v), '\n')
}

// appendMap appends a mapping. begun says that its first line has its indentation already.
func appendMap(to []byte, m map[string]any, indent int, begun bool) []byte {
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 || !begun {
			to = appendSpaces(to, indent)
		}
		start := len(to)
		if to = appendString(to, name); len(to)-start > maxSimpleKey {
			to = slices.Insert(to, start, '?', ' ')
			to = appendSpaces(append(to, '\n'), indent)
		}
		to = appendValue(append(to, ':'), m[name], indent, false)
	}
	return to
}

// maxSimpleKey is how long a name may be that stands before a colon, in bytes. YAML says 1024 characters, and a reader may count them in its own way.
const maxSimpleKey = 1000

func appendList(to []byte, list []any, indent int, begun bool) []byte {
	for i, v := range list {
		if i > 0 || !begun {
			to = appendSpaces(to, indent)
		}
		to = appendValue(append(to, '-'), v, indent, true)
	}
	return to
}

func appendSpaces(to []byte, n int) []byte {
	for range n {
		to = append(to, ' ')
	}
	return to
}

func appendScalar(to []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(to, "null"...)
	case bool:
		return strconv.AppendBool(to, v)
	case json.Number:
		return appendNumber(to, v)
	}
	panic(fmt.Sprintf("a value of type %T, which no JSON is decoded into", v))
}

// appendNumber appends a number as encoding/json writes its value, so that equal numbers look alike.
func appendNumber(to []byte, n json.Number) []byte {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return strconv.AppendInt(to, i, 10)
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return strconv.AppendUint(to, u, 10)
	}
	f, err := n.Float64()
	if err != nil {
		return append(to, n...) // too large for a float, and no server takes it
	}
	text, _ := json.Marshal(f) // of a finite number can't fail
	return append(to, text...)
}

// appendString appends a string that takes one line: as it is if every reader takes that for a string, else in quotes.
func appendString(to []byte, s string) []byte {
	if plain(s) {
		return append(to, s...)
	}
	to = append(to, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r == '\n':
			to = append(to, `\n`...)
		case r == '\t':
			to = append(to, `\t`...)
		case r == '\r':
			to = append(to, `\r`...)
		case unicode.IsPrint(r):
			to = utf8.AppendRune(to, r)
		case r <= 0xffff:
			to = fmt.Appendf(to, `\u%04x`, r)
		default:
			to = fmt.Appendf(to, `\U%08x`, r)
		}
	}
	return append(to, '"')
}

// words are what readers of YAML 1.1 or 1.2 take for something else than strings, in small letters.
var words = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

// plain tells whether a string needs no quotes: it begins with a letter or a slash, is no word of YAML's, and has nothing that means
// something to YAML.
func plain(s string) bool {
	if s == "" || slices.Contains(words, strings.ToLower(s)) {
		return false
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '/' || r >= utf8.RuneSelf && unicode.IsLetter(r)
		switch {
		case letter:
		case i == 0:
			return false
		case r == ':' && (i+1 == len(s) || s[i+1] == ' '), r == ' ' && i+1 == len(s):
			return false
		case !strings.ContainsRune(" 0123456789.-_:@+=,;()%$*<>&!?|~'", r):
			return false
		}
	}
	return true
}

// appendBlock appends a string of several lines as a block, if it can be one: it has nothing that must be escaped, and begins with
// something that is seen, because the indentation is told by that.
func appendBlock(to []byte, s string, indent int) ([]byte, bool) {
	if first := s + "\n"; !strings.Contains(s, "\n") || first[0] == ' ' || first[0] == '\t' || first[0] == '\n' {
		return nil, false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return nil, false
		}
	}
	switch {
	case !strings.HasSuffix(s, "\n"):
		to = append(to, " |-\n"...)
	case strings.HasSuffix(s, "\n\n"):
		to = append(to, " |+\n"...)
	default:
		to = append(to, " |\n"...)
	}
	for line := range strings.Lines(s) {
		if line != "\n" {
			to = appendSpaces(to, indent)
		}
		to = append(to, line...)
	}
	if !strings.HasSuffix(s, "\n") {
		to = append(to, '\n')
	}
	return to, true
}
