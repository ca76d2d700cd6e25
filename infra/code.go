package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/larder-registry/larder/pkg/client/git"
)

// packFunction writes the deployment package of a function: a zip file with its
// bootstrap, whose folder is in dist. It returns the path of the file, and its
// digest in the form of Lambda's CodeSha256. The same bootstrap gives the same
// file. The file is beside dist, so that a concurrent run of scripts/build does
// not remove it.
//
// The CDK could pack a folder itself, but only after synthesis. The stack needs
// the digest during synthesis.
func packFunction(dist, name string) (path, digest string, err error) {
	bootstrap, err := os.ReadFile(filepath.Join(dist, name, "bootstrap"))
	if err != nil {
		return "", "", err
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate}
	header.SetMode(0o755) // Lambda runs it as another user
	w, err := z.CreateHeader(header)
	if err != nil {
		return "", "", err
	}
	if _, err := w.Write(bootstrap); err != nil {
		return "", "", err
	}
	if err := z.Close(); err != nil {
		return "", "", err
	}
	packages := dist + "-packages"
	if err := os.MkdirAll(packages, 0o750); err != nil {
		return "", "", err
	}
	path = filepath.Join(packages, name+".zip")
	// Another synthesis of the same source may read the file at the same time.
	if err := replaceFile(path, out.Bytes()); err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(out.Bytes())
	return path, base64.StdEncoding.EncodeToString(sum[:]), nil
}

// sourceRelease returns the release of the checkout, or the last one before it,
// such as v1.2.3. It returns "unknown" without Git or without a release. It
// leaves out the commit, so that a stack changes with releases and not with
// each commit.
func sourceRelease() string {
	ctx := context.Background() // it takes milliseconds
	var out []byte
	checkout, err := git.Open(ctx, ".")
	if err == nil {
		out, err = checkout.Run(ctx, "describe", "--tags", "--match", "v*", "--abbrev=0")
	}
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// replaceFile replaces a file atomically: a reader sees the old content or the
// new content.
func replaceFile(name string, text []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	if _, err := temporary.Write(text); err != nil {
		return err
	}
	if err := errors.Join(temporary.Sync(), temporary.Chmod(0o644), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
