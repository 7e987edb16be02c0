package recording_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"
)

// lockedBuffer is a file that is read while it's written.
type lockedBuffer struct {
	mu      sync.Mutex // guards content
	content []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.content = append(b.content, p...)
	return len(p), nil
}

func (b *lockedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.content)
}

// unpacked returns the lines that are there.
func (b *lockedBuffer) unpacked() string {
	content := b.bytes()
	if packed, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
		content, _ = io.ReadAll(packed) // it has no end yet
	}
	return string(content)
}
