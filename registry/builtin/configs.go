package builtin

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ConfigMap and Secret.

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
		errs = append(errs, problems(at, key, validation.IsConfigMapKey(key))...)
		if _, ok := c.BinaryData[key]; ok {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, problems(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(c.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	if old == nil || !isTrue(old.Immutable) {
		return errs
	}
	errs = append(errs, staysImmutable(c.Immutable)...)
	errs = append(errs, frozen("data", c.Data, old.Data)...)
	return append(errs, frozen("binaryData", c.BinaryData, old.BinaryData)...)
}

func isTrue(b *bool) bool { return b != nil && *b }

const isImmutable = "field is immutable when `immutable` is set"

func staysImmutable(immutable *bool) field.ErrorList {
	if isTrue(immutable) {
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
	orDefault(&s.Type, corev1.SecretTypeOpaque)
}

func validateSecret(s, old *corev1.Secret) (errs field.ErrorList) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, problems(field.NewPath("data").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize))
	}
	errs = append(errs, validateSecretType(s)...)
	if old == nil {
		return errs
	}
	errs = append(errs, unchanged(field.NewPath("type"), s.Type, old.Type)...)
	if isTrue(old.Immutable) {
		errs = append(errs, staysImmutable(s.Immutable)...)
		errs = append(errs, frozen("data", s.Data, old.Data)...)
	}
	return errs
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

// unchanged refuses a change of a field that can be set once.
func unchanged(at *field.Path, now, before any) field.ErrorList {
	if equality.Semantic.DeepEqual(now, before) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, now, "field is immutable")}
}

// validateSecretType checks what Kubernetes's own types of secrets must hold.
func validateSecretType(s *corev1.Secret) (errs field.ErrorList) {
	data := field.NewPath("data")
	need := func(key string) {
		if _, ok := s.Data[key]; !ok {
			errs = append(errs, field.Required(data.Key(key), ""))
		}
	}
	needJSON := func(key string) {
		need(key)
		text, ok := s.Data[key]
		if !ok {
			return
		}
		if err := json.Unmarshal(text, &map[string]any{}); err != nil {
			errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
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
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey), ""))
		}
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey)
		need(corev1.TLSPrivateKeyKey)
	}
	return errs
}

// countOf counts the entries of an object's members.
func countOf(members ...string) func(value any) any {
	return func(value any) any {
		n := 0
		for _, member := range members {
			n += len(asMap(asMap(value)[member]))
		}
		return int64(n)
	}
}

func configMapColumns() []column {
	doc := corev1.ConfigMap{}.SwaggerDoc()
	return []column{{Name: "Data", Type: "string", Description: doc["data"], Cell: countOf("data", "binaryData")}, age()}
}

func secretColumns() []column {
	doc := corev1.Secret{}.SwaggerDoc()
	return []column{
		text("Type", ".type", doc["type"]),
		{Name: "Data", Type: "string", Description: doc["data"], Cell: countOf("data")},
		age(),
	}
}
