package storage

import (
	"cmp"
	"fmt"
	"strings"
)

// Root is the prefix of every key that holds an object.
const Root = "/registry/"

// coreGroup is written for the empty group name, so that each prefix has the same number of segments.
const coreGroup = "core"

// Prefix is what the keys of one resource begin with: "/registry/{group}/{resource}/", laid out as
// kube-apiserver lays out custom resources. Make one with PrefixOf.
type Prefix string

// PrefixOf returns the prefix of a group's resource. The names must be valid path segments, which
// the caller checks when it registers the resource.
func PrefixOf(group, resource string) Prefix {
	group = cmp.Or(group, coreGroup)
	return Prefix(Root + group + "/" + resource + "/")
}

// Group returns the API group, "" for the core group.
func (p Prefix) Group() string {
	group, _, _ := strings.Cut(strings.TrimPrefix(string(p), Root), "/")
	if group == coreGroup {
		return ""
	}
	return group
}

// Resource returns the resource, in the plural.
func (p Prefix) Resource() string {
	_, resource, _ := strings.Cut(strings.TrimPrefix(string(p), Root), "/")
	return strings.TrimSuffix(resource, "/")
}

// Key returns the key of an object: "{prefix}{namespace}/{name}", or "{prefix}{name}" where
// namespace is empty. It refuses, with ErrBadKey, whatever could reach outside the prefix, so that
// no name, whatever its bytes, gets at another resource, namespace or a file.
func (p Prefix) Key(namespace, name string) (string, error) {
	if err := checkSegment(name); err != nil {
		return "", err
	}
	if namespace == "" {
		return string(p) + name, nil
	}
	if err := checkSegment(namespace); err != nil {
		return "", err
	}
	return string(p) + namespace + "/" + name, nil
}

// Namespace returns the prefix of one namespace's keys, or the whole prefix for "". As Key does, it refuses with ErrBadKey
// whatever could reach outside the prefix.
func (p Prefix) Namespace(namespace string) (string, error) {
	if namespace == "" {
		return string(p), nil
	}
	if err := checkSegment(namespace); err != nil {
		return "", err
	}
	return string(p) + namespace + "/", nil
}

// Range is the keys that begin with Prefix, without those before From, which may be "".
type Range struct{ Prefix, From string }

// First is the least key that can be in the range.
func (r Range) First() string { return max(r.Prefix, r.From) }

func checkSegment(s string) error {
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/%\x00") {
		return fmt.Errorf("%w: %.64q can't be part of a key", ErrBadKey, s)
	}
	return nil
}

// SplitKey takes a key apart: the resource's prefix, the namespace ("" for cluster scope) and the
// name. ok is false for a key that is no object's.
func SplitKey(key string) (p Prefix, namespace, name string, ok bool) {
	rest, found := strings.CutPrefix(key, Root)
	if !found {
		return "", "", "", false
	}
	group := strings.IndexByte(rest, '/')
	if group <= 0 {
		return "", "", "", false
	}
	resource := strings.IndexByte(rest[group+1:], '/')
	if resource <= 0 {
		return "", "", "", false
	}
	end := len(Root) + group + 1 + resource + 1
	p, name = Prefix(key[:end]), key[end:]
	if i := strings.IndexByte(name, '/'); i >= 0 {
		namespace, name = name[:i], name[i+1:]
		if namespace == "" {
			return "", "", "", false
		}
	}
	if name == "" || strings.IndexByte(name, '/') >= 0 {
		return "", "", "", false
	}
	return p, namespace, name, true
}
