package filling_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

var inventory = registry.MirrorAddress{
	Hostname:  "registry.example.com",
	Namespace: "acme", Name: "inventory",
}

func parseVersion(t testing.TB, s string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func platforms(t testing.TB, names ...string) []registry.Platform {
	t.Helper()
	var parsed []registry.Platform
	for _, name := range names {
		p, err := registry.ParsePlatform(name)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, p)
	}
	return parsed
}

// hashes returns what a lock file may have of a package.
func hashes(t testing.TB, packed []byte) (h1, zh string) {
	t.Helper()
	found, err := archive.ReadProvider(t.Context(), bytes.NewReader(packed), int64(len(packed)), inventory.Name)
	if err != nil {
		t.Fatal(err)
	}
	return found.H1, "zh:" + found.SHA256
}

// The keys that several tests use, made once: of them the last has expired.
var (
	ours     = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
	stranger = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("P-256", 0) })
	lapsed   = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", -3600e9) })
)

type keyMaker = func() (keys.SigningKey, error)

func entity(t testing.TB, of keyMaker) (*openpgp.Entity, keys.SigningKey) {
	t.Helper()
	key, err := of()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(key.Private))
	if err != nil {
		t.Fatal(err)
	}
	return ring[0], key
}

func keyID(t testing.TB, of keyMaker) string {
	t.Helper()
	e, _ := entity(t, of)
	return e.PrimaryKey.KeyIdString()
}

func sign(t testing.TB, of keyMaker, message []byte) []byte {
	t.Helper()
	_, key := entity(t, of)
	return providerfiles.Sign(t, key, message)
}

// page is an answer of an origin.
type page struct {
	status int            // 200 if 0
	json   map[string]any // or
	body   []byte
	length int64  // a wrong Content-Length
	to     string // a redirect
}

// origin is a registry under any host name, of which each page can be replaced by another one.
type origin struct {
	client *client.Client

	mu       sync.Mutex
	releases []release
	pages    map[string]page
	asked    map[string]int    // how often, by path
	hosts    map[string]string // the host of the last request, by path
	tokens   map[string]string // what was sent with it, by path
	date     func() time.Time  // its clock, if it is not that of the machine
	header   http.Header       // more headers of all responses
	// serve answers a request instead of a page, and reports whether it does.
	serve func(http.ResponseWriter, *http.Request) bool
}

type release struct {
	version   string
	platforms []string
	by        keyMaker
	content   string // by which it differs from another one
}

// build is a release for linux_amd64.
func build(version string, by keyMaker) release {
	return release{version, []string{"linux_amd64"}, by, ""}
}

const (
	discovery    = "/.well-known/terraform.json"
	versionsPage = "/v1/providers/acme/inventory/versions"
	files        = "/files/"
)

func zipName(version, platform string) string {
	return "terraform-provider-inventory_" + version + "_" + platform + ".zip"
}
func zipPage(version, platform string) string { return files + zipName(version, platform) }
func sumsPage(version string) string {
	return files + "terraform-provider-inventory_" + version + "_SHA256SUMS"
}
func signaturePage(version string) string { return sumsPage(version) + ".sig" }
func packagePage(version, platform string) string {
	return "/v1/providers/acme/inventory/" + version + "/download/" + strings.Replace(platform, "_", "/", 1)
}

// newOrigin serves releases of a provider.
func newOrigin(t testing.TB, releases ...release) *origin {
	t.Helper()
	o := &origin{
		releases: releases,
		asked:    make(map[string]int),
		hosts:    make(map[string]string),
		tokens:   make(map[string]string),
	}
	o.heal(t)
	server := httptest.NewUnstartedServer(o)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that a failure has ended
	server.StartTLS()
	t.Cleanup(server.Close)
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}
	t.Cleanup(transport.CloseIdleConnections)
	config, err := client.LoadConfig(
		[]string{"TF_TOKEN_registry_example_com=a-token", "TF_TOKEN_elsewhere_example_com=another-token"},
		t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.client = client.New(config, "larder/test", transport)
	return o
}

// simple is an origin with one version for three platforms.
func simple(t testing.TB) *origin {
	t.Helper()
	return newOrigin(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64", "windows_amd64"}, ours, ""})
}

// heal removes all faults and the log of requests.
func (o *origin) heal(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.asked)
	o.pages = map[string]page{discovery: {json: map[string]any{"providers.v1": "/v1/providers/"}}}
	var versions []any
	for _, r := range o.releases {
		var offered []any
		for _, platform := range r.platforms {
			system, arch, _ := strings.Cut(platform, "_")
			offered = append(offered, map[string]any{"os": system, "arch": arch})
			o.pages[zipPage(r.version, platform)] = page{body: r.zip(t, platform)}
		}
		versions = append(versions, map[string]any{"version": r.version, "protocols": []any{"6.0"}, "platforms": offered})
		o.describe(t, r)
	}
	o.pages[versionsPage] = page{json: map[string]any{"versions": versions}}
}

func (r release) zip(t testing.TB, platform string) []byte {
	t.Helper()
	return providerfiles.Zip(t, program(platform), "program "+r.version+" for "+platform+r.content)
}

// program returns the name of the program for a platform.
func program(platform string) string {
	if strings.HasPrefix(platform, "windows_") {
		return "terraform-provider-inventory.exe"
	}
	return "terraform-provider-inventory"
}

// wanted is the tests' provider for platforms.
func wanted(t testing.TB, names ...string) filling.Wanted {
	t.Helper()
	return filling.Wanted{Address: inventory, Platforms: platforms(t, names...)}
}

// gives returns a function that checks the results of a run, and the versions
// that are mirrored then.
func (s *store) gives(t testing.TB, what, want string, has ...string) func([]filling.Result, error) {
	t.Helper()
	return func(results []filling.Result, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := describe(results); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
		for _, want := range has {
			if got := s.has(t); got != want {
				t.Errorf("%s: mirrored %s, want %s", what, got, want)
			}
		}
	}
}

// describe makes SHA256SUMS, its signature, and the description of the packages for the zips that are there.
func (o *origin) describe(t testing.TB, r release) {
	t.Helper()
	_, key := entity(t, r.by)
	var sums strings.Builder
	for _, platform := range r.platforms {
		packed := o.pages[zipPage(r.version, platform)].body
		fmt.Fprintf(&sums, "%s  %s\n", providerfiles.Sum(packed), zipName(r.version, platform))
		system, arch, _ := strings.Cut(platform, "_")
		o.pages[packagePage(r.version, platform)] = page{json: map[string]any{
			"protocols": []any{"5.0", "6.0"}, "os": system, "arch": arch, "filename": zipName(r.version, platform),
			"shasum": strings.ToUpper(providerfiles.Sum(packed)),
			"download_url": zipPage(r.version,
				platform), "shasums_url": sumsPage(r.version), "shasums_signature_url": signaturePage(r.version),
			"signing_keys": map[string]any{
				"gpg_public_keys": []any{map[string]any{"key_id": "", "ascii_armor": string(key.Public)}},
			},
		}}
	}
	o.pages[sumsPage(r.version)] = page{body: []byte(sums.String())}
	o.pages[signaturePage(r.version)] = page{body: sign(t, r.by, []byte(sums.String()))}
}

// set replaces a page.
func (o *origin) set(path string, p page) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pages[path] = p
}

// edit changes pages of JSON; nil takes a field away.
func (o *origin) edit(field string, value any, paths ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range paths {
		if o.pages[path].json[field] = value; value == nil {
			delete(o.pages[path].json, field)
		}
	}
}

// rezip replaces the zip for linux_amd64, as who makes the release does: all is in accordance with it.
func (o *origin) rezip(t testing.TB, packed []byte) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pages[zipPage(o.releases[0].version, "linux_amd64")] = page{body: packed}
	o.describe(t, o.releases[0])
}

// resum changes SHA256SUMS of version 1.0.0, and signs it again.
func (o *origin) resum(t testing.TB, change func(string) string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := []byte(change(string(o.pages[sumsPage("1.0.0")].body)))
	o.pages[sumsPage("1.0.0")] = page{body: changed}
	o.pages[signaturePage("1.0.0")] = page{body: sign(t, ours, changed)}
}

// times returns the number of requests for paths with a suffix.
func (o *origin) times(ending string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for path, times := range o.asked {
		if strings.HasSuffix(path, ending) {
			n += times
		}
	}
	return n
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	p, found := o.pages[r.URL.Path]
	o.asked[r.URL.Path]++
	o.hosts[r.URL.Path], o.tokens[r.URL.Path] = r.Host, r.Header.Get("Authorization")
	body := p.body
	if o.date != nil {
		w.Header().Set("Date", o.date().UTC().Format(http.TimeFormat))
	}
	maps.Copy(w.Header(), o.header)
	if p.json != nil {
		var err error
		if body, err = json.Marshal(p.json); err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/json")
	}
	serve := o.serve
	o.mu.Unlock()
	if serve != nil && serve(w, r) {
		return
	}
	switch {
	case !found:
		w.WriteHeader(http.StatusNotFound)
		return
	case p.to != "":
		http.Redirect(w, r, p.to, http.StatusFound)
		return
	case p.length != 0:
		w.Header().Set("Content-Length", strconv.FormatInt(p.length, 10))
	}
	if p.status != 0 {
		w.Header().Set("Retry-After", "0") // which spares the tests to wait
		w.WriteHeader(p.status)
	}
	_, _ = w.Write(body)
}

// store is an empty registry.
type store struct {
	dir     string
	table   catalog.Table
	objects objects.Store
}

func newStore(t testing.TB) *store {
	t.Helper()
	dir := t.TempDir()
	kept, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, err := sqlite.Create(t.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(table.Close(), kept.Close()) })
	return &store{dir, table, kept}
}

// mirror fills the store; of the origin there may be none.
func (s *store) mirror(o *origin) *filling.Mirror {
	m := &filling.Mirror{
		Catalog: catalog.New(s.table), Objects: s.objects,
		Publisher: &publish.Publisher{
			Catalog: catalog.New(s.table), Objects: s.objects,
			By: registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"},
		},
		Progress: &progresstest.Recorder{},
	}
	if o != nil {
		m.Client = o.client
	}
	return m
}

// records returns all mirrored versions. It checks that each package in the
// store matches its record, and that the indexes match the records.
func (s *store) records(t testing.TB) map[registry.MirrorAddress][]registry.MirrorVersion {
	t.Helper()
	c := catalog.New(s.table)
	all := make(map[registry.MirrorAddress][]registry.MirrorVersion)
	for summary, err := range c.Mirror.Summaries(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		address, err := registry.ParseMirrorProvider(summary.Address)
		if err != nil {
			t.Fatal(err)
		}
		if all[address], err = c.Mirror.All(t.Context(), address); err != nil {
			t.Fatal(err)
		}
		var index protocol.MirrorListing
		if data, err := c.Mirror.Listing(t.Context(), address); err != nil {
			t.Error(err)
		} else if index, err = protocol.Decode[protocol.MirrorListing](data); err != nil || len(index) != len(all[address]) {
			t.Errorf("%s: the index has %v, %v", address, index, err)
		}
		for _, v := range all[address] {
			for _, pkg := range v.Packages {
				body, err := s.objects.Open(t.Context(), pkg.Object, 0, -1)
				if err == nil {
					err = errors.Join(objects.Copy(io.Discard, body, objects.Digest{SHA256: pkg.SHA256, Size: pkg.Size}), body.Close())
				}
				if err != nil {
					t.Errorf("%s %s %s is visible, and is not what the store has: %v", address, v.Version, pkg.Platform, err)
				}
				if pkg.MirroredBy.String() != "somebody" || pkg.MirroredAt.IsZero() || !strings.HasPrefix(pkg.H1, "h1:") {
					t.Errorf("%s %s: %+v", address, v.Version, pkg)
				}
			}
		}
	}
	return all
}

// has describes the mirrored versions of the provider that most tests use.
func (s *store) has(t testing.TB) string {
	t.Helper()
	var versions []string
	all := s.records(t)
	for _, v := range all[inventory] {
		var names []string
		for _, pkg := range v.Packages {
			names = append(names, pkg.String())
		}
		versions = append(versions, fmt.Sprint(v.Version, " ", names))
	}
	if len(all) > 1 || len(all) == 1 && len(all[inventory]) == 0 {
		t.Errorf("something else is mirrored: %v", all)
	}
	return strings.Join(versions, ", ")
}

// count counts the zips that the store has.
func (s *store) count(t testing.TB) int { t.Helper(); return s.countFiles(t, ".zip") }

// countFiles counts the objects whose names have an end.
func (s *store) countFiles(t testing.TB, end string) int {
	t.Helper()
	n := 0
	if err := s.objects.Walk(t.Context(), "", func(o objects.Info) error {
		if strings.HasSuffix(o.Key, end) {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// empty checks that a failure has left nothing.
func (s *store) empty(t testing.TB, what string) {
	t.Helper()
	if has, n := s.has(t), s.countFiles(t, ""); has != "" || n != 0 {
		t.Errorf("%s: %d objects are stored, %q is visible", what, n, has)
	}
}

// file returns the path of an object, for tests that lose it.
func (s *store) file(pkg registry.MirrorPackage) string {
	return filepath.Join(s.dir, "objects", filepath.FromSlash(pkg.Object))
}

// describe returns a short form of results.
func describe(results []filling.Result) string {
	var versions []string
	for _, r := range results {
		var packages []string
		for _, p := range r.Packages {
			packages = append(packages, p.Platform.String()+" "+p.Status)
		}
		versions = append(versions, fmt.Sprintf("%s [%s]", r.Version, strings.Join(packages, ", ")))
	}
	return strings.Join(versions, ", ")
}

// notes returns the notes of all results.
func notes(results []filling.Result) string {
	var all []string
	for _, r := range results {
		all = append(all, r.Notes...)
	}
	return strings.Join(all, "; ")
}

// failures are the recorded texts, by the name of the test.
var failures = struct {
	sync.Mutex
	texts map[string][]string
}{texts: make(map[string][]string)}

// record adds the errors that failed checks to the golden file of a test. It
// sorts them, because some tests check them in a random order.
func record(t *testing.T) {
	t.Helper()
	texts := golden.New(t)
	failures.Lock()
	failures.texts[t.Name()] = []string{}
	failures.Unlock()
	t.Cleanup(func() {
		failures.Lock()
		defer failures.Unlock()
		all := failures.texts[t.Name()]
		slices.Sort(all)
		texts.Text(t, strings.Join(all, ""))
	})
}

// varying matches what differs from run to run. Packages are downloaded in
// parallel, so it includes platforms and digests.
var varying = regexp.MustCompile(`[0-9a-f]{64}|\b[0-9A-F]{16}\b|linux_amd64|darwin_arm64|` +
	regexp.QuoteMeta(os.TempDir()) + `/[^ "]*?/\d{3}`)

// failed checks that an error is of a kind, is one line of printable text, and
// contains words. It records the error if the test has called record.
func failed(t testing.TB, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v is not %v", what, err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) && !strings.Contains(registry.Hint(err), word) {
			t.Errorf("%s: %q does not contain %q", what, err, word)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r\x1b") || strings.Contains(err.Error(), "a-token") {
		t.Errorf("%s: %q is not one plain line", what, err)
	}
	text := what + ": " + err.Error() + "\n"
	if hint := registry.Hint(err); hint != "" {
		text += "  hint: " + hint + "\n"
	}
	recordText(t, text)
}

// noted checks that the notes of results contain words, and records the notes
// if the test has called record.
func noted(t testing.TB, what string, results []filling.Result, words ...string) {
	t.Helper()
	got := notes(results)
	for _, word := range words {
		if !strings.Contains(got, word) {
			t.Errorf("%s: the notes %q do not contain %q", what, got, word)
		}
	}
	recordText(t, what+": "+got+"\n")
}

// recordText records a text if the test has called record.
func recordText(t testing.TB, text string) {
	t.Helper()
	root, _, _ := strings.Cut(t.Name(), "/")
	failures.Lock()
	defer failures.Unlock()
	if all, ok := failures.texts[root]; ok {
		failures.texts[root] = append(all, varying.ReplaceAllString(text, "…"))
	}
}

// limited is a store that ends after some uploads.
type limited struct {
	objects.Store
	mu   sync.Mutex
	left int
}

func (s *limited) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	s.mu.Lock()
	s.left--
	over := s.left < 0
	s.mu.Unlock()
	if over {
		return tabletest.ErrFault
	}
	return s.Store.PutOnce(ctx, key, body, digest)
}

// interrupted checks that nothing is visible after an interruption at any point,
// and that another run makes everything visible.
func interrupted(t *testing.T, packages int, want string, run func(*filling.Mirror) error) {
	t.Helper()
	for left := range packages {
		s := newStore(t)
		m := s.mirror(nil)
		m.Publisher.Objects = &limited{Store: s.objects, left: left}
		if err := run(m); !errors.Is(err, tabletest.ErrFault) || s.has(t) != "" {
			t.Errorf("%d stored: %v, %q is visible", left, err, s.has(t))
		}
		if err := run(s.mirror(nil)); err != nil || s.has(t) != want {
			t.Errorf("%d stored, then again: %v, %q", left, err, s.has(t))
		}
	}
	for _, done := range []bool{false, true} {
		for call := int64(1); ; call++ {
			s := newStore(t)
			faulty := &tabletest.Faulty{Table: s.table, FailAt: call, Done: done}
			m := s.mirror(nil)
			m.Catalog, m.Publisher.Catalog = catalog.New(faulty), catalog.New(faulty)
			err := run(m)
			if err == nil {
				if call < 4 {
					t.Errorf("it makes %d calls of the table", call-1)
				}
				break
			}
			// A write of which the answer is lost is one.
			if has := s.has(t); !errors.Is(err, tabletest.ErrFault) || has != "" && (!done || has != want) {
				t.Errorf("call %d fails: %v, and %q is visible", call, err, has)
			}
			if err := run(s.mirror(nil)); err != nil || s.has(t) != want {
				t.Errorf("after call %d failed: %v, %q", call, err, s.has(t))
			}
		}
	}
}

// Downloads are in a temporary folder, which is always removed.
func TestLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	o := simple(t)
	s := newStore(t)
	want := wanted(t, "linux_amd64", "darwin_arm64")
	o.set(zipPage("1.0.0", "linux_amd64"), page{body: providerfiles.Zip(t, "terraform-provider-inventory", "another")})
	_, err := s.mirror(o).Add(t.Context(), want)
	failed(t, "a wrong zip", err, registry.ErrInvalid)
	o.heal(t)
	s.mirrors(t, o, want)
	if left, err := filepath.Glob(filepath.Join(temporary, "larder-*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}
