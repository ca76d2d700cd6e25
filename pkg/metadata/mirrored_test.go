package metadata_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	null     = "registry.opentofu.org/hashicorp/null"
	nullPath = "/v1/mirror/" + null
	day      = 24 * time.Hour
)

// sevenDays is a rule that applies to everything.
var sevenDays = registry.MirrorRule{Pattern: "*/*/*", MinAge: int64(7 * day / time.Second)}

// withWaiting has a provider of which 3.2.0 is mirrored and 3.3.0 is a day old.
func withWaiting(t testing.TB) *store {
	t.Helper()
	s := newStore(t)
	s.mirrored(null, "3.2.0")
	s.origin(registry.MirrorOrigin{
		Address: null, SeenAt: published,
		Versions: []registry.SeenVersion{
			{Version: version(t, "3.3.0"), PublishedAt: published.Add(-day)},
			{Version: version(t, "3.2.0"), PublishedAt: published.Add(-30 * day)},
			{Version: version(t, "3.1.0"), PublishedAt: published.Add(-60 * day)},
		},
	})
	s.policy(sevenDays)
	return s
}

// states returns the states of versions, such as "3.2.0 available".
func states(d protocol.MirroredProvider) (all []string) {
	for _, v := range d.Versions {
		all = append(all, v.Version.String()+" "+v.State)
	}
	return all
}

// The states are those of the clock and of a policy that is at most a minute
// old.
func TestMirroredProvider(t *testing.T) {
	t.Parallel()
	s := withWaiting(t)
	wall := clock.At(published)
	h := s.serveAt(wall)
	allowed := registry.MirrorRule{Pattern: "*/*/*"}
	denied := registry.MirrorRule{Pattern: "*/*/*", Deny: true}
	for _, step := range []struct {
		name  string
		after time.Duration
		rule  registry.MirrorRule
		want  []string
	}{
		{"too new", 0, sevenDays, []string{"3.3.0 too new", "3.2.0 available"}},
		{"the last second", 6*day - time.Second, sevenDays, []string{"3.3.0 too new", "3.2.0 available"}},
		{"old enough", 6 * day, sevenDays, []string{"3.2.0 available"}},
		{"the clock is set back", 0, sevenDays, []string{"3.3.0 too new", "3.2.0 available"}},
		{"a policy that is cached", 59 * time.Second, allowed, []string{"3.3.0 too new", "3.2.0 available"}},
		{"a policy without an age", time.Minute, allowed, []string{"3.2.0 available"}},
		// The mirrored version stays.
		{"a policy that denies", 2 * time.Minute, denied, []string{"3.2.0 available"}},
	} {
		s.policy(step.rule)
		wall.Set(published.Add(step.after))
		if diff := cmp.Diff(step.want, states(read[protocol.MirroredProvider](t, h, nullPath))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// A version can wait although nothing is mirrored. A withdrawn version does not
// wait.
func TestMirroredProviderOfNothing(t *testing.T) {
	t.Parallel()
	withdrawn := registry.Summary{
		Address: null, Unlisted: true, Withdrawn: []registry.Version{version(t, "3.3.0")},
	}
	for name, test := range map[string]struct {
		entry *registry.Summary
		after time.Duration
		want  []string
	}{
		"a version waits":     {nil, 0, []string{"3.3.0 too new"}},
		"no version waits":    {nil, 6 * day, nil},
		"it is withdrawn":     {&withdrawn, 0, nil},
		"another one is gone": {&registry.Summary{Address: null, Unlisted: true}, 0, []string{"3.3.0 too new"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.origin(registry.MirrorOrigin{
				Address: null, SeenAt: published,
				Versions: []registry.SeenVersion{{Version: version(t, "3.3.0"), PublishedAt: published.Add(-day)}},
			})
			s.policy(sevenDays)
			if test.entry != nil {
				s.put("mirror/"+null, "listing", protocol.Document{})
				s.put("catalog/mirror", "mirror/"+null, test.entry)
			}
			h := s.serveAt(clock.At(published.Add(test.after)))
			if test.want == nil {
				if w := h.get(t, nullPath); w.Code != http.StatusNotFound {
					t.Errorf("status %d, want 404: %s", w.Code, w.Body)
				}
				return
			}
			d := read[protocol.MirroredProvider](t, h, nullPath)
			if diff := cmp.Diff(test.want, states(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.Version != nil {
				t.Errorf("the latest version is %s", d.Version)
			}
		})
	}
}

// A policy or an origin that cannot be read does not hide mirrored versions. The
// damage is logged. If nothing else is known, it is an error.
func TestMirroredProviderDamaged(t *testing.T) {
	t.Parallel()
	const origin = `{"address":"` + null + `","origin":"eA=="}`
	for name, test := range map[string]struct {
		partition, sort, data string
		mirrored              bool
		status                int
		want                  []string
	}{
		"the policy":                 {"policy", "mirror", "x", true, 200, []string{"3.2.0 available"}},
		"the origin":                 {"mirror/providers", null, origin, true, 200, []string{"3.2.0 available"}},
		"the item of the provider":   {"mirror/providers", null, "x", true, 200, []string{"3.2.0 available"}},
		"the listing":                {"mirror/" + null, "listing", "x", true, 500, nil},
		"the policy without version": {"policy", "mirror", "x", false, 500, nil},
		"the origin without version": {"mirror/providers", null, origin, false, 500, nil},
		"the item without version":   {"mirror/providers", null, "x", false, 500, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withWaiting(t)
			if !test.mirrored {
				s.put("mirror/"+null, "listing", protocol.Document{})
				s.put("catalog/mirror", "mirror/"+null, registry.Summary{Address: null, Unlisted: true})
			}
			s.put(test.partition, test.sort, protocol.Document(test.data))
			h := s.serveAt(clock.At(published))
			w := h.get(t, nullPath)
			if w.Code != test.status {
				t.Errorf("status %d, want %d: %s", w.Code, test.status, w.Body)
			}
			if log := h.log.String(); !strings.Contains(log, "item "+test.partition+" "+test.sort) {
				t.Errorf("the log does not name the item: %s", log)
			}
			if test.status == http.StatusOK {
				got := states(read[protocol.MirroredProvider](t, h, nullPath))
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// An origin can give any publication time.
func TestMirroredProviderAbsurdTimes(t *testing.T) {
	t.Parallel()
	s := withWaiting(t)
	c := catalog.New(s.table)
	p, err := registry.ParseMirrorProvider(null)
	if err != nil {
		t.Fatal(err)
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	_, err = c.Mirror.UpdateOrigin(t.Context(), p, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		return o.See(map[registry.Version]time.Time{version(t, "4.0.0"): last}, published), nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d := read[protocol.MirroredProvider](t, s.serveAt(clock.At(published)), nullPath)
	if got := d.Versions[0].AvailableAt; !got.Equal(last) {
		t.Errorf("4.0.0 is available at %s, want %s", got, last)
	}
}

// The states of a module's versions have what they are bound to. If the origin has
// changed one since, that is the reason of its state, also if it is mirrored.
func TestMirroredModule(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.mirroredModule("5.1.0", "5.0.0")
	bound := moduleMirrorRecord(t, "5.1.0").Module.Pin
	moved := bound
	moved.Commit = "89abcdef0123456789abcdef0123456789abcdef"
	seen := func(number string, age time.Duration, pin registry.ModulePin) registry.SeenVersion {
		return registry.SeenVersion{Version: version(t, number), PublishedAt: published.Add(-age), Pin: pin}
	}
	s.origin(registry.MirrorOrigin{
		Address: mirroredVPC, SeenAt: published,
		Versions: []registry.SeenVersion{
			seen("5.3.0", day, registry.ModulePin{}), seen("5.2.0", 30*day, bound), seen("5.1.0", 30*day, bound),
		},
		Refused: []registry.RefusedVersion{
			{Version: version(t, "5.2.0"), Pin: moved, Bound: bound, At: published},
			{Version: version(t, "5.1.0"), Pin: moved, Bound: bound, At: published},
		},
	})
	rule := sevenDays
	rule.Pattern = "*/*/*/*"
	s.policy(rule)
	s.put("mirror-modules/"+mirroredVPC, "version/4.0.0", registry.MirrorVersion{
		Version: version(t, "4.0.0"), Withdrawn: &registry.Withdrawal{At: published, By: "ada", Reason: "leaked"},
	})
	path := "/v1/mirror-modules/" + mirroredVPC
	h := s.serveAt(clock.At(published))
	const changed = "the origin has changed it: it was commit 0123456789abcdef0123456789abcdef01234567, " +
		"and is now 89abcdef0123456789abcdef0123456789abcdef"
	archive := archiveOf(t)
	for query, want := range map[string][]protocol.MirroredVersion{
		"": {
			{Version: version(t, "5.3.0"), State: "too new"},
			{Version: version(t, "5.2.0"), State: "refused", Reason: changed, Pin: bound, ChangedTo: moved},
			{Version: version(t, "5.1.0"), State: "available", Reason: changed, Pin: bound, ChangedTo: moved},
			{Version: version(t, "5.0.0"), State: "available"},
		},
		"?history=true": {
			{Version: version(t, "5.3.0"), State: "too new"},
			{Version: version(t, "5.2.0"), State: "refused", Reason: changed, Pin: bound, ChangedTo: moved},
			{Version: version(t, "5.1.0"), State: "available", Reason: changed, Pin: bound, ChangedTo: moved, Archive: archive},
			{Version: version(t, "5.0.0"), State: "available", Pin: bound, Archive: archive},
			{
				Version: version(t, "4.0.0"), State: "withdrawn", Reason: "leaked",
				Withdrawn: &registry.Withdrawal{At: published, By: "ada", Reason: "leaked"},
			},
		},
	} {
		d := read[protocol.MirroredProvider](t, h, path+query)
		if d.Provider != "aws" {
			t.Errorf("%q: the system is %q, want aws", query, d.Provider)
		}
		for i, v := range d.Versions { // the times are those of any version
			if v.PublishedAt, v.AvailableAt = (time.Time{}), (time.Time{}); v.State == "too new" {
				v.Reason = ""
			}
			v.AgeUnknown = false
			d.Versions[i] = v
		}
		if diff := cmp.Diff(want, d.Versions); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
	for _, other := range []string{"/v1/mirror/registry.opentofu.org/acme/vpc", path + "x", "/v1/mirror-modules/x"} {
		if w := h.get(t, other); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", other, w.Code)
		}
	}
}

// archiveOf returns the archive of a version of the tests' mirrored module.
func archiveOf(t *testing.T) *protocol.MirroredArchive {
	t.Helper()
	m := moduleMirrorRecord(t, "1.0.0").Module
	return &protocol.MirroredArchive{
		SHA256: m.SHA256, Size: m.Size, MirroredAt: m.MirroredAt, MirroredBy: m.MirroredBy,
	}
}
