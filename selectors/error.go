package selectors

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseError is what ParseLabels and ParseFields return for text that isn't a selector; it comes as a
// *ParseError. Its text is meant for the person who wrote the selector.
type ParseError struct {
	Input string // the whole selector
	Pos   int    // where in Input it goes wrong: a byte offset, len(Input) if something is missing at the end
	Msg   string // what was found, at which position, and what belongs there
}

// Error returns Msg. It quotes from the input what matters, printable and cut to a bounded length.
func (e *ParseError) Error() string { return e.Msg }

// maxQuoted is how many bytes of the input a message repeats: enough for the longest valid label value
// (63), and a message stays a line whatever was sent.
const maxQuoted = 80

// quote returns s in single quotes for a message, without control characters or invalid UTF-8.
func quote(s string) string {
	dots := ""
	if len(s) > maxQuoted {
		end := maxQuoted
		for end > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s, dots = s[:end], "..."
	}
	printable := func(r rune) bool { return r != utf8.RuneError && strconv.IsPrint(r) }
	if strings.ContainsFunc(s, func(r rune) bool { return !printable(r) }) {
		quoted := strconv.Quote(s)
		s = quoted[1 : len(quoted)-1]
	}
	return "'" + s + dots + "'"
}

func labelError(input string, pos int, format string, args ...any) error {
	return &ParseError{Input: input, Pos: pos, Msg: "unable to parse requirement: " + fmt.Sprintf(format, args...)}
}

func fieldError(input string, pos int, format string, args ...any) error {
	return &ParseError{Input: input, Pos: pos, Msg: "unable to parse field selector: " + fmt.Sprintf(format, args...)}
}
