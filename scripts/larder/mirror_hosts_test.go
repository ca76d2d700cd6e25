package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/registry"
)

// publicHosts are the hosts of sources that name none.
var publicHosts = []string{"registry.opentofu.org", "registry.terraform.io"}

// hostBlocks returns host blocks with the URLs of the provider registry protocol.
func hostBlocks(urls map[string]string) (blocks string) {
	for host, u := range urls {
		blocks += fmt.Sprintf("host %q {\n  services = { \"providers.v1\" = %q }\n}\n", host, u)
	}
	return blocks
}

// providersOf returns host blocks that lead to the mirror of a server.
func (s *server) providersOf(hosts ...string) string {
	urls := make(map[string]string)
	for _, host := range hosts {
		urls[host] = "https://" + s.Host + "/v1/providers-of/" + host + "/"
	}
	return hostBlocks(urls)
}

// withoutPackages starts a proxy for the origin that leaves out the field of OpenTofu,
// which registry.terraform.io does not have.
func (o *origin) withoutPackages(t *testing.T) (url, caFile string) {
	t.Helper()
	s := o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		var answer map[string]any
		if strings.Contains(r.URL.Path, "/download/") && json.Unmarshal(body, &answer) == nil {
			delete(answer, "packages")
			body = must(json.Marshal(answer))
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	return s.URL, authority(t, s)
}

// installedLines returns the lines of init about installed providers, sorted.
func installedLines(out string) (lines []string) {
	lines = regexp.MustCompile(`Installed \S+ v\S+ \([^)]*\)`).FindAllString(plain(out), -1)
	slices.Sort(lines)
	return lines
}

// result is what a client does.
type result struct {
	Installed []string
	Lock      string
}

// initialized runs init without what an earlier run has left.
func initialized(t *testing.T, s clients.Session, dir string, args ...string) result {
	t.Helper()
	for _, name := range []string{".terraform", ".terraform.lock.hcl"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	out := inits(t, s, dir, args...)
	if strings.Contains(out, "Incomplete lock file") {
		t.Errorf("init warns of an incomplete lock file:\n%s", out)
	}
	return result{installedLines(out), lockFile(t, dir)}
}

func lockFile(t *testing.T, dir string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))))
}

// With a host block for each public registry, clients do the same as without a
// mirror. They verify the author's signature, and write the same lock file.
func TestMirrorByHost(t *testing.T) {
	t.Parallel()
	all := append(slices.Clone(platforms()), thirdPlatform)
	var addresses, required []string
	upstreams, direct := make(map[string]string), make(map[string]string)
	var authorities []string
	var origins []*origin
	for _, host := range publicHosts {
		o := serveOrigin(t)
		origins = append(origins, o)
		upstreams[host], authorities = o.upstream(), append(authorities, o.CAFile)
		if host == "registry.terraform.io" {
			proxied, ca := o.withoutPackages(t)
			upstreams[host], authorities = proxied, append(authorities, ca)
		}
		direct[host] = upstreams[host] + "/v1/providers/"
		for _, name := range []string{"acme/note", "acme/ink"} {
			o.publish(t, name, "1.0.0", all...)
			addresses, required = append(addresses, host+"/"+name), append(required, host+"/"+name+" ~> 1.0")
		}
	}
	lockArgs := []string{"providers", "lock"}
	for _, p := range all {
		lockArgs = append(lockArgs, "-platform="+p)
	}
	type reader struct {
		session clients.Session
		server  *server
		dir     string
		want    result // as without a mirror
		locked  string // by `providers lock`
	}
	readers := make(map[string]*reader)
	found, _ := clients.Find()
	for _, c := range found {
		origin := session(t, c, origins[0].server)
		origin.Config, origin.CAFile = hostBlocks(direct), trust(t, authorities...)
		dir := need(t, required...)
		want := initialized(t, origin, dir)
		if len(want.Installed) != len(addresses) || !strings.Contains(want.Installed[0], "signed, key ID") {
			t.Fatalf("%s installs from the origin: %q", c.Name, want.Installed)
		}
		if out, err := origin.Run(t.Context(), dir, lockArgs...); err != nil {
			t.Fatalf("providers lock with the origin: %v\n%s", err, out)
		}
		locked := lockFile(t, dir)
		for _, mode := range pullModes {
			s := servePulling(t, mode, upstreams, trust(t, authorities...))
			r := &reader{session(t, c, s), s, need(t, required...), want, locked}
			r.session.Config = s.providersOf(publicHosts...)
			if mode == registry.PullOpen {
				r.session.CAFile = trust(t, append(slices.Clone(authorities), s.CAFile)...)
			}
			readers[c.Name+string(mode)] = r
		}
	}
	each := func(t *testing.T, test func(*testing.T, *reader)) {
		t.Helper()
		clients.Each(t, func(t *testing.T, c clients.Client) {
			for _, mode := range pullModes {
				t.Run(string(mode), func(t *testing.T) { test(t, readers[c.Name+string(mode)]) })
			}
		})
	}
	same := func(t *testing.T, r *reader) {
		t.Helper()
		if diff := cmp.Diff(r.want, initialized(t, r.session, r.dir)); diff != "" {
			t.Errorf("(-origin +mirror):\n%s", diff)
		}
	}
	t.Run("cold", func(t *testing.T) {
		each(t, func(t *testing.T, r *reader) {
			same(t, r)
			waitForCopies(t, opened(t, r.server.data), addresses...)
		})
	})
	t.Run("warm", func(t *testing.T) { each(t, same) })
	for _, o := range origins {
		o.stop(t)
	}
	t.Run("origins stopped", func(t *testing.T) {
		each(t, func(t *testing.T, r *reader) {
			d := opened(t, r.server.data)
			for _, address := range addresses {
				age(t, d, address, time.Hour)
			}
			same(t, r)
			if err := os.RemoveAll(filepath.Join(r.dir, ".terraform")); err != nil {
				t.Fatal(err)
			}
			inits(t, r.session, r.dir, "-lockfile=readonly")
			if out, err := r.session.Run(t.Context(), r.dir, lockArgs...); err != nil {
				t.Errorf("providers lock: %v\n%s", err, out)
			}
			if diff := cmp.Diff(r.locked, lockFile(t, r.dir)); diff != "" {
				t.Errorf("providers lock (-origin +mirror):\n%s", diff)
			}
			folder := t.TempDir()
			if out, err := r.session.Run(t.Context(), r.dir, "providers", "mirror", "-platform="+all[0], folder); err != nil {
				t.Errorf("providers mirror: %v\n%s", err, out)
			}
			for _, address := range addresses {
				if zips := must(filepath.Glob(filepath.Join(folder, address, "*.zip"))); len(zips) != 1 {
					t.Errorf("providers mirror wrote %d packages of %s", len(zips), address)
				}
			}
			// A network_mirror block has the same packages.
			network := r.session
			network.Config = installation(r.server.mirrorURL(), "")
			dir := need(t, required...)
			if out := inits(t, network, dir); !strings.Contains(out, "(verified checksum)") {
				t.Errorf("with network_mirror:\n%s", out)
			}
		})
	})
}

// varyingInErrors matches what differs from run to run in the messages of clients.
var varyingInErrors = regexp.MustCompile(`https?://[^\s"]+|127\.0\.0\.1:\d+|[0-9A-F]{16}|[0-9a-f]{64}|` + platforms()[0])

// outcome returns what init does in one line.
func outcome(t *testing.T, s clients.Session, dir string) string {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, ".terraform")); err != nil {
		t.Fatal(err)
	}
	out, err := s.Run(t.Context(), dir, "init", "-no-color", "-input=false")
	if err == nil {
		return strings.Join(installedLines(varyingInErrors.ReplaceAllString(out, "…")), ", ")
	}
	_, text, found := strings.Cut(plain(out), "Error: ")
	if !found {
		t.Fatalf("init fails without an error: %v\n%s", err, out)
	}
	// The rest is advice about the configuration.
	for _, advice := range []string{" Provider releases are separate", " All modules should", " To see which modules"} {
		text, _, _ = strings.Cut(text, advice)
	}
	return varyingInErrors.ReplaceAllString(text, "…")
}

// mirrored is a mirror of one origin in a mode, between a client and the origin.
type mirrored struct {
	*server
	filler
	origin *origin
	proxy  string // URL
	// fault changes the responses of the origin. It may be nil.
	fault *atomic.Pointer[func(r *http.Request, status int, body []byte) (int, []byte)]
}

const noted = "registry.opentofu.org/acme/note"

// serveMirrored runs a mirror until the test ends. Its policy has more rules before
// that for all providers, and attributes for that one. The origin has versions 1.0.0
// and 1.1.0, which is new.
func serveMirrored(t *testing.T, mode registry.PullMode, rules, attributes string) *mirrored {
	t.Helper()
	m := &mirrored{origin: serveOrigin(t), fault: new(atomic.Pointer[func(*http.Request, int, []byte) (int, []byte)])}
	for _, v := range []string{"1.0.0", "1.1.0"} {
		m.origin.publish(t, "acme/note", v, platforms()...)
	}
	proxy := m.origin.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		if fault := m.fault.Load(); fault != nil {
			status, body = (*fault)(r, status, body)
		}
		if strings.HasSuffix(r.URL.Path, "/versions") {
			body = regexp.MustCompile(`("1\.0\.0".*?"published_at":")[^"]*`).ReplaceAll(body, []byte("${1}2024-01-01T00:00:00Z"))
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	m.proxy = proxy.URL
	m.filler = filler{data: newData(t)}
	m.policy(t, rules+fmt.Sprintf("allow \"registry.opentofu.org/*/*\" {\n  pull     = %q\n  upstream = %q\n  networks = [\"127.0.0.0/8\"]\n%s}\n",
		mode, m.proxy, attributes))
	m.server = serveIn(t, []string{"SSL_CERT_FILE=" + trust(t, authority(t, proxy), m.origin.CAFile)}, m.filler.data)
	m.CAFile = trust(t, authority(t, proxy), m.origin.CAFile, m.CAFile)
	return m
}

// fails makes the origin respond otherwise to requests of paths that contain a text.
func (m *mirrored) fails(path string, respond func(int, []byte) (int, []byte)) {
	fault := func(r *http.Request, status int, body []byte) (int, []byte) {
		if strings.Contains(r.URL.Path, path) {
			return respond(status, body)
		}
		return status, body
	}
	m.fault.Store(&fault)
}

// object returns the path of the stored file whose name has an end.
func (m *mirrored) object(t *testing.T, end string) (path string) {
	t.Helper()
	root := filepath.Join(m.filler.data, "objects", "mirror")
	if err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, end) {
			path = name
		}
		return err
	}); err != nil || path == "" {
		t.Fatalf("there is no stored file …%s: %v", end, err)
	}
	return path
}

// mirror mirrors a version before clients request it.
func (m *mirrored) mirror(t *testing.T, version string) {
	t.Helper()
	m.env = []string{"SSL_CERT_FILE=" + m.CAFile}
	m.run(t, 0, nil, "mirror", "add", noted, "--version", version, "--platform", platforms()[0])
}

// What clients see if the mirror cannot offer what the origin has, or if someone has
// changed it. The second init is like the next one of a person who tries again.
func TestMirrorByHostTable(t *testing.T) {
	t.Parallel()
	changed := func(status int, body []byte) (int, []byte) {
		return status, bytes.Replace(body, []byte("#!"), []byte("#?"), 1)
	}
	down := func(int, []byte) (int, []byte) { return http.StatusServiceUnavailable, nil }
	rows := []struct {
		name              string
		rules, attributes string
		// before is done before the first init, and between before the second one.
		before, between func(*testing.T, *mirrored)
	}{
		{name: "nothing is wrong"},
		{name: "1.2.0 is signed by another key, and 1.0.0 is mirrored", before: func(t *testing.T, m *mirrored) {
			m.mirror(t, "1.0.0")
			other := signingKey(t, "Ed25519")
			if err := os.WriteFile(m.origin.private, other.Private, 0o600); err != nil {
				t.Fatal(err)
			}
			addKey(t, m.origin.data, "acme", other)
			m.origin.publish(t, "acme/note", "1.2.0", platforms()...)
		}},
		{name: "the origin sends other bytes than it has signed", before: func(_ *testing.T, m *mirrored) {
			m.fails("_1.1.0_"+platforms()[0]+".zip", changed)
		}, between: func(t *testing.T, m *mirrored) {
			d := opened(t, m.server.data)
			poll.Until(t, "the copy has failed", func() bool {
				found, err := d.Catalog.Mirror.PulledVersion(t.Context(), must(registry.ParseMirrorProvider(noted)), parsed("1.1.0"))
				return err == nil && found.Problem != ""
			})
		}},
		{name: "the stored bytes of 1.1.0 were changed", before: func(t *testing.T, m *mirrored) {
			m.mirror(t, "1.1.0")
			change(t, m.object(t, "_1.1.0_"+platforms()[0]+".zip"), contentOfFile)
		}},
		{name: "the stored SHA256SUMS of 1.1.0 was changed", before: func(t *testing.T, m *mirrored) {
			m.mirror(t, "1.1.0")
			change(t, m.object(t, "_SHA256SUMS"), "  terraform-")
		}},
		{name: "1.1.0 is withdrawn", before: func(t *testing.T, m *mirrored) {
			m.mirror(t, "1.1.0")
			m.run(t, 0, nil, "withdraw", noted, "1.1.0", "--reason", "leaked", "--yes")
		}},
		{name: "the policy denies the provider", rules: "deny \"registry.opentofu.org/acme/*\" {}\n"},
		{name: "1.1.0 is younger than min_age", attributes: "  min_age  = \"7d\"\n"},
		{name: "all versions are younger than min_age", attributes: "  min_age  = \"3650d\"\n"},
		{name: "the policy has another platform", attributes: "  platforms = [\"plan9_386\"]\n"},
		{name: "the origin lacks the provider", before: func(_ *testing.T, m *mirrored) {
			m.fails("/versions", func(int, []byte) (int, []byte) { return http.StatusNotFound, []byte("{}") })
		}},
		{name: "the origin is down", before: func(_ *testing.T, m *mirrored) { m.fails("/", down) }},
		{name: "the origin is down, and 1.0.0 is mirrored", before: func(t *testing.T, m *mirrored) {
			m.mirror(t, "1.0.0")
			m.fails("/", down)
		}},
		{name: "the origin has removed 1.1.0, which is mirrored", before: func(t *testing.T, m *mirrored) {
			m.mirror(t, "1.1.0")
			m.fails("1.1.0", func(int, []byte) (int, []byte) { return http.StatusNotFound, []byte("{}") })
		}},
		{name: "nobody but an operator may fill the mirror, and 1.0.0 came from a folder without signatures",
			rules: "allow \"registry.opentofu.org/acme/*\" {}\n", before: func(t *testing.T, m *mirrored) {
				folder := t.TempDir()
				writeMirrored(t, filepath.Join(folder, noted), "note", "1.0.0")
				m.run(t, 0, nil, "mirror", "import", folder)
				m.run(t, 0, []string{"not for host blocks"}, "list", noted)
				m.run(t, 0, []string{`"verifiable": false`}, "list", noted, "--json")
			}},
	}
	var mu sync.Mutex
	table := make(map[string]map[string]string) // by row, and by client and mode
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			table[row.name] = make(map[string]string)
			for _, mode := range pullModes {
				found, _ := clients.Find()
				for _, c := range found {
					t.Run(row.name+"/"+string(mode)+"/"+c.Name, func(t *testing.T) {
						t.Parallel()
						m := serveMirrored(t, mode, row.rules, row.attributes)
						if row.before != nil {
							row.before(t, m)
						}
						s := session(t, c, m.server)
						s.Config = m.providersOf(publicHosts...)
						dir := need(t, noted+" ~> 1.0")
						first := outcome(t, s, dir)
						if row.between != nil {
							row.between(t, m)
						}
						if second := outcome(t, s, dir); second != first {
							first += "; then " + second
						}
						mu.Lock()
						defer mu.Unlock()
						table[row.name][c.Name+", "+string(mode)] = first
					})
				}
			}
		}
	})
	if _, missing := clients.Find(); len(missing) > 0 {
		t.Skipf("the table needs %s", strings.Join(missing, " and "))
	}
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "# %s\n", row.name)
		byResult := make(map[string][]string)
		for who, what := range table[row.name] {
			byResult[what] = append(byResult[what], who)
		}
		for _, what := range slices.Sorted(maps.Keys(byResult)) {
			slices.Sort(byResult[what])
			fmt.Fprintf(&text, "%s:\n  %s\n", strings.Join(byResult[what], "; "), what)
		}
	}
	golden.Equal(t, filepath.Join("testdata", "TestMirrorByHostTable.golden"), []byte(text.String()))
}

// Callers without permission do not make the mirror fetch anything. The token of a
// client for the host reaches the mirror, and neither the origin nor the log.
func TestMirrorByHostAccess(t *testing.T) {
	t.Parallel()
	o, here := serveOrigin(t), platforms()[0]
	o.publish(t, "acme/note", "1.0.0", here)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		var mu sync.Mutex
		var received []string // by the origin
		proxy := o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
			mu.Lock()
			received = append(received, fmt.Sprint(r.URL, r.Header))
			mu.Unlock()
			w.WriteHeader(status)
			_, _ = w.Write(body)
		})
		ca := authority(t, proxy)
		for _, mode := range pullModes {
			s := servePulling(t, mode, map[string]string{publicHosts[0]: proxy.URL}, ca, "--require-token")
			good := token(t, s.data, "--name", "good", "--scope", "read:mirror/"+publicHosts[0]+"/**")
			other := token(t, s.data, "--name", "other", "--scope", "read:mirror/"+publicHosts[1]+"/**")
			session := session(t, c, s)
			session.CAFile = trust(t, s.CAFile, ca)
			dir := need(t, noted+" 1.0.0")
			for text, credentials := range map[string]string{
				"requires authentication credentials":           "",
				"rejected the given authentication credentials": credentials(publicHosts[0], other),
			} {
				session.Config = s.providersOf(publicHosts...) + credentials
				initFails(t, session, dir, text)
			}
			mu.Lock()
			if len(received) > 0 {
				t.Errorf("%s: for callers without permission, the origin has received %q", mode, received)
			}
			mu.Unlock()
			session.Config = s.providersOf(publicHosts...) + credentials(publicHosts[0], good)
			inits(t, session, dir)
			waitForCopies(t, opened(t, s.data), noted)
			s.stop(t)
			mu.Lock()
			all := strings.Join(received, "\n") + s.log.String()
			if len(received) == 0 {
				t.Errorf("%s: the origin has received nothing", mode)
			}
			received = nil
			mu.Unlock()
			for _, secret := range []string{good, other, "Authorization"} {
				if strings.Contains(all, secret) {
					t.Errorf("%s: the origin or the log has got %.12s…", mode, secret)
				}
			}
		}
	})
}

// 200 clients that need the same version at the same time make the mirror fetch one
// copy of each package. On a busy machine, a request can need several attempts.
func TestMirrorByHostAtOnce(t *testing.T) {
	t.Parallel()
	const count = 200
	for _, mode := range pullModes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			o := serveOrigin(t)
			o.publish(t, "acme/note", "1.0.0", platforms()...)
			s := servePulling(t, mode, map[string]string{publicHosts[0]: o.upstream()}, o.CAFile)
			var group errgroup.Group
			for range count {
				group.Go(func() error {
					for _, path := range []string{"versions", "1.0.0/download/" + strings.Replace(platforms()[0], "_", "/", 1)} {
						status := 0
						for attempt := 0; attempt < 40 && status != http.StatusOK; attempt++ {
							var err error
							if status, _, err = s.try(t.Context(), "/v1/providers-of/"+noted+"/"+path); err != nil {
								return err
							}
						}
						if status != http.StatusOK {
							return fmt.Errorf("%s has status %d", path, status)
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			waitForCopies(t, opened(t, s.data), noted)
			if sent := len(o.requests(t, "method=GET", "path=/objects/", ".zip ")); sent != len(platforms()) {
				t.Errorf("the origin has sent %d packages, want %d", sent, len(platforms()))
			}
		})
	}
}

// A mirrored version gets further platforms when clients request them, also if the
// policy names none.
func TestMirrorByHostPlatforms(t *testing.T) {
	t.Parallel()
	here, other := platforms()[0], platforms()[1]
	m := serveMirrored(t, registry.PullClosed, "", "  platforms = [\""+here+"\"]\n")
	download := func(platform string) string {
		return "/v1/providers-of/" + noted + "/1.1.0/download/" + strings.Replace(platform, "_", "/", 1)
	}
	status := func(path string) int {
		t.Helper()
		status, _ := m.get(t, path)
		return status
	}
	poll.Until(t, "the first platform is mirrored", func() bool { return status(download(here)) == http.StatusOK })
	if got := status(download(other)); got != http.StatusNotFound {
		t.Errorf("a platform that the policy excludes has status %d, want 404", got)
	}
	m.policy(t, fmt.Sprintf("allow \"registry.opentofu.org/*/*\" {\n  pull     = \"closed\"\n  upstream = %q\n"+
		"  networks = [\"127.0.0.0/8\"]\n}\n", m.proxy))
	poll.Until(t, "the other platform is mirrored", func() bool {
		_ = status("/v1/providers-of/" + noted + "/versions") // as clients do
		return status(download(other)) == http.StatusOK
	})
	if got := status(download("plan9_386")); got != http.StatusNotFound {
		t.Errorf("a platform that the origin lacks has status %d, want 404", got)
	}
}

// After an operator trusts a key, clients get the version at once.
func TestMirrorByHostTrust(t *testing.T) {
	t.Parallel()
	m := serveMirrored(t, registry.PullClosed, "", "")
	m.mirror(t, "1.0.0")
	other := signingKey(t, "Ed25519")
	if err := os.WriteFile(m.origin.private, other.Private, 0o600); err != nil {
		t.Fatal(err)
	}
	addKey(t, m.origin.data, "acme", other)
	m.origin.publish(t, "acme/note", "1.2.0", platforms()...)
	path := "/v1/providers-of/" + noted + "/1.2.0/download/" + strings.Replace(platforms()[0], "_", "/", 1)
	becomes := func(path string, want int) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("%s has status %d", path, want), func() bool {
			status, _ := m.get(t, path)
			return status == want
		})
	}
	becomes("/v1/providers-of/"+noted+"/versions", http.StatusOK)
	becomes(path, http.StatusNotFound)
	m.run(t, 0, nil, "mirror", "trust", noted, refusedKey(t, m), "--reason", "announced")
	found, err := opened(t, m.filler.data).Catalog.Mirror.PulledVersion(t.Context(),
		must(registry.ParseMirrorProvider(noted)), parsed("1.2.0"))
	if err != nil || !found.Until.IsZero() {
		t.Errorf("the refusal still applies until %s: %v", found.Until, err)
	}
	becomes(path, http.StatusOK)
}

// refusedKey returns the ID of the key that the mirror has refused.
func refusedKey(t *testing.T, m *mirrored) string {
	t.Helper()
	o, err := opened(t, m.filler.data).Catalog.Mirror.Origin(t.Context(), must(registry.ParseMirrorProvider(noted)))
	if err != nil || len(o.Refused) != 1 {
		t.Fatalf("refused: %v, %v", o.Refused, err)
	}
	return o.Refused[0].Key.ID
}
