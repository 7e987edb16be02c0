package wire

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tc := range []struct {
		name, address string
		hasTokens     bool
		err           string
	}{
		{"loopback", "127.0.0.1:0", false, ""},
		{"IPv6 loopback or none", "localhost:0", false, ""},
		{"all interfaces with a token", "0.0.0.0:0", true, ""},
		{"all interfaces", ":0", false, "there is no token"},
		{"any address", "0.0.0.0:0", false, "there is no token"},
		{"public address", "192.0.2.1:80", false, "there is no token"},
		{"taken", taken.Addr().String(), false, "address already in use"},
		{"no port", "127.0.0.1", false, "neither host:port nor unix:/path"},
		{"bad port", "127.0.0.1:99999", false, "neither host:port nor unix:/path"},
		{"nonsense", "::::", false, "neither host:port nor unix:/path"},
		{"socket in no directory", "unix:/nonexistent/dir/s", false, "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := listen(tc.address, tc.hasTokens)
			if err == nil {
				l.Close()
			}
			if (err == nil) != (tc.err == "") || err != nil && (!strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), "--listen")) {
				t.Errorf("listen(%s) = %v, want %q", tc.address, err, tc.err)
			}
		})
	}
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "api.sock")
	l, err := listen("unix:"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Lstat(path)
	if err != nil || file.Mode().Perm() != 0o600 || file.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket is %v, %v", file.Mode(), err)
	}
	if got := urlOf(l.Addr(), false); got != "unix:"+path {
		t.Errorf("its URL is %s", got)
	}
	if second, err := listen("unix:"+path, false); err == nil || !strings.Contains(err.Error(), "already in use") {
		t.Errorf("a second listener: %v, %v", second, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}

	t.Run("stale", func(t *testing.T) {
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		stale.Close() // as a killed process leaves it
		l, err := listen("unix:"+path, false)
		if err != nil {
			t.Fatalf("a stale socket was not replaced: %v", err)
		}
		l.Close()
	})
	t.Run("no socket", func(t *testing.T) {
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := listen("unix:"+path, false); err == nil {
			t.Error("a file was replaced")
		}
	})
	t.Run("another's", func(t *testing.T) {
		path := filepath.Join(dir, "other.sock")
		l, err := listen("unix:"+path, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		other, err := listen("unix:"+path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		l.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("closing removed another server's socket: %v", err)
		}
	})
}

func TestURLOf(t *testing.T) {
	for _, tc := range []struct {
		address net.Addr
		secure  bool
		want    string
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, false, "http://127.0.0.1:80"},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 80}, true, "https://[::1]:80"},
		{&net.TCPAddr{IP: net.IPv4zero, Port: 80}, false, "http://127.0.0.1:80"},
		{&net.TCPAddr{IP: net.IPv6unspecified, Port: 80}, false, "http://127.0.0.1:80"},
	} {
		if got := urlOf(tc.address, tc.secure); got != tc.want {
			t.Errorf("urlOf(%v) = %s, want %s", tc.address, got, tc.want)
		}
	}
}
