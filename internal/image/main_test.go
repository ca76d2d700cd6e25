package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
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
			if err := run(t.Context(), append([]string{"0123abcd", "0"}, args...)); err == nil {
				t.Error("there is no error")
			}
			if _, err := os.Lstat(missing); err == nil {
				t.Error("the folder was created")
			}
		})
	}
}
