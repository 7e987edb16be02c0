package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
)

// UnixScheme begins the address, and the URL, of a unix socket.
const UnixScheme = "unix:"

// Handed is the address that means the socket that systemd has opened.
const Handed = "systemd"

// listen opens the address of --listen. Whoever can reach the port may do everything, unless clients
// need credentials: so without them only loopback addresses and unix sockets, which nobody else reaches, will do.
func listen(address string, asks bool) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, UnixScheme); ok {
		l, err := listenUnix(path)
		if err != nil {
			return nil, fmt.Errorf("--listen %s: %w", address, err)
		}
		return l, nil
	}
	if address == Handed {
		return listenHanded(asks)
	}
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %q is neither host:port nor unix:/path: %w", address, err)
	}
	if !asks && !tcp.IP.IsLoopback() {
		return nil, open(address)
	}
	l, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	return l, nil
}

// open refuses an address that others reach, too.
func open(address string) error {
	return fmt.Errorf("--listen %s is more than a loopback address, and there is no token: set --token-file (or APISERVER_LITE_TOKEN), --client-ca-file or another flag that asks who clients are, or listen on 127.0.0.1", address)
}

// listenHanded returns the socket that systemd has opened. The rules for who may reach it are those of the others.
func listenHanded(asks bool) (net.Listener, error) {
	sockets, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", Handed, err)
	}
	if len(sockets) != 1 || sockets[0] == nil {
		return nil, fmt.Errorf("--listen %s: systemd has to hand over one socket, and it's %d: is there a unit .socket, with one ListenStream?", Handed, len(sockets))
	}
	l := sockets[0]
	switch at := l.Addr().(type) {
	case *net.TCPAddr:
		if !asks && !at.IP.IsLoopback() {
			return nil, errors.Join(open(at.String()), l.Close())
		}
	case *net.UnixAddr:
		if file, err := os.Stat(at.Name); !asks && (err != nil || file.Mode()&0o077 != 0) {
			return nil, errors.Join(fmt.Errorf("--listen %s: others can use %s: set SocketMode=0600 in the unit, or --token-file", Handed, at.Name), l.Close())
		}
	}
	return l, nil
}

// unixListener removes its socket when it closes, unless another server's has taken its place.
type unixListener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listenUnix makes the socket inside a directory that only we can enter, gives it mode 0600 there and
// moves it to its place, so that it's never there with another mode, whatever the umask. A file in
// its place is replaced if it's a socket that nobody listens on.
func listenUnix(path string) (net.Listener, error) {
	if err := checkStale(path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	file, err := place(fresh, path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &unixListener{UnixListener: l, path: path, file: file}, nil
}

func place(fresh, path string) (fs.FileInfo, error) {
	if err := os.Chmod(fresh, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(fresh, path); err != nil {
		return nil, err
	}
	return os.Lstat(path)
}

// staleDial is how long a socket may take to answer. Where a server listens, the kernel answers at once.
const staleDial = time.Second

// checkStale returns an error if something at the path is in use: if it's no socket, or if a server listens on it.
func checkStale(path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case file.Mode().Type() != os.ModeSocket:
		return errors.New("there is a file that is no socket")
	}
	c, err := net.DialTimeout("unix", path, staleDial)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist): // nobody listens, or it has just gone
		return nil
	case err == nil:
		c.Close()
	}
	return errors.New("address already in use") // also by a server that is too busy to answer
}

func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	if file, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(file, l.file) {
		os.Remove(l.path)
	}
	return err
}

// Addr returns the socket's address at its place.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// urlOf returns the URL under which clients on this machine reach the address.
func urlOf(address net.Addr, secure bool) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return UnixScheme + address.String()
	}
	host := *tcp
	if host.IP.IsUnspecified() {
		host.IP = net.IPv4(127, 0, 0, 1)
	}
	if secure {
		return "https://" + host.String()
	}
	return "http://" + host.String()
}
