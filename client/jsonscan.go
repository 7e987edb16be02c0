package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"unicode/utf8"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
)

// What is needed of a document before, or without, decoding it: members of objects, and elements of arrays, as bytes. Whoever decodes,
// or asks json.Valid of, all names and values knows that the document is JSON. FuzzScan compares with encoding/json.

// errObject and errArray say that a document isn't put together as JSON is.
var (
	errObject = errors.New("no JSON object")
	errArray  = errors.New("no JSON array")
)

// scanObject gives the members of a JSON object to yield, until that returns false: the name as it's between the quotes, and the value.
func scanObject(object []byte, yield func(name, value []byte) bool) error {
	s, left := jsonscan.Scanner{Data: object}, false
	whole := s.Members(func(name []byte) {
		value := s.Skip()
		if left = value != nil && !yield(name, value); left || value == nil {
			s.End()
		}
	})
	if left || whole && s.AtEnd() {
		return nil
	}
	return errObject
}

// members yields the members of a JSON object. Of what is no object it yields as much as looks like one: decoding it finds the error.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) { scanObject(object, yield) }
}

// elements yields the elements of a JSON array, none of null. An error is the last that it yields: the array isn't one.
func elements(array []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if string(bytes.TrimSpace(array)) == "null" {
			return
		}
		s, left := jsonscan.Scanner{Data: array}, false
		whole := s.Elements(func() {
			element := s.Skip()
			if left = element != nil && !yield(element, nil); left || element == nil {
				s.End()
			}
		})
		if !left && !(whole && s.AtEnd()) {
			yield(nil, errArray)
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
	if plain := value[1 : len(value)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain)
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}
