package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

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
	root := t.TempDir()
	unpack(t, image, root)
	if out, err := command(t.Context(), root, config.Config, "--version").CombinedOutput(); err != nil ||
		string(out) != "larder version 1.2.3-rc.1\n" {
		t.Errorf("%q, %v", out, err)
	}
	checkServer(t, root, config.Config)
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

// unpack writes the files of an image to a folder. Only root can set their
// owners. Owners may write, so that others can also remove the folder.
func unpack(t *testing.T, image v1.Image, root string) {
	t.Helper()
	headers, contents := entries(t, image)
	for name, h := range headers {
		if h.Mode&0o6000 != 0 {
			t.Errorf("%s runs with another user's rights", name)
		}
		path := filepath.Join(root, filepath.Clean("/"+name))
		var err error
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, contents[name], 0o600))
		}
		err = errors.Join(err, os.Chmod(path, h.FileInfo().Mode()|0o200))
		if os.Geteuid() == 0 {
			err = errors.Join(err, os.Chown(path, h.Uid, h.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// command returns the command of an unpacked image, as in a container: its root
// folder is the image, and its user is the image's. Only root can start such a
// process. Others run the program in the data folder as themselves.
func command(ctx context.Context, root string, config v1.Config, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, config.Entrypoint[0], args...)
	cmd.Dir, cmd.Env = config.WorkingDir, config.Env
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	} else {
		cmd.Path, cmd.Dir = root+cmd.Path, root+cmd.Dir
	}
	return cmd
}

// checkServer checks that a server of the image creates a registry in the data
// folder, answers a request, and ends without an error on SIGTERM.
func checkServer(t *testing.T, root string, config v1.Config) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := command(ctx, root, config, "serve", "--json", "--listen", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var served struct{ URL string }
	err = json.NewDecoder(stdout).Decode(&served)
	if err == nil {
		err = discover(ctx, served.URL, filepath.Join(root, "data/larder-data/tls/ca.pem"))
	}
	if err != nil {
		t.Error(err)
	}
	stop()
	// Wait returns the reason for SIGTERM, even if the server ends well.
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the server ended with code %d, %v:\n%s", cmd.ProcessState.ExitCode(), err, stderr.Bytes())
	}
}

// discover requests the services of a registry, and trusts the authority in
// file.
func discover(ctx context.Context, url, file string) error {
	authority, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/.well-known/terraform.json", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New("discovery answers " + response.Status)
	}
	return nil
}
