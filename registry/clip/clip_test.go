package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

func TestTo(t *testing.T) {
	for _, test := range []struct {
		name, text string
		most       int
		want       string
	}{
		{"short", "abc", 3, "abc"},
		{"long", "abcd", 3, "abc..."},
		{"inside a character", "abé", 3, "ab..."},
		{"between characters", "éa", 2, "é..."},
		{"nothing", "", 0, ""},
		{"not text", "\xff\xfe\xfd", 2, "..."},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := clip.To(test.text, test.most); got != test.want {
				t.Errorf("%q cut to %d is %q, want %q", test.text, test.most, got, test.want)
			}
		})
	}
}

func TestValue(t *testing.T) {
	long := strings.Repeat("é", clip.MaxBytes)
	for _, v := range []any{long, []any{long}, map[string]any{long: 1}} {
		got, ok := clip.Value(v, clip.MaxBytes).(string)
		if !ok || len(got) > clip.MaxBytes+len("...") || !utf8.ValidString(got) {
			t.Errorf("%T became %v", v, clip.Value(v, clip.MaxBytes))
		}
	}
	pointed := []any{long, &long}
	if got, _ := clip.Value(pointed, clip.MaxBytes).(string); !strings.HasPrefix(got, `["éé`) {
		t.Errorf("a pointer became %.40s", got)
	}
	small := []any{"a"}
	if got, ok := clip.Value(small, clip.MaxBytes).([]any); !ok || len(got) != 1 {
		t.Errorf("a small list became %v", clip.Value(small, clip.MaxBytes))
	}
}
