package pull_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// memoryOrigin is an origin without a network, so that its clients can run on
// the clock of a test.
type memoryOrigin struct {
	key    keys.SigningKey
	listed map[registry.MirrorAddress][]any // the versions

	mu       sync.Mutex
	pages    map[string][]byte // by host and path
	fails    map[string]int    // the status for all pages of a host
	hangs    map[string]bool   // hosts that never answer
	slow     time.Duration     // before each package
	requests map[string]int    // how often, by host and path
	before   func(page string) // is called before a response, unless nil
	drips    map[string]drip   // hosts whose packages come slowly
	padding  string            // of the programs in packages
	waiting  int               // requests of hosts that never answer
	stalls   bool              // lists end after the first part, which is not large
	stalled  int               // responses of which more was read
}

// stalling is a body that ends with the request instead of its large part.
type stalling struct {
	io.Reader
	origin *memoryOrigin
	ctx    context.Context //nolint:containedctx // a request's body ends with it
}

func (s stalling) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	s.origin.set(func() { s.origin.stalled++ })
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// drip is how packages come slowly.
type drip struct {
	every time.Duration
	bytes int // 0: the connection breaks
}

// aByte is slow, but always sends a byte before a download counts as idle.
var aByte = drip{50 * time.Second, 1}

// dripping is a body that comes slowly.
type dripping struct {
	io.Reader
	drip
	ctx context.Context //nolint:containedctx // a request's body ends with it
}

func (d dripping) Read(b []byte) (int, error) {
	select {
	case <-time.After(d.every):
		if d.bytes == 0 {
			return 0, io.ErrUnexpectedEOF
		}
		return d.Reader.Read(b[:d.bytes])
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

// fakeVersion is a version of a provider.
type fakeVersion struct {
	provider  registry.MirrorAddress
	version   string
	platforms []string
}

var (
	inventory = registry.MirrorAddress{
		Hostname: "registry.example.com", Namespace: "acme", Name: "inventory",
	}
	both = []string{darwin, linux}
)

func newMemoryOrigin(t testing.TB, versions ...fakeVersion) *memoryOrigin {
	t.Helper()
	key, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	o := &memoryOrigin{
		key: key, pages: make(map[string][]byte), fails: make(map[string]int), hangs: make(map[string]bool),
		requests: make(map[string]int), listed: make(map[registry.MirrorAddress][]any),
	}
	for _, v := range versions {
		o.add(t, v)
	}
	return o
}

// add adds a version to the origin.
func (o *memoryOrigin) add(t testing.TB, v fakeVersion) {
	t.Helper()
	var offered []any
	for _, p := range v.platforms {
		system, arch, _ := strings.Cut(p, "_")
		offered = append(offered, map[string]string{"os": system, "arch": arch})
	}
	o.listed[v.provider] = append(o.listed[v.provider], map[string]any{"version": v.version, "platforms": offered})
	host := v.provider.Hostname
	o.put(t, host+"/.well-known/terraform.json", map[string]string{"providers.v1": "/v1/"})
	o.put(t, host+"/v1/"+v.provider.Provider().String()+"/versions", map[string]any{"versions": o.listed[v.provider]})
	o.addPackages(t, v)
}

func (o *memoryOrigin) put(t testing.TB, page string, content any) {
	t.Helper()
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pages[page] = data
}

// addPackages adds the packages of a version, and their signed SHA256SUMS.
func (o *memoryOrigin) addPackages(t testing.TB, v fakeVersion) {
	t.Helper()
	host, address := v.provider.Hostname, v.provider.Provider().String()
	base := v.base()
	var sums strings.Builder
	for _, p := range v.platforms {
		packed, name := v.padded(t, p, o.padding), path.Base(v.zip(p))
		digest := providerfiles.Sum(packed)
		o.set(func() { o.pages[v.zip(p)] = packed })
		fmt.Fprintf(&sums, "%s  %s\n", digest, name)
		system, arch, _ := strings.Cut(p, "_")
		o.put(t, host+"/v1/"+address+"/"+v.version+"/download/"+strings.ReplaceAll(p, "_", "/"), map[string]any{
			"os": system, "arch": arch, "filename": name, "shasum": digest, "download_url": "https://" + v.zip(p),
			"shasums_url": "https://" + base + "SHA256SUMS", "shasums_signature_url": "https://" + base + "SHA256SUMS.sig",
			"signing_keys": map[string]any{"gpg_public_keys": []any{map[string]string{"ascii_armor": string(o.key.Public)}}},
		})
	}
	signed := []byte(sums.String())
	signature := providerfiles.Sign(t, o.key, signed)
	o.set(func() { o.pages[base+"SHA256SUMS"], o.pages[base+"SHA256SUMS.sig"] = signed, signature })
}

// base returns the page of SHA256SUMS, without that name.
func (v fakeVersion) base() string {
	return v.provider.Hostname + "/files/" + v.provider.Provider().String() + "/" + v.version + "_"
}

// zip returns the page of a package.
func (v fakeVersion) zip(platform string) string {
	return v.provider.Hostname + "/files/" + v.provider.Provider().String() + "/terraform-provider-" + v.provider.Name +
		"_" + v.version + "_" + platform + ".zip"
}

// content returns a package. The same arguments always give the same bytes.
func (v fakeVersion) content(t testing.TB, platform string) []byte {
	t.Helper()
	return v.padded(t, platform, "")
}

// padded is like content, with a longer program.
func (v fakeVersion) padded(t testing.TB, platform, padding string) []byte {
	t.Helper()
	return providerfiles.Zip(t, "terraform-provider-"+v.provider.Name, "program "+v.version+" for "+platform+padding)
}

// RoundTrip implements [http.RoundTripper].
func (o *memoryOrigin) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	page := r.URL.Host + r.URL.Path
	o.requests[page]++
	status, hangs := o.fails[r.URL.Host], o.hangs[r.URL.Host]
	slow, stalls := o.slow, o.stalls
	body, found := o.pages[page]
	before, slowly := o.before, o.drips[r.URL.Host]
	o.mu.Unlock()
	if before != nil {
		before(page)
	}
	if strings.HasSuffix(page, ".zip") {
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
		}
	}
	if hangs {
		o.set(func() { o.waiting++ })
		<-r.Context().Done()
		o.set(func() { o.waiting-- })
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if !found {
		status = cmp.Or(status, http.StatusNotFound)
	}
	header := make(http.Header)
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	header.Set("Content-Type", "application/json")
	response := &http.Response{
		StatusCode: cmp.Or(status, http.StatusOK), ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
	if slowly.every > 0 && strings.HasSuffix(page, ".zip") {
		response.Body = io.NopCloser(dripping{bytes.NewReader(body), slowly, r.Context()})
	}
	if stalls && strings.HasSuffix(page, "/versions") {
		first := io.LimitReader(neverEnding(' '), 64<<10+1)
		response.Body, response.ContentLength = io.NopCloser(stalling{first, o, r.Context()}), -1
	}
	if status != 0 {
		response.Body, response.ContentLength = http.NoBody, 0
	}
	return response, nil
}

// neverEnding is a body of one character.
type neverEnding byte

func (n neverEnding) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(n)
	}
	return len(b), nil
}

func (o *memoryOrigin) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// times returns how often pages with a suffix were requested.
func (o *memoryOrigin) times(suffix string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for page, times := range o.requests {
		if strings.HasSuffix(page, suffix) {
			n += times
		}
	}
	return n
}

// setup is a registry whose mirror fetches from an origin.
type setup struct {
	origin  *memoryOrigin
	table   catalog.Table
	objects *memoryStore
	catalog *catalog.Catalog
}

// inBubble runs a test on a clock of its own, which begins at noon tomorrow and
// stops while anything runs.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// Signing keys are not younger. The time until the nightly check is always
	// the same.
	year, month, day := time.Now().Date()
	begin := time.Date(year, month, day+1, 12, 0, 0, int(time.Second/2), time.Local) // leases end at whole seconds
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		test(t)
	})
}

// bubble runs a test with a registry in a bubble.
func bubble(t *testing.T, o *memoryOrigin, policy registry.MirrorPolicy, test func(t *testing.T, s setup)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		table := new(tabletest.Memory)
		in := setup{o, table, new(memoryStore), catalog.New(table)}
		in.setPolicy(t, policy)
		test(t, in)
	})
}

// setPolicy sets the policy.
func (s setup) setPolicy(t *testing.T, p registry.MirrorPolicy) {
	t.Helper()
	p.Text, p.SetAt, p.SetBy = fmt.Sprint(p.Rules, p.Budget), time.Now().UTC(), "ada"
	if _, err := s.catalog.SetMirrorPolicy(t.Context(), p, ""); err != nil {
		t.Fatal(err)
	}
}

func allow(mode registry.PullMode) registry.MirrorPolicy {
	return registry.MirrorPolicy{Rules: []registry.MirrorRule{{Pattern: "*/*/*", Line: 1, Pull: mode}}}
}

// worker returns a worker of a new process.
func (s setup) worker() *pull.Worker { return s.workerFor(1 << 20) }

// workerFor is like worker, with the maximum size of a version.
func (s setup) workerFor(maxBytes int64) *pull.Worker {
	return newWorker(s.origin, s.table, s.objects, maxBytes)
}

// workerWith is like worker. bound is called when a bound has an effect.
func (s setup) workerWith(bound func(string)) *pull.Worker { return s.process(0, bound) }

// function is like workerWith for a process of Lambda.
func (s setup) function(bound func(string)) *pull.Worker {
	return s.process(settings.DefaultCopies, bound)
}

func (s setup) process(copies int, bound func(string)) *pull.Worker {
	c := client.New(nil, "larder/test", s.origin)
	c.MinRate = pull.MinRate
	return pull.New(pull.Options{
		Catalog: s.catalog, Objects: s.objects, Client: c, Clients: pull.AsIs(c),
		Log: slog.New(slog.DiscardHandler), MaxBytes: 1 << 20, Copies: copies, OnBound: bound,
	})
}

func newWorker(o *memoryOrigin, table catalog.Table, store publish.Objects, maxBytes int64) *pull.Worker {
	c := client.New(nil, "larder/test", o)
	c.MinRate = pull.MinRate
	return pull.New(pull.Options{
		Catalog: catalog.New(table), Objects: store, Client: c, Clients: pull.AsIs(c),
		Log: slog.New(slog.DiscardHandler), MaxBytes: maxBytes,
	})
}

// run makes a worker do what the mirror requests for a version.
func run(ctx context.Context, w *pull.Worker, p registry.MirrorAddress, version string) error {
	request := protocol.PullRequest{
		Action: protocol.PullIndex, Address: p.String(), Version: version, Deadline: time.Now().Add(8 * time.Second),
	}
	if _, err := w.Do(ctx, request); err != nil {
		return err
	}
	request.Action = protocol.PullVersion
	response, err := w.Do(ctx, request)
	if err != nil || !response.Copy {
		return err
	}
	_, err = w.Do(ctx, protocol.PullRequest{Action: protocol.PullCopy, Address: p.String(), Version: version})
	return err
}

func number(t testing.TB, s string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mirrored returns the platforms of a mirrored version, or nothing.
func (s setup) mirrored(t *testing.T, p registry.MirrorAddress, version string) string {
	t.Helper()
	record, err := s.catalog.Mirror.Get(t.Context(), p, number(t, version))
	if errors.Is(err, registry.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, pkg := range record.Packages {
		platforms = append(platforms, pkg.String())
	}
	return strings.Join(platforms, " ")
}

// problem returns why a version cannot be offered.
func (s setup) problem(t *testing.T, p registry.MirrorAddress, version string) string {
	t.Helper()
	found, err := s.catalog.Mirror.PulledVersion(t.Context(), p, number(t, version))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	if !time.Now().Before(found.Until) {
		return ""
	}
	return found.Problem
}

// update changes the state of the provider and of a version.
func (s setup) update(t *testing.T, p registry.MirrorAddress, version string, change func(*catalog.MirrorState)) {
	t.Helper()
	n := number(t, version)
	state, err := s.catalog.Mirror.State(t.Context(), p, p.Hostname, &n, time.Now())
	if err == nil {
		err = state.Update(t.Context(), func() error {
			change(state)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hold makes another process have a lease of version 1.0.0 of the inventory.
func (s setup) hold(t *testing.T, lease func(*catalog.MirrorState) *registry.Lease, until time.Time) {
	t.Helper()
	s.update(t, inventory, "1.0.0", func(state *catalog.MirrorState) {
		*lease(state) = registry.Lease{Owner: "another", Until: until}
	})
}
