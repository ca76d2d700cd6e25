package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/web"
)

// withStatus returns a store with something in each section of the status, and with
// a version that waits but is older than the mirrored ones.
func withStatus(t testing.TB) *store {
	t.Helper()
	s := withMirroredModules(t)
	now := s.now()
	s.origin(random[len("/mirror/"):], func(o *registry.MirrorOrigin) { s.sees(o, "0.5.7", now, now) })
	s.policy(registry.MirrorRule{MinAge: int64(week / time.Second), Pull: registry.PullOpen})
	s.pulled("registry.opentofu.org/acme/offline", registry.PulledAddress{
		RequestedAt: now.Add(-time.Minute), Problem: "cannot reach 10.1.2.3: connection refused",
	}, "1.0.0")
	s.origin("registry.opentofu.org/acme/broken", func(o *registry.MirrorOrigin) {
		s.sees(o, "2.0.0", now.AddDate(0, 0, -20), now.AddDate(0, 0, -20))
		s.sees(o, "2.1.0", now.AddDate(0, 0, -10), now.AddDate(0, 0, -10))
	})
	s.pulled("registry.opentofu.org/acme/broken", registry.PulledAddress{
		RequestedAt: now.Add(-time.Minute), CheckedAt: now.Add(-time.Minute),
		Pending: []registry.Version{number(t, "2.1.0"), number(t, "2.0.0")},
	}, "2.0.0", "2.1.0")
	s.failedCopy("registry.opentofu.org/acme/broken", "2.1.0", "the archive from 10.1.2.3 has another digest")
	s.module("acme/old/aws", "1.0.0", nil)
	s.deprecate("acme/old/aws", "", "Use `acme/vpc/aws`.", false)
	s.module("acme/new/aws", "1.0.0", nil)
	s.module("acme/new/aws", "1.1.0", nil)
	s.deprecate("acme/new/aws", "1.0.0", "Use 1.1.0.", false)
	p := registry.Provider{Namespace: "acme", Type: "inventory"}
	count := func(a registry.Address, text string, n int64) usage.Download {
		return usage.Download{Address: a, Version: number(t, text), Count: n}
	}
	s.downloads = counted{report: usage.Report{Downloads: []usage.Download{
		count(p, "1.0.0", 1200), count(address(t, "acme/old/aws"), "1.0.0", 30), count(p, "0.9.0", 1),
		count(address(t, "acme/new/aws"), "1.0.0", 12), count(address(t, "acme/new/aws"), "1.1.0", 90),
	}}}
	for name, expires := range map[string]time.Time{
		"soon": now.AddDate(0, 0, 29), "later": now.AddDate(0, 0, 31), "never": {},
	} {
		s.storedToken(name, expires)
	}
	key := registry.SigningKey{
		ID: "0123456789ABCDEF", ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n", ExpiresAt: now.AddDate(0, 0, -1), AddedBy: "ada",
	}
	if _, err := s.catalog.AddSigningKey(t.Context(), "acme", key); err != nil {
		t.Fatal(err)
	}
	s.local = &web.Local{Open: true, CertificateExpires: func() time.Time { return now.AddDate(0, 0, 3) }}
	return s
}

// failedCopy makes the last copy of a version to the mirror a failed one, with the
// second policy that was set.
func (s *store) failedCopy(address, version, problem string) {
	s.t.Helper()
	p, err := registry.ParseMirrorProvider(address)
	if err != nil {
		s.t.Fatal(err)
	}
	n := number(s.t, version)
	state, err := s.catalog.Mirror.State(s.t.Context(), p, p.Hostname, &n, s.now())
	if err == nil {
		err = state.Update(s.t.Context(), func() error {
			state.Version.Version, state.Version.Problem, state.Version.Failed = n, problem, true
			state.Version.Until, state.Version.PolicySetAt = time.Now().Add(time.Hour), published.Add(time.Second)
			return nil
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// storedToken stores a token without the expiry of the item, which has the time
// of the system.
func (s *store) storedToken(name string, expires time.Time) {
	s.t.Helper()
	sum := digest([]byte(name))
	data, err := json.Marshal(registry.Token{ID: registry.TokenID(sum), Name: name, ExpiresAt: expires})
	if err == nil {
		err = s.table.Write(s.t.Context(), catalog.Change{Key: catalog.Key{Partition: "tokens", Sort: sum}, Data: data})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// dates matches the dates of the audit trail, which are those of the system.
var dates = regexp.MustCompile(`<time.*</time>|\d+ \w+ 20\d\d(, \d\d:\d\d UTC)?`)

// withoutDates removes the dates of the last changes from the page of the status.
func withoutDates(page string) string {
	before, changes, _ := strings.Cut(page, "Last changes")
	return before + "Last changes" + dates.ReplaceAllString(changes, "DATE")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	pages := withStatus(t).serve()
	golden.Equal(t, "testdata/status.html", []byte(withoutDates(mainOf(pages.text(t, http.StatusOK, "/status")))))
	golden.Equal(t, "testdata/status.md", []byte(withoutDates(pages.text(t, http.StatusOK, "/status.md"))))
}

// Callers who may not read everything get what an unknown path gives, and no
// link. Without a credential that permits to read everything, the page has no
// tokens and no changes.
func TestStatusAccess(t *testing.T) {
	t.Parallel()
	s := withStatus(t)
	s.local = nil
	some, all := s.token("read:modules/acme/*"), s.token("read:**")
	private, public := s.protect("{}"), s.protect(`{"public": ["**"]}`)
	for name, test := range map[string]struct {
		pages   server
		token   string
		visible bool
		names   bool
	}{
		"one namespace":                       {pages: private, token: some},
		"without an account":                  {pages: private},
		"a wrong token":                       {pages: private, token: "larder_mistyped"},
		"everything":                          {pages: private, token: all, visible: true, names: true},
		"public, without an account":          {pages: public, visible: true},
		"public, with any account":            {pages: public, token: some, visible: true},
		"public, with everything":             {pages: public, token: all, visible: true, names: true},
		"one public namespace, no account":    {pages: s.protect(`{"public": ["modules/acme/*"]}`)},
		"one public namespace, and the other": {pages: s.protect(`{"public": ["modules/acme/*"]}`), token: some},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/status", "/status.md"} {
				got := test.pages.probe(t, path, test.token)
				if !test.visible {
					unknown := test.pages.probe(t, strings.Replace(path, "status", "nosuch", 1), test.token)
					if diff := cmp.Diff(unknown, renamed(got)); diff != "" {
						t.Errorf("%s (-unknown +got):\n%s", path, diff)
					}
					continue
				}
				for _, text := range []string{"Last changes", "Token soon", "ada"} {
					if strings.Contains(got.Body, text) != test.names {
						t.Errorf("%s shows %q: %v, want %v", path, text, !test.names, test.names)
					}
				}
				contains(t, got.Body, "Expires soon", "signed by another key", "acme/old/aws")
			}
			home := test.pages.probe(t, "/", test.token)
			if strings.Contains(home.Body, `href="/status"`) != test.visible {
				t.Errorf("the link on the home page: %v, want %v", !test.visible, test.visible)
			}
			program := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status", nil)
			program.Header.Set("Authorization", "Bearer "+test.token)
			if w := httptest.NewRecorder(); !test.visible {
				test.pages.ServeHTTP(w, program)
				if w.Code != http.StatusNotFound {
					t.Errorf("a program gets status %d, want 404", w.Code)
				}
			}
		})
	}
}

// renamed returns a response with the name of a path that nothing has.
func renamed(r response) response {
	r.Body = strings.ReplaceAll(r.Body, "status", "nosuch")
	if to := r.Header.Get("Location"); to != "" {
		r.Header.Set("Location", strings.Replace(to, "status", "nosuch", 1))
	}
	return r
}

// Without anything to do, one sentence states that.
func TestCalmStatus(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, path := range []string{"/status", "/status.md"} {
		contains(t, s.serve().text(t, http.StatusOK, path), "Nothing needs attention.", "!Last changes", "!Downloads")
	}
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.local = &web.Local{Open: true}
	contains(t, s.serve().text(t, http.StatusOK, "/status"), "Nothing needs attention.", "Last changes")
}

// Text of publishers, of origins and of operators is escaped.
func TestHostileStatus(t *testing.T) {
	t.Parallel()
	const evil = "<script>alert(1)</script>|`a`[x](javascript:1)"
	s := withStatus(t)
	s.deprecate("acme/old/aws", "", evil, false)
	s.storedToken(evil, s.now())
	s.pulled("registry.opentofu.org/acme/evil", registry.PulledAddress{
		RequestedAt: s.now(), Problem: "https://192.168.1.2/ answered " + evil,
	}, "1.0.0")
	pages := s.serve()
	contains(t, pages.text(t, http.StatusOK, "/status"),
		"!<script>alert", "!192.168.1.2", "&lt;script&gt;alert(1)", "Token &lt;script&gt;")
	for line := range strings.SplitSeq(pages.text(t, http.StatusOK, "/status.md"), "\n") {
		if strings.Contains(line, "alert") {
			contains(t, line, `\<script>`, `\[x\](javascript`)
		}
	}
}

// A large mirror has a page of bounded size and few reads. Data that cannot be
// read are logged, and the page lacks only these.
func TestLargeStatus(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.now = func() time.Time { return published.AddDate(0, 0, 10) }
	s.local = &web.Local{Open: true}
	s.provider("acme/inventory", "1.0.0")
	s.policy(registry.MirrorRule{MinAge: int64(week / time.Second)})
	for i := range 500 {
		provider := fmt.Sprintf("registry.opentofu.org/acme/network-%03d", i)
		s.mirrored(provider, "1.0.0")
		s.origin(provider, func(o *registry.MirrorOrigin) {
			s.sees(o, "1.0.0", published, published)
			if i%5 > 0 {
				return
			}
			for patch := range 5 {
				o.Refuse(registry.RefusedVersion{Version: registry.Version{Minor: 9, Patch: uint64(patch)}, Key: originKey("5F0E3C1B9A7D2468")})
			}
		})
	}
	pages := s.serve()
	pages.text(t, http.StatusOK, "/status") // caches the lists and the policy
	s.table.Take()
	page := pages.text(t, http.StatusOK, "/status")
	reads := strings.Fields(s.table.Take())
	queries := slices.DeleteFunc(slices.Clone(reads), func(r string) bool { return r == "Snapshot" })
	// There are 100 addresses with something to show, and 20 in a snapshot.
	if len(reads)-len(queries) != 5 {
		t.Errorf("%d snapshots, want 5: %s", len(reads)-len(queries), reads)
	}
	// They are those of origins, tokens, keys of one namespace, and up to three
	// months.
	if len(queries) > 6 {
		t.Errorf("%d queries, want at most 6: %s", len(queries), reads)
	}
	if len(page) > 150<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	contains(t, page, "network-000", "and 2 more", "200 more are not shown", "!network-001")
	t.Logf("%d bytes, reads: %s", len(page), reads)

	pages.text(t, http.StatusOK, "/mirror")
	s.table.Take()
	contains(t, pages.text(t, http.StatusOK, "/mirror"), "5 refused")
	if got := s.table.Take(); got != "Snapshot Snapshot Snapshot Snapshot Snapshot" {
		t.Errorf("the list reads %s, want 5 snapshots", got)
	}
}

// A list and the status work if the data of an address or the downloads cannot
// be read.
func TestDamagedStatus(t *testing.T) {
	t.Parallel()
	s := withStatus(t)
	s.downloads = counted{err: errors.New("it is damaged")}
	key := catalog.Key{Partition: "mirror/providers", Sort: "registry.opentofu.org/hashicorp/random"}
	item, err := s.table.Get(t.Context(), key)
	if err == nil {
		err = s.table.Write(t.Context(), catalog.Change{Key: key, Revision: item.Revision, Data: []byte("{")})
	}
	if err != nil {
		t.Fatal(err)
	}
	pages := s.serve()
	contains(t, pages.text(t, http.StatusOK, "/status"),
		"Some data cannot be read.", "!0.9.1", "acme/offline", "Expires soon", "!Downloads")
	contains(t, pages.text(t, http.StatusOK, "/mirror"), "random", "!refused")
	s.table.Fail(registry.ErrUnavailable)
	pages.text(t, http.StatusServiceUnavailable, "/status")
	s.table.Fail(nil)
	if n := strings.Count(pages.log.String(), "item mirror/providers registry.opentofu.org/hashicorp/random:"); n != 2 {
		t.Errorf("the log has the cause %d times, want 2: %s", n, pages.log)
	}
}
