package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"unicode/utf8"
)

// What is needed of a document before, or without, decoding it: members of objects, and elements of arrays, as bytes. How
// they're put together is checked; each value is only looked at as far as it takes to find its end. Whoever decodes, or asks
// json.Valid of, all keys and values knows that the document is JSON. FuzzScan compares with encoding/json.

// errObject and errArray say that a document isn't put together as JSON is.
var (
	errObject = errors.New("no JSON object")
	errArray  = errors.New("no JSON array")
)

// scanObject gives the members of a JSON object to yield, until that returns false: the key as it's written, with its quotes,
// and the value.
func scanObject(object []byte, yield func(key, value []byte) bool) error {
	i := space(object, 0)
	if i >= len(object) || object[i] != '{' {
		return errObject
	}
	if i = space(object, i+1); i < len(object) && object[i] == '}' {
		return atEnd(object, i+1, errObject)
	}
	for {
		if i >= len(object) || object[i] != '"' {
			return errObject
		}
		end := skip(object, i)
		if end < 0 {
			return errObject
		}
		key := object[i:end]
		if i = space(object, end); i >= len(object) || object[i] != ':' {
			return errObject
		}
		i = space(object, i+1)
		if end = skip(object, i); end < 0 {
			return errObject
		}
		if !yield(key, object[i:end]) {
			return nil
		}
		i = space(object, end)
		switch {
		case i < len(object) && object[i] == ',':
			i = space(object, i+1)
		case i < len(object) && object[i] == '}':
			return atEnd(object, i+1, errObject)
		default:
			return errObject
		}
	}
}

// members yields the members of a JSON object, the key without its quotes. Of what is no object it yields as much as looks
// like one: decoding it finds the error.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		scanObject(object, func(key, value []byte) bool { return yield(key[1:len(key)-1], value) })
	}
}

// elements yields the elements of a JSON array, none of null. An error is the last that it yields: the array isn't one.
func elements(array []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		left := false
		err := scanArray(array, func(element []byte) bool {
			left = !yield(element, nil)
			return !left
		})
		if err != nil && !left {
			yield(nil, err)
		}
	}
}

func scanArray(array []byte, yield func([]byte) bool) error {
	if string(bytes.TrimSpace(array)) == "null" {
		return nil
	}
	i := space(array, 0)
	if i >= len(array) || array[i] != '[' {
		return errArray
	}
	if i = space(array, i+1); i < len(array) && array[i] == ']' {
		return atEnd(array, i+1, errArray)
	}
	for {
		end := skip(array, i)
		if end < 0 {
			return errArray
		}
		if !yield(array[i:end]) {
			return nil
		}
		i = space(array, end)
		switch {
		case i < len(array) && array[i] == ',':
			i = space(array, i+1)
		case i < len(array) && array[i] == ']':
			return atEnd(array, i+1, errArray)
		default:
			return errArray
		}
	}
}

// atEnd returns the error if more than white space begins at i.
func atEnd(b []byte, i int, err error) error {
	if space(b, i) < len(b) {
		return err
	}
	return nil
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
	if plain := value[1 : len(value)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
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
