package jsonscan

import (
	"bytes"
	"testing"
)

// FuzzPlain: plain stops at the first byte that isn't plain, or where less than a word is left.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{"", "short", "eight...", "a\"b......", "\\.......", ".......\x1f", "nothing at all to find \u00e9\u00ff here", "\x80\x00.......", "!!!!!!!!\"!!!!!!!", "............\x7f\"...."} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := bytes.IndexFunc(text, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' })
		if want < 0 || want >= len(text)&^7 {
			want = len(text) &^ 7
		}
		if got := plain(text); got != want {
			t.Errorf("plain of %q is %d, want %d", text, got, want)
		}
	})
}
