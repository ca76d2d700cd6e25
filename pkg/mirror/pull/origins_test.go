package pull_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// testRegistry is a registry with a pull-through mirror, and its origin.
type testRegistry struct {
	*tlsOrigin
	catalog *catalog.Catalog
	table   *tabletest.Faulty
	store   *disk.Store
	pulling *mirror.Pulling
	local   *pull.Local
	handler http.Handler
	policy  registry.MirrorPolicy
	ahead   atomic.Int64 // of the clock of this machine, in nanoseconds
	problem string       // in the log of the last request
	log     bytes.Buffer // of the worker
	// released are the versions that the origin has listed.
	released map[string]bool
	// broken means that this registry fails, so that it may answer with a 5xx.
	broken bool
}

// newTestRegistry starts a registry and its origin. With within there is no
// network. Otherwise clients have any time, since the time is that of the machine.
func newTestRegistry(t *testing.T, mode registry.PullMode, within bool) *testRegistry {
	t.Helper()
	r := &testRegistry{tlsOrigin: newTLSOrigin(t, within), released: make(map[string]bool)}
	var err error
	dir := t.TempDir()
	if r.store, err = disk.Open(dir); err != nil {
		t.Fatal(err)
	}
	r.store.BaseURL = "https://mirror.example.net"
	table, err := sqlite.Create(t.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	r.table = &tabletest.Faulty{Table: table}
	r.catalog = catalog.New(r.table)
	c := client.New(nil, "larder/test", r.transport)
	c.Wait = time.Millisecond
	now := func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
	ctx, cancel := context.WithCancel(t.Context())
	options := pull.Options{
		Catalog: r.catalog, Objects: r.store, Client: c, MaxBytes: 1 << 20, Now: now,
		Log: slog.New(slog.NewJSONHandler(&r.log, nil)),
	}
	wait := time.Hour
	if within {
		options.Clients, wait = pull.AsIs(c), 8*time.Second
	}
	r.local = pull.NewLocal(ctx, pull.New(options))
	t.Cleanup(func() {
		cancel()
		r.local.Wait()
		if err := errors.Join(table.Close(), r.store.Close()); err != nil {
			t.Error(err)
		}
	})
	r.pulling = &mirror.Pulling{
		Pulled: r.catalog.Mirror, Worker: r.local, Policies: admission.NewPolicies(r.catalog, now), Now: now, Wait: wait,
	}
	r.handler = httpapi.Wrap(
		slog.New(slog.DiscardHandler), mirror.New(r.catalog.Mirror, r.store, r.pulling),
		func(e *requestlog.Entry) {
			if r.problem = e.Note; e.Err != nil {
				r.problem = e.Err.Error()
			}
		},
	)
	r.policy = registry.MirrorPolicy{Text: "-", SetAt: time.Now().UTC(), SetBy: "somebody", Rules: []registry.MirrorRule{{
		Pattern: "*/*/*", Line: 1, Pull: mode, Upstream: r.URL,
		Networks:  []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Platforms: []registry.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}},
	}}}
	r.offer(t, release{}, "1.0.0", "1.1.0")
	return r
}

// offer makes the origin list versions. What offered lacks is as usual.
func (r *testRegistry) offer(t testing.TB, offered release, versions ...string) {
	t.Helper()
	if offered.platforms == nil {
		offered.platforms = []string{linux, darwin}
	}
	if offered.key == nil {
		offered.key = ours
	}
	offered.protocol = cmp.Or(offered.protocol, "6.0")
	releases := make(map[string]release)
	for _, v := range versions {
		releases[v], r.released[v] = offered, true
	}
	r.publish(t, releases)
}

// rule returns the rule of the policy, which can be changed before the first
// request.
func (r *testRegistry) rule() *registry.MirrorRule { return &r.policy.Rules[0] }

// expire lets time pass, so that answers for versions expire.
func (r *testRegistry) expire(t testing.TB, d time.Duration) {
	t.Helper()
	r.local.Wait()
	r.ahead.Add(int64(d))
	for v := range r.released {
		n := number(t, v)
		s, err := r.catalog.Mirror.State(t.Context(), inventory, inventory.Hostname, &n, time.Now())
		if err == nil {
			err = s.Update(t.Context(), func() error {
				s.Version.Until = time.Time{}
				return nil
			})
		}
		if err != nil && !r.broken {
			t.Fatal(err)
		}
	}
}

// brokenWorker is a worker that cannot be invoked.
type brokenWorker struct{}

func (brokenWorker) Do(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
	return protocol.PullResponse{}, errors.New("it cannot be invoked")
}

func (brokenWorker) Start(context.Context, protocol.PullRequest) error {
	return errors.New("it cannot be invoked")
}

// get returns the status and the body of a document.
func (r *testRegistry) get(t testing.TB, document string) (int, []byte) {
	t.Helper()
	recorder := httptest.NewRecorder()
	path := mirror.Path + inventory.Hostname + "/acme/inventory/" + document
	r.handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if recorder.Code >= http.StatusInternalServerError && !r.broken {
		t.Errorf("%s: status %d because of an origin: %s", document, recorder.Code, r.problem)
	}
	return recorder.Code, recorder.Body.Bytes()
}

// index describes the answer for index.json.
func (r *testRegistry) index(t testing.TB) string {
	t.Helper()
	code, body := r.get(t, "index.json")
	if code != http.StatusOK {
		return fmt.Sprint(code)
	}
	var document struct{ Versions map[string]struct{} }
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatal(err)
	}
	var versions []string
	for v := range document.Versions {
		if !r.released[v] {
			t.Errorf("version %s is listed, and the origin has none", v)
		}
		versions = append(versions, v)
	}
	slices.Sort(versions)
	if len(versions) > 3 {
		return fmt.Sprintf("200: %d versions", len(versions))
	}
	return "200: " + strings.Join(versions, ", ")
}

// version describes the answer for a version.
func (r *testRegistry) version(t testing.TB, version string) string {
	t.Helper()
	code, body := r.get(t, version+".json")
	if code != http.StatusOK {
		return fmt.Sprint(code)
	}
	var document protocol.MirrorPackages
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatal(err)
	}
	from := make(map[string][]string)
	for platform, a := range document.Archives {
		source := "the mirror"
		if strings.HasPrefix(a.URL, r.URL) {
			source = "the origin"
			if strings.Contains(a.URL, "?") && r.isRefused(t, a.URL) {
				t.Errorf("the mirror gives out a URL for %s that has ended", platform)
			}
		} else if !strings.HasPrefix(a.URL, r.store.BaseURL) {
			source = "elsewhere"
		}
		var kinds []string
		for _, hash := range a.Hashes {
			kind, digest, _ := strings.Cut(hash, ":")
			kinds = append(kinds, kind)
			if kind == "zh" && !r.isSigned(digest) {
				t.Errorf("%s for %s has the hash %s, which nobody has signed", version, platform, hash)
			}
		}
		key := source + " (" + strings.Join(kinds, ", ") + ")"
		from[key] = append(from[key], platform)
	}
	var parts []string
	for source, platforms := range from {
		name := strings.Join(platforms, ", ")
		if len(platforms) == 2 {
			name = "both"
		}
		parts = append(parts, name+" from "+source)
	}
	slices.Sort(parts)
	return "200: " + cmp.Or(strings.Join(parts, "; "), "none")
}

// isRefused reports whether the origin refuses a URL to clients.
func (r *testRegistry) isRefused(t testing.TB, address string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := r.transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusForbidden
}

func (r *testRegistry) isSigned(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signed[digest]
}

// stored describes the mirrored versions. It checks that everything in the
// store and in the catalog is verified.
func (r *testRegistry) stored(t testing.TB) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := r.store.Walk(ctx, "", func(o objects.Info) error {
		body, err := r.store.Open(ctx, o.Key, 0, -1)
		if err != nil {
			return err
		}
		defer body.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, body); err != nil {
			return err
		}
		if !r.isSigned(hex.EncodeToString(hash.Sum(nil))) {
			t.Errorf("the object %s is stored, and nobody has signed it", o.Key)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	records, err := r.catalog.Mirror.All(ctx, inventory)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	var all []string
	for _, record := range records {
		platforms := make([]string, 0, len(record.Packages))
		for _, p := range record.Packages {
			platforms = append(platforms, p.String())
			if !r.isSigned(p.SHA256) {
				t.Errorf("%s for %s is recorded, and nobody has signed it", record.Version, p.Platform)
			}
			if p.SigningKey == "" {
				t.Errorf("%s for %s is recorded without a key", record.Version, p.Platform)
			}
		}
		switch {
		case record.Withdrawn != nil:
			all = append(all, record.Version.String()+" (withdrawn)")
		case len(platforms) == 2:
			all = append(all, record.Version.String())
		default:
			all = append(all, fmt.Sprintf("%s (%s)", record.Version, strings.Join(platforms, ", ")))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "nothing")
}

// varying matches what differs from run to run. The mirror requests several
// platforms at the same time.
var varying = regexp.MustCompile(`linux[_/]amd64|darwin[_/]arm64|\b[0-9a-f]{64}\b|\b[0-9A-F]{16}\b|` +
	`127\.0\.0\.1:\d+|\d{4}-\d\d-\d\d \d\d:\d\d UTC`)

// problems removes from the texts of the log what is the same in all, and
// repeated texts.
func problems(texts ...string) string {
	var all []string
	for _, text := range texts {
		for _, prefix := range []string{
			"mirrored provider " + inventory.String() + " 1.1.0: ", "index of mirrored provider " + inventory.String() + ": ",
		} {
			text = strings.TrimPrefix(text, prefix)
		}
		text = varying.ReplaceAllString(text, "…")
		// If the origin is slow, the requests for the index and for the version can
		// have the same reason, once with a prefix.
		if text != "" && !slices.ContainsFunc(all, func(s string) bool { return strings.HasSuffix(s, text) }) {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "`" + strings.NewReplacer("|", "\\|", "`", "'").Replace(strings.Join(all, "; ")) + "`"
}

// row returns the row of a behavior for a mode.
func (b behavior) row(t *testing.T, mode registry.PullMode) (row string) {
	t.Helper()
	if b.network {
		return b.rowOf(t, newTestRegistry(t, mode, false))
	}
	inBubble(t, func(t *testing.T) { row = b.rowOf(t, newTestRegistry(t, mode, true)) })
	return row
}

// rowOf returns the row of a behavior of a registry's origin.
func (b behavior) rowOf(t *testing.T, r *testRegistry) string {
	t.Helper()
	if b.prepare != nil {
		b.prepare(t, r)
	}
	if _, err := r.catalog.SetMirrorPolicy(t.Context(), r.policy, ""); err != nil {
		t.Fatal(err)
	}
	if b.first != nil {
		b.first(t, r)
	}
	index, why := r.index(t), r.problem
	if b.between != nil {
		b.between(t, r)
	}
	version, because := r.version(t, "1.1.0"), r.problem
	r.local.Wait()
	if b.then != nil {
		b.then(t, r)
	}
	laterIndex := r.index(t)
	later, finally := r.version(t, "1.1.0"), r.problem
	r.local.Wait()
	r.table.Down.Store(false)
	if laterIndex == index {
		laterIndex = "same"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", b.name, index, version, laterIndex, later, r.stored(t),
		problems(why, because, finally))
}

// The tables show what clients see of an origin, and what the mirror stores.
func TestOrigins(t *testing.T) {
	t.Parallel()
	rows := map[registry.PullMode][]string{
		registry.PullOpen: make([]string, len(behaviors)), registry.PullClosed: make([]string, len(behaviors)),
	}
	t.Run("rows", func(t *testing.T) {
		for i, b := range behaviors {
			for mode := range rows {
				t.Run(fmt.Sprint(b.name, " ", mode), func(t *testing.T) {
					t.Parallel()
					rows[mode][i] = b.row(t, mode)
				})
			}
		}
	})
	text := "# What clients see of an origin\n\n" + about
	for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
		text += fmt.Sprintf("\n## With `pull = %q`\n\n%s%s", mode, header, strings.Join(rows[mode], ""))
	}
	golden.Equal(t, filepath.Join("testdata", "origins.md"), []byte(text))
}

const about = `The origin lists the versions 1.0.0 and 1.1.0, each for two platforms. The mirror is empty at first.
A client requests index.json and then 1.1.0.json.
"Later" are the answers when copies have ended, and after the change that the first column names.
The last column is what the log of the registry has.
`

const header = "| The origin | index.json | 1.1.0.json | index.json later | 1.1.0.json later | Stored | Problem |\n" +
	"| --- | --- | --- | --- | --- | --- | --- |\n"
