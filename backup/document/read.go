package document

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// maxText is how many bytes a document may have. A server takes 3 MiB of JSON, and YAML may have as many again in spaces. A List may be longer.
const maxText = 64 << 20

// Split calls fn with each document of a stream of YAML or JSON that has more than comments, and with the number of the line that it begins at. The text is
// fn's to keep. It ends with the first error of fn, or of reading.
func Split(r io.Reader, fn func(line int, text []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var text []byte
	begins, line := 1, 0
	give := func() error {
		if empty(text) {
			text = nil
			return nil
		}
		whole := text
		text = nil
		return fn(begins, whole)
	}
	for {
		next, err := in.ReadSlice('\n')
		if fresh := len(text) == 0 || text[len(text)-1] == '\n'; fresh {
			line++
			if rest, ok := bytes.CutPrefix(next, []byte("---")); ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ') {
				if err := give(); err != nil {
					return err
				}
				begins, next = line, rest
			}
		}
		if text = append(text, next...); len(text) > maxText {
			return fmt.Errorf("line %d: a document has more than %d bytes", begins, maxText)
		}
		switch {
		case errors.Is(err, io.EOF):
			return give()
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// empty tells whether a document has nothing but comments.
func empty(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// Parse returns the objects in a document: one, or those of a List. One that has a member twice is refused, and so is one that isn't an object
// with a kind, an apiVersion and a name.
func Parse(text []byte) (all []Object, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	o, err := Decode(asJSON)
	if err != nil {
		return nil, fmt.Errorf("it's no object: %w", err)
	}
	if o["kind"] != "List" || o["apiVersion"] != "v1" {
		return []Object{o}, check(o)
	}
	items, _ := o["items"].([]any)
	for i, item := range items {
		o, _ := item.(map[string]any)
		if err := check(o); err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// check refuses what has no identity.
func check(o Object) error {
	for _, missing := range []struct{ what, is string }{{"apiVersion", text(o["apiVersion"])}, {"kind", text(o["kind"])}, {"metadata.name", NameOf(o)}} {
		if missing.is == "" {
			return fmt.Errorf("an object without %s", missing.what)
		}
	}
	return nil
}
