package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entries returns the headers and contents of an image's files.
func entries(t *testing.T, image v1.Image) (headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	headers, contents = make(map[string]*tar.Header), make(map[string][]byte)
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		body, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for in := tar.NewReader(body); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			headers[h.Name], contents[h.Name] = h, content
		}
		_ = body.Close()
	}
	return headers, contents
}

// described returns mode, owner and name of each file, without ko's program.
func described(headers map[string]*tar.Header) []string {
	var lines []string
	for name, h := range headers {
		lines = append(lines, fmt.Sprintf("%c %04o %d %s", h.Typeflag, h.Mode, h.Uid, name))
	}
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(a[strings.LastIndexByte(a, ' '):], b[strings.LastIndexByte(b, ' '):])
	})
	return lines
}

func TestBase(t *testing.T) {
	t.Parallel()
	index, err := base()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		headers, contents := entries(t, image)
		want := []string{
			"5 0700 65532 data/", "5 0755 0 etc/", "0 0644 0 etc/group", "0 0644 0 etc/passwd", "5 0755 0 etc/ssl/",
			"5 0755 0 etc/ssl/certs/", "0 0644 0 etc/ssl/certs/ca-certificates.crt", "5 1777 0 tmp/",
		}
		if diff := cmp.Diff(want, described(headers)); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", m.Platform, diff)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[caBundle]) {
			t.Errorf("%s: the bundle has no certificate", m.Platform)
		}
		if n := strings.Count(string(contents[caBundle]), "BEGIN CERTIFICATE"); n < 100 {
			t.Errorf("%s: the bundle has %d authorities", m.Platform, n)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

// built runs scripts/image for this machine's platform with further variables,
// and returns the digest and the folder.
func built(t *testing.T, env ...string) (digest, folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "image")
	cmd := exec.CommandContext(t.Context(), "scripts/image", "1.2.3-rc.1", folder, "linux/"+runtime.GOARCH)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	return strings.TrimSpace(string(out)), folder
}

// The image has the program, runs it as an ordinary user, and is small. A
// second build with other settings gives the same image.
func TestImage(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("LEFT OUT: the image's program runs only on Linux")
	}
	if _, err := os.Stat("../../" + ko); err != nil {
		t.Skip("LEFT OUT: ko is not in .tools")
	}
	upper := filepath.Join(t.TempDir(), "T") // ko rejects such folders for images
	if err := os.Mkdir(upper, 0o700); err != nil {
		t.Fatal(err)
	}
	digest, folder := built(t)
	again, _ := built(t, "TZ=Asia/Tokyo", "GOFLAGS=-buildvcs=true", "GOAMD64=v2", "GOOS=linux",
		"KO_DOCKER_REPO=registry.invalid", "TMPDIR="+upper)
	if digest != again {
		t.Errorf("two builds gave %s and %s", digest, again)
	}
	image := only(t, folder)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" {
		t.Errorf("the user is %q", config.Config.User)
	}
	if diff := cmp.Diff([]string{"/ko-app/larder"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "1.2.3-rc.1" {
		t.Errorf("the version in the labels is %q", got)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(types.OCIConfigJSON, manifest.Config.MediaType); diff != "" {
		t.Errorf("type of the configuration (-want +got):\n%s", diff)
	}
	size := int64(0)
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		size += n
	}
	if size >= 40_000_000 {
		t.Errorf("the image has %d bytes", size)
	}
	headers, contents := entries(t, image)
	for name, h := range headers {
		if h.Mode&0o6000 != 0 {
			t.Errorf("%s runs with another user's rights", name)
		}
	}
	program := filepath.Join(t.TempDir(), "larder")
	if err := os.WriteFile(program, contents["/ko-app/larder"], 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--version")
	cmd.Env = []string{} // as in an empty container
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "larder version 1.2.3-rc.1\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// only returns the only image of a layout, which is in an index.
func only(t *testing.T, folder string) v1.Image {
	t.Helper()
	root, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	index, err := root.ImageIndex(sole(t, root))
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(sole(t, index))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// sole returns the digest of the only manifest in an index.
func sole(t *testing.T, index v1.ImageIndex) v1.Hash {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("an index has %d manifests, want 1", len(manifest.Manifests))
	}
	return manifest.Manifests[0].Digest
}

// Wrong arguments create nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	there, missing := t.TempDir(), filepath.Join(t.TempDir(), "new")
	for name, args := range map[string][]string{
		"nothing": nil, "no folder": {"1.2.3"}, "not a version": {"latest", missing}, "an existing folder": {"1.2.3", there},
		"too many": {"1.2.3", missing, "linux/amd64", "more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(t.Context(), args); err == nil {
				t.Error("there is no error")
			}
			if _, err := os.Lstat(missing); err == nil {
				t.Error("the folder was created")
			}
		})
	}
}
