package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// pulled stores what the mirror found when it looked at the origin of a provider,
// and the versions that it can fetch. The mirror does not forget it, although the
// last request was long ago.
func (s *store) pulled(address string, found registry.PulledAddress, index ...string) {
	s.t.Helper()
	var versions protocol.MirrorListing
	for _, text := range index {
		versions = append(versions, number(s.t, text))
	}
	var err error
	if found.Index, err = protocol.Compress(versions); err != nil {
		s.t.Fatal(err)
	}
	found.Address, found.RetryAt = address, time.Now().Add(time.Hour)
	p, err := registry.ParseMirrorProvider(address)
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := s.catalog.Mirror.State(s.t.Context(), p, p.Hostname, nil, time.Now())
	if err == nil {
		err = state.Update(s.t.Context(), func() error {
			state.Pulled = found
			return nil
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// foundAtOrigin is what the mirror found at the origin of a provider.
func foundAtOrigin(t testing.TB) registry.PulledAddress {
	t.Helper()
	at := published.AddDate(0, 0, 10)
	return registry.PulledAddress{
		RequestedAt: at.Add(-time.Minute), CheckedAt: at.Add(-time.Hour),
		Pending: []registry.Version{number(t, "1.4.0"), number(t, "0.8.1"), number(t, "1.0.0")},
	}
}

func TestPulledPages(t *testing.T) {
	t.Parallel()
	s := withOrigins(t)
	s.policy(registry.MirrorRule{
		MinAge: int64(week / time.Second), Pull: registry.PullOpen, Upstream: "https://origin.example.net/v1/providers/",
	})
	var versions []string
	for patch := range 12 {
		versions = append(versions, fmt.Sprintf("0.8.%d", patch))
	}
	s.pulled(random[len("/mirror/"):], foundAtOrigin(t), append(versions, "1.2.0", "1.1.0", "1.0.0")...)
	web := s.serve()
	golden.Equal(t, "testdata/pulled.html", []byte(mainOf(web.text(t, http.StatusOK, random))))
	golden.Equal(t, "testdata/pulled.md", []byte(web.text(t, http.StatusOK, random+".md")))
}

// The page of a provider has what the mirror found for clients, as far as the
// policy lets them fetch versions.
func TestPulled(t *testing.T) {
	t.Parallel()
	const weather = "registry.opentofu.org/acme/weather"
	failed := foundAtOrigin(t)
	failed.Problem = "the origin did not answer in time <b>"
	never := registry.PulledAddress{Problem: "the origin requires a credential", RequestedAt: failed.RequestedAt}
	for name, test := range map[string]struct {
		rule   registry.MirrorRule
		found  registry.PulledAddress
		index  []string
		path   string
		status int
		parts  []string
	}{
		"open": {
			registry.MirrorRule{Pull: registry.PullOpen}, foundAtOrigin(t), []string{"1.1.0", "1.0.0"}, weather, http.StatusOK,
			[]string{
				"No version of this provider is mirrored yet.", "Open: clients get a version from its origin until it is copied",
				"1.1.0, 1.0.0", "registry.opentofu.org", "1.4.0, 0.8.1, 1.0.0", "12 Nov 2026, 08:12 UTC", "12 Nov 2026, 09:11 UTC",
				"!failed", "!–0 of 0",
			},
		},
		"closed": {
			registry.MirrorRule{Pull: registry.PullClosed, Upstream: "https://origin.example.net"}, foundAtOrigin(t), []string{"1.0.0"},
			weather + "/versions", http.StatusOK,
			[]string{"Closed: clients get a version when it is copied", "registry.opentofu.org, fetched from origin.example.net"},
		},
		"a failed look": {
			registry.MirrorRule{Pull: registry.PullOpen}, failed, []string{"1.0.0"}, weather, http.StatusOK,
			[]string{"failed: the origin did not answer in time", "Last success", "1.0.0", "!<b>"},
		},
		"no look succeeded": {
			registry.MirrorRule{Pull: registry.PullOpen}, never, nil, weather, http.StatusOK,
			[]string{"failed: the origin requires a credential", "!Last success", "!Versions:"},
		},
		"a look that found no version": {
			registry.MirrorRule{Pull: registry.PullOpen},
			registry.PulledAddress{Problem: "the origin has no version of it", FoundNone: true, RequestedAt: failed.RequestedAt},
			nil, weather, http.StatusOK, []string{"the origin has no version of it", "!failed: "},
		},
		"a version on request": {
			registry.MirrorRule{Pull: registry.PullOpen}, foundAtOrigin(t), []string{"1.0.0"}, weather + "/1.0.0", http.StatusNotFound, nil,
		},
		"no pull": {registry.MirrorRule{}, foundAtOrigin(t), []string{"1.0.0"}, weather, http.StatusNotFound, nil},
		"denied":  {registry.MirrorRule{Deny: true}, foundAtOrigin(t), []string{"1.0.0"}, weather, http.StatusNotFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withProviders(t)
			s.now = func() time.Time { return published.AddDate(0, 0, 10) }
			s.policy(test.rule)
			s.pulled(weather, test.found, test.index...)
			web := s.serve()
			for _, suffix := range []string{"", ".md"} {
				page := web.text(t, test.status, "/mirror/"+test.path+suffix)
				if suffix == "" && test.status == http.StatusOK {
					page = mainOf(page)
				}
				if suffix == ".md" {
					page = strings.ReplaceAll(page, "\\", "") // it escapes the characters of Markdown
				}
				for _, part := range test.parts {
					if suffix == ".md" && part == "!<b>" {
						continue
					}
					contains(t, page, part)
				}
			}
		})
	}
}

// A provider of which nothing is mirrored is in no list, since lists read no more
// than its entry.
func TestPulledInNoList(t *testing.T) {
	t.Parallel()
	s := withProviders(t)
	s.policy(registry.MirrorRule{Pull: registry.PullOpen})
	s.pulled("registry.opentofu.org/acme/weather", foundAtOrigin(t), "1.0.0")
	contains(t, s.serve().text(t, http.StatusOK, "/mirror"), "!weather")
}
