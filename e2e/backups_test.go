package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// snapshots are the scheduled ones in a directory, the oldest first.
func snapshots(t *testing.T, dir string) (all []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "snapshot-*.db"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// command runs one of the program's commands, which must succeed.
func command(t *testing.T, args ...string) (out string) {
	t.Helper()
	text, err := exec.Command(binary(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, text)
	}
	return string(text)
}

// TestSnapshotSchedule: a server takes snapshots of itself on schedule, and keeps the newest. After a kill it removes what wasn't finished,
// and what was acknowledged before a snapshot is in a server that is restored from it.
func TestSnapshotSchedule(t *testing.T) {
	t.Parallel()
	dir, backups := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	flags := []string{"--data-dir", dir, "--snapshot-schedule=1s", "--snapshot-dir", backups, "--snapshot-keep=2"}
	p := start(t, flags...)
	p.define()
	p.do(http.StatusCreated, "POST", widgets, widget("first", 1))
	counted := regexp.MustCompile(`apiserver_lite_scheduled_snapshots_total\{result="success"\} (\d+)`)
	taken := func() (n int) {
		m := counted.FindStringSubmatch(p.do(http.StatusOK, "GET", "/metrics", "").body)
		if m == nil {
			t.Fatal("they aren't counted")
		}
		fmt.Sscan(m[1], &n)
		return n
	}
	before := taken()
	eventually(t, "three snapshots after a write", func() bool { return taken() >= before+3 })
	p.kill()
	if all := snapshots(t, backups); len(all) > 3 || len(all) < 2 { // it may be killed before it has removed the third
		t.Errorf("there is %v", all)
	}
	left := filepath.Join(backups, "snapshot-20000101T000000Z.db.1.part")
	mustWrite(t, left, 0o600)
	p = start(t, "--data-dir", dir, "--snapshot-schedule=0 0 1 1 *", "--snapshot-dir", backups)
	if exists(t, left) {
		t.Error("what a killed server hasn't finished is still there")
	}
	p.stop()
	all := snapshots(t, backups)
	newest, restored := all[len(all)-1], filepath.Join(t.TempDir(), "restored")
	command(t, "snapshot", "restore", newest, "--data-dir", restored)
	p = start(t, "--data-dir", restored)
	p.do(http.StatusOK, "GET", widgets+"/first", "")
	p.stop()
}

// TestSnapshotDirectoryGone: a snapshot that fails is counted and logged, and the server goes on.
func TestSnapshotDirectoryGone(t *testing.T) {
	t.Parallel()
	backups := filepath.Join(t.TempDir(), "backups")
	p := start(t, "--ephemeral", "--snapshot-schedule=1s", "--snapshot-dir", backups)
	if err := os.RemoveAll(backups); err != nil {
		t.Fatal(err)
	}
	failed := regexp.MustCompile(`apiserver_lite_scheduled_snapshots_total\{result="failure"\} [1-9]`)
	eventually(t, "a failure is counted", func() bool { return failed.MatchString(p.do(http.StatusOK, "GET", "/metrics", "").body) })
	eventually(t, "a failure is logged", func() bool {
		return bytes.Contains([]byte(p.stderr.String()), []byte("the scheduled snapshot failed"))
	})
	p.do(http.StatusOK, "GET", "/readyz", "")
	p.stop()
}

// TestSnapshotOfEtcdElsewhere: a server over an etcd elsewhere is backed up and restored as any other, by a command and on schedule; the file
// has nothing of others' keys.
func TestSnapshotOfEtcdElsewhere(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	backups, saved := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "saved.db")
	other := start(t, "--etcd-servers", "http://"+etcd.address(), "--etcd-prefix=/others")
	other.define()
	other.do(http.StatusCreated, "POST", widgets, widget("not-ours", 1))
	p := start(t, "--etcd-servers", "http://"+etcd.address(), "--etcd-prefix=/ours", "--snapshot-schedule=1s", "--snapshot-dir", backups)
	p.define()
	p.do(http.StatusCreated, "POST", widgets, widget("first", 1))
	command(t, "snapshot", "save", saved, "--server", p.url)
	seen := p.do(http.StatusCreated, "POST", widgets, widget("second", 1)).object.Metadata.ResourceVersion
	have := len(snapshots(t, backups))
	eventually(t, "two snapshots on schedule after a write", func() bool { return len(snapshots(t, backups)) >= min(have+2, 7) })
	p.stop()
	other.stop()
	all := snapshots(t, backups)
	for file, want := range map[string]string{saved: "[first]", all[len(all)-1]: "[first second]"} {
		restored := filepath.Join(t.TempDir(), "restored")
		command(t, "snapshot", "restore", file, "--data-dir", restored)
		p := start(t, "--data-dir", restored)
		var has []string
		for _, item := range p.do(http.StatusOK, "GET", widgets, "").object.Items {
			has = append(has, item.Metadata.Name)
		}
		if fmt.Sprint(has) != want {
			t.Errorf("from %s comes %v, want %s", file, has, want)
		}
		if a := p.do(http.StatusOK, "GET", widgets+"?watch=true&timeoutSeconds=5&resourceVersion="+seen, ""); !regexp.MustCompile(`"code":410`).MatchString(a.body) {
			t.Errorf("a watch goes on from before: %s", a.body)
		}
		p.stop()
		text, err := os.ReadFile(file)
		if err != nil || bytes.Contains(text, []byte("not-ours")) || bytes.Contains(text, []byte("/others")) {
			t.Errorf("%s has keys of others, %v", file, err)
		}
	}
}

// TestSnapshotOfStoppedMember: the directory of a stopped member of a cluster is saved without the others, and restored as a store of its own.
func TestSnapshotOfStoppedMember(t *testing.T) {
	t.Parallel()
	one := startMember(t, nil)
	two := startMember(t, one)
	one.define()
	two.do(http.StatusCreated, "POST", widgets, widget("first", 1))
	saved, restored := filepath.Join(t.TempDir(), "saved.db"), filepath.Join(t.TempDir(), "restored")
	if out, err := exec.Command(binary(), "snapshot", "save", saved, "--data-dir", two.dir).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("is locked")) {
		t.Errorf("of a member that runs: %v, %s", err, out)
	}
	two.stop()
	command(t, "snapshot", "save", saved, "--data-dir", two.dir)
	two.restart(t)
	two.do(http.StatusCreated, "POST", widgets, widget("second", 1))
	two.stop()
	one.stop()
	command(t, "snapshot", "restore", saved, "--data-dir", restored)
	p := start(t, "--data-dir", restored)
	p.do(http.StatusOK, "GET", widgets+"/first", "")
	p.do(http.StatusNotFound, "GET", widgets+"/second", "")
	p.stop()
}
