package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
)

const (
	policiesPath = "/apis/admissionregistration.k8s.io/v1"
	certsPath    = "/apis/certificates.k8s.io/v1"
)

// signingRequest is one as PEM in base64.
func signingRequest(t *testing.T, organizations ...string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "c", Organization: organizations}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// anchorText makes an authority's certificate as PEM.
func anchorText(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestRightsInsideWrites: what Kubernetes asks an authorizer inside a write is asked here, and so is the right to delete
// for the annotation that deletes. bob has the right to the write itself and not the further one; eve has both.
func TestRightsInsideWrites(t *testing.T) {
	s := newRuled(t, func(s *server.Server) {
		s.API.Builtin, s.API.Controllers = builtin.All, "none"
		s.Plugins.Enable = []string{"OwnerReferencesPermissionEnforcement"}
	})
	role := func(name string, users []string, rules ...string) {
		t.Helper()
		s.expect("root", "POST "+rbacPath+"/clusterroles", fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s]}`, name, strings.Join(rules, ",")), 201, "")
		for _, user := range users {
			s.expect("root", "POST "+rbacPath+"/clusterrolebindings",
				fmt.Sprintf(`{"metadata":{"name":"%s-%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":"User","name":%q}]}`, name, user, name, user), 201, "")
		}
	}
	role("writer", []string{"bob", "eve"},
		aRule("", "configmaps configmaps/status pods pods/status pods/binding namespaces namespaces/status", "create update patch get"),
		aRule("rbac.authorization.k8s.io", "roles rolebindings", "create update patch"),
		aRule("admissionregistration.k8s.io", "*", "create update patch"),
		aRule("resource.k8s.io", "resourceclaims resourceclaims/status", "create update patch"),
		aRule("certificates.k8s.io", "certificatesigningrequests certificatesigningrequests/approval certificatesigningrequests/status clustertrustbundles podcertificaterequests podcertificaterequests/status", "create update patch"))
	role("more", []string{"eve"},
		aRule("rbac.authorization.k8s.io", "roles clusterroles", "escalate bind"),
		aRule("", "secrets", "get list"),
		aRule("certificates.k8s.io", "signers", "approve", `,"resourceNames":["example.com/one"]`),
		aRule("certificates.k8s.io", "signers", "sign attest", `,"resourceNames":["example.com/*"]`),
		aRule("resource.k8s.io", "resourceclaims/binding", "patch"),
		aRule("resource.k8s.io", "resourceclaims/driver", "arbitrary-node:patch", `,"resourceNames":["one.example.com"]`),
		aRule("", "configmaps namespaces pods", "delete"),
		aRule("*", "configmaps/finalizers", "update"))

	make := func(request, body string) { t.Helper(); s.expect("root", request, body, 201, "") }
	make("POST "+inDefault+"/configmaps", `{"metadata":{"name":"owned"}}`)
	make("POST "+inDefault+"/configmaps", `{"metadata":{"name":"kept","annotations":{"apiserver-lite/ttl":"1h"}}}`)
	make("POST "+inDefault+"/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	policy := func(kind string) string {
		spec := `"validations":[{"expression":"true"}]`
		if kind == "Mutating" {
			spec = `"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'remove', path: '/a'}]"}}]`
		}
		return `{"metadata":{"name":%q},"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"},"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"resources":["x"],"operations":["CREATE"]}]},` + spec + `}}`
	}
	for _, kind := range []string{"Validating", "Mutating"} {
		make("POST "+policiesPath+"/"+strings.ToLower(kind)+"admissionpolicies", fmt.Sprintf(policy(kind), "stored"))
	}
	csr := signingRequest(t, "team")
	text, err := base64.StdEncoding.DecodeString(csr)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	stub := base64.StdEncoding.EncodeToString(block.Bytes)
	anchor := anchorText(t)
	request := func(name, signer, text string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"signerName":%q,"usages":["client auth"],"request":%q}}`, name, signer, text)
	}
	for _, name := range []string{"a", "b", "c"} {
		make("POST "+certsPath+"/certificatesigningrequests", request(name, "example.com/one", csr))
	}
	make("POST "+certsPath+"/namespaces/default/podcertificaterequests", `{"metadata":{"name":"pc"},"spec":{"signerName":"example.com/one","podName":"p","podUID":"u","serviceAccountName":"default","serviceAccountUID":"u","nodeName":"n","nodeUID":"u","stubPKCS10Request":"`+stub+`"}}`)

	const claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	allocation := `"allocation":{"devices":{"results":[{"request":"r","driver":"one.example.com","pool":"p","device":"d"}]}}`
	for _, name := range []string{"free", "taken"} {
		make("POST "+claims, `{"metadata":{"name":"`+name+`"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}`)
	}
	if res, text := s.Do("PATCH", claims+"/taken/status", `{"status":{`+allocation+`}}`, "Content-Type", "application/merge-patch+json", "Authorization", "Bearer root"); res.StatusCode != 200 {
		t.Fatal(text)
	}

	who := func(user, uid string) string { return "&{" + user + " " + uid + " [system:authenticated] map[]}" }
	owner := `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"kept","uid":"u"%s}]`
	const merge = "application/merge-patch+json"
	for _, tc := range []struct {
		right, request, body string // %s in the body is a name of the user's own
		code                 int    // of bob's refusal
		message              string // a part of it
	}{
		{"escalate", createRole, `{"metadata":{"name":"%s"},"rules":[` + aRule("", "secrets", "delete") + `]}`, 403, "is attempting to grant RBAC permissions not currently held"},
		{"bind", "POST " + rulesInNS + "/rolebindings", `{"metadata":{"name":"%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`, 403, "is attempting to grant RBAC permissions not currently held"},

		{"get all of paramKind", "POST " + policiesPath + "/validatingadmissionpolicies", strings.ReplaceAll(policy("Validating"), "%q", `"%s"`), 422,
			`spec.paramKind: Forbidden: user ` + who("bob", "3") + ` must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`},
		{"get all of paramKind", "POST " + policiesPath + "/mutatingadmissionpolicies", strings.ReplaceAll(policy("Mutating"), "%q", `"%s"`), 422,
			`spec.paramKind: Forbidden: user ` + who("bob", "3") + ` must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`},
		{"get what paramRef names", "POST " + policiesPath + "/validatingadmissionpolicybindings",
			`{"metadata":{"name":"%s"},"spec":{"policyName":"stored","validationActions":["Deny"],"paramRef":{"name":"db","namespace":"kube-system","parameterNotFoundAction":"Allow"}}}`, 422,
			`spec.paramRef: Forbidden: user ` + who("bob", "3") + ` does not have "get" permission on the object referenced by paramRef`},
		{"list what paramRef selects", "POST " + policiesPath + "/mutatingadmissionpolicybindings",
			`{"metadata":{"name":"%s"},"spec":{"policyName":"stored","paramRef":{"selector":{},"namespace":"kube-system","parameterNotFoundAction":"Allow"}}}`, 422,
			`spec.paramRef: Forbidden: user ` + who("bob", "3") + ` does not have "list" permission on the object referenced by paramRef`},

		{"approve", "PATCH " + certsPath + "/certificatesigningrequests/a/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"%s"}]}}`, 403,
			`user not permitted to approve requests with signerName "example.com/one"`},
		{"sign", "PATCH " + certsPath + "/certificatesigningrequests/b/status", `{"status":{"certificate":"` + base64.StdEncoding.EncodeToString([]byte(anchor)) + `"}}`, 403, `user not permitted to sign requests with signerName "example.com/one"`},
		{"sign", "PATCH " + certsPath + "/certificatesigningrequests/c/status", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"%s"}]}}`, 403, `user not permitted to sign requests with signerName "example.com/one"`},
		{"sign", "PATCH " + certsPath + "/namespaces/default/podcertificaterequests/pc/status", `{"status":{"conditions":[{"type":"Denied","status":"True","reason":"%s","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, 422,
			`spec.signerName: Forbidden: User "bob" is not permitted to "sign" for signer "example.com/one"`},
		{"bind a claim", "PATCH " + claims + "/free/status", `{"status":{` + allocation + `}}`, 422,
			`status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User "bob" cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`},
		{"speak for a driver", "PATCH " + claims + "/taken/status", `{"status":{"devices":[{"driver":"one.example.com","pool":"p","device":"d","data":{"a":"%s"}}]}}`, 422,
			`status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "one.example.com" is forbidden: User "bob" cannot arbitrary-node:patch resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"`},

		{"attest", "POST " + certsPath + "/clustertrustbundles", `{"metadata":{"name":"example.com:one:%s"},"spec":{"signerName":"example.com/one","trustBundle":` + strconv.Quote(anchor) + `}}`, 403, `user not permitted to attest for signerName "example.com/one"`},

		{"delete, for an owner", "PATCH " + inDefault + "/configmaps/owned", `{"metadata":{` + fmt.Sprintf(owner, "") + `}}`, 403, "cannot set an ownerRef on a resource you can't delete"},
		{"finalizers of a blocked owner", "POST " + inDefault + "/configmaps", `{"metadata":{"name":"%s",` + fmt.Sprintf(owner, `,"blockOwnerDeletion":true`) + `}}`, 403, "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"},

		{"delete, for a new object's ttl", "POST " + inDefault + "/configmaps", `{"metadata":{"name":"%s-ttl","annotations":{"apiserver-lite/ttl":"1h"}}}`, 403, "cannot set the annotation apiserver-lite/ttl on a resource you can't delete"},
		{"delete, for a namespace's ttl", "PATCH /api/v1/namespaces/kube-node-lease", `{"metadata":{"annotations":{"apiserver-lite/ttl":"9h"}}}`, 403, "cannot set the annotation apiserver-lite/ttl on a resource you can't delete"},
		{"delete, for a shorter ttl", "PATCH " + inDefault + "/configmaps/kept", `{"metadata":{"annotations":{"apiserver-lite/ttl":"59m"}}}`, 403, "cannot set the annotation apiserver-lite/ttl on a resource you can't delete"},
	} {
		for _, user := range []string{"bob", "eve"} {
			method, path, _ := strings.Cut(tc.request, " ")
			body := strings.ReplaceAll(tc.body, "%s", user)
			media := "application/json"
			if method == http.MethodPatch {
				media = merge
			}
			res, text := s.Do(method, path, body, "Content-Type", media, "Authorization", "Bearer "+user)
			var status metav1.Status
			json.Unmarshal([]byte(text), &status) // what isn't one has no message
			if user == "bob" && (res.StatusCode != tc.code || !strings.Contains(status.Message, tc.message)) {
				t.Errorf("%s: %s without the right: %d %s, want %d %s", tc.right, tc.request, res.StatusCode, text, tc.code, tc.message)
			}
			if user == "eve" && res.StatusCode >= 300 {
				t.Errorf("%s: %s with the right: %d %s", tc.right, tc.request, res.StatusCode, text)
			}
		}
	}

	for _, tc := range []struct{ what, request, body string }{
		{"owners at creation", "POST " + inDefault + "/configmaps", `{"metadata":{"name":"born",` + fmt.Sprintf(owner, "") + `}}`},
		{"the same ttl", "PATCH " + inDefault + "/configmaps/kept", `{"data":{"a":"b"}}`},
		{"no ttl any more", "PATCH " + inDefault + "/configmaps/kept", `{"metadata":{"annotations":{"apiserver-lite/ttl":null}}}`},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		media := "application/json"
		if method == http.MethodPatch {
			media = merge
		}
		if res, text := s.Do(method, path, tc.body, "Content-Type", media, "Authorization", "Bearer bob"); res.StatusCode >= 300 {
			t.Errorf("%s needs no further right: %d %s", tc.what, res.StatusCode, text)
		}
	}

	// Where nobody is asked, what would delete isn't taken.
	for _, tc := range []struct{ request, body string }{
		{"PATCH " + inDefault + "/pods/p/status", `{"metadata":{"annotations":{"apiserver-lite/ttl":"0s","a":"b"},` + fmt.Sprintf(owner, "") + `}}`},
		{"PATCH /api/v1/namespaces/default/status", `{"metadata":{"annotations":{"apiserver-lite/ttl":"0s","a":"b"}}}`},
		{"POST " + inDefault + "/pods/p/binding", `{"metadata":{"name":"p","annotations":{"apiserver-lite/ttl":"0s","a":"b"}},"target":{"kind":"Node","name":"n"}}`},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		media := "application/json"
		if method == http.MethodPatch {
			media = merge
		}
		if res, text := s.Do(method, path, tc.body, "Content-Type", media, "Authorization", "Bearer bob"); res.StatusCode >= 300 {
			t.Errorf("%s: %d %s", tc.request, res.StatusCode, text)
		}
		if _, text := s.Do(http.MethodGet, path[:strings.LastIndex(path, "/")], "", "Authorization", "Bearer bob"); strings.Contains(text, "apiserver-lite/ttl") || strings.Contains(text, "ownerReferences") || !strings.Contains(text, `"a":"b"`) {
			t.Errorf("%s has left %s", tc.request, text)
		}
	}

	// A driver's account on the node of the devices may have the right for that node alone.
	role("driver", nil, aRule("resource.k8s.io", "resourceclaims/driver", "associated-node:patch"))
	const account = "system:serviceaccount:default:driver"
	for _, name := range []string{"writer", "driver"} {
		s.expect("root", "POST "+rbacPath+"/clusterrolebindings", `{"metadata":{"name":"account-`+name+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+name+`"},"subjects":[{"kind":"User","name":"`+account+`"}]}`, 201, "")
	}
	status := func(headers []string, body string) int {
		t.Helper()
		res, _ := s.Do("PATCH", claims+"/taken/status", body, append(headers, "Content-Type", merge, "Authorization", "Bearer root")...)
		return res.StatusCode
	}
	const there = `"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]},`
	const device = `{"driver":"one.example.com","pool":"p","device":"d","data":{"on":%q}}`
	for _, body := range []string{`{"status":null}`, `{"status":{` + strings.Replace(allocation, `{"devices"`, `{`+there+`"devices"`, 1) + `}}`} {
		if code := status(nil, body); code != 200 {
			t.Fatalf("root's %s: %d", body, code)
		}
	}
	for _, tc := range []struct {
		user, node, devices string
		code                int
	}{
		{account, "", fmt.Sprintf(device, "a"), 422},
		{account, "n2", fmt.Sprintf(device, "a"), 422},
		{"ann", "n1", fmt.Sprintf(device, "a"), 403}, // may not write the status at all
		{account, "n1", fmt.Sprintf(device, "a"), 200},
		{account, "n2", fmt.Sprintf(device, "a"), 200}, // as it is
		{account, "n2", ``, 422},                       // removed
		{account, "n1", ``, 200},
	} {
		headers := []string{"Impersonate-User", tc.user}
		if tc.node != "" {
			headers = append(headers, "Impersonate-Extra-Authentication.kubernetes.io%2Fnode-Name", tc.node)
		}
		if code := status(headers, `{"status":{"devices":[`+tc.devices+`]}}`); code != tc.code {
			t.Errorf("%s on %q writes the devices [%s]: %d, want %d", tc.user, tc.node, tc.devices, code, tc.code)
		}
	}

	// Devices in use are for whom the namespace's label says so.
	admin := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","adminAccess":true}}]}}}`
	}
	s.expect("eve", "POST "+claims, admin("admin"), 422, `ResourceClaim.resource.k8s.io "admin" is invalid: spec.devices.requests[0].adminAccess: Forbidden: `+
		"admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace")
	make("POST /api/v1/namespaces", `{"metadata":{"name":"admins","labels":{"resource.kubernetes.io/admin-access":"true"}}}`)
	s.expect("eve", "POST "+strings.Replace(claims, "default", "admins", 1), admin("admin"), 201, "")

	// A certificate can't make anybody one of system:masters, whoever asks, unless the plug-in is off.
	masters := signingRequest(t, "system:masters")
	s.expect("root", "POST "+certsPath+"/certificatesigningrequests", request("m", "kubernetes.io/kube-apiserver-client", masters), 403,
		`certificatesigningrequests.certificates.k8s.io "m" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`)
	s.expect("root", "POST "+certsPath+"/certificatesigningrequests", request("m", "kubernetes.io/kube-apiserver-client", csr), 201, "")
}

// TestSignersPluginsOff: --disable-admission-plugins names the plug-ins of signers.
func TestSignersPluginsOff(t *testing.T) {
	s := newRuled(t, func(s *server.Server) {
		s.API.Builtin = builtin.All
		s.Plugins.Disable = []string{"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "ClusterTrustBundleAttest"}
	})
	s.expect("root", "POST "+certsPath+"/certificatesigningrequests",
		fmt.Sprintf(`{"metadata":{"name":"m"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"request":%q}}`, signingRequest(t, "system:masters")), 201, "")
}
