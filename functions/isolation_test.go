package functions_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// TestIsolation publishes modules that crash their parser, to builds that do not
// check configuration first. The function and `larder serve` reject them, and
// accept a good module afterwards.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/",
		"-ldflags", "-X github.com/larder-registry/larder/pkg/content/safehcl.unchecked=yes",
		"./scripts/larder", "./functions/publish")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	t.Run("function", func(t *testing.T) {
		t.Parallel()
		f, err := lambda.StartFunction(t.Context(), "publish", filepath.Join(dir, "publish"), d.env, 15*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		gateway := lambda.StartGateway(routes(map[string]*lambda.Function{"publish": f}))
		t.Cleanup(gateway.Close)
		publisher := uploader{gateway.Client(), "https://" + gateway.Host, d.token}
		publisher.survives(t)
		if f.Ended() {
			t.Errorf("the function has ended:\n%s", f.Log())
		}
	})
	t.Run("larder serve", func(t *testing.T) {
		t.Parallel()
		serveUnchecked(t, filepath.Join(dir, "larder")).survives(t)
	})
}

// survives publishes modules to a registry that does not check them.
func (u uploader) survives(t *testing.T) {
	t.Helper()
	m := registry.Module{Namespace: "acme", Name: "m", System: "null"}
	result := func(inspect func() (int, []byte, error)) (answer string) {
		t.Helper()
		poll.Until(t, "the inspection ends", func() bool {
			status, body, err := inspect()
			if err != nil {
				t.Fatalf("no result of the inspection: %v", err)
			}
			answer = fmt.Sprintf("%d %s", status, body)
			return status != http.StatusAccepted
		})
		return answer
	}
	for version, text := range map[string]string{
		"0.0.1": "x = 1 " + strings.Repeat(")", 140_010) + "\ny = " + strings.Repeat("(", 140_000),
		"0.0.2": strings.Repeat("a{\nb=}\n", 42_000),
		"0.0.3": strings.Repeat("a{\na]\n", 48_000),
	} {
		inspect := u.upload(t, m, version, packText(t, text))
		first := result(inspect)
		if !strings.HasPrefix(first, "400 ") || !strings.Contains(first, "inspection") { // it crashed or was stopped
			t.Errorf("%s: %s; want 400 because the inspection ended", version, first)
		}
		if diff := cmp.Diff(first, result(inspect)); diff != "" {
			t.Errorf("%s, second request (-first +second):\n%s", version, diff)
		}
	}
	good := packText(t, "output \"it\" { value = 1 }\n")
	if got := result(u.upload(t, m, "1.0.0", good)); !strings.HasPrefix(got, "200 ") {
		t.Errorf("a good module after these: %s", got)
	}
}

// packText returns a module with one file.
func packText(t *testing.T, text string) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// serveUnchecked runs `larder serve` until the test ends. It returns a publisher.
func serveUnchecked(t *testing.T, larder string) uploader {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	cmd := exec.CommandContext(t.Context(), larder, "serve", "--store", data, "--listen", "127.0.0.1:0", "--json")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test has ended
	var server struct {
		URL    string
		CAFile string `json:"ca_file"`
	}
	if err := json.NewDecoder(out).Decode(&server); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(server.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	opened, err := local.Open(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	return uploader{&http.Client{Transport: transport}, server.URL, addToken(t, opened.Catalog, "publish:*/acme/**")}
}

// addToken adds a token with a scope.
func addToken(t testing.TB, to *catalog.Catalog, scope string) string {
	t.Helper()
	token, digest := access.NewToken()
	if err := to.AddToken(t.Context(), digest, registry.Token{Name: digest[:12], Scopes: []string{scope}}); err != nil {
		t.Fatal(err)
	}
	return token
}
