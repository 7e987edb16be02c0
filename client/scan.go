package client

import (
	"bytes"
	"encoding/json"
	"iter"
)

// What is needed of a document before, or without, decoding it: members of objects, and elements of arrays, as bytes.
// Documents that don't parse have fewer members; decoding them finds the error.

// members yields the members of a JSON object: the key as it's written between its quotes, and the value.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := space(object, 0)
		if i >= len(object) || object[i] != '{' {
			return
		}
		for i++; ; i++ {
			i = space(object, i)
			if i >= len(object) || object[i] != '"' {
				return
			}
			end := skip(object, i)
			if end < 0 {
				return
			}
			key := object[i+1 : end-1]
			if i = space(object, end); i >= len(object) || object[i] != ':' {
				return
			}
			i = space(object, i+1)
			if end = skip(object, i); end < 0 || !yield(key, object[i:end]) {
				return
			}
			if i = space(object, end); i >= len(object) || object[i] != ',' {
				return
			}
		}
	}
}

// elements yields the elements of a JSON array.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := space(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		for i++; ; i++ {
			i = space(array, i)
			end := skip(array, i)
			if end < 0 || !yield(array[i:end]) {
				return
			}
			if i = space(array, end); i >= len(array) || array[i] != ',' {
				return
			}
		}
	}
}

// member returns the value of a member of a JSON object, nil if it isn't there.
func member(object []byte, name string) []byte {
	for key, value := range members(object) {
		if string(key) == name {
			return value
		}
	}
	return nil
}

// text returns the string that a JSON value is, "" if it's something else.
func text(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	if plain := value[1 : len(value)-1]; bytes.IndexByte(plain, '\\') < 0 {
		return string(plain)
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// space returns where the white space that begins at i ends.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns where the JSON value that begins at i ends, -1 if it doesn't.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	end := i
	for end < len(b) && b[end] != ',' && b[end] != '}' && b[end] != ']' && b[end] > ' ' {
		end++
	}
	if end == i {
		return -1
	}
	return end
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func skipNested(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}
