package main

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who the image's process is: nobody of the machine's, as distroless images have it. The data's directory is its alone, and nothing else in the image
// can be written by it.
const user = 65532

// image writes an image for all of the targets, from scratch, as a layout of OCI in one tar: skopeo, podman and containerd load it.
func (r *release) image(linux []target) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range linux {
		image, err := r.imageOf(t)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.os, Architecture: t.arch}}})
	}
	dir := filepath.Join(r.cwd, "image")
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	return r.pack(dir, filepath.Join(r.out, program+".oci.tar"))
}

// imageOf is the image of one target: the binary, the authorities of public certificates, an empty directory for the data, and how it's started.
func (r *release) imageOf(t target) (v1.Image, error) {
	content, err := r.layer(r.binary(t))
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: t.arch, OS: t.os, Created: v1.Time{Time: r.at}, RootFS: must(image.ConfigFile()).RootFS,
		History: []v1.History{{Created: v1.Time{Time: r.at}, CreatedBy: "release"}},
		Config: v1.Config{
			User: "65532:65532", Entrypoint: []string{"/" + program}, Cmd: []string{"--listen=0.0.0.0:8080", "--data-dir=/data/store"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}}, Volumes: map[string]struct{}{"/data": {}}, Env: []string{"TMPDIR=/data"},
			Labels: map[string]string{"org.opencontainers.image.title": program, "org.opencontainers.image.version": r.version},
		},
	})
}

// must is for what is in memory already.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// layer is the tar of what is in an image.
func (r *release) layer(binary string) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(r.authorities)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, file := range []struct {
		tar.Header
		content []byte
	}{
		{tar.Header{Name: program, Typeflag: tar.TypeReg, Mode: 0o555}, content},
		{tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Typeflag: tar.TypeReg, Mode: 0o444}, authorities},
		{tar.Header{Name: "data/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: user, Gid: user}, nil},
	} {
		file.Size, file.ModTime, file.Format = int64(len(file.content)), r.at, tar.FormatPAX
		if err := w.WriteHeader(&file.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// pack writes the files of a directory into a tar, in the order of their names and without what differs from run to run.
func (r *release) pack(dir, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: r.at}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
