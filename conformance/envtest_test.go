package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assets fills a directory for envtest, and has envtest and the programs keep their files in another, which is returned.
func assets(t testing.TB) (temporary string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "assets")
	if output, err := exec.Command(apiserverBinary, "envtest", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	temporary = t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	t.Setenv("TMPDIR", temporary)
	return temporary
}

// TestEnvtest: an environment of envtest starts with users and rules, its administrator may do everything, another user what a role
// says, and nothing is left of it.
func TestEnvtest(t *testing.T) {
	temporary := assets(t)
	env := &envtest.Environment{}
	began := time.Now()
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
	stopped := false
	defer func() {
		if !stopped {
			env.Stop()
		}
	}()
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jane, err := kubernetes.NewForConfig(reader.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	who, err := jane.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "jane" {
		t.Errorf("jane is %+v, %v", who, err)
	}
	_, err = jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if want := `configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default"`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("before there is a role: %v", err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	if _, err := admin.RbacV1().Roles("default").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}}}
	if _, err := admin.RbacV1().RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("with the role: %v", err)
	}
	if err := jane.CoreV1().ConfigMaps("default").Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what the role doesn't say: %v", err)
	}
	began, stopped = time.Now(), true
	if err := env.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopped in %v", time.Since(began).Round(time.Millisecond))
	files, err := os.ReadDir(temporary)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "kubecfg") {
			t.Errorf("%s is left", f.Name())
		}
	}
}

// BenchmarkEnvtest measures the start and the stop of an environment. What they must reach: 500 ms and 2 s.
func BenchmarkEnvtest(b *testing.B) {
	assets(b)
	var start, stop time.Duration
	for b.Loop() {
		env := &envtest.Environment{}
		began := time.Now()
		if _, err := env.Start(); err != nil {
			b.Fatal(err)
		}
		started := time.Now()
		if err := env.Stop(); err != nil {
			b.Fatal(err)
		}
		start, stop = start+started.Sub(began), stop+time.Since(started)
	}
	b.ReportMetric(float64(start)/float64(time.Millisecond)/float64(b.N), "ms/start")
	b.ReportMetric(float64(stop)/float64(time.Millisecond)/float64(b.N), "ms/stop")
}
