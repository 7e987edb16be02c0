package etcd

import (
	"strings"
	"testing"
)

func FuzzParseToken(f *testing.F) {
	var authority [32]byte
	f.Add(newToken(authority).String())
	f.Add("al1.00.x")
	f.Add(" al1." + strings.Repeat("ab", 32) + "." + strings.Repeat("s", 26) + "\n")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := parseToken(s)
		if err != nil {
			return
		}
		again, err := parseToken(token.String())
		if err != nil || again != token {
			t.Errorf("%q: %v, %v", token, again, err)
		}
		if len(token.secret) < minSecretBytes || token.sameSecret("") || !token.sameSecret(token.secret) {
			t.Errorf("%q has a bad secret", s)
		}
	})
}

func TestVotersAmong(t *testing.T) {
	for _, test := range []struct{ could, most, want int }{
		{1, 3, 1}, {2, 3, 1}, {3, 3, 3}, {4, 3, 3}, {7, 3, 3}, {3, 5, 3}, {4, 5, 3}, {5, 5, 5}, {6, 5, 5},
	} {
		if got := (ClusterOptions{Voters: test.most}).votersAmong(test.could); got != test.want {
			t.Errorf("%d could vote of at most %d: %d do, want %d", test.could, test.most, got, test.want)
		}
	}
}
