package builtin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// tokens signs the tokens of ServiceAccounts, and knows its own again. Its key is made at the first use and lives as long
// as the process: tokens don't survive a restart.
type tokens struct {
	registry *registry.Registry
	key      func() (*ecdsa.PrivateKey, error)
}

func newTokens(r *registry.Registry) *tokens {
	return &tokens{r, sync.OnceValues(func() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) })}
}

// What a token says, as kube-apiserver's do.
type (
	claims struct {
		Audiences  []string    `json:"aud"`
		Expires    int64       `json:"exp"` // seconds since 1970, as all times here
		Issued     int64       `json:"iat"`
		NotBefore  int64       `json:"nbf"`
		Issuer     string      `json:"iss"`
		ID         string      `json:"jti"`
		Subject    string      `json:"sub"`
		Kubernetes tokenObject `json:"kubernetes.io"`
	}
	tokenObject struct {
		Namespace string     `json:"namespace"`
		Account   tokenOwner `json:"serviceaccount"`
	}
	tokenOwner struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	}
)

const (
	// ownAudience is who a token is for that names nobody, and who issues it.
	ownAudience = "https://kubernetes.default.svc"
	// How long a token may live, in seconds; kube-apiserver's numbers.
	defaultTokenLife int64 = 3600
	minTokenLife     int64 = 600
	maxTokenLife     int64 = 1 << 32
	// coordinate is the length of each half of a signature, in bytes.
	coordinate = 32
)

// issue answers a POST to a ServiceAccount's token.
func (t *tokens) issue(ctx context.Context, a *registry.Action) (any, error) {
	r := a.Sent.(*authenticationv1.TokenRequest)
	obj, err := a.Get(ctx)
	if err != nil {
		return nil, err
	}
	account := obj.(*corev1.ServiceAccount)
	orPointTo(&r.Spec.ExpirationSeconds, defaultTokenLife)
	if life := *r.Spec.ExpirationSeconds; life < minTokenLife || life > maxTokenLife {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.expirationSeconds must be between %d and %d", minTokenLife, maxTokenLife))
	}
	if len(r.Spec.Audiences) == 0 {
		r.Spec.Audiences = []string{ownAudience}
	}
	now := time.Now()
	expires := now.Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
	r.Status.ExpirationTimestamp = metav1.NewTime(expires.Truncate(time.Second))
	r.Status.Token, err = t.sign(claims{
		Audiences: r.Spec.Audiences, Expires: expires.Unix(), Issued: now.Unix(), NotBefore: now.Unix(), Issuer: ownAudience, ID: uuid.NewString(),
		Subject:    userOf(account.Namespace, account.Name),
		Kubernetes: tokenObject{account.Namespace, tokenOwner{account.Name, string(account.UID)}},
	})
	r.APIVersion, r.Kind = authenticationv1.SchemeGroupVersion.String(), "TokenRequest"
	r.Name, r.Namespace, r.CreationTimestamp = account.Name, account.Namespace, metav1.NewTime(now.Truncate(time.Second))
	return r, err
}

// userOf is the user name of a ServiceAccount.
func userOf(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// sign makes a JSON Web Token, signed with ES256.
func (t *tokens) sign(c claims) (string, error) {
	key, err := t.key()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	text := encode64([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode64(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 2*coordinate)
	r.FillBytes(signature[:coordinate])
	s.FillBytes(signature[coordinate:])
	return text + "." + encode64(signature), nil
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// user returns whose token it is, and for whom: false if it isn't one of ours that still counts.
func (t *tokens) user(ctx context.Context, token string) (user authenticationv1.UserInfo, audiences []string, ok bool) {
	text, signature, ok := cutLast(token)
	if !ok {
		return user, nil, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	key, keyErr := t.key()
	if err != nil || keyErr != nil || len(raw) != 2*coordinate {
		return user, nil, false
	}
	sum := sha256.Sum256([]byte(text))
	r, s := new(big.Int).SetBytes(raw[:coordinate]), new(big.Int).SetBytes(raw[coordinate:])
	if !ecdsa.Verify(&key.PublicKey, sum[:], r, s) {
		return user, nil, false
	}
	_, body, _ := strings.Cut(text, ".")
	var c claims
	decoded, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(decoded, &c) != nil || time.Now().Unix() >= c.Expires || !t.exists(ctx, c.Kubernetes) {
		return user, nil, false
	}
	namespace := c.Kubernetes.Namespace
	return authenticationv1.UserInfo{
		Username: c.Subject, UID: c.Kubernetes.Account.UID,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}, c.Audiences, true
}

func cutLast(token string) (before, after string, ok bool) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return "", "", false
	}
	return token[:i], token[i+1:], true
}

// exists tells whether a token's account is still there.
func (t *tokens) exists(ctx context.Context, of tokenObject) bool {
	e := t.registry.Catalog().Kind("v1", "ServiceAccount")
	if e == nil || e.Await(ctx) != nil {
		return false
	}
	key, err := e.Prefix().Key(of.Namespace, of.Account.Name)
	if err != nil {
		return false
	}
	o := e.Cache().Get(key)
	return o != nil && o.Field("metadata.uid") == of.Account.UID
}

// review answers a TokenReview about a ServiceAccount's token.
func (t *tokens) review(ctx context.Context, r *authenticationv1.TokenReview) {
	user, audiences, ok := t.user(ctx, r.Spec.Token)
	if !ok {
		return
	}
	wanted := r.Spec.Audiences
	if len(wanted) == 0 {
		wanted = []string{ownAudience}
	}
	shared := slices.DeleteFunc(slices.Clone(wanted), func(a string) bool { return !slices.Contains(audiences, a) })
	if len(shared) == 0 {
		r.Status.Error = fmt.Sprintf("token audiences %q is invalid for the target audiences %q", audiences, wanted)
		return
	}
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: shared}
}

// accountParts are what can be asked of a ServiceAccount.
func (o Options) accountParts() []registry.Subresource {
	return []registry.Subresource{{
		Name: "token", Verbs: []string{"create"}, Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		New: func() any { return &authenticationv1.TokenRequest{} }, Act: o.tokens.issue,
	}}
}
