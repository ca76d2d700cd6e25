// Package oddities serves a registry of releases and modules, each of which is odd in
// one way. Tests compare what the clients and Larder do with each.
//
// The registry is not a Larder. It speaks the protocols of modules and providers over
// TLS, on this machine.
package oddities

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Reason is why the clients and Larder may differ about an oddity.
type Reason struct {
	// Documented is a text of the documentation with the reason why Larder refuses what
	// clients install, or accepts what they refuse.
	Documented string
	// Open is why a difference is a fault that is known.
	Open string
}

// Origin is a running registry.
type Origin struct {
	// URL and Host are those of the registry, with its port.
	URL, Host string
	// Authorities is a file with the certificates that its clients need.
	Authorities string

	server, other, plain *httptest.Server
	providers            map[string]Provider
	modules              map[string]Module
	git                  http.Handler
}

// Client returns an HTTP client that trusts the registry.
func (o *Origin) Client() *http.Client { return o.server.Client() }

// Serve serves providers and modules until the test ends.
func Serve(t testing.TB, providers []Provider, modules []Module) *Origin {
	t.Helper()
	o := &Origin{providers: make(map[string]Provider), modules: make(map[string]Module)}
	for _, p := range providers {
		o.providers[p.Name] = p
	}
	start := func(run func(*httptest.Server)) *httptest.Server {
		s := httptest.NewUnstartedServer(o)
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that break off
		run(s)
		t.Cleanup(s.Close)
		return s
	}
	o.server, o.other = start((*httptest.Server).StartTLS), start((*httptest.Server).StartTLS)
	o.plain = start((*httptest.Server).Start)
	o.URL, o.Host = o.server.URL, strings.TrimPrefix(o.server.URL, "https://")
	o.Authorities = filepath.Join(t.TempDir(), "ca.pem")
	// All servers of httptest have the same certificate.
	block := pem.Block{Type: "CERTIFICATE", Bytes: o.server.Certificate().Raw}
	write(t, o.Authorities, string(pem.EncodeToMemory(&block)))
	o.serveModules(t, modules)
	return o
}

// in replaces the names of the servers in a text. They begin with a sign that no key
// in armor has. Its letters are random.
func (o *Origin) in(text string) string {
	return strings.NewReplacer("$HOST", o.Host, "$ORIGIN", o.server.URL, "$OTHER", o.other.URL, "$PLAIN", o.plain.URL).
		Replace(text)
}

// ServeHTTP implements [http.Handler].
func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch kind := parts[0]; {
	case r.URL.Path == "/.well-known/terraform.json":
		o.writeJSON(w, map[string]any{"modules.v1": "/modules/", "providers.v1": "/providers/"})
	case kind == "providers" && len(parts) == 4 && parts[3] == "versions":
		if p, found := o.providers[parts[1]]; found {
			o.writeJSON(w, p.versions())
			return
		}
		http.NotFound(w, r)
	case kind == "providers" && len(parts) == 7:
		p := o.providers[parts[1]]
		if d := p.describe(parts[5] + "_" + parts[6]); d != nil {
			o.writeJSON(w, d)
			return
		}
		http.NotFound(w, r)
	case kind == "moved":
		http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/moved"), http.StatusFound)
	case kind == "elsewhere":
		http.Redirect(w, r, o.other.URL+strings.TrimPrefix(r.URL.Path, "/elsewhere"), http.StatusFound)
	case kind == "files" && len(parts) == 3:
		http.ServeFile(w, r, filepath.Join(o.providers[parts[1]].Dir, parts[2]))
	case kind == "git" && o.git != nil:
		o.git.ServeHTTP(w, r)
	default:
		o.serveModule(w, r, parts)
	}
}

func (o *Origin) writeJSON(w http.ResponseWriter, document any) {
	text, err := json.Marshal(document)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(o.in(string(text))))
}

// newGit returns a server of the repositories in a folder.
func newGit(program, folder string) http.Handler {
	return &cgi.Handler{
		Path: program, Root: "/git/", Env: []string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1"},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}
