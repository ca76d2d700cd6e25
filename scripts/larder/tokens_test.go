package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/scripts/larder/failure"
)

// recorder is a server that has the tokens of its requests.
type recorder struct {
	*httptest.Server
	host string

	mu     sync.Mutex
	tokens map[string]bool
	signed int // requests of presigned URLs
}

// record starts a server, whose requests next answers.
func record(t *testing.T, next http.Handler) *recorder {
	t.Helper()
	r := &recorder{tokens: make(map[string]bool)}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		token, found := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
		if found {
			r.tokens[token] = true
		}
		if request.URL.Query().Has("signature") {
			r.signed++
			if found {
				t.Errorf("a presigned URL got a token: %s", request.URL.Path)
			}
		}
		r.mu.Unlock()
		next.ServeHTTP(w, request)
	}))
	t.Cleanup(r.Close)
	r.host = r.Listener.Addr().String()
	return r
}

// recordRegistry starts a registry on this machine behind a recorder.
func recordRegistry(t *testing.T) (*recorder, *server) {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	r := record(t, proxy)
	s := serve(t, t.TempDir())
	proxy.Rewrite = func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "https", Host: s.Host}) }
	// Presigned URLs have the server's own host.
	proxy.ModifyResponse = func(response *http.Response) error {
		body, err := io.ReadAll(response.Body)
		body = bytes.ReplaceAll(body, []byte(s.Host), []byte(r.host))
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		response.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return err
	}
	return r, s
}

// taken returns which of the tokens the server got since the last call.
func (r *recorder) taken(names map[string]string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for token := range r.tokens {
		got = append(got, names[token])
	}
	r.tokens = make(map[string]bool)
	slices.Sort(got)
	return got
}

// LARDER_TOKEN is sent only to the registry of the command. Other registries get the
// token that is configured for them.
func TestWhereTokensGo(t *testing.T) {
	t.Parallel()
	first, firstServer := recordRegistry(t)
	second, secondServer := recordRegistry(t)
	// The origin tries to get tokens for itself, and sends requests elsewhere.
	origin := record(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/terraform.json"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"modules.v1":"https://` + first.host + `/v1/modules/","providers.v1":"/v1/providers/"}`))
		case strings.Contains(r.URL.Path, "note"):
			http.Redirect(w, r, "https://"+first.host+"/v1/providers/acme/note/versions", http.StatusFound)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	own := token(t, firstServer.data, "--name", "own", "--scope", "read:**", "--scope", "publish:**")
	other := token(t, secondServer.data, "--name", "other", "--scope", "read:**", "--scope", "publish:**")
	names := map[string]string{own: "own", other: "other"}
	key := signingKey(t, "Ed25519")
	for _, s := range []*server{firstServer, secondServer} {
		addKey(t, s.data, "acme", key)
	}
	dir := t.TempDir()
	writeFiles(t, dir, withOutput("published"))
	config := t.TempDir()
	writeFiles(t, filepath.Join(config, "larder"), map[string]string{
		"config.json": `{"contexts": {"first": {"registry": "https://` + first.host + `"}}}`,
	})
	p := firstServer.publisher(t, credentials(second.host, other), "LARDER_TOKEN="+own, "XDG_CONFIG_HOME="+config,
		"SSL_CERT_DIR="+filepath.Dir(authority(t, first.Server)))

	module, provider := []string{"publish", "module", dir, "acme/vpc/aws"}, []string{"publish", "provider", releaseOf(t, key), "acme/note"}
	to := func(host string, args ...string) []string { return append(args, "--registry", "https://"+host) }
	for _, test := range []struct {
		args                  []string
		code                  int
		first, second, origin string
	}{
		{to(first.host, append(module, "1.0.0")...), 0, "own", "", ""},
		{to(first.host, append(module, "1.1.0")...), 0, "own", "", ""},
		{to(first.host, append(module, "1.1.0")...), 0, "own", "", ""},
		{to(first.host, append(module, "1.2.0", "--dry-run")...), 0, "", "", ""},
		{to(first.host, provider...), 0, "own", "", ""},
		{to(first.host, "deprecate", "acme/vpc/aws", "1.0.0", "--message", "old"), 0, "own", "", ""},
		{to(first.host, "deprecate", "acme/vpc/aws", "1.0.0", "--undo"), 0, "own", "", ""},
		{to(first.host, "list"), 0, "own", "", ""},
		{to(first.host, "list", "acme/vpc/aws"), 0, "own", "", ""},
		{append([]string{"list"}, "--context", "first"), 0, "own", "", ""},
		{to(first.host, "search", "vpc"), 0, "own", "", ""},
		{to(first.host, "show", "acme/vpc/aws"), 0, "own", "", ""},
		{to(first.host, "show", "acme/note"), 0, "own", "", ""},
		{to(first.host, "diff", "acme/vpc/aws", "1.0.0", "1.1.0"), 0, "own", "", ""},
		{[]string{"doctor", "https://" + first.host}, 0, "own", "", ""},
		{[]string{"doctor", "https://" + origin.host}, 0, "", "", ""},
		// It takes precedence over a token in a file. Anyone may read this registry.
		{to(second.host, "list"), 0, "", "own", ""},
		{[]string{"copy", "acme/vpc/aws", "--from", first.host, "--to", "https://" + second.host}, failure.ExitFailed, "", "own", ""},
		{[]string{"copy", "acme/vpc/aws", "--from", second.host, "--to", "https://" + first.host}, failure.ExitNotFound, "own", "other", ""},
		{[]string{"copy", "acme/note", "--from", origin.host, "--to", "https://" + first.host, "--network", "127.0.0.0/8"}, failure.ExitInvalid, "own", "", ""},
		{[]string{"copy", "acme/vpc/aws", "--from", origin.host, "--to", "https://" + first.host, "--network", "127.0.0.0/8"}, 0, "own", "", ""},
		{to(origin.host, "list"), failure.ExitInvalid, "", "", "own"},
		{to(origin.host, append(module, "1.3.0")...), failure.ExitNotFound, "", "", "own"},
	} {
		out, code := p.output(t, test.args...)
		got := map[string][]string{"first": first.taken(names), "second": second.taken(names), "origin": origin.taken(names)}
		line := strings.Join(test.args, " ")
		for name, want := range map[string]string{"first": test.first, "second": test.second, "origin": test.origin} {
			if joined := strings.Join(got[name], " "); joined != want {
				t.Errorf("%s: %s got %q, want %q", line, name, joined, want)
			}
		}
		if code != test.code {
			t.Errorf("%s: exit code %d, want %d\n%s", line, code, test.code, out)
		}
		if strings.Contains(out, own) || strings.Contains(out, other) {
			t.Errorf("%s prints a token", line)
		}
	}
	if first.signed == 0 {
		t.Error("no presigned URL was requested")
	}
}

// output runs larder and returns its output and its exit code.
func (p publisher) output(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Env, cmd.Dir = p.env, t.TempDir()
	out, _ := cmd.CombinedOutput() // the exit code has the error
	return string(out), cmd.ProcessState.ExitCode()
}
