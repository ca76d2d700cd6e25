package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user is the ID of the image's user and of its group. Kubernetes accepts
	// only a number as proof that a container does not run as root.
	user = 65532
	// data is the working folder, so that `larder serve` finds ./larder-data.
	data       = "/data"
	caBundle   = "etc/ssl/certs/ca-certificates.crt" // where Go and curl look for it
	passwdFile = "root:x:0:0:root:/root:/sbin/nologin\nlarder:x:65532:65532:Larder:/data:/sbin/nologin\n"
	groupFile  = "root:x:0:\nlarder:x:65532:\n"
)

// base returns the base image for each platform. The images differ only in
// their platform.
func base() (v1.ImageIndex, error) {
	files, err := layer()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range []string{"amd64", "arm64"} {
		platform := v1.Platform{OS: "linux", Architecture: architecture}
		// Podman and skopeo refuse an OCI image with a configuration of Docker's type.
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image, err := mutate.AppendLayers(image, files)
		if err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = platform.OS, platform.Architecture
		config.Config = v1.Config{User: "65532:65532", WorkingDir: data}
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &platform},
		})
	}
	return index, nil
}

// layer returns the files of the base image. They have no times.
func layer() (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	folder := func(name string, mode int64, owner int) tar.Header {
		return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: owner, Gid: owner}
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	for _, entry := range []struct {
		header  tar.Header
		content []byte
	}{
		{folder("etc/", 0o755, 0), nil},
		{folder("etc/ssl/", 0o755, 0), nil},
		{folder("etc/ssl/certs/", 0o755, 0), nil},
		{file(caBundle), authorities()},
		{file("etc/group"), []byte(groupFile)},
		{file("etc/passwd"), []byte(passwdFile)},
		{folder("data/", 0o700, user), nil},
		{folder("tmp/", 0o1777, 0), nil},
	} {
		entry.header.Size, entry.header.Format = int64(len(entry.content)), tar.FormatUSTAR
		if err := w.WriteHeader(&entry.header); err != nil {
			return nil, err
		}
		if _, err := w.Write(entry.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
}

// authorities returns Mozilla's certificate authorities as PEM. It leaves out
// those that Mozilla trusts with a condition, which PEM cannot express.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer does not fail
		}
	}
	return out.Bytes()
}
