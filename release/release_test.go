package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// made is where the release is that all tests look at: of this machine's binary alone, because the others take long to build.
var made string

const version = "v0.0.1-test"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "made")
	if err != nil {
		panic(err)
	}
	made = filepath.Join(dir, "release")
	if err := run([]string{"--version", version, "--out", made, "--targets", runtime.GOOS + "/" + runtime.GOARCH}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"--version=v1", "x"}, {"--version=v1", "--targets=plan9/amd64"}} {
		if err := run(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestNumbered(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "v0.1.0-7-gabc": "0.1.0-7-gabc", "abc1234": "0.0.0-abc1234"} {
		if got := numbered(version); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

// TestChecksums: each file has its own.
func TestChecksums(t *testing.T) {
	sums, err := os.ReadFile(filepath.Join(made, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(made, e.Name()))
		if err != nil || !strings.Contains(string(sums), fmt.Sprintf("%x  %s\n", sha256.Sum256(content), e.Name())) {
			t.Errorf("of %s there is no such sum in\n%s", e.Name(), sums)
		}
	}
	if len(entries) < 5 {
		t.Errorf("there are only %v", entries)
	}
}

// maxBinary is how many bytes the binary may have. Whoever meets it looks at what has been linked: `go tool nm -size -sort size`. If it
// has grown by 8 MB at once, something looks up methods by names that the linker doesn't know, as text/template does, and every method of
// every type is kept: `go build -ldflags=-dumpdep . 2>&1 | grep ReflectMethod` names it. The Makefile's BUILD says what else is needed.
const maxBinary = 62_000_000

func TestBinaryIsSmall(t *testing.T) {
	binary, err := os.Stat(filepath.Join(made, "apiserver-lite-"+runtime.GOOS+"-"+runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	if binary.Size() > maxBinary {
		t.Errorf("it has %d bytes, more than %d", binary.Size(), maxBinary)
	}
}

// TestBill: what is linked into the binary is listed, with its version.
func TestBill(t *testing.T) {
	f, err := os.Open(filepath.Join(made, fmt.Sprintf("apiserver-lite-%s-%s.cdx.json", runtime.GOOS, runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
		if c.Version == "" || !strings.HasSuffix(c.PackageURL, "@"+c.Version) {
			t.Errorf("a component is %+v", c)
		}
	}
	for _, want := range []string{"std", "go.etcd.io/etcd/server/v3", "k8s.io/apimachinery"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s isn't among %d components", want, len(names))
		}
	}
	if bom.Metadata.Component.Version != version {
		t.Errorf("it's about %+v", bom.Metadata.Component)
	}
}

// TestDebian: the package has what is needed to run it, at Debian's places. Other systems don't have the program that unpacks one.
func TestDebian(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Log("there's no dpkg-deb here")
		return
	}
	deb, root := filepath.Join(made, "apiserver-lite_"+runtime.GOARCH+".deb"), t.TempDir()
	fields, err := exec.Command("dpkg-deb", "--field", deb).CombinedOutput()
	if err != nil || !strings.Contains(string(fields), "Version: 0.0.1~test\n") || !strings.Contains(string(fields), "Architecture: "+runtime.GOARCH+"\n") {
		t.Errorf("%v\n%s", err, fields)
	}
	if output, err := exec.Command("dpkg-deb", "--extract", deb, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, path := range []string{"usr/share/man/man1/apiserver-lite-get.1.gz", "usr/share/bash-completion/completions/apiserver-lite", "usr/share/doc/apiserver-lite/copyright", "usr/lib/systemd/system/apiserver-lite.socket"} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/apiserver-lite.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/usr/bin/apiserver-lite ") {
		t.Errorf("%v\n%s", err, unit)
	}
	said, err := exec.Command(filepath.Join(root, "usr/bin/apiserver-lite"), "--version").Output()
	if err != nil || !strings.Contains(string(said), version) {
		t.Errorf("%v, %s", err, said)
	}
}

// TestImage unpacks the image and starts what is in it as it says: as its user, who can write nowhere but in /data. Who isn't root can't change user and root
// directory, so that it's started as it is.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(filepath.Join(made, "apiserver-lite.oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpack(t, f, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("%v, %+v", err, manifest)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "image") // whose parents everybody may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o555); err != nil {
		t.Fatal(err)
	}
	unpack(t, mutate.Extract(image), root)
	data, url := "/data/store", filepath.Join(root, "data", "url")
	cmd := exec.Command(config.Config.Entrypoint[0])
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
		cmd.Args = append(cmd.Args, "--url-file=/data/url")
		cmd.Dir = "/"
	} else {
		cmd = exec.Command(filepath.Join(root, config.Config.Entrypoint[0]), "--url-file="+url)
		data = filepath.Join(root, data)
	}
	cmd.Args = append(cmd.Args, "--listen=127.0.0.1:0", "--data-dir="+data)
	cmd.Env = append(config.Config.Env, "APISERVER_LITE_TOKEN=sesame")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	answers(t, url, &said)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, &said)
	}
	if config.Config.User != "65532:65532" || !slices.Contains(config.Config.Cmd, "--data-dir=/data/store") {
		t.Errorf("it's configured as %+v", config.Config)
	}
}

// answers waits until the server of the file answers.
func answers(t *testing.T, file string, said fmt.Stringer) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		if url, err := os.ReadFile(file); err == nil {
			response, err := http.Get(strings.TrimSpace(string(url)) + "/readyz")
			if err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-deadline:
			t.Fatalf("it doesn't answer: %s", said)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// unpack puts the files of a tar below a directory, with their owners if root does it.
func unpack(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, os.FileMode(h.Mode))
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			content, readErr := io.ReadAll(r)
			if err = readErr; err == nil {
				err = os.WriteFile(path, content, os.FileMode(h.Mode))
			}
		}
		if err == nil && os.Geteuid() == 0 {
			err = os.Chown(path, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
