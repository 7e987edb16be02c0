package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debian writes a package: the binary, the units of systemd, man pages, what completes commands in bash, and who may use it.
func (r *release) debian(arch string) error {
	contents := files.Contents{
		r.content(r.binary(target{"linux", arch}), "/usr/bin/"+program, 0o755),
		r.content(filepath.Join(r.cwd, "completion"), "/usr/share/bash-completion/completions/"+program, 0o644),
		r.content(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/"+program+"/copyright", 0o644),
		r.content(filepath.Join(r.root, "CHANGELOG.md"), "/usr/share/doc/"+program+"/CHANGELOG.md", 0o644),
	}
	for _, unit := range []string{program + ".service", program + ".socket"} {
		text, err := os.ReadFile(filepath.Join(r.root, "examples", "install", unit))
		if err != nil {
			return err
		}
		path := filepath.Join(r.cwd, unit)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/", "/usr/bin/")), 0o644); err != nil {
			return err
		}
		contents = append(contents, r.content(path, "/usr/lib/systemd/system/"+unit, 0o644))
	}
	pages, err := r.pages()
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: program, Arch: arch, Platform: "linux", Version: numbered(r.version), Section: "database", Priority: "optional", License: "Apache-2.0", MTime: r.at,
		Maintainer: "the maintainers of apiserver-lite", Description: "the Kubernetes API for custom resources from one process, with etcd inside",
		Overridables: nfpm.Overridables{Contents: append(contents, pages...), Deb: nfpm.Deb{Compression: "gzip"}},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := deb.Default.Package(info, &b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("%s_%s.deb", program, arch)), b.Bytes(), 0o644)
}

func (r *release) content(from, to string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, Owner: "root", Group: "root", MTime: r.at}}
}

// pages are the man pages, compressed as Debian has them.
func (r *release) pages() (contents files.Contents, err error) {
	pages, err := os.ReadDir(filepath.Join(r.cwd, "man"))
	if err != nil {
		return nil, err
	}
	for _, e := range pages {
		page := filepath.Join(r.cwd, "man", e.Name())
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is one
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		compressed := filepath.Join(r.cwd, e.Name()+".gz")
		if err := os.WriteFile(compressed, b.Bytes(), 0o644); err != nil {
			return nil, err
		}
		contents = append(contents, r.content(compressed, "/usr/share/man/man1/"+e.Name()+".gz", 0o644))
	}
	return contents, nil
}
