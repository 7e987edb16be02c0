package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

const (
	secretsPath = "/api/v1/namespaces/default/secrets"
	secretsKeys = "/registry/core/secrets/default/"
)

// sealed is an etcd, and a file that says how what servers store in it is encrypted.
type sealed struct {
	t    *testing.T
	etcd *etcd.Server
	file string
	log  await.Log
}

// newSealed returns one whose file has these providers for secrets and widgets.
func newSealed(t *testing.T, providers ...string) *sealed {
	t.Helper()
	e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &sealed{t: t, etcd: e, file: filepath.Join(t.TempDir(), "encryption.yaml")}
	s.write(providers...)
	return s
}

// write makes the file one with these providers.
func (s *sealed) write(providers ...string) {
	s.t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, widgets.example.com]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	if err := os.WriteFile(s.file+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil {
		s.t.Fatal(err)
	}
}

// key is a provider with one key, of a name and 32 bytes that begin with it.
func key(provider, name string) string {
	secret := base64.StdEncoding.EncodeToString([]byte((name + strings.Repeat("x", 32))[:32]))
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, name, secret)
}

// serve starts a server over the etcd.
func (s *sealed) serve(options ...func(*server.Server)) *servertest.Server {
	s.t.Helper()
	return servertest.New(s.t, append([]func(*server.Server){func(o *server.Server) {
		o.Data.Ephemeral = false
		server.Share(o, s.etcd)
		o.Data.Encryption.File, o.Data.Encryption.Reload = s.file, true
		o.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	}}, options...)...)
}

// stored is what the etcd has under a key.
func (s *sealed) stored(key string) []byte {
	s.t.Helper()
	res, err := s.etcd.Client.Get(s.t.Context(), key)
	if err != nil || len(res.Kvs) != 1 {
		s.t.Fatalf("%s: %d values, %v", key, len(res.Kvs), err)
	}
	return res.Kvs[0].Value
}

// put writes into the etcd what no server wrote.
func (s *sealed) put(key string, value []byte) {
	s.t.Helper()
	if _, err := s.etcd.Client.Put(s.t.Context(), key, string(value)); err != nil {
		s.t.Fatal(err)
	}
}

const hidden = "aGlkZGVuIGluIHRoZSBzdG9yZQ=="

func secret(name string) string {
	return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"data":{"a":"` + hidden + `"}}`
}

// kmsPlugin is a KMS v2 plugin that turns bytes round. It can be told to fail.
type kmsPlugin struct {
	fails atomic.Bool
	id    atomic.Value
}

func turned(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[len(b)-1-i] = c ^ 0x5a
	}
	return out
}

func (p *kmsPlugin) check() error {
	if p.fails.Load() {
		return errors.New("deliberate")
	}
	return nil
}

func (p *kmsPlugin) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: p.id.Load().(string)}, p.check()
}

func (p *kmsPlugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: turned(data), KeyID: p.id.Load().(string)}, p.check()
}

func (p *kmsPlugin) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	return turned(r.Ciphertext), p.check()
}

// newKMS serves a plugin, and returns the provider that asks it. name must be one that no other test has.
func newKMS(t *testing.T, name string) (p *kmsPlugin, provider string) {
	t.Helper()
	p = &kmsPlugin{}
	p.id.Store("1")
	dir, err := os.MkdirTemp("", "kms") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	s := service.NewGRPCService(socket, 10*time.Second, p)
	served := make(chan error, 1)
	go func() { served <- s.ListenAndServe() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	until(t, "the plugin serves", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	return p, fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: 'unix://%s', timeout: 3s}", name, socket)
}

// TestEncryption: what is stored of a Secret says nothing of it, whichever provider is the first, and all that clients see is as it was.
func TestEncryption(t *testing.T) {
	_, kms := newKMS(t, "encryption")
	for name, c := range map[string]struct {
		provider, prefix string
		bound            bool // to its key
	}{
		"secretbox": {key("secretbox", "k1"), "k8s:enc:secretbox:v1:k1:", false},
		"aescbc":    {key("aescbc", "k1"), "k8s:enc:aescbc:v1:k1:", false},
		"aesgcm":    {key("aesgcm", "k1"), "k8s:enc:aesgcm:v1:k1:", true},
		"kms":       {kms, "k8s:enc:kms:v2:encryption:", true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newSealed(t, c.provider)
			s := x.serve()
			w := s.Watch(secretsPath + "?watch=true")
			defer w.Close()
			s.PostYAML(secretsPath, secret("a"))
			if line, err := w.Next(); err != nil || !strings.Contains(line, `"ADDED"`) || !strings.Contains(line, hidden) {
				t.Errorf("the watch has %s, %v", line, err)
			}
			stored := x.stored(secretsKeys + "a")
			if !bytes.HasPrefix(stored, []byte(c.prefix)) || bytes.Contains(stored, []byte("aGlkZGVu")) || bytes.Contains(stored, []byte("metadata")) {
				t.Errorf("stored is %q", stored)
			}
			s.PostYAML("/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"},"data":{"a":"shown"}}`)
			if plain := x.stored("/registry/core/configmaps/default/a"); !bytes.Contains(plain, []byte("shown")) {
				t.Errorf("a ConfigMap is stored as %q", plain)
			}
			// Another server reads it from the store, and history, too.
			other := x.serve()
			if got := other.Get(secretsPath + "/a"); !strings.Contains(got, hidden) {
				t.Errorf("another server has %s", got)
			}
			// A value that somebody moved to another key is only that key's if the provider binds it.
			x.put(secretsKeys+"moved", stored)
			until(t, "the moved value is seen", func() bool {
				res, _ := s.Do("GET", secretsPath+"/moved", "")
				return res.StatusCode != http.StatusNotFound
			})
			res, body := s.Do("GET", secretsPath+"/moved", "")
			if got := res.StatusCode == http.StatusInternalServerError && strings.Contains(body, "StorageReadError"); got != c.bound {
				t.Errorf("the moved value is answered %d: %s", res.StatusCode, body)
			}
		})
	}
}

// TestUndecryptable: a value that can't be decrypted is one object with an error, named in lists, and stops nothing else. It's deleted only by who
// asks for that.
func TestUndecryptable(t *testing.T) {
	x := newSealed(t, key("secretbox", "k1"))
	x.put(secretsKeys+"lost", []byte("k8s:enc:secretbox:v1:other:xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))
	x.put(secretsKeys+"plain", []byte(secret("plain"))) // without identity, as upstream
	s := x.serve()
	s.PostYAML(secretsPath, secret("a"))
	res, body := s.Do("GET", secretsPath, "")
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"a"`) || strings.Contains(body, `"lost"`) {
		t.Errorf("the list is %d %s", res.StatusCode, body)
	}
	if warning := res.Header.Get("Warning"); !strings.Contains(warning, "secrets that can't be read from storage are left out: default/lost, default/plain") {
		t.Errorf("the list warns %q", warning)
	}
	if text := x.log.Take(); !strings.Contains(text, `resource=secrets objects=2 first=/registry/core/secrets/default/lost`) {
		t.Errorf("the log has %s", text)
	}
	const ignore = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	for _, c := range []struct {
		what, method, path string
		code               int
		says               string
	}{
		{"a get", "GET", "/lost", 500, "StorageReadError"},
		{"an update", "PUT", "/lost", 500, "StorageReadError"},
		{"a create", "POST", "", 409, "AlreadyExists"},
		{"a deletion", "DELETE", "/lost", 500, "ignoreStoreReadErrorWithClusterBreakingPotential"},
		{"a deletion of the readable", "DELETE", "/a" + ignore, 409, "unsafe deletion is not allowed because the object is decodable from storage"},
		{"a deletion of nothing", "DELETE", "/none" + ignore, 404, "NotFound"},
		{"with a policy, too", "DELETE", "/lost" + ignore + "&propagationPolicy=Orphan", 422, "cannot be set together with .propagationPolicy"},
		{"a dry run", "DELETE", "/lost" + ignore + "&dryRun=All", 200, `"status":"Success","details":{"name":"lost","kind":"Secret"},"code":200`},
		{"a deletion of all", "DELETE", ignore, 422, "is not allowed with DELETECOLLECTION, try again after removing the option"},
		{"the deletion", "DELETE", "/lost" + ignore, 200, "Success"},
		{"afterwards", "GET", "/lost", 404, "NotFound"},
	} {
		object := ""
		if c.method == "PUT" || c.method == "POST" {
			object = secret("lost")
		}
		if res, body := s.Do(c.method, secretsPath+c.path, object); res.StatusCode != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s is answered %d, want %d with %q: %s", c.what, res.StatusCode, c.code, c.says, body)
		}
	}
	// All others go. A namespace waits for what nobody can read, and says so.
	s.Do("DELETE", secretsPath, "")
	s.PostYAML("/api/v1/namespaces", `{"metadata":{"name":"going"}}`)
	x.put("/registry/core/secrets/going/lost", []byte("k8s:enc:secretbox:v1:other:x"))
	s.Do("DELETE", "/api/v1/namespaces/going", "")
	until(t, "the namespace says what it waits for", func() bool {
		_, body := s.Do("GET", "/api/v1/namespaces/going", "")
		return strings.Contains(body, `\"lost\" can't be read from storage`)
	})
	if res, body := s.Do("DELETE", "/api/v1/namespaces/going/secrets/lost"+ignore, ""); res.StatusCode != http.StatusOK {
		t.Errorf("the deletion is answered %d %s", res.StatusCode, body)
	}
	until(t, "the namespace goes", func() bool {
		res, _ := s.Do("GET", "/api/v1/namespaces/going", "")
		return res.StatusCode == http.StatusNotFound
	})
}

// TestUnsafeDeletionNeedsTheRight: who may delete may not delete what can't be read.
func TestUnsafeDeletionNeedsTheRight(t *testing.T) {
	d := newDoors(t, withRules)
	d.grant("alice", `- {apiGroups: [""], resources: [secrets], verbs: [delete, get]}`)
	d.grant("bob", `- {apiGroups: [""], resources: [secrets], verbs: [delete, unsafe-delete-ignore-read-errors]}`)
	for token, want := range map[string]struct {
		code int
		says string
	}{
		"alice-token": {http.StatusForbidden, `not permitted to do \"unsafe-delete-ignore-read-errors\"`},
		"bob-token":   {http.StatusNotFound, `not found`},
	} {
		res, body := d.ask(nil, false, "DELETE", secretsPath+"/none?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", "Authorization", "Bearer "+token)
		if res.StatusCode != want.code || !strings.Contains(body, want.says) {
			t.Errorf("%s is answered %d %s, want %d", token, res.StatusCode, body, want.code)
		}
	}
}

// TestEncryptionReloads: a new file counts at once, a bad one not at all, and what couldn't be read for want of a key is there again without a restart.
func TestEncryptionReloads(t *testing.T) {
	x := newSealed(t, key("secretbox", "k1"))
	s := x.serve()
	s.PostYAML(secretsPath, secret("a"))
	s.PostYAML(secretsPath, secret("b"))

	x.write("secretbox: {keys: [{name: k2, secret: dG9vIHNob3J0}]}")
	until(t, "the bad file is refused", func() bool { return strings.Contains(x.log.Take(), "the one that was read before stays") })
	if res, body := s.Do("PUT", secretsPath+"/a", strings.Replace(secret("a"), "{", `{"immutable":false,`, 1)); res.StatusCode != http.StatusOK {
		t.Errorf("after a bad file a write is answered %d %s", res.StatusCode, body)
	}

	x.write(key("secretbox", "k2"), key("secretbox", "k1"))
	until(t, "the new key is used", func() bool {
		s.Do("DELETE", secretsPath+"/c", "")
		s.PostYAML(secretsPath, secret("c"))
		return bytes.HasPrefix(x.stored(secretsKeys+"c"), []byte("k8s:enc:secretbox:v1:k2:"))
	})
	// A write that changes nothing is done if the object is under the old key, and only then.
	for _, want := range []string{"another", "the same"} {
		before := s.Get(secretsPath + "/a")
		res, after := s.Do("PATCH", secretsPath+"/a", "{}", "Content-Type", "application/merge-patch+json")
		if changed := before != after; res.StatusCode != http.StatusOK || changed != (want == "another") {
			t.Errorf("a patch of nothing gives %d and %s, want %s version as before: %s", res.StatusCode, after, want, before)
		}
	}
	if stored := x.stored(secretsKeys + "a"); !bytes.HasPrefix(stored, []byte("k8s:enc:secretbox:v1:k2:")) {
		t.Errorf("after a patch of nothing stored is %.40q", stored)
	}

	x.write(key("secretbox", "k2")) // b is under k1 still
	other := x.serve()
	if res, body := other.Do("GET", secretsPath+"/b", ""); res.StatusCode != http.StatusInternalServerError {
		t.Errorf("without its key, b is answered %d %s", res.StatusCode, body)
	}
	w := other.Watch(secretsPath + "?watch=true&fieldSelector=metadata.name%3Db")
	defer w.Close()
	x.write(key("secretbox", "k2"), key("secretbox", "k1"))
	if line, err := w.Next(); err != nil || !strings.Contains(line, `"ADDED"`) || !strings.Contains(line, hidden) {
		t.Errorf("when the key is back, the watch has %s, %v", line, err)
	}
	if got := other.Get(secretsPath); !strings.Contains(got, `"name":"b"`) {
		t.Errorf("when the key is back, the list is %s", got)
	}
}

const migrationsPath = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"

// TestStorageVersionMigration: what is stored under an old key, or in an old version, is stored anew when a StorageVersionMigration asks for it.
func TestStorageVersionMigration(t *testing.T) {
	x := newSealed(t, key("secretbox", "k1"))
	all := func(o *server.Server) { o.API.Builtin = "all" }
	s := x.serve(all)
	s.PostYAML(secretsPath, secret("a"))
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML(widgetsPath, widget("a"))
	x.write(key("secretbox", "k2"), key("secretbox", "k1"))
	until(t, "the server has the new key", func() bool { return strings.Contains(x.log.Take(), "was read again") })
	two := strings.Replace(widgets, "  - name: v1\n    served: true\n    storage: true\n", "  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n  - name: v1\n    served: true\n    storage: false\n", 1)
	if res, body := s.Do("PATCH", definitionsPath+"/widgets.example.com?fieldManager=t&force=true", two, "Content-Type", "application/apply-patch+yaml"); res.StatusCode != http.StatusOK {
		t.Fatalf("the definition is answered %d %s", res.StatusCode, body)
	}
	for name, resource := range map[string]string{"secrets": "{resource: secrets}", "widgets": "{group: example.com, resource: widgets}", "none": "{group: example.com, resource: frobs}"} {
		s.PostYAML(migrationsPath, "metadata: {name: "+name+"}\nspec: {resource: "+resource+"}")
	}
	s.Quiescent()
	for name, want := range map[string]string{"secrets": "Succeeded", "widgets": "Succeeded", "none": "Failed"} {
		if got := s.Get(migrationsPath + "/" + name); !strings.Contains(got, `"type":"`+want+`"`) {
			t.Errorf("the migration of %s is %s, want %s", name, got, want)
		}
	}
	if stored := x.stored(secretsKeys + "a"); !bytes.HasPrefix(stored, []byte("k8s:enc:secretbox:v1:k2:")) {
		t.Errorf("the Secret is stored as %.40q", stored)
	}
	x.write(key("secretbox", "k2"))
	s = x.serve(all)
	if got := s.Get(secretsPath + "/a"); !strings.Contains(got, hidden) {
		t.Errorf("without the old key, the Secret is %s", got)
	}
	if got := s.Get(strings.Replace(widgetsPath, "v1", "v2", 1) + "/a"); !strings.Contains(got, `"apiVersion":"example.com/v2"`) {
		t.Errorf("the widget is %s", got)
	}
}

// TestKMSFails: while a KMS doesn't answer, readyz says so, and what needs no answer of it goes on. When it answers again, what couldn't be read is
// there without a restart.
func TestKMSFails(t *testing.T) {
	plugin, provider := newKMS(t, "failing")
	x := newSealed(t, provider)
	before := x.serve()
	before.PostYAML(secretsPath, secret("a"))
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	plugin.fails.Store(true)
	s := x.serve(func(o *server.Server) { o.Data.Encryption.Reload = false })
	if res, body := s.Do("POST", secretsPath, secret("b")); res.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "Internal error occurred") {
		t.Errorf("a create without the KMS is answered %d %s", res.StatusCode, body)
	}
	if res, body := s.Do("GET", secretsPath+"/a", ""); res.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "StorageReadError") {
		t.Errorf("a get without the KMS is answered %d %s", res.StatusCode, body)
	}
	for path, code := range map[string]int{"/readyz": 500, "/livez": 200} {
		if res, body := s.Do("GET", path, ""); res.StatusCode != code || code == 500 && !strings.Contains(body, "kms-providers failed") {
			t.Errorf("%s is answered %d %s", path, res.StatusCode, body)
		}
	}
	if res, _ := s.Do("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`); res.StatusCode != http.StatusCreated {
		t.Errorf("a ConfigMap is answered %d", res.StatusCode)
	}
	plugin.fails.Store(false)
	until(t, "the server is ready", func() bool {
		res, _ := s.Do("GET", "/readyz", "")
		return res.StatusCode == http.StatusOK
	})
	s.PostYAML(secretsPath, secret("b"))
	until(t, "what couldn't be read is there", func() bool { return strings.Contains(s.Get(secretsPath), `"name":"a"`) })
}
