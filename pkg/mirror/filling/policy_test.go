package filling_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

const day = 24 * time.Hour

// start is day 0 of the tests. Keys that were made just now are valid then.
var start = time.Date(2126, 11, 1, 9, 30, 0, 0, time.UTC)

// setPolicy replaces the policy of the mirror.
func (s *store) setPolicy(t testing.TB, rules ...registry.MirrorRule) {
	t.Helper()
	for i := range rules {
		if rules[i].Line = i + 1; rules[i].Pattern == "" {
			rules[i].Pattern = "*/*/*"
		}
	}
	p := registry.MirrorPolicy{Text: fmt.Sprint(rules), Rules: rules, SetAt: start, SetBy: "somebody"}
	if _, err := catalog.New(s.table).SetMirrorPolicy(t.Context(), p, ""); err != nil {
		t.Fatal(err)
	}
}

// originItem returns the record of the origin.
func (s *store) originItem(t testing.TB) registry.MirrorOrigin {
	t.Helper()
	o, err := catalog.New(s.table).Mirror.Origin(t.Context(), inventory)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// audited returns the audit entries of an action, the newest first.
func (s *store) audited(t testing.TB, action registry.AuditAction) []string {
	t.Helper()
	var all []string
	for e, err := range catalog.New(s.table).Audit(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Action == action {
			version := "all"
			if e.Version != nil {
				version = e.Version.String()
			}
			all = append(all, fmt.Sprintf("%s %s: %s", e.By, version, e.Detail))
		}
	}
	return all
}

// listVersions replaces the listing of the origin. Publication times are those
// of published, or missing.
func (o *origin) listVersions(published map[string]any) {
	var versions []any
	for _, r := range o.releases {
		at, listed := published[r.version]
		if !listed {
			continue
		}
		v := map[string]any{"version": r.version, "platforms": []any{map[string]any{"os": "linux", "arch": "amd64"}}}
		if at != nil {
			v["published_at"] = at
		}
		versions = append(versions, v)
	}
	o.edit("versions", versions, versionsPage)
}

// A coolDown is a row of the table of cool-downs. Version 2.0.0 is the one that
// it is about.
type coolDown struct {
	origin string // what the origin does
	listed int    // the day on which it lists the version, or 0 for the first sight
	// published returns the publication time on a day. It is nil for none.
	published func(today int) any
	// metadata is the response to the request for the version's metadata. It is
	// nil for a 404.
	metadata func(today int) page
	// hidden reports that the origin does not list the version on a day.
	hidden func(today int) bool
	clock  string // what the clock of this machine does
	offset func(today int) time.Duration
	header http.Header
	// dateless reports that the origin sends no date.
	dateless bool
}

// on returns a time on a day.
func on(day int) string { return start.AddDate(0, 0, day).Add(-time.Hour).Format(time.RFC3339) }

func always(at any) func(int) any { return func(int) any { return at } }

// changing returns before until day 12, and after from then.
func changing(before, after any) func(int) any {
	return func(today int) any {
		if today < 12 {
			return before
		}
		return after
	}
}

var coolDowns = []coolDown{
	{origin: "was published long before", published: always(on(-100))},
	{origin: "was published 3 days before", published: always(on(-3))},
	{origin: "is new, and is backdated", published: always(on(-100))},
	{origin: "has no time", published: always(nil)},
	{origin: "has a true time", listed: 10, published: always(on(10))},
	{origin: "is backdated", listed: 10, published: always(on(-100))},
	{origin: "is postdated", listed: 10, published: always(on(15))},
	{origin: "has no time", listed: 10, published: always(nil)},
	{origin: "has a time that is not one", listed: 10, published: always("yesterday")},
	{origin: "has a time in the year 1", listed: 10, published: always("0001-01-01T00:00:00Z")},
	{origin: "has a time in the year 9999", listed: 10, published: always("9999-12-31T00:00:00Z")},
	{origin: "has an earlier time from day 12", listed: 10, published: changing(on(10), on(-100))},
	{origin: "has a time in the year 2150 until day 12", listed: 10, published: changing("2150-01-01T00:00:00Z", on(10))},
	{origin: "has a later time from day 12", listed: 10, published: changing(on(10), on(14))},
	{origin: "has no time from day 12", listed: 10, published: changing(on(10), nil)},
	{origin: "has a time only from day 12", listed: 10, published: changing(nil, on(10))},
	{origin: "is not listed from day 12 to 18", listed: 10, published: always(on(10)),
		hidden: func(today int) bool { return today >= 12 && today <= 18 }},
	{origin: "has a time in its metadata", listed: 10, metadata: publishedIn("2.0.0", on(10))},
	{origin: "has a time in its metadata", metadata: publishedIn("2.0.0", on(-3))},
	{origin: "has metadata of another version", metadata: publishedIn("1.0.0", on(-3))},
	{origin: "has no metadata until day 12 (503)", listed: 10, metadata: func(today int) page {
		if today < 12 {
			return page{status: http.StatusServiceUnavailable}
		}
		return page{status: http.StatusNotFound}
	}},
	{origin: "has a true time", clock: "10 hours ahead", listed: 10, published: always(on(10)),
		offset: func(int) time.Duration { return 10 * time.Hour }},
	{origin: "has a true time", clock: "a year ahead until day 14", listed: 10, published: always(on(10)),
		offset: until(14, 365*day)},
	{origin: "has a true time", clock: "a year behind until day 14", listed: 10, published: always(on(10)),
		offset: until(14, -365*day)},
	{origin: "was published long before", clock: "a year behind until day 14", published: always(on(-100)),
		offset: until(14, -365*day)},
	{origin: "has a true time, in a cache for 3 days", listed: 10, published: always(on(10)),
		header: http.Header{"Age": {"259200"}}},
	{origin: "has a true time, but responses have no date", listed: 10, published: always(on(10)), dateless: true},
}

func until(day int, offset time.Duration) func(int) time.Duration {
	return func(today int) time.Duration {
		if today < day {
			return offset
		}
		return 0
	}
}

// publishedIn returns metadata of a version with a publication time.
func publishedIn(version, at string) func(int) page {
	return func(int) page { return page{json: map[string]any{"version": version, "published_at": at}} }
}

// run returns the day on which version 2.0.0 is mirrored, if someone tries it
// every day, and the reasons of the days before.
func (c coolDown) run(t *testing.T, wait bool) (admitted, reason string) {
	t.Helper()
	o, s := newOrigin(t, build("1.0.0", ours), build("2.0.0", ours)), newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second), WaitUnknown: wait})
	var reasons []string
	for today := range 30 {
		if today > 0 && today < c.listed-1 {
			continue // nothing happens
		}
		now := start.AddDate(0, 0, today)
		published := map[string]any{"1.0.0": on(-200)}
		if today >= c.listed && (c.hidden == nil || !c.hidden(today)) {
			if published["2.0.0"] = nil; c.published != nil {
				published["2.0.0"] = c.published(today)
			}
		}
		o.listVersions(published)
		if c.metadata != nil {
			o.set("/v1/providers/acme/inventory/2.0.0", c.metadata(today))
		}
		o.mu.Lock()
		o.header = c.header
		o.date = func() time.Time {
			if c.header.Get("Age") != "" {
				return now.Add(-3 * day)
			}
			return now
		}
		if c.dateless {
			o.header = http.Header{"Date": nil}
		}
		o.mu.Unlock()
		m := s.mirror(o)
		m.Now = func() time.Time {
			if c.offset == nil {
				return now
			}
			return now.Add(c.offset(today))
		}
		results, err := m.Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "2.0.0"})
		if err == nil {
			if got := describe(results); got != "2.0.0 [linux_amd64 added]" {
				t.Fatalf("mirrored %s", got)
			}
			return fmt.Sprintf("day %d", today), strings.Join(reasons, ", ")
		}
		s.empty(t, c.origin)
		reason := kindOf(t, err)
		if len(reasons) == 0 || reasons[len(reasons)-1] != reason {
			reasons = append(reasons, reason)
		}
	}
	return "never", strings.Join(reasons, ", ")
}

// kindOf describes why a version was not mirrored.
func kindOf(t *testing.T, err error) string {
	t.Helper()
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return "not listed"
	case errors.Is(err, registry.ErrUnavailable):
		return "no answer"
	case errors.Is(err, registry.ErrNotAdmitted) && strings.Contains(err.Error(), "is too new until"):
		return "too new"
	case errors.Is(err, registry.ErrInvalid) && strings.Contains(err.Error(), "no Date header"):
		return "unknown clock"
	case errors.Is(err, registry.ErrInvalid) && strings.Contains(err.Error(), "clock"):
		return "wrong clock"
	}
	t.Fatal(err)
	return ""
}

// The table describes when a version is mirrored if a policy has a minimum age of 7
// days, whatever an origin claims. The mirror first sees the provider on day 0.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	rows := make([]string, len(coolDowns))
	t.Run("rows", func(t *testing.T) {
		for i, c := range coolDowns {
			t.Run(fmt.Sprint(i, " ", c.origin, c.clock), func(t *testing.T) {
				t.Parallel()
				admit, before := c.run(t, false)
				wait, waiting := c.run(t, true)
				listed, clock := "first sight", c.clock
				if c.listed > 0 {
					listed = fmt.Sprintf("day %d", c.listed)
				}
				if clock == "" {
					clock = "right"
				}
				rows[i] = fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", listed, c.origin, clock, admit, before, wait,
					waiting)
			})
		}
	})
	golden.Equal(t, filepath.Join("testdata", "cool-down.md"), []byte("# When a version is mirrored with `min_age = \"7d\"`\n\n"+
		"The mirror first sees the provider on day 0. Someone then tries to mirror the version every day, or every day from "+
		"day 9 if it is listed from day 10.\n\n"+
		"| Listed from | The version | Clock | `unknown_age = \"admit\"` | Before | `unknown_age = \"wait\"` | Before |\n"+
		"| --- | --- | --- | --- | --- | --- | --- |\n"+strings.Join(rows, "")))
}

// With a wrong clock and no minimum age, packages are mirrored, but nothing is
// recorded that would count for a later policy.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	m := s.mirror(o)
	m.Now = func() time.Time { return time.Now().AddDate(-1, 0, 0) }
	if _, err := m.Add(t.Context(), filling.Wanted{Address: inventory}); err != nil {
		t.Fatal(err)
	}
	if got := s.originItem(t); !got.SeenAt.IsZero() || len(got.Versions) > 0 {
		t.Errorf("seen at %s: %v", got.SeenAt, got.Versions)
	}
	if s.has(t) == "" {
		t.Error("nothing is mirrored")
	}
}

// Several versions are new, and one of them is old enough.
func TestChoosesReady(t *testing.T) {
	t.Parallel()
	record(t)
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours),
		build("1.2.0", ours), build("1.3.0", ours), build("1.4.0", ours),
		build("1.5.0", ours))
	o.listVersions(map[string]any{
		"1.0.0": on(-30), "1.1.0": on(-20), "1.2.0": on(-4), "1.3.0": on(-3), "1.4.0": on(-2), "1.5.0": on(-1),
	})
	o.date = func() time.Time { return start }
	mirror := func(s *store) *filling.Mirror {
		s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
		m := s.mirror(o)
		m.Now = func() time.Time { return start }
		return m
	}
	add := func(w filling.Wanted) func(*filling.Mirror) ([]filling.Result, error) {
		w.Address = inventory
		return func(m *filling.Mirror) ([]filling.Result, error) { return m.Add(t.Context(), w) }
	}
	sync := func(constraint string, all bool) func(*filling.Mirror) ([]filling.Result, error) {
		return func(m *filling.Mirror) ([]filling.Result, error) {
			return m.Sync(t.Context(), []filling.Wanted{{Address: inventory, Constraint: constraint, All: all}})
		}
	}
	for _, test := range []struct {
		what string
		run  func(*filling.Mirror) ([]filling.Result, error)
		want string // or an error
	}{
		{"the newest that is ready", add(filling.Wanted{}), "1.1.0 [linux_amd64 added]"},
		{"nothing is ready", add(filling.Wanted{Constraint: "> 1.2.0"}), ""},
		{"all", add(filling.Wanted{All: true}),
			"1.5.0 [], 1.4.0 [], 1.3.0 [], 1.2.0 [], 1.1.0 [linux_amd64 added], 1.0.0 [linux_amd64 added]"},
		{"none of all", add(filling.Wanted{All: true, Constraint: "> 1.3.0"}), ""},
		{"sync", sync("", false), "1.1.0 [linux_amd64 added]"},
		{"sync of a version that is too new", sync("1.5.0", false), "1.5.0 []"},
		{"sync of all that are too new", sync("> 1.3.0", true), "1.5.0 [], 1.4.0 []"},
		{"lock", func(m *filling.Mirror) ([]filling.Result, error) {
			return m.Lock(t.Context(), []filling.Locked{{Address: inventory, Version: parseVersion(t, "1.5.0")}},
				platforms(t, "linux_amd64"), false)
		}, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newStore(t)
			results, err := test.run(mirror(s))
			if test.want == "" {
				failed(t, test.what, err, registry.ErrNotAdmitted, "larder mirror admit")
				s.empty(t, test.what)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describe(results)); diff != "" {
				t.Error(diff)
			}
			noted(t, test.what, results, "is too new until 2126-11-0")
		})
	}
	// A version that is mirrored stays, and can gain platforms.
	s := newStore(t)
	m := s.mirror(o)
	if _, err := m.Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "1.5.0"}); err != nil {
		t.Fatal(err)
	}
	results, err := mirror(s).Add(t.Context(), filling.Wanted{Address: inventory})
	if got := describe(results); err != nil || got != "1.5.0 [linux_amd64 unchanged]" {
		t.Errorf("mirrored before the policy: %s, %v", got, err)
	}
}

// A version whose publication time cannot be read now is not mirrored. Others
// are.
func TestTimeUnavailable(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours), build("1.2.0", ours))
	const metadata = "/v1/providers/acme/inventory/1.1.0"
	o.set(metadata, page{status: http.StatusServiceUnavailable})
	s := newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "< 1.2.0"})
	failed(t, "the newest match", err, registry.ErrUnavailable, "1.1.0", "when it was published")
	s.empty(t, "the newest match")
	_, err = s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, All: true})
	failed(t, "all", err, registry.ErrUnavailable, "1.1.0")
	if got := s.has(t); got != "1.2.0 [linux_amd64], 1.0.0 [linux_amd64]" {
		t.Errorf("mirrored %s", got)
	}
	// Only versions that are not mirrored are requested again.
	o.heal(t)
	s.mirrors(t, o, filling.Wanted{Address: inventory, All: true})
	if got := o.times("/acme/inventory/1.1.0"); got != 1 {
		t.Errorf("%d requests for the time of 1.1.0", got)
	}
	if got := o.times("/acme/inventory/1.0.0") + o.times("/acme/inventory/1.2.0"); got != 0 {
		t.Errorf("%d requests for the times of mirrored versions", got)
	}
}

// A dry run records nothing, and decides in the same way.
func TestPolicyDryRun(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
	m := s.mirror(o)
	m.DryRun = true
	want := filling.Wanted{Address: inventory, Constraint: "1.0.0"}
	if results, err := m.Add(t.Context(), want); err != nil || len(results) != 1 {
		t.Errorf("at first sight: %v, %v", results, err)
	}
	m.Overrule = "a test"
	if _, err := m.Add(t.Context(), want); err != nil {
		t.Error(err)
	}
	if got := s.originItem(t); !got.SeenAt.IsZero() || len(got.Versions)+len(got.Keys) > 0 {
		t.Errorf("a dry run records %+v", got)
	}
	s.empty(t, "a dry run")
}

// Adds at the same time see each version once, and lose none.
func TestSightingsAtOnce(t *testing.T) {
	t.Parallel()
	linux := []string{"linux_amd64"}
	var releases []release
	for i := range 6 {
		releases = append(releases, release{fmt.Sprintf("1.%d.0", i), linux, ours, ""})
	}
	o, s := newOrigin(t, releases...), newStore(t)
	var group sync.WaitGroup
	for _, r := range releases {
		group.Go(func() {
			_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: r.version})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got := s.originItem(t)
	if len(got.Versions) != len(releases) {
		t.Errorf("%d versions are recorded, want %d", len(got.Versions), len(releases))
	}
	for _, v := range got.Versions {
		if !v.SeenAt.IsZero() {
			t.Errorf("%s counts as seen later", v.Version)
		}
	}
	if len(got.Keys) != 1 || got.Keys[0].ID != keyID(t, ours) {
		t.Errorf("keys %+v", got.Keys)
	}
	if n := len(s.records(t)[inventory]); n != len(releases) {
		t.Errorf("%d versions are mirrored, want %d", n, len(releases))
	}
}

// Any call of the table can fail. Nothing is then visible that was not admitted,
// and another run completes the work.
func TestPolicyInterrupted(t *testing.T) {
	t.Parallel()
	o := simple(t)
	want := wanted(t, "linux_amd64")
	recent := func(m *filling.Mirror) *filling.Mirror {
		m.Now = func() time.Time { return time.Now().Add(time.Hour) }
		return m
	}
	for what, run := range map[string]func(*filling.Mirror) error{
		"overrule": func(m *filling.Mirror) error {
			m.Overrule = "a fix"
			_, err := recent(m).Add(t.Context(), want)
			return err
		},
		"admit": func(m *filling.Mirror) error {
			_, err := recent(m).Admit(t.Context(), want, parseVersion(t, "1.0.0"), "a fix")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, done := range []bool{false, true} {
				for call := int64(1); ; call++ {
					s := seenEarlier(t)
					faulty := &tabletest.Faulty{Table: s.table, FailAt: call, Done: done}
					m := s.mirror(o)
					m.Catalog, m.Publisher.Catalog = catalog.New(faulty), catalog.New(faulty)
					err := run(m)
					if err == nil {
						break
					}
					if !errors.Is(err, tabletest.ErrFault) {
						t.Fatalf("call %d: %v", call, err)
					}
					if has := s.has(t); has != "" && len(s.audited(t, registry.AuditOverrule))+
						len(s.audited(t, registry.AuditAdmit)) == 0 {
						t.Errorf("call %d: %s is mirrored without an audit entry", call, has)
					}
					if err := run(s.mirror(o)); err != nil || s.has(t) != "1.0.0 [linux_amd64]" {
						t.Errorf("call %d, then again: %v, %s", call, err, s.has(t))
					}
				}
			}
		})
	}
}

// seenEarlier returns a registry with a minimum age, in which version 1.0.0 is
// new because the provider was seen without it.
func seenEarlier(t *testing.T) *store {
	t.Helper()
	s := newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second), WaitUnknown: true})
	_, err := catalog.New(s.table).Mirror.UpdateOrigin(t.Context(), inventory,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			return o.See(nil, time.Now()), nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Many publication times are requested at the same time.
func TestManyTimes(t *testing.T) {
	t.Parallel()
	const count = 400
	o, s := simple(t), newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
	listed := make([]any, count)
	for i := range listed {
		v := fmt.Sprintf("1.0.%d", i)
		listed[i] = map[string]any{"version": v, "platforms": []any{map[string]any{"os": "linux", "arch": "amd64"}}}
		o.set("/v1/providers/acme/inventory/"+v, publishedIn(v, on(-1))(0))
	}
	o.edit("versions", listed, versionsPage)
	_, err := s.at(o, start).Add(t.Context(), filling.Wanted{Address: inventory, All: true})
	failed(t, "too new", err, registry.ErrNotAdmitted)
	for _, v := range s.originItem(t).Versions {
		if v.PublishedAt.IsZero() {
			t.Errorf("the time of %s is not known", v.Version)
		}
	}
	if got := len(s.originItem(t).Versions); got != count {
		t.Errorf("%d versions are recorded, want %d", got, count)
	}
}

// An operator can admit a version whose publication time cannot be read, or
// overrule the policy.
func TestTimeUnavailableOverruled(t *testing.T) {
	t.Parallel()
	linux := []string{"linux_amd64"}
	want := wanted(t, linux...)
	for what, run := range map[string]func(*filling.Mirror) error{
		"admit": func(m *filling.Mirror) error {
			_, err := m.Admit(t.Context(), want, parseVersion(t, "1.0.0"), "a fix")
			return err
		},
		"overrule": func(m *filling.Mirror) error {
			m.Overrule = "a fix"
			_, err := m.Add(t.Context(), want)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o, s := newOrigin(t, build("1.0.0", ours)), newStore(t)
			s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
			o.set("/v1/providers/acme/inventory/1.0.0", page{status: http.StatusForbidden})
			_, err := s.at(o, start).Add(t.Context(), want)
			failed(t, "add", err, registry.ErrForbidden, "when it was published")
			s.empty(t, "add")
			if err := run(s.at(o, start)); err != nil {
				t.Fatal(err)
			}
			if got := s.has(t); got != "1.0.0 [linux_amd64]" {
				t.Errorf("mirrored %s", got)
			}
			audited := append(s.audited(t, registry.AuditAdmit), s.audited(t, registry.AuditOverrule)...)
			if len(audited) != 1 || !strings.Contains(audited[0], "1.0.0: a fix") {
				t.Errorf("audited %q", audited)
			}
		})
	}
}

// The publication time of a version is recorded, even if it is mirrored whatever
// that time is.
func TestTimeOfAdmitted(t *testing.T) {
	t.Parallel()
	want := wanted(t, "linux_amd64")
	admit := func(m *filling.Mirror) error {
		_, err := m.Admit(t.Context(), want, parseVersion(t, "1.0.0"), "a fix")
		return err
	}
	for _, test := range []struct {
		what   string
		before func(*origin, *store)
		run    func(*filling.Mirror) error
	}{
		{"admit", func(*origin, *store) {}, admit},
		{"overrule", func(*origin, *store) {}, func(m *filling.Mirror) error {
			m.Overrule = "a fix"
			_, err := m.Add(t.Context(), want)
			return err
		}},
		{"add, after an admission", func(_ *origin, s *store) {
			s.editOrigin(t, func(o *registry.MirrorOrigin) {
				o.Admit(parseVersion(t, "1.0.0"), registry.Decision{At: start, By: "somebody", Reason: "a fix"})
			})
		}, func(m *filling.Mirror) error { _, err := m.Add(t.Context(), want); return err }},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			o, s := newOrigin(t, release{"1.0.0", []string{"linux_amd64"}, ours, ""}), seenWithout(t)
			s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second), WaitUnknown: true})
			test.before(o, s)
			o.set("/v1/providers/acme/inventory/1.0.0", publishedIn("1.0.0", on(-1))(0))
			if err := test.run(s.at(o, start)); err != nil {
				t.Fatal(err)
			}
			stored := s.originItem(t)
			seen, _ := stored.Seen(parseVersion(t, "1.0.0"))
			if got := seen.PublishedAt.Format(time.RFC3339); got != on(-1) {
				t.Errorf("published at %s, want %s", got, on(-1))
			}
		})
	}
}

// A run whose clock cannot be checked records no sightings, because later runs
// would count the age from them.
func TestWrongClockOverruled(t *testing.T) {
	t.Parallel()
	o, s := newOrigin(t, build("1.0.0", ours)), seenWithout(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
	o.set("/v1/providers/acme/inventory/1.0.0", publishedIn("1.0.0", on(-900))(0))
	before := s.originItem(t).Versions
	m := s.at(o, start.AddDate(-1, 0, 0))
	o.mu.Lock()
	o.header = http.Header{"Date": nil}
	o.mu.Unlock()
	m.Overrule = "an origin without a clock"
	if _, err := m.Add(t.Context(), filling.Wanted{Address: inventory}); err != nil {
		t.Fatal(err)
	}
	if got := o.times("/acme/inventory/1.0.0"); got != 1 {
		t.Errorf("%d requests for the time", got)
	}
	if diff := cmp.Diff(before, s.originItem(t).Versions); diff != "" {
		t.Errorf("recorded: %s", diff)
	}
}

// at returns the mirror at a time, which is also that of the origin's clock.
func (s *store) at(o *origin, now time.Time) *filling.Mirror {
	o.mu.Lock()
	o.date = func() time.Time { return now }
	o.mu.Unlock()
	m := s.mirror(o)
	m.Now = func() time.Time { return now }
	return m
}
