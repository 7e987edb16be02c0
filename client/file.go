package client

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// file is a file that is replaced from time to time.
type file struct {
	path string

	mu      sync.Mutex // guards both below, and is held while the file is read
	content []byte
	read    time.Time
}

// fileAge is how long what was read from a file is used. The tokens of pods are valid for at least ten minutes.
const fileAge = time.Minute

// get returns what is in the file, or what was in it if it's empty now or can't be read.
func (f *file) get() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.content) > 0 && time.Since(f.read) < fileAge {
		return f.content, nil
	}
	content, err := os.ReadFile(f.path)
	switch {
	case err == nil && len(bytes.TrimSpace(content)) > 0:
		f.content, f.read = content, time.Now()
	case len(f.content) > 0: // the old one may still do
	case err == nil:
		return nil, fmt.Errorf("%s is empty", f.path)
	default:
		return nil, err
	}
	return f.content, nil
}

// token is get of a file with a token.
func (f *file) token(context.Context) (string, error) {
	content, err := f.get()
	return strings.TrimSpace(string(content)), err
}

// unauthorized has the file read again that was read before a request was sent which was answered 401.
func (f *file) unauthorized(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.Before(sent) {
		f.read = time.Time{}
	}
}
