package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What a server makes up and clients hand back: tokens and hashes. Of a token all is kept but what must differ.

var (
	tokenText = regexp.MustCompile(`\b(eyJ[\w-]+)\.(eyJ[\w-]+)\.([\w-]+)`)
	hashText  = regexp.MustCompile(`/openapi/v3/\S*\?hash=\w+`)
	tagText   = regexp.MustCompile(`^(W/)?"\w{16,}((?:-[\w.+]+)*)"$`)
)

const shortest = 16 // characters of a hash

// token names a JSON Web Token by what is in it. Its times are told from each other.
func (n *normal) token(token string) string {
	parts := tokenText.FindStringSubmatch(token)
	header, claims := decoded(parts[1]), decoded(parts[2])
	if header == nil || claims == nil {
		return token
	}
	issued, ok := claims["iat"].(json.Number)
	if iat, err := issued.Int64(); ok && err == nil && iat >= n.begun.Unix() && iat <= n.asked.Add(answerPatience).Unix() {
		sinceIssued(claims, iat)
		claims["iat"] = "<now>"
	}
	return fmt.Sprintf("<token of %s %s with %d characters>", short(n.tree(header, "")), short(n.tree(claims, "")), len(parts[3]))
}

// sinceIssued replaces seconds since 1970 by seconds since a token was issued.
func sinceIssued(claims map[string]any, iat int64) {
	for name, value := range claims {
		switch v := value.(type) {
		case map[string]any:
			sinceIssued(v, iat)
		case json.Number:
			if seconds, err := v.Int64(); err == nil && (name == "exp" || name == "nbf" || name == "warnafter") {
				claims[name] = fmt.Sprintf("<iat%+d>", seconds-iat)
			}
		}
	}
}

// decoded is the object that a part of a token has; nil for none.
func decoded(part string) map[string]any {
	content, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part, "="))
	if err != nil {
		return nil
	}
	object, _ := parse(asJSON, content).(map[string]any)
	return object
}

// continueToken names one by what is in it. The list's version is moved by writes of other scenarios, as that of the list.
func (n *normal) continueToken(token string) string {
	of := decoded(token)
	if version, ok := of["rv"].(json.Number); ok {
		if v, err := strconv.ParseInt(version.String(), 10, 64); err == nil && v > 0 {
			of["rv"] = n.listVersion(version.String())
		}
		return "<continue " + short(n.tree(of, "")) + ">"
	}
	return token
}

// hash notes the hash of an OpenAPI document in the list of them.
func (n *normal) hash(url string) string {
	path, hash, _ := strings.Cut(url, "?hash=")
	if len(hash) < shortest {
		return url // a client's word
	}
	n.hashes[path] = hash
	return path + "?hash=<hash>"
}

// tag names an ETag: that of an OpenAPI document is the hash that is listed.
func (n *normal) tag(tag string) string {
	if hash := strings.Trim(tag, `"`); hash != "" && hash == n.hashes[n.path] {
		return `"<hash>"`
	}
	return tagText.ReplaceAllString(tag, `$1"<tag$2>"`)
}
