package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubectlUsers: create token, --as, whoami, can-i and certificate, where RBAC holds.
func TestKubectlUsers(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	s := start(t, "--ephemeral", "--tls", "--builtin=all", "--authorization-mode=RBAC", "--write-kubeconfig", config)
	k := newKubectl(t, s)
	k.flags = []string{"--kubeconfig", config}
	k.tell(t, []step{
		{args: args("auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"), want: `system:admin ["system:masters","system:authenticated"]`},
		{args: args("create", "serviceaccount", "robot"), want: "serviceaccount/robot created"},
		{args: args("create", "role", "reader", "--verb=get,list", "--resource=configmaps"), want: "role.rbac.authorization.k8s.io/reader created"},
		{args: args("create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:robot"), want: "rolebinding.rbac.authorization.k8s.io/readers created"},
		{args: args("auth", "whoami", "--as", "ann", "--as-group", "devs", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"), want: `ann ["devs","system:authenticated"]`},
		{args: args("get", "secrets", "--as", "ann"), fails: `secrets is forbidden: User "ann" cannot list resource "secrets" in API group "" in the namespace "default"`},
		{args: args("get", "configmaps", "--as", "system:serviceaccount:default:robot", "-o", "name"), want: ""},
		{args: args("auth", "can-i", "list", "configmaps", "--as", "system:serviceaccount:default:robot"), want: "yes"},
		{args: args("auth", "can-i", "--list", "--as", "system:serviceaccount:default:robot"), want: "...configmaps "},
		{args: args("create", "token", "robot", "--bound-object-kind=ConfigMap", "--bound-object-name=x"), fails: "supported"},
	})
	token := k.do("", "create", "token", "robot", "--duration=20m")
	robot := newKubectl(t, s)
	robot.flags = []string{"--server", s.url, "--insecure-skip-tls-verify", "--token", token}
	robot.tell(t, []step{
		{args: args("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"), want: "system:serviceaccount:default:robot"},
		{args: args("get", "configmaps", "-o", "name"), want: ""},
		{args: args("create", "configmap", "x"), fails: `User "system:serviceaccount:default:robot" cannot create resource "configmaps"`},
		{args: args("get", "configmaps", "--as", "ann"), fails: `cannot impersonate-on:user-info:`},
	})
	k.tell(t, []step{
		{args: args("create", "-f", "-"), stdin: signingRequest(t), want: "certificatesigningrequest.certificates.k8s.io/ann created"},
		{args: args("get", "csr", "ann", "-o", "jsonpath={.spec.username}"), want: "system:admin"},
		{args: args("certificate", "approve", "ann"), want: "certificatesigningrequest.certificates.k8s.io/ann approved"},
		{args: args("get", "csr", "ann", "-o", "jsonpath={.status.conditions[*].type}"), want: "Approved"},
		{args: args("delete", "serviceaccount", "robot"), want: `serviceaccount "robot" deleted from default namespace`},
	})
	robot.tell(t, []step{{args: args("get", "configmaps"), fails: "You must be logged in to the server"}})
}

// signingRequest is a CertificateSigningRequest for ann.
func signingRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return strings.ReplaceAll(`{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: ann},
		spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: "REQUEST"}}`, "REQUEST\"", request+"\"")
}
