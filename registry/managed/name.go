package managed

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the name of a manager, in bytes, as kube-apiserver does.
const maxName = 128

// ManagerName returns the name under which a write is recorded: fieldManager if the client gave one (checked by
// the caller: at most 128 bytes, printable), else what is before the first slash of its User-Agent, without
// what isn't printable and cut after 128 bytes. It may be empty; the record then says "unknown".
func ManagerName(fieldManager, userAgent string) string {
	if fieldManager != "" {
		return fieldManager
	}
	agent, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, r := range agent {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > maxName {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}
