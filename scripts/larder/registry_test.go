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

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// These are errors of the emulated registry.
const (
	conflictText = "1.0.0 conflicts"
	unknownText  = "acme/unknown is unknown"
)

// endpoint emulates a registry that has all files already and accepts every
// module.
type endpoint struct {
	mu        sync.Mutex
	announced protocol.Announcement
	published *registry.ModuleVersion
	deprecate string
	tokens    []string // received since the last call of recorded
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
		answer(
			200,
			map[string]string{
				"value": "id." + token + ".for-" + strings.TrimPrefix(r.URL.Query().Get("audience"), "https://127.0.0.1:")[:1],
			},
		)
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
			answer(
				201,
				protocol.Begun{Upload: "U", Files: []protocol.Put{{Name: e.announced.Files[0].Name, Stored: true}}},
			)
		} else if e.published.ContentSHA256 == e.announced.ContentSHA256 {
			again := protocol.Published{Module: e.published, Unchanged: true, NotCompared: true}
			answer(200, protocol.Begun{Published: &again})
		} else {
			answer(409, map[string][]string{"errors": {conflictText}})
		}
	case strings.HasSuffix(path, "/inspect"):
		answer(200, protocol.Inspected{Passed: true})
	case strings.HasSuffix(path, "/commit"):
		version, _ := registry.ParseTag(strings.Split(path, "/")[4])
		e.published = &registry.ModuleVersion{
			Version: version, SHA256: e.announced.Files[0].SHA256, Size: e.announced.Files[0].Size,
			ContentSHA256: e.announced.ContentSHA256,
			PublishedAt: time.Date(
				2026,
				11,
				21,
				12,
				0,
				0,
				0,
				time.UTC,
			), PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: "ci"},
		}
		answer(200, protocol.Published{Module: e.published})
	case strings.HasSuffix(path, "/deprecation"):
		var d protocol.Deprecation
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil || strings.Contains(path, "unknown") {
			answer(404, map[string][]string{"errors": {unknownText}})
			return
		}
		e.deprecate = fmt.Sprintf("%s %+v", path, d)
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(404, map[string][]string{"errors": {"not found"}})
	}
}

// recorded returns the last deprecation, and the tokens received since the last
// call.
func (e *endpoint) recorded() (deprecated string, tokens []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	tokens, e.tokens = e.tokens, nil
	return e.deprecate, tokens
}

// Publishing through a registry's own endpoint prints the same result as to a
// store. Its errors have the registry's text and an exit code.
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
	home, texts := t.TempDir(), golden.New(t)
	run := func(t *testing.T, env []string, want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "larder", args...)
		cmd.Dir = t.TempDir()
		cmd.Env = append(
			[]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + ca, "GORACE=atexit_sleep_ms=0"},
			env...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("larder %q: exit code %d, want %d\n%s%s", args, code, want, &stdout, &stderr)
		}
		if want != 0 {
			texts.Text(t, "$ larder "+steady(quotedAll(args))+"\n"+errorText(stderr.String()))
		}
		if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) > 0 {
			t.Errorf("larder %q creates %v", args, entries)
		}
		return stdout.String() + stderr.String()
	}
	contains := func(t *testing.T, out string, wanted ...string) {
		t.Helper()
		for _, want := range wanted {
			if !strings.Contains(out, want) {
				t.Errorf("the output does not contain %q:\n%s", want, out)
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

	contains(
		t,
		run(t, nil, exitFailed, append(module, "--registry", server.URL)...),
		host,
		"publish:modules/acme/vpc/aws",
	)
	contains(
		t,
		run(t, []string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc"}, exitFailed, append(module, "--registry", server.URL)...),
		"TF_CLI_CONFIG_FILE",
		"/nowhere/tofurc",
	)
	contains(
		t,
		run(t, []string{"GITHUB_ACTIONS=true"}, exitFailed, append(module, "--registry", server.URL)...),
		"permissions: id-token: write",
	)
	contains(
		t,
		run(t, []string{config("narrow")}, exitFailed, append(module, "--registry", server.URL)...),
		"publish:modules/acme/vpc/aws",
	)
	contains(
		t,
		run(t, nil, exitNotFound, append(module, "--registry", other.URL)...),
		strings.TrimPrefix(other.URL, "https://"),
	)
	if _, tokens := e.recorded(); tokens != nil {
		t.Errorf("the registry has received %q", tokens)
	}

	good := config("good")
	use := "Use it:\n\n  module \"vpc\" {\n    source  = \"" + host + "/acme/vpc/aws\"\n    version = \"1.0.0\"\n  }\n"
	contains(t, run(t, []string{good}, 0, append(module, "--registry", host)...),
		"packing ", "1 of 1 files", "vpc.tar.gz", "Published acme/vpc/aws 1.0.0 to "+host+": 1 file, ", use)
	contains(t, run(t, []string{good, "LARDER_REGISTRY=" + server.URL + "/"}, 0, module...),
		"Unchanged: acme/vpc/aws 1.0.0", "\n  not compared with the stored objects, ", use)
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
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, &stdout)
	}
	if err := json.Unmarshal(stdout.Bytes(), &printed); err != nil {
		t.Errorf("%v: %s", err, &stdout)
	}
	if printed.Status != "unchanged" {
		t.Errorf("status %q", printed.Status)
	}
	if by := printed.PublishedBy.String(); by != "token ci" {
		t.Errorf("published by %q", by)
	}
	if printed.Version != "1.0.0" {
		t.Errorf("version %q", printed.Version)
	}
	if len(printed.Files) != 1 {
		t.Errorf("%d files: %s", len(printed.Files), &stdout)
	}
	if !printed.NotCompared {
		t.Errorf("not_compared is false: %s", &stdout)
	}
	writeFiles(t, dir, map[string]string{"more.tf": ""})
	contains(
		t,
		run(t, []string{good}, exitExists, append(module, "--registry", host)...),
		"larder: "+host+": "+conflictText,
	)

	hide := []string{"deprecate", "acme/vpc/aws", "v1.0.0", "--message", "use 2.0.0", "--hide", "--registry", host}
	texts.Text(t, "$ larder "+steady(quotedAll(hide))+"\n"+steady(run(t, []string{good}, 0, hide...)))
	const hidden = "modules/acme/vpc/aws/1.0.0/deprecation {Message:use 2.0.0 Hide:true}"
	if deprecated, _ := e.recorded(); deprecated != hidden {
		t.Errorf("deprecated: %s", deprecated)
	}
	contains(
		t,
		run(t, []string{good}, 0, "deprecate", "acme/inventory", "--undo", "--registry", host, "--json"),
		`"status": "undeprecated"`,
	)
	if deprecated, _ := e.recorded(); deprecated != "providers/acme/inventory/deprecation {Message: Hide:false}" {
		t.Errorf("deprecated: %s", deprecated)
	}
	contains(
		t,
		run(t, []string{good}, exitNotFound, "deprecate", "acme/unknown", "--message", "x", "--registry", host),
		"larder: "+host+": "+unknownText,
	)

	// A CI job uses its identity if there is no other credential, or with
	// --ci-identity.
	job := []string{
		"GITHUB_ACTIONS=true",
		"ACTIONS_ID_TOKEN_REQUEST_URL=" + server.URL + "/identity?x=y",
		"ACTIONS_ID_TOKEN_REQUEST_TOKEN=r3quest",
	}
	given := "id." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud": "larder"}`)) + ".x"
	contains(
		t,
		run(t, []string{"LARDER_ID_TOKEN=" + given}, exitInvalid, append(module, "--registry", host)...),
		"https://"+host,
	)
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
		e.recorded()
		out := run(
			t,
			test.env,
			0,
			append([]string{"deprecate", "acme/inventory", "--undo", "--registry", host}, test.args...)...)
		_, tokens := e.recorded()
		if diff := cmp.Diff([]string{test.token}, tokens); diff != "" {
			t.Errorf("tokens (-want +got):\n%s", diff)
		}
		for _, secret := range []string{"id.", "r3quest"} {
			if strings.Contains(out, secret) {
				t.Errorf("the output contains %q:\n%s", secret, out)
			}
		}
	}
}
