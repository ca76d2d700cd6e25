package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/programs"
	"github.com/larder-registry/larder/pkg/registry"
)

// setUp runs `larder mirror setup --write` for a home folder. The registry has the
// given host.
func setUp(t *testing.T, home, host, token string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", "mirror", "setup", "--registry", "https://"+host, "--write",
		"--token-stdin")
	cmd.Env = []string{"HOME=" + home}
	cmd.Stdin = strings.NewReader(token + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The real clients request a module and a provider of their own public registry from
// the mirror, with the token, and send no other request.
func TestSetupLeadsClients(t *testing.T) {
	t.Parallel()
	clients.Each(t, func(t *testing.T, c clients.Client) {
		var mu sync.Mutex
		var requests []string
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			requests = append(requests, r.URL.Path+" "+r.Header.Get("Authorization"))
			http.NotFound(w, r)
		}))
		t.Cleanup(s.Close)
		home, folder, token := t.TempDir(), t.TempDir(), registry.FormatToken([32]byte{1})
		authority := filepath.Join(home, "ca.pem")
		writeFiles(t, home, map[string]string{
			"ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		})
		setUp(t, home, s.Listener.Addr().String(), token)
		session := clients.Session{Client: c, Home: home, CAFile: authority}
		public := map[string]string{"tofu": "registry.opentofu.org", "terraform": "registry.terraform.io"}[c.Name]
		// A module that is missing ends init before it installs providers.
		for path, text := range map[string]string{
			"/v1/modules-of/" + public + "/acme/note/aws/versions": "module \"note\" {\n  source = \"acme/note/aws\"\n}\n",
			"/v1/providers-of/" + public + "/acme/note/versions": "terraform {\n  required_providers {\n" +
				"    note = { source = \"acme/note\" }\n  }\n}\n",
		} {
			writeFiles(t, folder, map[string]string{"main.tf": text})
			out, err := session.Run(t.Context(), folder, "init")
			if err == nil {
				t.Errorf("the client found something that does not exist\n%s", out)
			}
			mu.Lock()
			if got, want := requests, []string{path + " Bearer " + token}; !slices.Equal(slices.Compact(got), want) {
				t.Errorf("requests %q, want %q\n%s", got, want, out)
			}
			requests = nil
			mu.Unlock()
		}
	})
}

// parsers are the configuration parsers of releases of the clients.
var parsers = []string{
	"opentofu@v1.6.3", "opentofu@v1.8.8", "opentofu@v1.12.6", "terraform@v1.5.7", "terraform@v1.11.4", "terraform@v1.15.9",
}

// The parsers of three releases of each client read the same blocks.
func TestSetupParses(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	setUp(t, home, "registry.example.com", "larder_token")
	service := func(host string) string {
		return `"` + host + `":{"Services":{"modules.v1":"https://registry.example.com/v1/modules-of/` + host + `/",` +
			`"providers.v1":"https://registry.example.com/v1/providers-of/` + host + `/"}}`
	}
	const first, second = "registry.opentofu.org", "registry.terraform.io"
	want := `{"credentials":{"` + first + `":{"token":"larder_token"},"` + second + `":{"token":"larder_token"}},` +
		`"hosts":{` + service(first) + `,` + service(second) + `}}`
	for _, name := range parsers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := programs.InCheckout(filepath.Join(".tools", "cliconfig", name))
			if err != nil && programs.Required() {
				t.Fatal(err)
			}
			if err != nil {
				t.Skip("LEFT OUT: scripts/tools cliconfig builds the parser:", err)
			}
			cmd := exec.CommandContext(t.Context(), path)
			cmd.Env, cmd.Stderr = []string{"HOME=" + home}, os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(out)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
