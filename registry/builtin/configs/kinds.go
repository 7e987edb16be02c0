// Package configs has ConfigMaps and Secrets.
package configs

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// Kinds are the lines of the table.
func Kinds() []registry.Type {
	return []registry.Type{
		{Names: line.Names("", "v1", "ConfigMap", "cm"), New: line.New[corev1.ConfigMap],
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true},
			Columns:  configMapColumns, Default: line.Set(defaultConfigMap), Validate: line.Rules(validateConfigMap)},
		{Names: line.Names("", "v1", "Secret"), New: line.New[corev1.Secret],
			Strategy:  registry.Strategy{UnconditionalUpdate: true, NoGeneration: true},
			Selection: registry.Selection{Fields: []string{"type"}}, Columns: secretColumns, Default: line.Set(defaultSecret), Validate: line.Rules(validateSecret), Warnings: line.Warnings(warnSecret)},
	}
}

func defaultConfigMap(c *corev1.ConfigMap) { fillBytes(c.BinaryData) }

// fillBytes makes nothing of null.
func fillBytes(data map[string][]byte) {
	for key, value := range data {
		if value == nil {
			data[key] = []byte{}
		}
	}
}

func validateConfigMap(c, old *corev1.ConfigMap) (errs field.ErrorList) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		at := field.NewPath("data").Key(key)
		errs = append(errs, rules.Problems(at, key, validation.IsConfigMapKey(key))...)
		if _, ok := c.BinaryData[key]; ok {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, rules.Problems(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(c.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	if old == nil || !ptr.Deref(old.Immutable, false) {
		return errs
	}
	errs = append(errs, staysImmutable(c.Immutable)...)
	errs = append(errs, frozen("data", c.Data, old.Data)...)
	return append(errs, frozen("binaryData", c.BinaryData, old.BinaryData)...)
}

const isImmutable = "field is immutable when `immutable` is set"

func staysImmutable(immutable *bool) field.ErrorList {
	if ptr.Deref(immutable, false) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), isImmutable)}
}

// frozen refuses a change of a field of an immutable object.
func frozen(name string, now, before any) field.ErrorList {
	if equality.Semantic.DeepEqual(now, before) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath(name), isImmutable)}
}

// defaultSecret moves stringData, which can only be written, into data, and fills in the type.
func defaultSecret(s *corev1.Secret) {
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	fillBytes(s.Data)
	line.OrDefault(&s.Type, corev1.SecretTypeOpaque)
}

func validateSecret(s, old *corev1.Secret) (errs field.ErrorList) {
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))...)
		if ptr.Deref(old.Immutable, false) {
			errs = append(errs, staysImmutable(s.Immutable)...)
			errs = append(errs, frozen("data", s.Data, old.Data)...)
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, rules.Problems(field.NewPath("data").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(s)...)
}

// warnSecret warns of a certificate and a key that don't fit.
func warnSecret(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// validateSecretType checks what Kubernetes's own types of secrets must hold.
func validateSecretType(s *corev1.Secret) field.ErrorList {
	c := &rules.Check{}
	data := field.NewPath("data")
	need := func(key string) {
		if _, ok := s.Data[key]; !ok {
			c.Add(field.Required(data.Key(key), ""))
		}
	}
	needJSON := func(key string) {
		need(key)
		text, ok := s.Data[key]
		if !ok {
			return
		}
		if err := json.Unmarshal(text, &map[string]any{}); err != nil {
			c.Add(field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		c.Lack(s.Annotations[corev1.ServiceAccountNameKey] == "", field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")
	case corev1.SecretTypeDockercfg:
		needJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		needJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			need(corev1.BasicAuthUsernameKey)
			need(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		c.Lack(len(s.Data[corev1.SSHAuthPrivateKey]) == 0, data.Key(corev1.SSHAuthPrivateKey), "")
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey)
		need(corev1.TLSPrivateKeyKey)
	}
	return c.Errs
}

// countOf counts the entries of an object's members.
func countOf(members ...string) func(value any) any {
	return func(value any) any {
		n := 0
		for _, member := range members {
			n += len(column.AsMap(column.AsMap(value)[member]))
		}
		return int64(n)
	}
}

func configMapColumns() []registry.Column {
	doc := corev1.ConfigMap{}.SwaggerDoc()
	return []registry.Column{{Name: "Data", Type: "string", Description: doc["data"], Cell: countOf("data", "binaryData")}, column.Age()}
}

func secretColumns() []registry.Column {
	doc := corev1.Secret{}.SwaggerDoc()
	return []registry.Column{
		column.Text("Type", ".type", doc["type"]),
		{Name: "Data", Type: "string", Description: doc["data"], Cell: countOf("data")},
		column.Age(),
	}
}
