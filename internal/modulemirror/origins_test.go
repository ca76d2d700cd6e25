package modulemirror_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Locations that lead elsewhere are refused with a reason. Nothing is stored, and no
// place inside the network gets a request.
func TestHostileLocations(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("LEFT OUT: this machine has one loopback address: %v", err)
	}
	var visits atomic.Int64
	inside := httptest.NewUnstartedServer(http.NotFoundHandler())
	_ = inside.Listener.Close()
	inside.Listener = listener
	inside.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			visits.Add(1)
		}
	}
	inside.StartTLS()
	t.Cleanup(inside.Close)
	private := strings.TrimPrefix(inside.URL, "https://")
	h := modulehosts.Serve(t)
	l := serveConfined(t, h, fmt.Sprintf("allow \"registry.opentofu.org/*/*/*\" {\n  pull     = \"closed\"\n  upstream = %q\n"+
		"  networks = [\"127.0.0.1/32\"]\n  forges   = [\"github://%s\", \"github://%s\"]\n}\n", h.URL, h.Host, private))
	locations := map[string]string{
		"a file":                      "file:///etc/passwd",
		"a path":                      "/etc/passwd",
		"a path that leads out":       "../../../objects/secret.tar.gz",
		"a repository of files":       "git::file:///srv/git/vpc.git?ref=v1.0.0",
		"ssh":                         "git::ssh://git@github.com/acme/vpc.git?ref=v1.0.0",
		"ssh in short":                "git@github.com:acme/vpc.git",
		"plain HTTP":                  "http://archives.example.com/vpc.tar.gz",
		"a repository by plain HTTP":  "git::http://github.com/acme/vpc?ref=v1.0.0",
		"S3":                          "s3::https://s3.amazonaws.com/bucket/vpc.tar.gz",
		"Mercurial":                   "hg::https://hg.example.com/vpc",
		"a user":                      "https://user:hunter2@archives.example.com/vpc.tar.gz",
		"a user of a repository":      "git::https://user:hunter2@github.com/acme/vpc?ref=v1.0.0",
		"an option of Git":            "git::https://github.com/acme/vpc?ref=--upload-pack=touch",
		"a repository that leads out": "git::https://github.com/acme/../../evil/vpc?ref=v1.0.0",
		"a folder that leads out":     "git::https://github.com/acme/terraform-aws-vpc//../../x?ref=v1.0.0",
		"a missing tag":               "git::https://" + h.Host + "/acme/terraform-aws-vpc?ref=v9.9.9",
		"a private archive":           "https://" + private + "/vpc.tar.gz",
		"a private repository":        "git::https://" + private + "/acme/vpc?ref=v1.0.0",
		"instance metadata":           "https://169.254.169.254/latest/vpc.tar.gz",
		"an archive that redirects":   "https://" + h.Host + "/redirect/vpc.tar.gz",
		"a header that leads inside":  "https://" + h.Host + "/elsewhere/vpc",
		"lines":                       "https://archives.example.com/vpc.tar.gz\nSet-Cookie: a=b",
		"a long one":                  "https://archives.example.com/" + strings.Repeat("a", 100_000) + ".tar.gz",
		"spaces":                      "  ",
	}
	h.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/redirect/"):
			http.Redirect(w, r, inside.URL+"/vpc.tar.gz", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/elsewhere/"):
			w.Header().Set("X-Terraform-Get", inside.URL+"/vpc.tar.gz")
		default:
			return false
		}
		return true
	})
	h.Add(modulehosts.Module{Address: vpc, Files: files("x")})
	for name, location := range locations {
		t.Run(name, func(t *testing.T) {
			address := strings.ReplaceAll(strings.ToLower(name), " ", "-") + "/vpc/aws"
			h.Add(modulehosts.Module{Address: address, Files: files("x")})
			h.Locate(address, "1.0.0", location)
			l.expectRefusal(t, address)
		})
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("%d requests arrived inside", n)
	}
	l.expectNothing(t)
}

// expectRefusal expects that clients do not get a version, and no text of its origin.
func (l *larder) expectRefusal(t *testing.T, address string) {
	t.Helper()
	status, header, body := l.get(t, "/v1/modules-of/registry.opentofu.org/"+address+"/1.0.0/download")
	if status != http.StatusNotFound && status != http.StatusServiceUnavailable {
		t.Errorf("the status is %d, want 404 or 503", status)
	}
	if got := header.Get("X-Terraform-Get"); got != "" {
		t.Errorf("clients are sent to %s", got)
	}
	if len(body) > 500 || strings.Contains(body, "hunter2") || strings.Contains(body, "example.com") {
		t.Errorf("the body has text of the origin: %.500s", body)
	}
	a, err := registry.ParseMirrorModule("registry.opentofu.org/" + address)
	if err != nil {
		t.Fatal(err)
	}
	v, err := registry.ParseVersion("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	found, err := l.data.Catalog.Mirror.PulledVersion(t.Context(), a, v)
	if err != nil || found.Problem == "" {
		t.Errorf("the recorded reason is %q, %v", found.Problem, err)
	}
	if strings.Contains(found.Problem, "hunter2") {
		t.Error("the reason has a password")
	}
}

// expectNothing expects that nothing of modules is stored, and that no origin got a
// credential.
func (l *larder) expectNothing(t *testing.T) {
	t.Helper()
	if err := l.data.Objects.Walk(t.Context(), "mirror-modules/", func(i objects.Info) error {
		return fmt.Errorf("%s is stored", i.Key)
	}); err != nil {
		t.Error(err)
	}
	l.expectNoCredentials(t)
}

func (l *larder) expectNoCredentials(t *testing.T) {
	t.Helper()
	for _, r := range l.hosts.Requests() {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("a credential in %s %s", r.Method, r.Path)
		}
	}
	if l.token != "" && strings.Contains(l.log.String(), l.token) {
		t.Error("the log has the token")
	}
}

// Many clients that request the same new version at once cause one copy.
func TestColdClients(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	h.Add(modulehosts.Module{Address: vpc, Version: pinned, Files: files("vpc")})
	l := serve(t, h, pulls, false)
	var group errgroup.Group
	for range 200 {
		group.Go(func() error {
			for _, path := range []string{"versions", pinned + "/download"} {
				status := 0
				for attempt := 0; attempt < 10 && status/100 != 2; attempt++ { // as often as clients try
					status, _, _ = l.get(t, "/v1/modules-of/registry.opentofu.org/"+vpc+"/"+path)
				}
				if status/100 != 2 {
					return fmt.Errorf("%s has status %d", path, status)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	sent := 0
	for _, n := range h.Archives() {
		sent += n
	}
	if sent != 1 {
		t.Errorf("the forge has sent %d archives", sent)
	}
	l.expectNoCredentials(t)
}

// A version that is too new is not listed until an operator admits it, or until it is
// old enough.
func TestMinAge(t *testing.T) {
	t.Parallel()
	found, missing := clients.Find()
	for _, why := range missing {
		t.Log("LEFT OUT:", why)
	}
	for _, c := range found {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, admitted %v", c.Name, early), func(t *testing.T) {
				t.Parallel()
				h := publicServer(t)
				host := string(publicHosts[c.Name])
				h.Add(
					modulehosts.Module{Address: vpc, Version: "1.0.0", Files: files("1.0.0"), Published: time.Now().AddDate(-1, 0, 0)},
					modulehosts.Module{Address: vpc, Version: pinned, Files: files(pinned), Published: time.Now().Add(-time.Hour)},
				)
				l := serve(t, h, fmt.Sprintf("allow \"%s/*/*/*\" {\n  pull    = \"closed\"\n  min_age = \"7d\"\n}\n", host), true)
				h.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
					w.Header().Set("Date", l.clock().UTC().Format(http.TimeFormat))
					return false
				})
				s := l.session(t, c)
				if got := outcome(t, s); got != "1.0.0" {
					t.Errorf("init installs %s, want 1.0.0", got)
				}
				status, _, _ := l.get(t, "/v1/modules-of/"+host+"/"+vpc+"/"+pinned+"/download")
				if status != http.StatusNotFound {
					t.Errorf("the version that is too new has status %d", status)
				}
				if early {
					l.admit(t, host+"/"+vpc, pinned)
				} else {
					l.pass(8 * 24 * time.Hour)
				}
				if got := outcome(t, s); got != pinned {
					t.Errorf("later init installs %s, want %s", got, pinned)
				}
			})
		}
	}
}

// admit admits a version, as an operator does.
func (l *larder) admit(t *testing.T, address, version string) {
	t.Helper()
	a, err := registry.ParseMirrorModule(address)
	if err != nil {
		t.Fatal(err)
	}
	v, err := registry.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.operator().Admit(t.Context(), filling.Wanted{Address: a}, v, "a fix"); err != nil {
		t.Fatal(err)
	}
}
