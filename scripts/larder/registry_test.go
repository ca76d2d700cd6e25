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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
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
		answer(401, map[string]any{"errors": []string{"authentication required"}, "code": "unauthenticated"})
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
		answer(200, protocol.Inspected{Passed: true, Files: 1})
	case strings.HasSuffix(path, "/commit"):
		version, _ := registry.ParseTag(strings.Split(path, "/")[4])
		e.published = &registry.ModuleVersion{
			Version: version, SHA256: e.announced.Files[0].SHA256, Size: e.announced.Files[0].Size,
			ContentSHA256: e.announced.ContentSHA256,
			PublishedAt:   time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
			PublishedBy:   registry.Publisher{Kind: registry.PublisherToken, Name: "ci"},
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

// emulated is a registry that the command line publishes to.
type emulated struct {
	*endpoint
	url, host string
	// other is the URL of a registry without the publish API.
	other string
	env   []string
	texts *golden.Texts
}

func emulate(t *testing.T) emulated {
	t.Helper()
	e := &endpoint{}
	server := httptest.NewTLSServer(e)
	t.Cleanup(server.Close)
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"modules.v1": "/v1/modules/"}`)
	}))
	t.Cleanup(other.Close)
	env := append(closedEnv(t), "SSL_CERT_FILE="+trust(t, authority(t, server), authority(t, other)))
	return emulated{e, server.URL, strings.TrimPrefix(server.URL, "https://"), other.URL, env, golden.New(t)}
}

// config returns a variable that names a configuration with a token.
func (e emulated) config(t *testing.T, token string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"tofurc": credentials(e.host, token)})
	return "TF_CLI_CONFIG_FILE=" + dir + "/tofurc"
}

// run runs a command. It fails the test if the exit code is another, if the
// output lacks one of the texts, or if the command creates a file. all is the
// whole output.
func (e emulated) run(t *testing.T, code int, wanted []string, env []string, args ...string) (stdout, all string) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Dir, cmd.Env = t.TempDir(), append(slices.Clone(e.env), env...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("larder %q: exit code %d, want %d\n%s%s", args, got, code, &out, &stderr)
	}
	if code != 0 {
		e.texts.Text(t, "$ larder "+steady(quotedAll(args))+"\n"+errorText(stderr.String()))
	}
	if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) > 0 {
		t.Errorf("larder %q creates %v", args, entries)
	}
	all = out.String() + stderr.String()
	for _, want := range wanted {
		if !strings.Contains(all, want) {
			t.Errorf("the output of larder %q does not contain %q:\n%s", args, want, all)
		}
	}
	return out.String(), all
}

// Publishing through a registry's own endpoint prints the same result as to a
// store. Its errors have the registry's text and an exit code.
func TestThroughRegistry(t *testing.T) {
	t.Parallel()
	e, dir := emulate(t), t.TempDir()
	writeFiles(t, dir, withOutput("x"))
	module := []string{"publish", "module", dir, "acme/vpc/aws", "v1.0.0"}
	for _, test := range []struct {
		env  []string
		code int
		url  string
		want []string
	}{
		{nil, failure.ExitFailed, e.url, []string{e.host, "publish:modules/acme/vpc/aws"}},
		{[]string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc"}, failure.ExitFailed, e.url, []string{"TF_CLI_CONFIG_FILE", "/nowhere/tofurc"}},
		{[]string{"GITHUB_ACTIONS=true"}, failure.ExitFailed, e.url, []string{"permissions: id-token: write"}},
		{[]string{e.config(t, "narrow")}, failure.ExitFailed, e.url, []string{"publish:modules/acme/vpc/aws"}},
		{nil, failure.ExitNotFound, e.other, []string{strings.TrimPrefix(e.other, "https://")}},
	} {
		e.run(t, test.code, test.want, test.env, append(module, "--registry", test.url)...)
	}
	if _, tokens := e.recorded(); tokens != nil {
		t.Errorf("the registry has received %q", tokens)
	}

	good := []string{e.config(t, "good")}
	use := "Use it:\n\n  module \"vpc\" {\n    source  = \"" + e.host + "/acme/vpc/aws\"\n    version = \"1.0.0\"\n  }\n"
	e.run(t, 0, []string{
		"packing ", "1 of 1 files", "vpc.tar.gz", "Published acme/vpc/aws 1.0.0 to " + e.host + ": 1 file, ", use,
	}, good, append(module, "--registry", e.host)...)
	e.run(t, 0, []string{"Unchanged: acme/vpc/aws 1.0.0", "\n  not compared with the stored objects, ", use},
		append(good, "LARDER_REGISTRY="+e.url+"/"), module...)
	var printed struct {
		Status      string
		PublishedBy registry.Publisher `json:"published_by"`
		NotCompared bool               `json:"not_compared"`
	}
	out, _ := e.run(t, 0, nil, good, append(module, "--registry", e.host, "--json")...)
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := fmt.Sprint(printed.Status, " ", printed.PublishedBy, " ", printed.NotCompared); got != "unchanged token ci true" {
		t.Errorf("status, publisher and not_compared are %s", got)
	}
	writeFiles(t, dir, map[string]string{"more.tf": ""})
	e.run(t, failure.ExitExists, []string{"larder: " + e.host + ": " + conflictText}, good, append(module, "--registry", e.host)...)
}

// A deprecation through a registry's own endpoint sends what the flags name.
func TestDeprecateThroughRegistry(t *testing.T) {
	t.Parallel()
	e := emulate(t)
	good := []string{e.config(t, "good")}
	for _, test := range []struct {
		args       []string
		text, want string
	}{
		{
			[]string{"acme/vpc/aws", "v1.0.0", "--message", "use 2.0.0", "--hide"}, "Hiding acme/vpc/aws 1.0.0 breaks",
			"modules/acme/vpc/aws/1.0.0/deprecation {Message:use 2.0.0 Hide:true}",
		},
		{
			[]string{"acme/inventory", "--undo", "--json"}, `"status": "undeprecated"`,
			"providers/acme/inventory/deprecation {Message: Hide:false}",
		},
	} {
		e.run(t, 0, []string{test.text}, good, append([]string{"deprecate", "--registry", e.host}, test.args...)...)
		if deprecated, _ := e.recorded(); deprecated != test.want {
			t.Errorf("deprecated is %s, want %s", deprecated, test.want)
		}
	}
	e.run(t, failure.ExitNotFound, []string{"larder: " + e.host + ": " + unknownText}, good,
		"deprecate", "acme/unknown", "--message", "x", "--registry", e.host)
}

// A CI job uses its identity if there is no other credential, or with
// --ci-identity.
func TestIdentityThroughRegistry(t *testing.T) {
	t.Parallel()
	e := emulate(t)
	good := e.config(t, "good")
	job := []string{
		"GITHUB_ACTIONS=true", "ACTIONS_ID_TOKEN_REQUEST_URL=" + e.url + "/identity?x=y",
		"ACTIONS_ID_TOKEN_REQUEST_TOKEN=r3quest",
	}
	given := "id." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud": "larder"}`)) + ".x"
	undo := []string{"deprecate", "acme/inventory", "--undo", "--registry", e.host}
	e.run(t, failure.ExitInvalid, []string{"https://" + e.host}, []string{"LARDER_ID_TOKEN=" + given}, undo...)
	for _, test := range []struct {
		env, args []string
		token     string
	}{
		{job, nil, "id.r3quest.for-" + strings.TrimPrefix(e.host, "127.0.0.1:")[:1]},
		{job, []string{"--audience", "x"}, "id.r3quest.for-x"},
		{append(job, good), nil, "good"},
		{append(job, good), []string{"--ci-identity", "--audience", "y"}, "id.r3quest.for-y"},
		{append(job, "LARDER_ID_TOKEN="+given), []string{"--audience", "larder"}, given},
	} {
		e.recorded()
		_, out := e.run(t, 0, nil, test.env, append(undo, test.args...)...)
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
