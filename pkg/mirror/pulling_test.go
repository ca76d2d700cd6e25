package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// noon is the time of most requests.
var noon = time.Date(2126, 11, 1, 12, 0, 0, 0, time.UTC)

// puller is a pull-through mirror: a table, a worker and a clock. It records
// the calls.
type puller struct {
	mu sync.Mutex
	*fake
	policy    *registry.MirrorPolicy
	policyErr error
	// provider and version are the findings of the worker. There may be none.
	provider *registry.PulledAddress
	version  *registry.PulledVersion
	// pulledErr is the error of reading them.
	pulledErr error
	// do and start are what the worker does.
	do    func(context.Context, protocol.PullRequest) (protocol.PullResponse, error)
	start func(protocol.PullRequest) error
	// polled is called before each read of the findings about a version.
	polled func(n int)
	polls  int
	calls  []string
	wait   time.Duration
	now    func() time.Time
}

func newPuller(t testing.TB, mode registry.PullMode) *puller {
	t.Helper()
	p := &puller{fake: &fake{}, wait: 10 * time.Second, now: func() time.Time { return noon }}
	p.policy = &registry.MirrorPolicy{SetAt: noon.Add(-time.Hour), Rules: []registry.MirrorRule{{
		Pattern: "*/*/*", Line: 1, Pull: mode,
		Platforms: []registry.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}},
	}}}
	return p
}

func (p *puller) called(format string, args ...any) {
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}

func (p *puller) MirrorPolicy(context.Context) (*registry.MirrorPolicy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called("policy")
	return p.policy, p.policyErr
}

func (p *puller) Listing(ctx context.Context, a registry.MirrorAddress) (protocol.Document, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called("listing")
	if p.err == nil && len(p.listing) == 0 {
		return nil, registry.ErrNotFound
	}
	return p.fake.Listing(ctx, a)
}

func (p *puller) Get(ctx context.Context, a registry.MirrorAddress, n registry.Version) (
	registry.MirrorVersion, error,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called("record")
	record, err := p.fake.Get(ctx, a, n)
	if err == nil && record.Withdrawn != nil {
		return registry.MirrorVersion{}, record.Withdrawn.Gone(n)
	}
	return record, err
}

func (p *puller) Pulled(context.Context, registry.MirrorAddress) (registry.PulledAddress, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called("known")
	if p.pulledErr != nil {
		return registry.PulledAddress{}, p.pulledErr
	}
	if p.provider == nil {
		return registry.PulledAddress{}, nil
	}
	return *p.provider, nil
}

func (p *puller) PulledVersion(_ context.Context, _ registry.MirrorAddress, _ registry.Version) (
	registry.PulledVersion, error,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called("known version")
	if p.polls++; p.polled != nil {
		p.polled(p.polls)
	}
	if p.pulledErr != nil {
		return registry.PulledVersion{}, p.pulledErr
	}
	if p.version == nil {
		return registry.PulledVersion{}, registry.ErrNotFound
	}
	found := *p.version
	found.PolicySetAt, found.Until = p.policy.SetAt, p.now().Add(time.Minute)
	return found, nil
}

func (p *puller) Found(ctx context.Context, a registry.MirrorAddress, n registry.Version) (
	registry.MirrorVersion, registry.PulledVersion, error,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called(found)
	record, err := p.fake.Get(ctx, a, n)
	var known registry.PulledVersion
	if p.version != nil {
		known = *p.version
		known.PolicySetAt, known.Until = p.policy.SetAt, p.now().Add(time.Minute)
	}
	switch {
	case p.pulledErr != nil:
		return record, known, p.pulledErr
	case errors.Is(err, registry.ErrNotFound):
		return registry.MirrorVersion{}, known, nil
	case err == nil && record.Withdrawn != nil:
		return registry.MirrorVersion{}, known, record.Withdrawn.Gone(n)
	}
	return record, known, err
}

func (p *puller) Do(ctx context.Context, r protocol.PullRequest) (protocol.PullResponse, error) {
	p.mu.Lock()
	p.called("do %s %s until %s", r.Action, r.Version, r.Deadline.Sub(noon))
	do := p.do
	p.mu.Unlock()
	if do == nil {
		return protocol.PullResponse{}, nil
	}
	return do(ctx, r)
}

func (p *puller) Start(_ context.Context, r protocol.PullRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called("start %s %s", r.Action, r.Version)
	if p.start == nil {
		return nil
	}
	return p.start(r)
}

// requestPath returns the status, the body, and the logged error.
func (p *puller) requestPath(t testing.TB, path string) (status int, body string, logged string) {
	t.Helper()
	handler := httpapi.Wrap(slog.New(slog.DiscardHandler), mirror.New(p, p, &mirror.Pulling{
		Pulled: p, Worker: p, Policies: admission.NewPolicies(p, p.now), Now: p.now, Wait: p.wait,
	}), func(e *requestlog.Entry) {
		logged = e.Note
		if e.Err != nil {
			logged = e.Err.Error()
		}
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String(), logged
}

// request returns the status, a short form of the body, and the logged error.
func (p *puller) request(t testing.TB, document string) (status int, body string, logged string) {
	t.Helper()
	status, body, logged = p.requestPath(t, of+document)
	if status != http.StatusOK {
		return status, "", logged
	}
	var found struct {
		Versions map[string]struct{}
		Archives map[string]protocol.MirrorArchive
	}
	if err := json.Unmarshal([]byte(body), &found); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for v := range found.Versions {
		parts = append(parts, v)
	}
	for platform, a := range found.Archives {
		from := "origin"
		if strings.HasPrefix(a.URL, "https://bucket.example.com/") {
			from = "mirror"
		}
		parts = append(parts, fmt.Sprintf("%s from %s with %d hashes", platform, from, len(a.Hashes)))
	}
	slices.Sort(parts)
	return status, strings.Join(parts, ", "), logged
}

// index returns an index.json with versions.
func index(t testing.TB, texts ...string) []byte {
	t.Helper()
	var listing protocol.MirrorListing
	for _, text := range texts {
		listing = append(listing, version(t, text))
	}
	data, err := protocol.Compress(listing)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// looked returns findings with an index that was current some time ago.
func looked(t testing.TB, p *puller, ago time.Duration, texts ...string) *registry.PulledAddress {
	t.Helper()
	return &registry.PulledAddress{
		Address: random.String(), RequestedAt: noon.Add(-ago), CheckedAt: noon.Add(-ago), PolicySetAt: p.policy.SetAt, Index: index(t, texts...),
	}
}

// isDown returns the findings about an origin that has failed.
func isDown(p *puller, retry time.Time) *registry.PulledAddress {
	return &registry.PulledAddress{RequestedAt: noon.Add(-time.Hour), Problem: "it is down", RetryAt: retry, PolicySetAt: p.policy.SetAt}
}

// record returns the record of version 1.0.0 with packages for platforms.
func record(t testing.TB, platforms ...string) registry.MirrorVersion {
	t.Helper()
	v := registry.MirrorVersion{Version: version(t, "1.0.0")}
	for _, platform := range platforms {
		v.Packages = append(v.Packages, pkg(t, v.Version, platform, "1"))
	}
	return v
}

// atOrigin returns the findings about version 1.0.0 with packages at the origin.
func atOrigin(t testing.TB, platforms ...registry.Platform) *registry.PulledVersion {
	t.Helper()
	found := &registry.PulledVersion{Version: version(t, "1.0.0")}
	for _, platform := range platforms {
		found.Archives = append(found.Archives, registry.PulledArchive{
			Platform: platform, URL: "https://origin.example.com/a.zip?signature=x", SHA256: strings.Repeat("a", 64),
		})
	}
	return found
}

var (
	linux  = registry.Platform{OS: "linux", Arch: "amd64"}
	darwin = registry.Platform{OS: "darwin", Arch: "arm64"}
)

// errWorker is a failure of the worker, of a kind that would be a refusal if a
// client had caused it.
var errWorker = fmt.Errorf("%w: it cannot be invoked", registry.ErrForbidden)

func fails(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
	return protocol.PullResponse{}, errWorker
}

// silent does not answer before the caller stops waiting.
func silent(ctx context.Context, _ protocol.PullRequest) (protocol.PullResponse, error) {
	<-ctx.Done()
	return protocol.PullResponse{}, ctx.Err()
}

// pullTest is a row of the tests of the pull-through mirror.
type pullTest struct {
	mode    registry.PullMode
	prepare func(testing.TB, *puller)
	status  int
	body    string
	logged  string // a part of the logged error
	calls   []string
}

func (test pullTest) run(t *testing.T, document string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPuller(t, test.mode)
		if test.prepare != nil {
			test.prepare(t, p)
		}
		status, body, logged := p.request(t, document)
		if status != test.status {
			t.Errorf("status %d, want %d; logged %q", status, test.status, logged)
		}
		if body != test.body {
			t.Errorf("body %q, want %q", body, test.body)
		}
		if test.logged == "" && logged != "" || !strings.Contains(logged, test.logged) {
			t.Errorf("logged %q, want %q", logged, test.logged)
		}
		if strings.Contains(logged, "signature=") {
			t.Errorf("logged a presigned URL: %s", logged)
		}
		if diff := cmp.Diff(test.calls, p.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

var errTable = fmt.Errorf("%w: the table is throttled", registry.ErrUnavailable)

const (
	doIndex, doVersion, startCopy = "do index  until 10s", "do version 1.0.0 until 10s", "start copy 1.0.0"
	found                         = "record and findings"
)

// The findings of the worker are sent without it, as long as it is current. It
// takes one read.
func TestPullIndex(t *testing.T) {
	t.Parallel()
	asked := []string{"policy", "known", doIndex, "known"}
	for name, test := range map[string]pullTest{
		"current": {prepare: func(t testing.TB, p *puller) { p.provider = looked(t, p, 9*time.Minute, "1.0.0", "1.1.0") },
			status: 200, body: "1.0.0, 1.1.0", calls: []string{"policy", "known"}},
		"failed a short time ago, with the last known versions": {prepare: func(t testing.TB, p *puller) {
			p.provider = looked(t, p, time.Hour, "1.0.0")
			p.provider.Problem, p.provider.RetryAt = "it is down", noon.Add(time.Second)
		}, status: 200, body: "1.0.0", calls: []string{"policy", "known"}},
		"failed a short time ago, and nothing is known": {prepare: func(_ testing.TB, p *puller) {
			p.provider = isDown(p, noon.Add(time.Second))
		}, status: 404, logged: "it is down", calls: []string{"policy", "known", "listing"}},
		"failed a short time ago, and versions are mirrored": {prepare: func(t testing.TB, p *puller) {
			p.provider = isDown(p, noon.Add(time.Second))
			p.listing = protocol.MirrorListing{version(t, "1.0.0")}
		}, status: 200, body: "1.0.0", logged: "it is down", calls: []string{"policy", "known", "listing"}},
		"failed a minute ago": {prepare: func(_ testing.TB, p *puller) {
			p.provider = isDown(p, noon)
		}, status: 404, logged: "it is down", calls: append(slices.Clone(asked), "listing")},
		"looked at with another policy": {prepare: func(t testing.TB, p *puller) {
			p.provider = looked(t, p, time.Minute, "1.0.0")
			p.provider.PolicySetAt = noon.Add(-2 * time.Hour)
		}, status: 404, logged: "did not answer in time", calls: append(slices.Clone(asked), "listing")},
		"looked at again with another policy": {prepare: func(t testing.TB, p *puller) {
			p.provider = looked(t, p, time.Minute, "1.0.0", "1.1.0")
			p.provider.PolicySetAt = noon.Add(-2 * time.Hour)
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.provider = looked(t, p, 0, "1.0.0")
				return protocol.PullResponse{}, nil
			}
		}, status: 200, body: "1.0.0", calls: asked},
		"never looked at": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.provider = looked(t, p, 0, "1.0.0")
				return protocol.PullResponse{}, nil
			}
		}, status: 200, body: "1.0.0", calls: asked},
		"findings cannot be read": {prepare: func(t testing.TB, p *puller) {
			p.pulledErr = registry.ErrCorrupt
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.pulledErr, p.provider = nil, looked(t, p, 0, "1.0.0")
				return protocol.PullResponse{}, nil
			}
		}, status: 200, body: "1.0.0", calls: asked},
		"worker is silent, and nothing is known": {prepare: func(_ testing.TB, p *puller) {
			p.do = silent
		}, status: 503, logged: "did not answer in time", calls: append(slices.Clone(asked), "listing")},
		"worker is silent, and the list is old": {prepare: func(t testing.TB, p *puller) {
			p.do, p.provider = silent, looked(t, p, time.Hour, "1.0.0")
		}, status: 200, body: "1.0.0", calls: asked},
		"worker fails, and nothing is known": {prepare: func(_ testing.TB, p *puller) { p.do = fails },
			status: 503, logged: "it cannot be invoked", calls: append(slices.Clone(asked), "listing")},
		"worker fails, and the list is old": {prepare: func(t testing.TB, p *puller) {
			p.do, p.provider = fails, looked(t, p, time.Hour, "1.0.0")
		}, status: 200, body: "1.0.0", calls: asked},
		"worker fails, and versions are mirrored": {prepare: func(t testing.TB, p *puller) {
			p.do, p.listing = fails, protocol.MirrorListing{version(t, "1.0.0")}
		}, status: 200, body: "1.0.0", logged: "it cannot be invoked", calls: append(slices.Clone(asked), "listing")},
		"table fails": {prepare: func(_ testing.TB, p *puller) { p.pulledErr = errTable },
			status: 503, logged: "throttled", calls: []string{"policy", "known"}},
		"listing fails": {prepare: func(_ testing.TB, p *puller) { p.err = errTable },
			status: 503, logged: "throttled", calls: append(slices.Clone(asked), "listing")},
		"policy cannot be read": {prepare: func(_ testing.TB, p *puller) { p.policyErr = errTable },
			status: 503, logged: "throttled", calls: []string{"policy"}},
		"no policy": {prepare: func(_ testing.TB, p *puller) { p.policy = nil },
			status: 404, logged: "not found", calls: []string{"policy", "listing"}},
		"policy denies the provider": {prepare: func(_ testing.TB, p *puller) { p.policy.Rules[0].Deny = true },
			status: 404, logged: "not found", calls: []string{"policy", "listing"}},
		"policy lets only operators mirror": {prepare: func(_ testing.TB, p *puller) { p.policy.Rules[0].Pull = "" },
			status: 404, logged: "not found", calls: []string{"policy", "listing"}},
	} {
		for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				inMode := test
				inMode.mode = mode
				inMode.run(t, "index.json")
			})
		}
	}
}

// A client waits a quarter of the time if it can get the last known versions.
// The time counts from the arrival of the request, and not from the time at
// which the table has answered.
func TestPullWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known      bool
		wait, want time.Duration
	}{
		"nothing is known":       {false, 8 * time.Second, 5 * time.Second},
		"an older list is known": {true, 20 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPuller(t, registry.PullOpen)
				if p.wait = test.wait; test.known {
					p.provider = looked(t, p, time.Hour, "1.0.0")
				}
				times := 0
				p.now = func() time.Time { // 3 seconds later after the first look at it
					if times++; times == 1 {
						return noon
					}
					return noon.Add(3 * time.Second)
				}
				var left time.Duration
				p.do = func(ctx context.Context, _ protocol.PullRequest) (protocol.PullResponse, error) {
					end, _ := ctx.Deadline()
					left = time.Until(end)
					return protocol.PullResponse{}, nil
				}
				p.request(t, "index.json")
				if left != test.want {
					t.Errorf("the client waits %s more, want %s", left, test.want)
				}
			})
		})
	}
}

// The worker distinguishes callers, and learns no names.
func TestPullCallers(t *testing.T) {
	t.Parallel()
	for caller, want := range map[string]string{"": "", "token ci": "0f86fe5e47b1"} {
		p := newPuller(t, registry.PullOpen)
		var got []string
		p.do = func(_ context.Context, r protocol.PullRequest) (protocol.PullResponse, error) {
			got = append(got, r.Caller)
			return protocol.PullResponse{Copy: true}, nil
		}
		p.start = func(r protocol.PullRequest) error {
			got = append(got, r.Caller)
			return nil
		}
		handler := mirror.New(p, p, &mirror.Pulling{
			Pulled: p, Worker: p, Policies: admission.NewPolicies(p, p.now), Now: p.now, Wait: p.wait,
		})
		for _, document := range []string{"index.json", "1.0.0.json"} {
			ctx := requestlog.NewContext(t.Context(), &requestlog.Entry{Caller: caller})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, of+document, nil))
		}
		if diff := cmp.Diff([]string{want, want, want}, got); diff != "" {
			t.Errorf("%q: the callers of index, version and copy (-want +got):\n%s", caller, diff)
		}
	}
}

// TestPullVersion covers what both modes have in common, and open mode.
func TestPullVersion(t *testing.T) {
	t.Parallel()
	asked := []string{"record", "policy", "known version", doVersion, found}
	for name, test := range map[string]pullTest{
		"mirrored": {prepare: func(t testing.TB, p *puller) {
			p.records = []registry.MirrorVersion{record(t, "linux_amd64", "darwin_arm64")}
		}, status: 200, body: "darwin_arm64 from mirror with 2 hashes, linux_amd64 from mirror with 2 hashes",
			calls: []string{"record", "policy"}},
		"mirrored, and the policy cannot be read": {prepare: func(t testing.TB, p *puller) {
			p.records, p.policyErr = []registry.MirrorVersion{record(t, "linux_amd64")}, errTable
		}, status: 200, body: "linux_amd64 from mirror with 2 hashes", calls: []string{"record", "policy"}},
		"withdrawn": {prepare: func(t testing.TB, p *puller) {
			gone := record(t)
			gone.Withdrawn = &registry.Withdrawal{At: noon, By: "somebody", Reason: "it leaks"}
			p.records, p.version = []registry.MirrorVersion{gone}, atOrigin(t, linux)
		}, status: 200, calls: []string{"record"}},
		"missing, and there is no policy": {prepare: func(_ testing.TB, p *puller) { p.policy = nil },
			status: 200, calls: []string{"record", "policy"}},
		"missing, and the policy denies it": {prepare: func(t testing.TB, p *puller) {
			p.policy.Rules[0].Deny, p.version = true, atOrigin(t, linux)
		}, status: 200, calls: []string{"record", "policy"}},
		"missing, and the policy cannot be read": {prepare: func(_ testing.TB, p *puller) { p.policyErr = errTable },
			status: 503, logged: "throttled", calls: []string{"record", "policy"}},
		"record cannot be read": {prepare: func(_ testing.TB, p *puller) { p.err = errTable },
			status: 503, logged: "throttled", calls: []string{"record"}},
		"findings cannot be read from the table": {prepare: func(_ testing.TB, p *puller) { p.pulledErr = errTable },
			status: 503, logged: "throttled", calls: []string{"record", "policy", "known version"}},
		"at the origin": {prepare: func(t testing.TB, p *puller) { p.version = atOrigin(t, linux, darwin) },
			status: 200, body: "darwin_arm64 from origin with 1 hashes, linux_amd64 from origin with 1 hashes",
			calls: []string{"record", "policy", "known version"}},
		"at the origin, and one platform is mirrored": {prepare: func(t testing.TB, p *puller) {
			p.records, p.version = []registry.MirrorVersion{record(t, "linux_amd64")}, atOrigin(t, linux, darwin)
		}, status: 200, body: "darwin_arm64 from origin with 1 hashes, linux_amd64 from mirror with 2 hashes",
			calls: []string{"record", "policy", "known version"}},
		"has a problem": {prepare: func(t testing.TB, p *puller) {
			p.version = &registry.PulledVersion{Version: version(t, "1.0.0"), Problem: "it is too new"}
		}, status: 200, logged: "it is too new", calls: []string{"record", "policy", "known version"}},
		"found by this request": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.version = atOrigin(t, linux)
				return protocol.PullResponse{Copy: true}, nil
			}
		}, status: 200, body: "linux_amd64 from origin with 1 hashes",
			calls: []string{"record", "policy", "known version", doVersion, startCopy, found}},
		"found by another request": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.version = atOrigin(t, linux)
				return protocol.PullResponse{}, nil
			}
		}, status: 200, body: "linux_amd64 from origin with 1 hashes", calls: asked},
		"found, and the copy cannot start": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.version = atOrigin(t, linux)
				return protocol.PullResponse{Copy: true}, nil
			}
			p.start = func(protocol.PullRequest) error { return errWorker }
		}, status: 200, body: "linux_amd64 from origin with 1 hashes", logged: "it cannot be invoked",
			calls: []string{"record", "policy", "known version", doVersion, startCopy, found}},
		"withdrawn while the worker is at work": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				gone := record(t)
				gone.Withdrawn = &registry.Withdrawal{At: noon, By: "somebody", Reason: "it leaks"}
				p.records, p.version = []registry.MirrorVersion{gone}, atOrigin(t, linux)
				return protocol.PullResponse{}, nil
			}
		}, status: 200, calls: asked},
		"table fails after the version is found": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.err, p.version = errTable, atOrigin(t, linux)
				return protocol.PullResponse{}, nil
			}
		}, status: 503, logged: "throttled", calls: asked},
		"worker fails": {prepare: func(_ testing.TB, p *puller) { p.do = fails },
			status: 503, logged: "it cannot be invoked", calls: asked},
		"worker fails, and one platform is mirrored": {prepare: func(t testing.TB, p *puller) {
			p.do, p.records = fails, []registry.MirrorVersion{record(t, "linux_amd64")}
		}, status: 200, body: "linux_amd64 from mirror with 2 hashes", logged: "it cannot be invoked", calls: asked},
		"worker is silent": {prepare: func(_ testing.TB, p *puller) { p.do = silent },
			status: 503, logged: "did not answer in time", calls: asked},
		"table fails after the worker": {prepare: func(_ testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.pulledErr = errTable
				return protocol.PullResponse{}, nil
			}
		}, status: 503, logged: "throttled", calls: asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.mode = registry.PullOpen
			test.run(t, "1.0.0.json")
		})
	}
}

// In closed mode, clients wait for the copy.
func TestPullClosed(t *testing.T) {
	t.Parallel()
	copied := func(t testing.TB, p *puller, after int, platforms ...string) {
		p.version = atOrigin(t)
		p.polled = func(n int) {
			if n == after {
				p.records = []registry.MirrorVersion{record(t, platforms...)}
			}
		}
	}
	first := []string{"record", "policy", "known version", "record"}
	for name, test := range map[string]pullTest{
		"copied meanwhile": {prepare: func(t testing.TB, p *puller) { copied(t, p, 3, "linux_amd64") },
			status: 200, body: "linux_amd64 from mirror with 2 hashes",
			calls: append(slices.Clone(first), "known version", "record", "known version", "record")},
		"another platform is copied meanwhile": {prepare: func(t testing.TB, p *puller) {
			p.records = []registry.MirrorVersion{record(t, "linux_amd64")}
			copied(t, p, 2, "linux_amd64", "darwin_arm64")
		}, status: 200, body: "darwin_arm64 from mirror with 2 hashes, linux_amd64 from mirror with 2 hashes",
			calls: append(slices.Clone(first), "known version", "record")},
		"the origin lacks another platform": {prepare: func(t testing.TB, p *puller) {
			p.records = []registry.MirrorVersion{record(t, "linux_amd64")}
			p.version = &registry.PulledVersion{Version: version(t, "1.0.0"), Problem: "the origin lacks it"}
		}, status: 200, body: "linux_amd64 from mirror with 2 hashes", logged: "the origin lacks it", calls: first},
		"the copy fails meanwhile": {prepare: func(t testing.TB, p *puller) {
			p.version = atOrigin(t)
			p.polled = func(n int) {
				if n == 2 {
					p.version = &registry.PulledVersion{Version: version(t, "1.0.0"), Problem: "it is too large"}
				}
			}
		}, status: 200, logged: "it is too large", calls: append(slices.Clone(first), "known version", "record")},
		"withdrawn meanwhile": {prepare: func(t testing.TB, p *puller) {
			p.records, p.version = []registry.MirrorVersion{record(t, "linux_amd64")}, atOrigin(t)
			p.polled = func(n int) {
				if n == 2 {
					p.records[0].Withdrawn = &registry.Withdrawal{At: noon, By: "somebody", Reason: "it leaks"}
				}
			}
		}, status: 200, calls: append(slices.Clone(first), "known version", "record")},
		"findings expire meanwhile": {prepare: func(t testing.TB, p *puller) {
			copied(t, p, 3, "linux_amd64")
			before := p.polled
			p.polled = func(n int) {
				if before(n); n == 2 {
					p.version = nil
				}
			}
		}, status: 200, body: "linux_amd64 from mirror with 2 hashes",
			calls: append(slices.Clone(first), "known version", "record", "known version", "record")},
		"the table fails meanwhile": {prepare: func(t testing.TB, p *puller) {
			p.version = atOrigin(t)
			p.polled = func(n int) {
				if n == 2 {
					p.err = errTable
				}
			}
		}, status: 503, logged: "throttled", calls: append(slices.Clone(first), "known version", "record")},
		"not copied in time": {prepare: func(t testing.TB, p *puller) {
			p.version, p.wait = atOrigin(t), 40*time.Millisecond
		}, status: 200, logged: "not copied yet", calls: first},
		"URLs of open mode are not sent": {prepare: func(t testing.TB, p *puller) {
			p.version, p.wait = atOrigin(t, linux, darwin), 40*time.Millisecond
		}, status: 200, logged: "not copied yet", calls: first},
		"the copy cannot start": {prepare: func(t testing.TB, p *puller) {
			p.do = func(context.Context, protocol.PullRequest) (protocol.PullResponse, error) {
				p.version = atOrigin(t)
				return protocol.PullResponse{Copy: true}, nil
			}
			p.start = func(protocol.PullRequest) error { return errWorker }
		}, status: 503, logged: "it cannot be invoked",
			calls: []string{"record", "policy", "known version", doVersion, startCopy, found}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.mode = registry.PullClosed
			test.run(t, "1.0.0.json")
		})
	}
}

// A client that goes away ends the wait.
func TestPullCanceled(t *testing.T) {
	t.Parallel()
	p := newPuller(t, registry.PullClosed)
	p.version = atOrigin(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.polled = func(n int) {
		if n == 2 {
			cancel()
		}
	}
	handler := mirror.New(p, p, &mirror.Pulling{
		Pulled: p, Worker: p, Policies: admission.NewPolicies(p, p.now), Now: p.now,
	})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, of+"1.0.0.json", nil))
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("the handler has not polled")
	}
	if p.polls > 3 {
		t.Errorf("the handler has polled %d times", p.polls)
	}
}
