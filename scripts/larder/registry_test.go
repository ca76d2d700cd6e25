package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// endpoint is a registry that has all files already, and publishes whatever module is announced.
type endpoint struct {
	mu        sync.Mutex
	announced protocol.Announcement
	published *registry.ModuleVersion
	deprecate string
	tokens    []string // that it was sent
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	path := strings.TrimPrefix(r.URL.Path, protocol.PublishPath)
	switch {
	case r.URL.Path == "/.well-known/terraform.json":
		answer(200, map[string]string{protocol.PublishService: protocol.PublishPath})
		return
	case r.URL.Path == "/identity":
		answer(200, map[string]string{"value": "id." + token + ".for-" + strings.TrimPrefix(r.URL.Query().Get("audience"), "https://127.0.0.1:")[:1]})
		return
	case token == "":
		answer(401, map[string][]string{"errors": {"authentication required"}})
		return
	case token == "narrow":
		answer(403, map[string][]string{"errors": {"forbidden"}})
		return
	}
	e.tokens = append(e.tokens, token)
	switch {
	case strings.HasSuffix(path, "/uploads"):
		if err := json.NewDecoder(r.Body).Decode(&e.announced); err != nil {
			answer(400, nil)
			return
		}
		if e.published == nil {
			answer(201, protocol.Begun{Upload: "U", Files: []protocol.Put{{Name: e.announced.Files[0].Name, Stored: true}}})
		} else if e.published.ContentSHA256 == e.announced.ContentSHA256 {
			again := protocol.Published{Module: e.published, Unchanged: true, NotCompared: true}
			answer(200, protocol.Begun{Published: &again})
		} else {
			answer(409, map[string][]string{"errors": {"it is published already with other content"}})
		}
	case strings.HasSuffix(path, "/inspect"):
		answer(200, protocol.Inspected{Passed: true})
	case strings.HasSuffix(path, "/commit"):
		version, _ := registry.ParseTag(strings.Split(path, "/")[4])
		e.published = &registry.ModuleVersion{
			Version: version, SHA256: e.announced.Files[0].SHA256, Size: e.announced.Files[0].Size, ContentSHA256: e.announced.ContentSHA256,
			PublishedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: "ci"},
		}
		answer(200, protocol.Published{Module: e.published})
	case strings.HasSuffix(path, "/deprecation"):
		var d protocol.Deprecation
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil || strings.Contains(path, "unknown") {
			answer(404, map[string][]string{"errors": {"there is nothing published by that name and version"}})
			return
		}
		e.deprecate = fmt.Sprintf("%s %+v", path, d)
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(404, map[string][]string{"errors": {"not found"}})
	}
}

// seen returns what was deprecated last, and the tokens that were sent since it was asked for.
func (e *endpoint) seen() (deprecated string, tokens []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	tokens, e.tokens = e.tokens, nil
	return e.deprecate, tokens
}

// What is published through a registry's own endpoint is told as it is for a store, with what its users write; what it
// refuses is told in its words, with an exit code.
func TestThroughRegistry(t *testing.T) {
	t.Parallel()
	e := &endpoint{}
	server := httptest.NewTLSServer(e)
	t.Cleanup(server.Close)
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules.v1": "/v1/modules/"}`)
	}))
	t.Cleanup(other.Close)
	host, ca := strings.TrimPrefix(server.URL, "https://"), trust(t, authority(t, server), authority(t, other))
	home := t.TempDir()
	run := func(t *testing.T, env []string, want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "larder", args...)
		cmd.Dir = t.TempDir()
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + ca, "GORACE=atexit_sleep_ms=0"}, env...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("larder %q: exit code %d, want %d\n%s%s", args, code, want, &stdout, &stderr)
		}
		if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) > 0 {
			t.Errorf("larder %q leaves %v", args, entries)
		}
		return stdout.String() + stderr.String()
	}
	says := func(t *testing.T, out string, wanted ...string) {
		t.Helper()
		for _, want := range wanted {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	}
	config := func(token string) string {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"tofurc": credentials(host, token)})
		return "TF_CLI_CONFIG_FILE=" + dir + "/tofurc"
	}
	dir := t.TempDir()
	writeFiles(t, dir, output("x"))
	module := []string{"publish", "module", dir, "acme/vpc/aws", "v1.0.0"}

	says(t, run(t, nil, exitFailed, append(module, "--registry", server.URL)...), "add a credentials block for "+host, "publish:modules/acme/vpc/aws")
	says(t, run(t, []string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc"}, exitFailed, append(module, "--registry", server.URL)...), "TF_CLI_CONFIG_FILE names /nowhere/tofurc, which is not there")
	says(t, run(t, []string{"GITHUB_ACTIONS=true"}, exitFailed, append(module, "--registry", server.URL)...), "permissions: id-token: write")
	says(t, run(t, []string{config("narrow")}, exitFailed, append(module, "--registry", server.URL)...), "Publishing needs the scope publish:modules/acme/vpc/aws")
	says(t, run(t, nil, exitNotFound, append(module, "--registry", other.URL)...), "has no endpoint for publishing")
	if _, tokens := e.seen(); tokens != nil {
		t.Errorf("it was sent %q", tokens)
	}

	good := config("good")
	use := "Use it:\n\n  module \"vpc\" {\n    source  = \"" + host + "/acme/vpc/aws\"\n    version = \"1.0.0\"\n  }\n"
	says(t, run(t, []string{good}, 0, append(module, "--registry", host)...),
		"packing ", "1 of 1 files are stored already", "to inspect vpc.tar.gz", "Published acme/vpc/aws 1.0.0 to "+host+": 1 file, ", use)
	says(t, run(t, []string{good, "LARDER_REGISTRY=" + server.URL + "/"}, 0, module...),
		"Unchanged: acme/vpc/aws 1.0.0", "\n  not compared with what is stored, ", use)
	var printed struct {
		Status, Address string
		Version         string
		PublishedBy     registry.Publisher `json:"published_by"`
		Files           []any
		NotCompared     bool `json:"not_compared"`
	}
	var stdout bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", append(module, "--registry", host, "--json")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + ca, good}
	cmd.Stdout = &stdout
	if err := cmd.Run(); err != nil || json.Unmarshal(stdout.Bytes(), &printed) != nil || printed.Status != "unchanged" || printed.PublishedBy.String() != "token ci" || printed.Version != "1.0.0" || len(printed.Files) != 1 {
		t.Errorf("%v: %s", err, &stdout)
	}
	if !printed.NotCompared {
		t.Errorf("it does not say that nothing was compared: %s", &stdout)
	}
	writeFiles(t, dir, map[string]string{"more.tf": ""})
	says(t, run(t, []string{good}, exitExists, append(module, "--registry", host)...), "larder: "+host+": it is published already with other content")

	says(t, run(t, []string{good}, 0, "deprecate", "acme/vpc/aws", "v1.0.0", "--message", "use 2.0.0", "--hide", "--registry", host), "Hiding acme/vpc/aws 1.0.0 breaks", "is deprecated: use 2.0.0")
	if deprecated, _ := e.seen(); deprecated != "modules/acme/vpc/aws/1.0.0/deprecation {Message:use 2.0.0 Hide:true}" {
		t.Errorf("deprecated: %s", deprecated)
	}
	says(t, run(t, []string{good}, 0, "deprecate", "acme/inventory", "--undo", "--registry", host), "no longer deprecated")
	if deprecated, _ := e.seen(); deprecated != "providers/acme/inventory/deprecation {Message: Hide:false}" {
		t.Errorf("deprecated: %s", deprecated)
	}
	says(t, run(t, []string{good}, exitNotFound, "deprecate", "acme/unknown", "--message", "x", "--registry", host), "nothing published by that name")

	// A CI job goes by its identity where there is nothing else, or where it is told to.
	job := []string{"GITHUB_ACTIONS=true", "ACTIONS_ID_TOKEN_REQUEST_URL=" + server.URL + "/identity?x=y", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=r3quest"}
	given := "id." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud": "larder"}`)) + ".x"
	says(t, run(t, []string{"LARDER_ID_TOKEN=" + given}, exitRefused, append(module, "--registry", host)...), "for the audience larder, and not for https://"+host)
	for _, test := range []struct {
		env   []string
		args  []string
		token string
	}{
		{job, nil, "id.r3quest.for-" + strings.TrimPrefix(host, "127.0.0.1:")[:1]},
		{job, []string{"--audience", "x"}, "id.r3quest.for-x"},
		{append(job, good), nil, "good"},
		{append(job, good), []string{"--ci-identity", "--audience", "y"}, "id.r3quest.for-y"},
		{append(job, "LARDER_ID_TOKEN="+given), []string{"--audience", "larder"}, given},
	} {
		e.seen()
		out := run(t, test.env, 0, append([]string{"deprecate", "acme/inventory", "--undo", "--registry", host}, test.args...)...)
		if _, tokens := e.seen(); len(tokens) != 1 || tokens[0] != test.token || strings.Contains(out, "id.") || strings.Contains(out, "r3quest") {
			t.Errorf("%q was sent, want %q\n%s", tokens, test.token, out)
		}
	}
}
