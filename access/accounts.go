package access

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Accounts issues the tokens of ServiceAccounts, and knows them again.
type Accounts struct {
	registry  *registry.Registry
	issuers   []string // the first one issues
	audiences []string // of tokens that the server itself takes
	maxLife   int64    // in seconds
	keysAt    string   // a URL
	keys      func() (*keys, error)
	verified  memo[*tokenClaims]
}

// Home is where Accounts live.
type Home struct {
	Registry *registry.Registry
	URL      string // of the server
	// Key returns the server's own key. It's asked for at the first use, if options name no other, and again after an error.
	Key func() (crypto.Signer, error)
}

// newAccounts makes Accounts, which attach completes. It reads the files of keys, if options name some, and returns them as those that are to be read
// again.
func newAccounts(o Options, log *slog.Logger) (*Accounts, reload.Files, error) {
	a := &Accounts{keysAt: o.ServiceAccountJWKSURI, issuers: o.ServiceAccountIssuers, audiences: o.APIAudiences, maxLife: maxTokenLife}
	if len(a.issuers) == 0 {
		a.issuers = []string{defaultIssuer}
	}
	if len(a.audiences) == 0 {
		a.audiences = a.issuers
	}
	if o.ServiceAccountMaxTokenExpiration > 0 {
		a.maxLife = min(a.maxLife, int64(o.ServiceAccountMaxTokenExpiration/time.Second))
	}
	if o.ServiceAccountSigningKeyFile == "" {
		return a, reload.Files{}, nil
	}
	var current atomic.Pointer[keys]
	a.keys = func() (*keys, error) { return current.Load(), nil }
	read := func(context.Context) error {
		signer, err := readSigner(o.ServiceAccountSigningKeyFile, log)
		if err != nil {
			return err
		}
		made, err := newKeys(signer, o.ServiceAccountKeyFiles)
		if err == nil {
			current.Store(made)
			a.verified.forget() // by keys that may be gone
		}
		return err
	}
	paths := append([]string{o.ServiceAccountSigningKeyFile}, o.ServiceAccountKeyFiles...)
	used, _ := reload.SumOf(paths...)
	return a, reload.Files{Paths: paths, Used: used, Read: read, Refused: func(err error) {
		log.Error("the keys of ServiceAccounts' tokens can't be used; those that were read before stay", "error", err)
	}}, read(context.Background())
}

// attach gives Accounts what they need of the server.
func (a *Accounts) attach(home Home) {
	a.registry = home.Registry
	a.keysAt = cmp.Or(a.keysAt, home.URL+"/openid/v1/jwks")
	if a.keys == nil {
		a.keys = onceDone(func() (*keys, error) {
			signer, err := home.Key()
			if err != nil {
				return nil, err
			}
			return newKeys(signer, nil)
		})
	}
}

// onceDone returns a function that calls f until that succeeds, one call at a time, and then returns what f has returned.
func onceDone[T any](f func() (T, error)) func() (T, error) {
	var mu sync.Mutex // guards what follows; held during a call
	var value T
	done := false
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return value, nil
		}
		v, err := f()
		if err == nil {
			value, done = v, true
		}
		return v, err
	}
}

// readSigner reads the file of the key that signs tokens.
func readSigner(file string, log *slog.Logger) (crypto.Signer, error) {
	if err := private.Secret(file, log); err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	signer, err := ReadSigningKey(file)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	return signer, nil
}

// What a token says, as kube-apiserver's do. Times are seconds since 1970.
type (
	tokenClaims struct {
		Audiences  audiences `json:"aud"`
		Expires    int64     `json:"exp"`
		Issued     int64     `json:"iat"`
		Issuer     string    `json:"iss"`
		ID         string    `json:"jti,omitempty"`
		Kubernetes boundTo   `json:"kubernetes.io"`
		NotBefore  int64     `json:"nbf"`
		Subject    string    `json:"sub"`
	}
	// boundTo is what a token ends with.
	boundTo struct {
		Namespace string     `json:"namespace"`
		Node      *reference `json:"node,omitempty"`
		Pod       *reference `json:"pod,omitempty"`
		Secret    *reference `json:"secret,omitempty"`
		Account   reference  `json:"serviceaccount"`
	}
	reference struct {
		Name string `json:"name"`
		UID  string `json:"uid,omitempty"`
	}
)

// audiences may be one text instead of a list (RFC 7519, section 4.1.3).
type audiences []string

func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

const (
	// How long a token may live, in seconds; kube-apiserver's numbers.
	minTokenLife int64 = 600
	maxTokenLife int64 = 1 << 32
	// leeway is for clocks that differ, and for how long a token still counts while its object is being deleted.
	leeway = time.Minute
)

// Prepare judges a request for a ServiceAccount's token, and says in it whose it is.
func (a *Accounts) Prepare(ctx context.Context, action *registry.Action) error {
	r := action.Sent.(*authenticationv1.TokenRequest)
	if r.Name != "" && r.Name != action.Name {
		return apierrors.NewInvalid(tokenKind.GroupKind(), action.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), r.Name, "must match the service account name if specified"),
		})
	}
	obj, err := action.Get(ctx)
	if err != nil {
		return err
	}
	account := obj.(*corev1.ServiceAccount)
	if r.UID != "" && r.UID != account.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenKind.Group, Resource: tokenKind.Kind}, action.Name,
			fmt.Errorf("the UID in the token request (%.64s) does not match the UID of the service account (%s)", r.UID, account.UID))
	}
	if len(r.Spec.Audiences) == 0 {
		r.Spec.Audiences = a.audiences
	}
	r.Name, r.Namespace, r.UID, r.CreationTimestamp = account.Name, account.Namespace, account.UID, a.registry.Now()
	r.Status = authenticationv1.TokenRequestStatus{}
	if errs := validateTokenRequest(r); len(errs) > 0 {
		return apierrors.NewInvalid(tokenKind.GroupKind(), "", errs)
	}
	return nil
}

// tokenKind is what a ServiceAccount's token is asked for with.
var tokenKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// Issue answers a POST to a ServiceAccount's token, which Prepare has had.
func (a *Accounts) Issue(ctx context.Context, action *registry.Action) (any, error) {
	r := action.Sent.(*authenticationv1.TokenRequest)
	to := boundTo{Namespace: r.Namespace, Account: reference{r.Name, string(r.UID)}}
	if err := a.bind(ctx, &to, r.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	if asked := *r.Spec.ExpirationSeconds; asked > a.maxLife {
		warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, a.maxLife))
		r.Spec.ExpirationSeconds = ptr.To(a.maxLife)
	}
	now, id := a.registry.Clock.Now(), uuid.NewString()
	expires := now.Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
	keys, err := a.keys()
	if err != nil {
		return nil, err
	}
	r.Status.ExpirationTimestamp = metav1.NewTime(expires.Truncate(time.Second))
	r.Status.Token, err = keys.sign(tokenClaims{
		Audiences: r.Spec.Audiences, Expires: expires.Unix(), Issued: now.Unix(), NotBefore: now.Unix(), Issuer: a.issuers[0], ID: id,
		Subject: serviceaccount.MakeUsername(r.Namespace, r.Name), Kubernetes: to,
	})
	audit.Annotate(ctx, "authentication.kubernetes.io/issued-credential-id", credentialID(id))
	r.SetGroupVersionKind(tokenKind)
	return r, err
}

// credentialID is what a token is called in its user's extra and in the audit log.
func credentialID(id string) string { return "JTI=" + id }

func validateTokenRequest(r *authenticationv1.TokenRequest) (errs field.ErrorList) {
	if ref := r.Spec.BoundObjectRef; len(r.Spec.Attestations) > 0 && (ref == nil || !strings.HasSuffix(ref.Kind, "WebhookConfiguration")) {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "attestations"), r.Spec.Attestations, "attestations may only be specified with a webhook bound object reference")}
	}
	at, life := field.NewPath("spec", "expirationSeconds"), *r.Spec.ExpirationSeconds
	if life < minTokenLife {
		errs = append(errs, field.Invalid(at, life, "may not specify a duration less than 10 minutes"))
	}
	if life > maxTokenLife {
		errs = append(errs, field.Invalid(at, life, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// bind notes the object with which a token is to end.
func (a *Accounts) bind(ctx context.Context, to *boundTo, ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	namespace := to.Namespace
	switch {
	case gvk.Group != "" || gvk.Kind != "Pod" && gvk.Kind != "Secret" && gvk.Kind != "Node":
		return apierrors.NewBadRequest("cannot bind token to object of type " + gvk.String())
	case gvk.Kind == "Node":
		namespace = ""
	}
	if err := registry.CheckName(ref.Name); err != nil {
		return err
	}
	o, err := a.find(ctx, gvk.Kind, namespace, ref.Name)
	if err != nil {
		return err
	}
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: plurals[gvk.Kind]}, ref.Name)
	}
	uid := o.Field("metadata.uid")
	if ref.UID != "" && uid != string(ref.UID) {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	as := &reference{o.Name(), uid}
	switch gvk.Kind {
	case "Secret":
		to.Secret = as
	case "Node":
		to.Node = as
	case "Pod":
		to.Pod = as
		return a.bindPod(ctx, to, o)
	}
	return nil
}

// The resources that a token may be bound to, besides pods.
var (
	accountsPrefix = storage.PrefixOf("", "serviceaccounts")
	secretsPrefix  = storage.PrefixOf("", "secrets")
	nodesPrefix    = storage.PrefixOf("", "nodes")
)

var plurals = map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"}

// bindPod checks that a pod runs with the account, and notes the pod's node in the token.
func (a *Accounts) bindPod(ctx context.Context, to *boundTo, pod *kube.Object) error {
	if runs := pod.Field("spec.serviceAccountName"); runs != to.Account.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", to.Account.Name))
	}
	name := pod.Field("spec.nodeName")
	if name == "" {
		return nil
	}
	node, err := a.find(ctx, "Node", "", name)
	if err != nil {
		return err
	}
	to.Node = &reference{Name: name}
	if node != nil {
		to.Node.UID = node.Field("metadata.uid")
	}
	return nil
}

// find returns an object of a core kind as it is now, nil if there is none.
func (a *Accounts) find(ctx context.Context, kind, namespace, name string) (*kube.Object, error) {
	e := a.registry.Catalog().Kind("v1", kind)
	if e == nil {
		return nil, nil
	}
	if err := e.Freshen(ctx); err != nil {
		return nil, err
	}
	return e.Object(namespace, name), nil
}

// knows tells whether a token says that it's one of ours. Nothing is proven by that.
func (a *Accounts) knows(t *jwt) bool { return slices.Contains(a.issuers, t.issuer()) }

// userOf returns whose token it is that says something which is proven, and for which of the audiences, of which there must be
// one. ctx bounds how long it looks for what the token is bound to.
func (a *Accounts) userOf(ctx context.Context, c *tokenClaims, wanted []string) (user.Info, []string, error) {
	switch now := a.registry.Clock.Now(); {
	case now.Unix() >= c.Expires:
		return nil, nil, errors.New("service account token has expired")
	case now.Add(leeway).Unix() < max(c.NotBefore, c.Issued):
		return nil, nil, errors.New("service account token is not valid yet")
	}
	shared := common(wanted, c.Audiences)
	if len(shared) == 0 {
		return nil, nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(c.Audiences), wanted)
	}
	if err := a.checkBound(ctx, &c.Kubernetes); err != nil {
		return nil, nil, err
	}
	return c.user(), shared, nil
}

// seen returns what a token says that was verified before, nil if it wasn't: most tokens come again and again.
func (a *Accounts) seen(hash [sha256.Size]byte) *tokenClaims {
	c, _ := a.verified.get(hash)
	return c
}

// verify returns what a token with a hash says, if we have signed it, and remembers that.
func (a *Accounts) verify(hash [sha256.Size]byte, t *jwt) (*tokenClaims, error) {
	keys, err := a.keys()
	if err != nil {
		return nil, err
	}
	if !keys.verify(t) {
		return nil, errors.New("service account token is signed with no key that is trusted")
	}
	c := new(tokenClaims)
	if err := json.Unmarshal(t.claims, c); err != nil {
		return nil, fmt.Errorf("service account token has claims that can't be read: %w", err)
	}
	of := c.Kubernetes
	if !serviceaccount.MatchesUsername(of.Namespace, of.Account.Name, c.Subject) {
		return nil, errors.New("service account token has a subject that isn't its account")
	}
	a.verified.put(hash, c)
	if now, err := a.keys(); err != nil || now != keys { // it was proven by keys that are replaced
		a.verified.forget()
	}
	return c, nil
}

// checkBound returns an error if something is gone that the token ends with. The error is a Status if the store can't tell: see
// registry.Endpoint.Freshen. All caches are as new as the one that is waited for.
func (a *Accounts) checkBound(ctx context.Context, b *boundTo) error {
	served := a.registry.Catalog()
	if e := served.Prefix(accountsPrefix); e != nil {
		if err := e.Freshen(ctx); err != nil {
			return err
		}
	}
	for _, of := range []struct {
		kind, namespace string
		at              storage.Prefix
		ref             *reference
	}{
		{"ServiceAccount", b.Namespace, accountsPrefix, &b.Account}, {"Pod", b.Namespace, podsPrefix, b.Pod},
		{"Secret", b.Namespace, secretsPrefix, b.Secret}, {"Node", "", nodesPrefix, b.boundNode()},
	} {
		if of.ref == nil {
			continue
		}
		account := of.kind == "ServiceAccount"
		switch o := served.Object(of.at, of.namespace, of.ref.Name); {
		case account && (o == nil || o.Err != nil):
			return fmt.Errorf("serviceaccounts %q not found", of.ref.Name)
		case o == nil || o.Err != nil || of.ref.UID == "":
			return errors.New("service account token has been invalidated")
		case account && o.Field("metadata.uid") != of.ref.UID:
			return fmt.Errorf("service account UID (%s) does not match claim (%s)", o.Field("metadata.uid"), of.ref.UID)
		case o.Field("metadata.uid") != of.ref.UID:
			kind := strings.ToLower(of.kind)
			return fmt.Errorf("%s UID (%s) does not match service account %[1]s ref claim (%[3]s)", kind, o.Field("metadata.uid"), of.ref.UID)
		case account && a.isGone(o):
			return fmt.Errorf("service account %s/%s has been deleted", of.namespace, of.ref.Name)
		case a.isGone(o):
			return errors.New("service account token has been invalidated")
		}
	}
	return nil
}

// boundNode returns the node that a token ends with. That of a pod only says where the pod runs.
func (b *boundTo) boundNode() *reference {
	if b.Pod != nil {
		return nil
	}
	return b.Node
}

// isGone tells whether an object should be gone by now, even if finalizers hold it.
func (a *Accounts) isGone(o *kube.Object) bool {
	if o.DeletionTimestamp == "" {
		return false
	}
	at, err := time.Parse(time.RFC3339, o.DeletionTimestamp)
	return err != nil || a.registry.Clock.Since(at) > leeway
}

// user is who a token is for, as in Kubernetes.
func (c *tokenClaims) user() user.Info {
	info := serviceaccount.ServiceAccountInfo{
		Namespace: c.Kubernetes.Namespace, Name: c.Kubernetes.Account.Name, UID: c.Kubernetes.Account.UID,
	}
	if c.ID != "" {
		info.CredentialID = credentialID(c.ID)
	}
	if pod := c.Kubernetes.Pod; pod != nil {
		info.PodName, info.PodUID = pod.Name, pod.UID
	}
	if node := c.Kubernetes.Node; node != nil {
		info.NodeName, info.NodeUID = node.Name, node.UID
	}
	return info.UserInfo()
}

// KeySet returns the keys by which others can verify tokens, as a JSON Web Key Set.
func (a *Accounts) KeySet() ([]byte, error) {
	keys, err := a.keys()
	if err != nil {
		return nil, err
	}
	return keys.set()
}

// Discovery returns what /.well-known/openid-configuration says.
func (a *Accounts) Discovery() ([]byte, error) {
	keys, err := a.keys()
	if err != nil {
		return nil, err
	}
	var algorithms []string
	for _, p := range keys.trusted {
		algorithms = append(algorithms, p.method.Alg())
	}
	slices.Sort(algorithms)
	return json.Marshal(map[string]any{
		"issuer": a.issuers[0], "jwks_uri": a.keysAt, "response_types_supported": []string{"id_token"},
		"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": slices.Compact(algorithms),
	})
}
