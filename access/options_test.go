package access

import (
	"strings"
	"testing"
	"time"
)

// TestValidate: what kube-apiserver 1.37 refuses of these flags is refused, and what it takes is taken. What a file of
// --authentication-config says is judged by kube-apiserver's own code (TestAuthenticationConfiguration of package server);
// authorities in common, and files that can't be read, are in TestAccessOptions there.
func TestValidate(t *testing.T) {
	proxied := func(set func(h *RequestHeader)) Options {
		o := Options{RequestHeader: RequestHeader{ClientCAFile: "ca.crt"}}
		set(&o.RequestHeader)
		return o
	}
	for name, tc := range map[string]struct {
		o    Options
		want string // "": it's taken
	}{
		"nothing":                    {Options{}, ""},
		"RBAC":                       {Options{AuthorizationMode: "RBAC"}, ""},
		"as in clusters":             {Options{AuthorizationMode: "Node,RBAC"}, ""},
		"no mode of ours":            {Options{AuthorizationMode: "Webhook"}, "--authorization-mode"},
		"node alone":                 {Options{AuthorizationMode: "Node"}, ""},
		"no mode":                    {Options{AuthorizationMode: ","}, "--authorization-mode"},
		"mode twice":                 {Options{AuthorizationMode: "RBAC,RBAC"}, "has mode specified more than once"},
		"node twice":                 {Options{AuthorizationMode: "Node,RBAC,Node"}, "has mode specified more than once"},
		"issuers":                    {Options{ServiceAccountIssuers: []string{"https://a", "text"}}, ""},
		"empty issuer":               {Options{ServiceAccountIssuers: []string{"a", ""}}, "--service-account-issuer should not be an empty string"},
		"issuer twice":               {Options{ServiceAccountIssuers: []string{"a", "b", "a"}}, `--service-account-issuer "a" is already specified`},
		"issuer with a colon":        {Options{ServiceAccountIssuers: []string{":a"}}, "contained a ':' but was not a valid URL"},
		"keys at a URL":              {Options{ServiceAccountJWKSURI: "https://a/keys"}, ""},
		"keys over HTTP":             {Options{ServiceAccountJWKSURI: "http://a/keys"}, "--service-account-jwks-uri requires https scheme"},
		"keys at no URL":             {Options{ServiceAccountJWKSURI: "https://a b"}, "--service-account-jwks-uri must be a valid URL"},
		"hour":                       {Options{ServiceAccountMaxTokenExpiration: time.Hour}, ""},
		"less than an hour":          {Options{ServiceAccountMaxTokenExpiration: time.Hour - 1}, "must be between 1 hour and 2^32 seconds"},
		"negative":                   {Options{ServiceAccountMaxTokenExpiration: -time.Hour}, "must be between 1 hour and 2^32 seconds"},
		"more than 2^32 seconds":     {Options{ServiceAccountMaxTokenExpiration: 1<<32*time.Second + 1}, "must be between 1 hour and 2^32 seconds"},
		"keys without a signing key": {Options{ServiceAccountKeyFiles: []string{"a"}}, "--service-account-signing-key-file"},
		"headers": {proxied(func(h *RequestHeader) {
			h.UsernameHeaders, h.UIDHeaders = []string{"X-User"}, []string{"X-A", "x-remote-uid"}
		}), ""},
		"headers without authorities": {Options{RequestHeader: RequestHeader{GroupHeaders: []string{"X-Group"}}}, "--requestheader-client-ca-file"},
		"blank header of users":       {proxied(func(h *RequestHeader) { h.UsernameHeaders = []string{"X-User", " "} }), "empty value in --requestheader-username-headers"},
		"blank header of groups":      {proxied(func(h *RequestHeader) { h.GroupHeaders = []string{""} }), "empty value in --requestheader-group-headers"},
		"blank prefix":                {proxied(func(h *RequestHeader) { h.ExtraHeaderPrefixes = []string{"\t"} }), "empty value in --requestheader-extra-headers-prefix"},
		"blank name of a proxy":       {proxied(func(h *RequestHeader) { h.AllowedNames = []string{""} }), "empty value in --requestheader-allowed-names"},
		"blank header of uids":        {proxied(func(h *RequestHeader) { h.UIDHeaders = []string{"X-Remote-Uid", ""} }), "empty value in --requestheader-uid-headers"},
		"uids without the standard":   {proxied(func(h *RequestHeader) { h.UIDHeaders = []string{"X-Uid"} }), "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header"},
	} {
		err := tc.o.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
