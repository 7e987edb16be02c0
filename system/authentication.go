package system

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// The ConfigMaps of kube-system.
const (
	authenticationMap = "extension-apiserver-authentication"
	trackingMap       = "kube-apiserver-legacy-service-account-token-tracking"
)

// authentication tells aggregated servers, in a ConfigMap, whose certificates are believed, and which proxies. What another
// kube-apiserver has added stays.
func (m *maker) authentication(ctx context.Context, served *registry.Catalog, _ string) (storage.Revision, error) {
	e := served.Kind("v1", "ConfigMap")
	if e == nil {
		return 0, nil
	}
	have := cached[corev1.ConfigMap](e, metav1.NamespaceSystem, authenticationMap)
	var before map[string]string
	if have != nil {
		before = have.Data
	}
	data, err := m.authenticationData(before)
	if err != nil || maps.Equal(data, before) {
		return 0, err
	}
	return write(ctx, e, have, authenticationMap, data)
}

// write gives a ConfigMap of kube-system its data. have is nil if it isn't there.
func write(ctx context.Context, e *registry.Endpoint, have *corev1.ConfigMap, name string, data map[string]string) (storage.Revision, error) {
	if have == nil {
		return create(ctx, e, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Data: data}, "")
	}
	return amend(ctx, e, have, "", func(c *corev1.ConfigMap) { c.Data = data })
}

// The names in the data.
const (
	clientCA   = "client-ca-file"
	headerCA   = "requestheader-client-ca-file"
	allowed    = "requestheader-allowed-names"
	users      = "requestheader-username-headers"
	uids       = "requestheader-uid-headers"
	groups     = "requestheader-group-headers"
	extraNames = "requestheader-extra-headers-prefix"
)

// authenticationData returns what the ConfigMap should say: what it says and what this server adds.
func (m *maker) authenticationData(before map[string]string) (map[string]string, error) {
	data := map[string]string{}
	if err := addAuthorities(data, before, clientCA, m.ClientCAFile); err != nil {
		return nil, err
	}
	if err := addAuthorities(data, before, headerCA, m.RequestHeader.ClientCAFile); err != nil {
		return nil, err
	}
	if data[headerCA] == "" {
		return data, nil
	}
	h := access.RequestHeader{}
	if m.RequestHeader.ClientCAFile != "" {
		h = m.RequestHeader
	}
	for name, list := range map[string][]string{allowed: h.AllowedNames, users: h.UsernameHeaders, uids: h.UIDHeaders, groups: h.GroupHeaders, extraNames: h.ExtraHeaderPrefixes} {
		merged := []string{}
		if text := before[name]; text != "" {
			if err := json.Unmarshal([]byte(text), &merged); err != nil {
				return nil, fmt.Errorf("%s of the ConfigMap %s: %w", name, authenticationMap, err)
			}
		}
		for _, one := range list {
			if !slices.Contains(merged, one) {
				merged = append(merged, one)
			}
		}
		if name == uids && len(merged) == 0 {
			continue
		}
		text, err := json.Marshal(merged)
		if err != nil {
			return nil, err
		}
		data[name] = string(text)
	}
	return data, nil
}

// addAuthorities puts together the authorities that are there already and those of a file, each once, without those that have
// expired.
func addAuthorities(data, before map[string]string, name, file string) error {
	all := []byte(before[name])
	if file != "" {
		own, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all = slices.Concat(all, []byte("\n"), own)
	}
	var known [][]byte
	var text bytes.Buffer
	for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if time.Now().After(cert.NotAfter) || slices.ContainsFunc(known, func(raw []byte) bool { return bytes.Equal(raw, cert.Raw) }) {
			continue
		}
		known = append(known, cert.Raw)
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}); err != nil {
			return err
		}
	}
	if text.Len() > 0 {
		data[name] = text.String()
	}
	return nil
}

// sinceFormat is that of the day since which old tokens are tracked, and since its name.
const (
	sinceFormat = time.DateOnly
	since       = "since"
)

// tracking notes since when the use of old tokens of ServiceAccounts is tracked.
func (m *maker) tracking(ctx context.Context, served *registry.Catalog, _ string) (storage.Revision, error) {
	e := served.Kind("v1", "ConfigMap")
	if e == nil {
		return 0, nil
	}
	have := cached[corev1.ConfigMap](e, metav1.NamespaceSystem, trackingMap)
	data := map[string]string{}
	if have != nil {
		if _, err := time.Parse(sinceFormat, have.Data[since]); err == nil {
			return 0, nil
		}
		maps.Copy(data, have.Data)
	}
	data[since] = m.Registry.Now().Format(sinceFormat)
	return write(ctx, e, have, trackingMap, data)
}
