package document

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// maxText is how many bytes a document may have. A server takes 3 MiB of JSON, and YAML may have as many again in spaces. A List may be longer.
const maxText = 64 << 20

// Split calls fn with each document of a stream of YAML or JSON that has more than comments, and with the number of the line that it begins at. JSON needs no
// "---" between two: each value is a document, and so is what follows the last one, for Parse to refuse. The text is fn's to keep. It ends with the first error
// of fn, or of reading.
func Split(r io.Reader, fn func(line int, text []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var text []byte
	begins, line := 1, 0
	give := func() error {
		whole := text
		text = nil
		return values(begins, whole, fn)
	}
	for {
		next, err := in.ReadSlice('\n')
		if fresh := len(text) == 0 || text[len(text)-1] == '\n'; fresh {
			line++
			rest, ok := boundary(next)
			if ok || bytes.HasPrefix(next, []byte("{")) && isObject(text) { // else a long stream of JSON would be one document
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

// boundary tells whether a line ends a document, and returns what the line has of the next one.
func boundary(line []byte) (rest []byte, ok bool) {
	for _, mark := range []string{"---", "..."} {
		if rest, ok = bytes.CutPrefix(line, []byte(mark)); ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ') {
			return rest, true
		}
	}
	return line, false
}

// isObject tells whether a text is an object in JSON, and nothing else. Others are mostly known by their ends.
func isObject(text []byte) bool {
	text = bytes.TrimSpace(text)
	return bytes.HasPrefix(text, []byte("{")) && bytes.HasSuffix(text, []byte("}")) && json.Valid(text)
}

// values calls fn with each JSON value that the text begins with, and with what follows them if that's more than comments: all of it if it's YAML.
func values(line int, text []byte, fn func(line int, text []byte) error) error {
	for !empty(text) {
		n := len(text)
		if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
			d := json.NewDecoder(bytes.NewReader(text))
			var value json.RawMessage
			if d.Decode(&value) == nil && !empty(text[d.InputOffset():]) {
				n = int(d.InputOffset())
			}
		}
		if err := fn(line, text[:n:n]); err != nil {
			return err
		}
		line += bytes.Count(text[:n], []byte("\n"))
		text = text[n:]
		rest := bytes.TrimLeft(text, " \t\r\n")
		line += bytes.Count(text[:len(text)-len(rest)], []byte("\n"))
		text = rest
	}
	return nil
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
// with a kind, an apiVersion and a name, or that something follows.
func Parse(text []byte) (all []Object, err error) {
	if err := alone(text); err != nil {
		return nil, err
	}
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

// alone refuses a document whose value ends before the text does: a parser would ignore the rest. A mapping whose lines aren't indented ends with the text.
func alone(text []byte) error {
	for line := range bytes.Lines(text) {
		if line[0] != '#' && len(bytes.TrimSpace(line)) > 0 {
			letter, ends := line[0]|0x20, bytes.Contains(text, []byte("\n---")) || bytes.Contains(text, []byte("\n..."))
			if letter >= 'a' && letter <= 'z' && !ends || json.Valid(text) {
				return nil
			}
			break
		}
	}
	d, ignored := yamlv3.NewDecoder(bytes.NewReader(text)), yamlv3.Node{}
	if err := d.Decode(&ignored); err != nil {
		return err
	}
	if err := d.Decode(&ignored); !errors.Is(err, io.EOF) {
		return errors.New("something follows the end of the object: is a line indented in another way, or a line --- missing?")
	}
	return nil
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
