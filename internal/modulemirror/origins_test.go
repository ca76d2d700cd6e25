package modulemirror_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
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
	locations := map[string]struct{ location, reason string }{
		"a file":                      {"file:///etc/passwd", "has the scheme file"},
		"a path":                      {"/etc/passwd", "404"},
		"a path that leads out":       {"../../../objects/secret.tar.gz", "404"},
		"a repository of files":       {"git::file:///srv/git/vpc.git?ref=v1.0.0", "has the scheme file"},
		"ssh":                         {"git::ssh://git@github.com/acme/vpc.git?ref=v1.0.0", "has the scheme ssh"},
		"ssh in short":                {"git@github.com:acme/vpc.git", "has the scheme ssh"},
		"plain HTTP":                  {"http://archives.example.com/vpc.tar.gz", "has the scheme http"},
		"a repository by plain HTTP":  {"git::http://github.com/acme/vpc?ref=v1.0.0", "has the scheme http"},
		"S3":                          {"s3::https://s3.amazonaws.com/bucket/vpc.tar.gz", "is of the kind s3"},
		"Mercurial":                   {"hg::https://hg.example.com/vpc", "is of the kind hg"},
		"a user":                      {"https://user:hunter2@archives.example.com/vpc.tar.gz", "contains a password"},
		"a user of a repository":      {"git::https://user:hunter2@github.com/acme/vpc?ref=v1.0.0", "contains a password"},
		"an option of Git":            {"git::https://github.com/acme/vpc?ref=--upload-pack=touch", "its ref is not the name"},
		"a repository that leads out": {"git::https://github.com/acme/../../evil/vpc?ref=v1.0.0", "does not have the form OWNER/NAME"},
		"a folder that leads out":     {"git::https://github.com/acme/terraform-aws-vpc//../../x?ref=v1.0.0", "is not a path within it"},
		"a missing tag":               {"git::https://" + h.Host + "/acme/terraform-aws-vpc?ref=v9.9.9", "no such branch or tag"},
		"a private archive":           {"https://" + private + "/vpc.tar.gz", "must not use such an address"},
		"a private repository":        {"git::https://" + private + "/acme/vpc?ref=v1.0.0", "must not use such an address"},
		"instance metadata":           {"https://169.254.169.254/latest/vpc.tar.gz", "where clouds give out credentials"},
		"an archive that redirects":   {"https://" + h.Host + "/redirect/vpc.tar.gz", "must not use such an address"},
		"a header that leads inside":  {"https://" + h.Host + "/elsewhere/vpc", "must not use such an address"},
		"lines":                       {"https://" + h.Host + "/vpc.tar.gz\nSet-Cookie: a=b", "404"},
		"a long one":                  {"https://archives.example.com/" + strings.Repeat("a", 100_000) + ".tar.gz", "it has no location"},
		"spaces":                      {"  ", "it has no location"},
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
	for name, c := range locations {
		t.Run(name, func(t *testing.T) {
			address := strings.ReplaceAll(strings.ToLower(name), " ", "-") + "/vpc/aws"
			h.Add(modulehosts.Module{Address: address, Files: files("x")})
			h.Locate(address, "1.0.0", c.location)
			l.expectRefusal(t, address, c.reason)
		})
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("%d requests arrived inside", n)
	}
	l.expectNothing(t)
}

// expectRefusal expects that clients do not get a version, and no text of its origin.
// reason is a part of the reason that is recorded.
func (l *larder) expectRefusal(t *testing.T, address, reason string) {
	t.Helper()
	status, header, body := l.get(t, "/v1/modules-of/registry.opentofu.org/"+address+"/1.0.0/download")
	if status != http.StatusNotFound {
		t.Errorf("the status is %d, want 404", status)
	}
	if got := header.Get("X-Terraform-Get"); got != "" {
		t.Errorf("clients are sent to %s", got)
	}
	if len(body) > 500 || strings.Contains(body, "hunter2") || strings.Contains(body, "example.com") {
		t.Errorf("the body has text of the origin: %.500s", body)
	}
	a, v := parse(t, "registry.opentofu.org/"+address, "1.0.0")
	found, err := l.data.Catalog.Mirror.PulledVersion(t.Context(), a, v)
	if err != nil || !strings.Contains(found.Problem, reason) {
		t.Errorf("the recorded reason is %q, %v, want one with %q", found.Problem, err, reason)
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
				status, _, _ := l.get(t, "/v1/modules-of/registry.opentofu.org/"+vpc+"/"+path)
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
		for later, want := range map[string]string{"admitted": pinned, "old enough": pinned, "moved meanwhile": "1.0.0"} {
			t.Run(c.Name+", "+later, func(t *testing.T) {
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
				switch later {
				case "admitted":
					l.admit(t, host+"/"+vpc, pinned)
				case "moved meanwhile":
					h.MoveTag(vpc, pinned, files("other files"))
				}
				if later != "admitted" {
					l.pass(8 * 24 * time.Hour)
					// The first client after the wait finds out whether the version is the same.
					_, _, _ = l.get(t, "/v1/modules-of/"+host+"/"+vpc+"/"+pinned+"/download")
				}
				if got := outcome(t, s); got != want {
					t.Errorf("later init installs %s, want %s", got, want)
				}
			})
		}
	}
}

// admit admits a version, as an operator does.
func (l *larder) admit(t *testing.T, address, version string) {
	t.Helper()
	a, v := parse(t, address, version)
	if _, err := l.operator().Admit(t.Context(), filling.Wanted{Address: a}, v, "a fix"); err != nil {
		t.Fatal(err)
	}
}

// Names are the same in any case, as at public registries: for clients, rules of the
// policy, scopes and withdrawals.
func TestCase(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	h.Add(modulehosts.Module{Address: "azure/naming/azurerm", Files: files("x")},
		modulehosts.Module{Address: "evil/naming/azurerm", Files: files("x")})
	l := serve(t, h, "deny \"registry.opentofu.org/Evil/*/*\" { reason = \"no\" }\n"+pulls, false)
	l.token = l.newToken(t, "azure", "read:mirror-modules/registry.opentofu.org/Azure/*/*", "read:mirror-modules/registry.opentofu.org/evil/**")
	download := func(address string) int {
		status, _, _ := l.get(t, "/v1/modules-of/registry.opentofu.org/"+address+"/1.0.0/download")
		return status
	}
	for address, want := range map[string]int{
		"Azure/naming/azurerm": http.StatusNoContent, "azure/Naming/azurerm": http.StatusNoContent,
		"azure/naming/azurerm": http.StatusNoContent, "eVil/naming/azurerm": http.StatusNotFound,
		"other/naming/azurerm": http.StatusForbidden,
	} {
		if got := download(address); got != want {
			t.Errorf("%s has status %d, want %d", address, got, want)
		}
	}
	for path, n := range h.Archives() {
		if n != 1 {
			t.Errorf("%d downloads of %s", n, path)
		}
	}
	a, v := parse(t, "registry.opentofu.org/AZURE/naming/azurerm", "1.0.0")
	w := publish.Withdrawer{Catalog: l.data.Catalog, Objects: l.data.Objects, By: "operator"}
	if _, err := w.Withdraw(t.Context(), a, v, "leaked"); err != nil {
		t.Fatal(err)
	}
	if got := download("Azure/naming/azurerm"); got != http.StatusNotFound {
		t.Errorf("after the withdrawal the status is %d", got)
	}
}

// What clients make the mirror download is bounded, and counts in the budget, also if
// nothing comes of it.
func TestBudget(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise)
	large := map[string]string{"main.tf": "# large\n", "noise.bin": string(noise)}
	broken := map[string]string{"README.md": "# It has no configuration\n", "noise.bin": string(noise[:1<<19])}
	h.Add(modulehosts.Module{Address: "acme/large/aws", Files: large}, modulehosts.Module{Address: "acme/broken/aws", Files: broken})
	l := serve(t, h, "allow \"registry.opentofu.org/*/*/*\" {\n  pull     = \"closed\"\n  max_size = \"1MiB\"\n}\n", true)
	l.expectRefusal(t, "acme/large/aws", "more than 1.0 MiB")
	l.expectRefusal(t, "acme/broken/aws", "there is no .tf")
	l.expectNothing(t)
	a, v := parse(t, "registry.opentofu.org/acme/broken/aws", "1.0.0")
	s, err := l.data.Catalog.Mirror.CopyState(t.Context(), a, a.Hostname, v, l.clock())
	if err != nil {
		t.Fatal(err)
	}
	for bytes, isSpent := range map[int64]bool{1 << 19: true, 1 << 23: false} {
		if err := s.CheckBudget(registry.PullBudget{Packages: 2, Bytes: bytes}); (err != nil) != isSpent {
			t.Errorf("a budget of %d bytes: %v", bytes, err)
		}
	}
}

// An archive of another commit than the pinned one is refused.
func TestOtherCommit(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	h.Add(modulehosts.Module{Address: vpc, Files: files("x")}, modulehosts.Module{Address: "acme/other/aws", Files: files("other")})
	l := serve(t, h, pulls, true)
	from, to := h.Commit(vpc, "1.0.0"), h.Commit("acme/other/aws", "1.0.0")
	h.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tar.gz/"+from) {
			http.Redirect(w, r, "https://codeload.github.com/acme/terraform-aws-other/tar.gz/"+to, http.StatusFound)
			return true
		}
		return false
	})
	l.expectRefusal(t, vpc, "it is of commit "+to)
	l.expectNothing(t)
}

// The same change is recorded once, and stays recorded if a later look does not get as
// far as the files.
func TestRefusedAgain(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	h.Add(modulehosts.Module{Address: vpc, Version: pinned, Files: files("x")})
	l := serve(t, h, pulls, true)
	a, v := parse(t, "registry.opentofu.org/"+vpc, pinned)
	m, want := l.operator(), filling.Wanted{Address: a, Constraint: pinned}
	if got := filled(m.Add(t.Context(), want)); got != filling.Added {
		t.Fatal(got)
	}
	l.lose(t, a, v)
	h.ChangeFiles(vpc, pinned, files("y"))
	for range 3 {
		if got := filled(m.Add(t.Context(), want)); !strings.Contains(got, "its files had the digest") {
			t.Error(got)
		}
	}
	h.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.Host, "codeload") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	if got := filled(m.Add(t.Context(), want)); !strings.Contains(got, "404") {
		t.Error(got)
	}
	refusals := 0
	for _, line := range l.stored(t, a, v) {
		if strings.HasPrefix(line, "audit: "+string(registry.AuditRefuseContent)) || strings.HasPrefix(line, "refused: ") {
			refusals++
		}
	}
	if refusals != 2 {
		t.Errorf("the catalog has %q, want one refusal and its entry", l.stored(t, a, v))
	}
}

// An operator accepts what the mirror has refused, and nothing else.
func TestAdmitAgain(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	h.Add(modulehosts.Module{Address: vpc, Version: pinned, Files: files("x")})
	l := serve(t, h, pulls, true)
	a, v := parse(t, "registry.opentofu.org/"+vpc, pinned)
	m, want := l.operator(), filling.Wanted{Address: a, Constraint: pinned}
	admit := func() string { return filled(m.Admit(t.Context(), want, v, "announced")) }
	if got := filled(m.Add(t.Context(), want)); got != filling.Added {
		t.Fatal(got)
	}
	for _, content := range []string{"y", "z"} {
		h.MoveTag(vpc, pinned, files(content))
		if got := admit(); !strings.Contains(got, "is now "+h.Commit(vpc, pinned)) {
			t.Errorf("before anyone has seen %s: %s", content, got)
		}
	}
	if got := admit(); !strings.Contains(got, "was accepted") {
		t.Errorf("afterwards: %s", got)
	}
}

// A failure of this machine is none of the origin.
func TestOwnFailure(t *testing.T) {
	t.Parallel()
	h := publicServer(t)
	h.Add(modulehosts.Module{Address: vpc, Version: pinned, Files: files("x")})
	l := serve(t, h, pulls, true)
	a, _ := parse(t, "registry.opentofu.org/"+vpc, pinned)
	m := l.operator()
	m.Inspector = unable{}
	_, err := m.Add(t.Context(), filling.Wanted{Address: a})
	if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, filling.ErrOrigin) {
		t.Errorf("the error is %v", err)
	}
}

// unable is an inspector that cannot start.
type unable struct{}

func (unable) Inspect(context.Context, inspection.Request, io.ReaderAt) (inspection.Found, error) {
	return inspection.Found{}, registry.ErrUnavailable
}

// parse parses the address of a module and a version.
func parse(t *testing.T, address, version string) (registry.MirrorAddress, registry.Version) {
	t.Helper()
	a, err := registry.ParseMirrorModule(address)
	if err != nil {
		t.Fatal(err)
	}
	v, err := registry.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return a, v
}

// lose removes the stored files of a version.
func (l *larder) lose(t *testing.T, a registry.MirrorAddress, v registry.Version) {
	t.Helper()
	record, err := l.data.Catalog.Mirror.Get(t.Context(), a, v)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.data.Objects.Remove(t.Context(), path.Dir(record.Module.Object)+"/"); err != nil || n == 0 {
		t.Fatalf("%d objects were removed: %v", n, err)
	}
}
