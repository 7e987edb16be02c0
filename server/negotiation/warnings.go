package negotiation

import (
	"strings"
	"unicode"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// What the Warning headers of an answer may add up to, in runes, before each is cut to maxWarning and what is
// still too much left out; kube-apiserver's figures.
const (
	maxWarnings = 4096
	maxWarning  = 256
)

// warningCode says that a warning is about the whole answer, and stays true.
const warningCode = 299

// Warnings are the Warning headers of texts, without those that none can be made of, as kube-apiserver makes them one after the other: where
// they would add up to more than maxWarnings, it begins again with each cut, and takes further ones until there is so much.
func Warnings(texts []string) (headers []string) {
	cut, written := false, 0
	add := func(text string) {
		if runes := []rune(text); cut && len(runes) > maxWarning {
			text = string(runes[:maxWarning])
		}
		if header, err := utilnet.NewWarningHeader(warningCode, "", text); err == nil {
			headers, written = append(headers, header), written+utf8.RuneCountInString(text)
		}
	}
	for i, text := range texts {
		switch {
		case text == "" || strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text):
		case cut && written >= maxWarnings:
			return headers
		case !cut && written+utf8.RuneCountInString(text) > maxWarnings:
			cut, written, headers = true, 0, nil
			for _, text := range texts[:i+1] {
				add(text)
			}
		default:
			add(text)
		}
	}
	return headers
}
