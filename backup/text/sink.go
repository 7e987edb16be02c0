package text

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
)

// sink takes what is exported.
type sink interface {
	// write takes an object of a resource, as plural or plural.group.
	write(resource string, o document.Object) error
	// reset takes back what was written, because the export begins again. Its error says why it can't.
	reset() error
	// finish ends an export that is whole. covers tells whether what isn't in it isn't on the server.
	finish(covers func(namespace, resource string) bool) error
}

// stream is one stream of documents.
type stream struct {
	out   *bufio.Writer
	text  []byte
	file  *os.File // what it goes to, if that's a file at its end
	start int64    // where it began in that
	wrote bool
}

func newStream(out io.Writer) *stream {
	s := &stream{out: bufio.NewWriterSize(out, 64<<10)}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		at, seekErr := f.Seek(0, io.SeekCurrent)
		if err == nil && seekErr == nil && info.Mode().IsRegular() && at == info.Size() {
			s.file, s.start = f, at
		}
	}
	return s
}

func (s *stream) write(_ string, o document.Object) error {
	s.wrote = true
	s.text = document.Append(s.text[:0], o)
	if _, err := s.out.Write(s.text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func (s *stream) reset() error {
	if !s.wrote {
		return nil
	}
	if s.file == nil {
		return errors.New("the standard output is no file of which it could be taken back")
	}
	s.out.Reset(s.file)
	if err := s.file.Truncate(s.start); err != nil {
		return err
	}
	_, err := s.file.Seek(s.start, io.SeekStart)
	return err
}

func (s *stream) finish(func(namespace, resource string) bool) error {
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// The parts of an export's directory: cluster/RESOURCE/NAME.yaml and namespaces/NAMESPACE/RESOURCE/NAME.yaml.
const (
	inCluster    = "cluster"
	inNamespaces = "namespaces"
	fileSuffix   = ".yaml"
)

// directory has a file for each object. What it has from an earlier export and isn't there any more is removed at the end, so that the
// difference between two exports is that between the servers. Other files in it stay.
type directory struct {
	root  string
	text  []byte
	wrote map[id]struct{} // paths
}

func newDirectory(root string) *directory { return &directory{root: root, wrote: map[id]struct{}{}} }

func (d *directory) write(resource string, o document.Object) error {
	path := filepath.Join(d.root, inCluster, resource)
	if namespace := document.NamespaceOf(o); namespace != "" {
		path = filepath.Join(d.root, inNamespaces, fileName(namespace), resource)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	path = filepath.Join(path, fileName(document.NameOf(o))+fileSuffix)
	d.wrote[idOf(path)] = struct{}{}
	d.text = bytes.TrimPrefix(document.Append(d.text[:0], o), []byte("---\n"))
	mode := fs.FileMode(0o644)
	if resource == "secrets" {
		mode = 0o600
	}
	return replaceFile(path, d.text, mode)
}

// replaceFile gives a file its content, whole or not at all. One that has it already isn't touched.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, text) {
		return nil
	}
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".part"))
	}
	return os.Rename(path+".part", path)
}

// maxFileName is how long a name of a file may be without its suffix, in bytes: file systems take 255.
const maxFileName = 240

// fileName returns an object's name as one that every file system takes: what may not be in it is %XX, which no object has in its name.
func fileName(name string) string {
	var b strings.Builder
	for i, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= maxFileName {
		return b.String()
	}
	return fmt.Sprintf("%s%%%x", b.String()[:maxFileName-17], sha256.Sum256([]byte(name)))[:maxFileName]
}

func (d *directory) reset() error {
	clear(d.wrote)
	return nil
}

func (d *directory) finish(covers func(namespace, resource string) bool) error {
	if err := d.pruneAll(filepath.Join(d.root, inCluster), "", covers); err != nil {
		return err
	}
	namespaces, err := subdirectories(filepath.Join(d.root, inNamespaces))
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if err := d.pruneAll(filepath.Join(d.root, inNamespaces, namespace), namespace, covers); err != nil {
			return err
		}
	}
	return nil
}

// pruneAll prunes what the export covers of a namespace's resources, or of those of none.
func (d *directory) pruneAll(path, namespace string, covers func(namespace, resource string) bool) error {
	resources, err := subdirectories(path)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		if !covers(namespace, resource) {
			continue
		}
		if err := d.prune(filepath.Join(path, resource), namespace, resource); err != nil {
			return err
		}
	}
	return nil
}

// subdirectories returns the names of the directories in one, which may be missing.
func subdirectories(path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// prune removes the files of one resource that weren't written but by an earlier export, and the directories that have nothing else.
func (d *directory) prune(path, namespace, resource string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		file := filepath.Join(path, entry.Name())
		if _, wrote := d.wrote[idOf(file)]; wrote || !entry.Type().IsRegular() || !strings.HasSuffix(file, fileSuffix) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !holds(text, entry.Name(), namespace, resource) {
			continue
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for path != d.root && os.Remove(path) == nil { // as long as nothing is in it
		path = filepath.Dir(path)
	}
	return nil
}

// holds tells whether a file's text is that of the object that its path names: somebody may have put another file there, such as a kustomization.yaml.
func holds(text []byte, file, namespace, resource string) bool {
	objects, err := document.Parse(text)
	if err != nil || len(objects) != 1 {
		return false
	}
	o := objects[0]
	in := document.NamespaceOf(o)
	if in != "" {
		in = fileName(in)
	}
	_, group, _ := strings.Cut(resource, ".")
	return fileName(document.NameOf(o))+fileSuffix == file && in == namespace && document.Group(document.Text(o, "apiVersion")) == group
}
