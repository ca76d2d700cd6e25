package metadata_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// early returns a parallel test with a clock that begins years before the times of
// these tests. So no provider is forgotten because nobody requested it for long.
func early(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	}
}

// pulled stores what the mirror found when it looked at the origin of the tests'
// mirrored provider, and the versions that it can fetch.
func (s *store) pulled(found registry.PulledAddress, index ...string) {
	s.t.Helper()
	var versions protocol.MirrorListing
	for _, text := range index {
		versions = append(versions, version(s.t, text))
	}
	if len(versions) > 0 {
		document, err := protocol.Compress(versions)
		if err != nil {
			s.t.Fatal(err)
		}
		found.Index = document
	}
	found.Address = null
	s.change(null, nil, func(state *catalog.MirrorState) { state.Pulled = found })
}

// The description has what the mirror found at the origin, if the policy lets
// clients fetch versions.
func TestMirroredProviderPull(t *testing.T) {
	t.Parallel()
	asked, retry := published.Add(-time.Hour), published.Add(time.Minute)
	open := registry.MirrorRule{Pattern: "*/*/*", MinAge: sevenDays.MinAge, Pull: registry.PullOpen}
	closed := open
	closed.Pull, closed.Upstream = registry.PullClosed, "https://mirror.example.net:8443/v1/providers/"
	wanted := []registry.Version{version(t, "3.3.0"), version(t, "3.2.0"), version(t, "3.1.0")}
	none := []registry.Version{}
	for name, test := range map[string]struct {
		rule   registry.MirrorRule
		found  registry.PulledAddress
		index  []string
		states []string
		pull   *protocol.MirroredPull
	}{
		"open": {
			open, registry.PulledAddress{RequestedAt: asked, CheckedAt: published}, []string{"3.2.0", "3.1.0", "3.0.0"},
			[]string{"3.3.0 too new", "3.2.0 available", "3.1.0 on request", "3.0.0 on request"},
			&protocol.MirroredPull{Mode: "open", RequestedAt: asked, CheckedAt: published, OnRequest: 2, Pending: none},
		},
		"closed, from another host": {
			closed, registry.PulledAddress{RequestedAt: asked, CheckedAt: published}, []string{"3.1.0"},
			[]string{"3.3.0 too new", "3.2.0 available", "3.1.0 on request"},
			&protocol.MirroredPull{
				Mode: "closed", Upstream: "mirror.example.net:8443", RequestedAt: asked, CheckedAt: published, OnRequest: 1,
				Pending: none,
			},
		},
		"a failed look": {
			open, registry.PulledAddress{CheckedAt: asked, Problem: "it is down", RetryAt: retry}, []string{"3.1.0"},
			[]string{"3.3.0 too new", "3.2.0 available", "3.1.0 on request"},
			&protocol.MirroredPull{
				Mode: "open", CheckedAt: asked, Problem: "it is down", RetryAt: retry, OnRequest: 1, Pending: none,
			},
		},
		"requested versions that are not mirrored": {
			open, registry.PulledAddress{RequestedAt: asked, CheckedAt: published, Pending: wanted}, []string{"3.1.0"},
			[]string{"3.3.0 too new", "3.2.0 available", "3.1.0 on request"},
			&protocol.MirroredPull{
				Mode: "open", RequestedAt: asked, CheckedAt: published, OnRequest: 1,
				Pending: []registry.Version{wanted[0], wanted[2]},
			},
		},
		"a version that became too new": {
			open, registry.PulledAddress{RequestedAt: asked, CheckedAt: published}, []string{"3.3.0"}, []string{"3.3.0 too new", "3.2.0 available"},
			&protocol.MirroredPull{Mode: "open", RequestedAt: asked, CheckedAt: published, Pending: none},
		},
		"a policy without pull": {
			sevenDays, registry.PulledAddress{RequestedAt: asked, CheckedAt: published, Pending: wanted}, []string{"3.1.0"},
			[]string{"3.3.0 too new", "3.2.0 available"}, nil,
		},
		"a policy that denies": {
			registry.MirrorRule{Pattern: "*/*/*", Deny: true}, registry.PulledAddress{RequestedAt: asked, CheckedAt: published}, []string{"3.1.0"},
			[]string{"3.2.0 available"}, nil,
		},
	} {
		t.Run(name, early(func(t *testing.T) {
			s := withWaiting(t)
			s.policy(test.rule)
			s.pulled(test.found, test.index...)
			got := read[protocol.MirroredProvider](t, s.serveAt(clock.At(published)), nullPath)
			if diff := cmp.Diff(test.states, states(got)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.pull, got.Pull); diff != "" {
				t.Errorf("pull (-want +got):\n%s", diff)
			}
		}))
	}
}

// A provider has a description as soon as the mirror has looked at its origin.
func TestMirroredProviderOnlyPulled(t *testing.T) {
	t.Parallel()
	open := registry.MirrorRule{Pattern: "*/*/*", Pull: registry.PullOpen}
	for name, test := range map[string]struct {
		rule   registry.MirrorRule
		found  registry.PulledAddress
		index  []string
		status int
	}{
		"versions":              {open, registry.PulledAddress{RequestedAt: published}, []string{"3.1.0"}, http.StatusOK},
		"a failed look":         {open, registry.PulledAddress{Problem: "it is down", RetryAt: published}, nil, http.StatusOK},
		"a policy without pull": {sevenDays, registry.PulledAddress{RequestedAt: published}, []string{"3.1.0"}, http.StatusNotFound},
	} {
		t.Run(name, early(func(t *testing.T) {
			s := newStore(t)
			s.policy(test.rule)
			s.pulled(test.found, test.index...)
			w := s.serveAt(clock.At(published)).get(t, nullPath)
			if w.Code != test.status {
				t.Errorf("status %d, want %d: %s", w.Code, test.status, w.Body)
			}
		}))
	}
}

// The description explains why a version could not be fetched. It never has the
// URLs of an origin, because they can be presigned.
func TestMirroredProviderProblems(t *testing.T) {
	t.Parallel()
	s := withWaiting(t)
	s.policy(registry.MirrorRule{Pattern: "*/*/*", Pull: registry.PullClosed})
	s.pulled(registry.PulledAddress{RequestedAt: time.Now()}, "3.1.0", "3.0.0")
	for _, v := range []registry.PulledVersion{
		{Version: version(t, "3.1.0"), Problem: "10.1.2.3 is an address of a private network"},
		{Version: version(t, "3.0.0"), Archives: []registry.PulledArchive{{URL: "https://origin.example.net/?secret"}}},
	} {
		s.change(null, &v.Version, func(state *catalog.MirrorState) {
			state.Version = state.Version.WithAnswer(v, time.Now().Add(time.Hour))
		})
	}
	s.table.Take()
	got := read[protocol.MirroredProvider](t, s.serveAt(clock.At(published)), nullPath)
	if diff := cmp.Diff("Get Snapshot Snapshot", s.table.Take()); diff != "" {
		t.Errorf("requests to the table (-want +got):\n%s", diff)
	}
	states := map[string]string{}
	for _, v := range got.Versions {
		states[v.Version.String()] = strings.TrimSpace(v.State + " " + v.Reason)
	}
	want := map[string]string{
		"3.2.0": "available", "3.1.0": "failed … is an address of a private network", "3.0.0": "on request",
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// If the cached versions are damaged, the description lacks them.
func TestMirroredProviderDamagedCache(t *testing.T) {
	early(func(t *testing.T) {
		s := withWaiting(t)
		s.policy(registry.MirrorRule{Pattern: "*/*/*", MinAge: sevenDays.MinAge, Pull: registry.PullOpen})
		found := registry.PulledAddress{Address: null, RequestedAt: published, Index: []byte("x")}
		s.change(null, nil, func(state *catalog.MirrorState) { state.Pulled = found })
		got := read[protocol.MirroredProvider](t, s.serveAt(clock.At(published)), nullPath)
		if diff := cmp.Diff([]string{"3.3.0 too new", "3.2.0 available"}, states(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})(t)
}
