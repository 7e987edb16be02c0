package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// TestNamesSteerNoTerminal: what a name has of control characters, of whichever server, isn't printed.
func TestNamesSteerNoTerminal(t *testing.T) {
	for _, coloured := range []bool{false, true} {
		var out bytes.Buffer
		event := client.Event[client.Object]{Type: client.Added, Key: client.Key{Namespace: "n\x1b[2J", Name: "a\r\x1b]0;title\x07\nb\u009b31mc"}, ResourceVersion: "7"}
		if err := (liner{out: &out, coloured: coloured}).print(event); err != nil {
			t.Fatal(err)
		}
		line := out.String()
		if coloured { // by us
			line = strings.NewReplacer(colours[client.Added], "", "\x1b[0m", "").Replace(line)
		}
		line, ended := strings.CutSuffix(line, "\n")
		if !ended || strings.ContainsFunc(line, unicode.IsControl) || !strings.HasSuffix(line, "31mc 7") {
			t.Errorf("printed %q", line)
		}
	}
}
