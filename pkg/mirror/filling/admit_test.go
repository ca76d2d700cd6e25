package filling_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// An attribute is a rule with one attribute, and what it refuses.
type attribute struct {
	what      string
	rules     []registry.MirrorRule // nil for no policy
	platforms []string              // to mirror; empty for all
	want      string                // the mirrored version, or
	refused   string                // words of the error
	overruled string                // the mirrored version if the policy is overruled
	note      string                // words of a note
}

func attributes(t *testing.T) []attribute {
	t.Helper()
	const all = "1.0.0 [darwin_arm64 linux_amd64 windows_amd64]"
	linux, two := platforms(t, "linux_amd64"), platforms(t, "linux_amd64", "darwin_arm64")
	return []attribute{
		{what: "no policy", want: all},
		{what: "a policy without rules", rules: []registry.MirrorRule{}, refused: "no rule", overruled: all},
		{what: "a rule for another address", rules: []registry.MirrorRule{{Pattern: "registry.example.com/acme/other"}},
			refused: "no rule", overruled: all},
		{what: "an empty rule", rules: []registry.MirrorRule{{}}, want: all},
		{what: "deny", rules: []registry.MirrorRule{{Deny: true, Reason: "we do not use it"}, {}},
			refused: "line 1 of the mirror policy denies */*/*: we do not use it", overruled: all},
		{what: "deny after allow", rules: []registry.MirrorRule{{}, {Deny: true}}, want: all},
		{what: "a minimum age", rules: []registry.MirrorRule{{MinAge: 7 * 86400, WaitUnknown: true}},
			refused: "is too new until", overruled: all},
		{what: "an age that is unknown", rules: []registry.MirrorRule{{MinAge: 7 * 86400}}, want: all,
			note: "its age is unknown"},
		{what: "a platform", rules: []registry.MirrorRule{{Platforms: linux}}, platforms: []string{"linux_amd64"},
			want: "1.0.0 [linux_amd64]"},
		{what: "all platforms", rules: []registry.MirrorRule{{Platforms: two}}, want: "1.0.0 [darwin_arm64 linux_amd64]",
			overruled: all},
		{what: "another platform", rules: []registry.MirrorRule{{Platforms: linux}},
			platforms: []string{"linux_amd64", "darwin_arm64"}, refused: "does not allow the platform darwin_arm64",
			overruled: "1.0.0 [darwin_arm64 linux_amd64]"},
		{what: "no platform that exists", rules: []registry.MirrorRule{{Platforms: platforms(t, "plan9_386")}},
			refused: "does not allow the platform", overruled: all},
		{what: "a large maximum", rules: []registry.MirrorRule{{MaxSize: 1 << 20}}, want: all},
		{what: "a small maximum", rules: []registry.MirrorRule{{MaxSize: 100}}, platforms: []string{"linux_amd64"},
			refused: "the maximum in line 1 of the mirror policy", overruled: "1.0.0 [linux_amd64]"},
		{what: "its signing key by ID", rules: []registry.MirrorRule{{SigningKeys: []string{keyID(t, ours)}}}, want: all},
		{what: "its signing key by fingerprint",
			rules: []registry.MirrorRule{{SigningKeys: []string{keyID(t, stranger), fingerprint(t, ours)}}}, want: all},
		{what: "another signing key", rules: []registry.MirrorRule{{SigningKeys: []string{keyID(t, stranger)}}},
			refused: "line 1 of the mirror policy allows only", overruled: all},
	}
}

// Each attribute of the policy refuses what it must, and allows the rest. An
// operator can overrule it, and that is recorded.
func TestPolicy(t *testing.T) {
	t.Parallel()
	record(t)
	t.Run("rows", func(t *testing.T) {
		for _, test := range attributes(t) {
			t.Run(test.what, func(t *testing.T) {
				t.Parallel()
				test.check(t)
			})
		}
	})
}

func (a attribute) check(t *testing.T) {
	t.Helper()
	o, s := simple(t), seenWithout(t)
	o.date = func() time.Time { return start }
	if a.rules != nil {
		s.setPolicy(t, a.rules...)
	}
	want := wanted(t, a.platforms...)
	m := s.mirror(o)
	m.Now = func() time.Time { return start }
	results, err := m.Add(t.Context(), want)
	if a.refused == "" {
		if err != nil {
			t.Fatal(err)
		}
		if got := notes(results); !strings.Contains(got, a.note) {
			t.Errorf("notes %q, want %q", got, a.note)
		}
		if diff := cmp.Diff(a.want, s.has(t)); diff != "" {
			t.Errorf("mirrored: %s", diff)
		}
	} else {
		failed(t, a.what, err, registry.ErrNotAdmitted, a.refused)
		s.empty(t, a.what)
		if denied := strings.Contains(a.refused, "den") || strings.Contains(a.refused, "no rule"); denied && o.times("") > 0 {
			t.Errorf("%d requests to the origin", o.times(""))
		}
	}
	if a.overruled == "" {
		return
	}
	m.Overrule = "an urgent fix"
	results, err = m.Add(t.Context(), want)
	if err != nil {
		t.Fatalf("overruled: %v", err)
	}
	if diff := cmp.Diff(a.overruled, s.has(t)); diff != "" {
		t.Errorf("overruled: %s", diff)
	}
	noted(t, a.what, results, "the mirror policy was overruled")
	audited := s.audited(t, registry.AuditOverrule)
	if len(audited) != 1 || !strings.HasPrefix(audited[0], "somebody 1.0.0: an urgent fix (policy: ") {
		t.Errorf("audited %q", audited)
	}
	recordText(t, "audited: "+strings.Join(audited, "; ")+"\n")
	stored := s.originItem(t)
	seen, _ := stored.Seen(parseVersion(t, "1.0.0"))
	if seen.Admitted != nil {
		t.Errorf("admitted for other runs too: %+v", seen.Admitted)
	}
	// A mirrored version needs no other decision.
	if _, err := m.Add(t.Context(), want); err != nil {
		t.Errorf("again: %v", err)
	}
	if again := s.audited(t, registry.AuditOverrule); len(again) != 1 {
		t.Errorf("again: audited %q", again)
	}
}

// seenWithout returns a registry that has seen the provider on day 0, without
// any version.
func seenWithout(t *testing.T) *store {
	t.Helper()
	s := newStore(t)
	s.editOrigin(t, func(o *registry.MirrorOrigin) { o.See(nil, start) })
	return s
}

// The size of a package counts as it arrives, if the origin does not send it.
func TestMaxSizeUnknown(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	s.setPolicy(t, registry.MirrorRule{MaxSize: 100})
	o.mu.Lock()
	o.header = http.Header{"Transfer-Encoding": {"chunked"}}
	o.mu.Unlock()
	_, err := s.mirror(o).Add(t.Context(), wanted(t, "linux_amd64"))
	failed(t, "a package without a Content-Length", err, registry.ErrNotAdmitted, "0.0 MiB", "line 1")
	s.empty(t, "a package that is too large")
}

// An import obeys the policy without a network.
func TestImportPolicy(t *testing.T) {
	t.Parallel()
	record(t)
	dir := string(newFolder(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""}))
	const all = "1.0.0 [darwin_arm64 linux_amd64]"
	week := int64(7 * day / time.Second)
	for _, test := range []struct {
		what string
		rule registry.MirrorRule
		seen func(*registry.MirrorOrigin) // nil if the mirror has never seen the provider
		want string                       // or it is refused
		note string
	}{
		{what: "an empty rule", want: all},
		{what: "a denied address", rule: registry.MirrorRule{Deny: true}},
		{what: "a platform", rule: registry.MirrorRule{Platforms: platforms(t, "linux_amd64")}, want: "1.0.0 [linux_amd64]",
			note: "does not allow it for darwin_arm64"},
		{what: "no platform", rule: registry.MirrorRule{Platforms: platforms(t, "plan9_386")}},
		{what: "a maximum", rule: registry.MirrorRule{MaxSize: 10}},
		{what: "signing keys", rule: registry.MirrorRule{SigningKeys: []string{keyID(t, ours)}}},
		{what: "an age that is unknown", rule: registry.MirrorRule{MinAge: week}, want: all,
			note: "no publication time is recorded, so its age is unknown"},
		{what: "an age that must be known", rule: registry.MirrorRule{MinAge: week, WaitUnknown: true}},
		{what: "an age that is known", rule: registry.MirrorRule{MinAge: week, WaitUnknown: true}, want: all,
			seen: func(o *registry.MirrorOrigin) {
				o.See(map[registry.Version]time.Time{parseVersion(t, "1.0.0"): start.AddDate(0, 0, -8)}, start)
			}},
		{what: "a version that is too new", rule: registry.MirrorRule{MinAge: week},
			seen: func(o *registry.MirrorOrigin) {
				o.See(map[registry.Version]time.Time{parseVersion(t, "1.0.0"): start.AddDate(0, 0, -6)}, start)
			}},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newStore(t)
			s.setPolicy(t, test.rule)
			if test.seen != nil {
				s.editOrigin(t, test.seen)
			}
			before := s.originItem(t)
			m := s.mirror(nil)
			m.Now = func() time.Time { return start }
			results, err := m.Import(t.Context(), dir)
			if test.want != "" {
				if err != nil || s.has(t) != test.want {
					t.Errorf("%s, %v", s.has(t), err)
				}
				if !strings.Contains(notes(results), test.note) {
					t.Errorf("notes %q", notes(results))
				}
				if diff := cmp.Diff(before, s.originItem(t)); diff != "" {
					t.Errorf("the origin changed: %s", diff)
				}
				return
			}
			failed(t, test.what, err, registry.ErrNotAdmitted)
			s.empty(t, test.what)
			m.Overrule = "no network"
			if _, err := m.Import(t.Context(), dir); err != nil || s.has(t) != all {
				t.Errorf("overruled: %s, %v", s.has(t), err)
			}
			recordText(t, "audited: "+strings.Join(s.audited(t, registry.AuditOverrule), "; ")+"\n")
			m.Overrule = ""
			if results, err := m.Import(t.Context(), dir); !test.rule.Deny && test.rule.Platforms == nil &&
				(err != nil || describe(results) != "1.0.0 [darwin_arm64 unchanged, linux_amd64 unchanged]") {
				t.Errorf("again: %s, %v", describe(results), err)
			}
		})
	}
}

// An operator admits a version early. That is recorded once, and not by a run
// that fails before it has the packages.
func TestAdmit(t *testing.T) {
	t.Parallel()
	record(t)
	two := []string{"linux_amd64", "darwin_arm64"}
	o := newOrigin(t, release{"1.0.0", two, ours, ""}, release{"2.0.0", two, ours, ""})
	o.listVersions(map[string]any{"1.0.0": on(-100), "2.0.0": on(0)})
	o.date = func() time.Time { return start }
	s := newStore(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
	m := s.mirror(o)
	m.Now = func() time.Time { return start }
	admit := func(v, reason string, names ...string) ([]filling.Result, error) {
		return m.Admit(t.Context(), wanted(t, names...), parseVersion(t, v), reason)
	}
	_, err := admit("2.0.0", "a fix")
	failed(t, "no platforms", err, registry.ErrInvalid, "--platform")
	_, err = admit("2.0.0", " ", "linux_amd64")
	failed(t, "no reason", err, registry.ErrInvalid)
	_, err = admit("3.0.0", "a fix", "linux_amd64")
	failed(t, "a version that does not exist", err, registry.ErrNotFound, "3.0.0")
	if _, err := m.Add(t.Context(), wanted(t, "linux_amd64")); err != nil {
		t.Fatal(err)
	}
	o.set(zipPage("2.0.0", "linux_amd64"), page{status: http.StatusNotFound})
	_, err = admit("2.0.0", "a fix")
	failed(t, "a download that fails", err, registry.ErrNotFound)
	if got := s.has(t); got != "1.0.0 [linux_amd64]" {
		t.Errorf("mirrored %s", got)
	}
	admitted := func() *registry.Decision {
		stored := s.originItem(t)
		seen, _ := stored.Seen(parseVersion(t, "2.0.0"))
		return seen.Admitted
	}
	if d := admitted(); d != nil {
		t.Errorf("a download that fails: recorded %+v", d)
	}
	_, err = admit("2.0.0", "a fix", "plan9_amd64")
	failed(t, "a platform that does not exist", err, registry.ErrNotFound)
	if d := admitted(); d != nil {
		t.Errorf("a platform that does not exist: recorded %+v", d)
	}
	o.set(zipPage("2.0.0", "linux_amd64"), page{body: o.releases[1].zip(t, "linux_amd64")})
	// The platforms are those of the newest mirrored version.
	results, err := admit("2.0.0", "a fix")
	if got := describe(results); err != nil || got != "2.0.0 [linux_amd64 added]" {
		t.Errorf("%s, %v", got, err)
	}
	if diff := cmp.Diff(&registry.Decision{At: start, By: "somebody", Reason: "a fix"}, admitted()); diff != "" {
		t.Errorf("recorded: %s", diff)
	}
	if _, err := admit("2.0.0", "again"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"somebody 2.0.0: a fix"}, s.audited(t, registry.AuditAdmit)); diff != "" {
		t.Errorf("audited: %s", diff)
	}
}

// Without platforms, an admission is for those of the policy, or else for those of
// the newest mirrored version.
func TestAdmitPlatforms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what     string
		policy   []string
		mirrored string // the platform of an earlier version. If empty, there is none
		want     string // the result, or the error
	}{
		{"of the policy", []string{"linux_amd64", "darwin_arm64"}, "", "2.0.0 [darwin_arm64 added, linux_amd64 added]"},
		{"of the policy, not of the mirror", []string{"linux_amd64"}, "darwin_arm64", "2.0.0 [linux_amd64 added]"},
		{"of the policy, some are missing", []string{"linux_amd64", "plan9_386"}, "", "2.0.0 [linux_amd64 added]: the origin does not have it for plan9_386"},
		{"of the policy, all are missing", []string{"plan9_386"}, "", "the origin has no package for plan9_386"},
		{"of the mirror", nil, "darwin_arm64", "2.0.0 [darwin_arm64 added]"},
		{"of nothing", nil, "", "no version of registry.example.com/acme/inventory is mirrored yet"},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			two := []string{"linux_amd64", "darwin_arm64"}
			o, s := newOrigin(t, release{"1.0.0", two, ours, ""}, release{"2.0.0", two, ours, ""}), newStore(t)
			m := s.mirror(o)
			if test.mirrored != "" {
				want := wanted(t, test.mirrored)
				want.Constraint = "1.0.0"
				if _, err := m.Add(t.Context(), want); err != nil {
					t.Fatal(err)
				}
			}
			s.setPolicy(t, registry.MirrorRule{Platforms: platforms(t, test.policy...)})
			results, err := m.Admit(t.Context(), wanted(t), parseVersion(t, "2.0.0"), "a fix")
			got := describe(results) + ": " + notes(results)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}

// A version that is not too new needs no admission.
func TestAdmitReady(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	results, err := s.mirror(o).Admit(t.Context(), wanted(t, "linux_amd64"), parseVersion(t, "1.0.0"), "a fix")
	if err != nil || describe(results) != "1.0.0 [linux_amd64 added]" {
		t.Fatalf("%s, %v", describe(results), err)
	}
	noted(t, "ready", results, "needed no admission")
	if got := s.audited(t, registry.AuditAdmit); len(got) > 0 {
		t.Errorf("audited %q", got)
	}
	s.setPolicy(t, registry.MirrorRule{Deny: true})
	_, err = s.mirror(o).Admit(t.Context(), filling.Wanted{Address: inventory}, parseVersion(t, "1.0.0"), "a fix")
	failed(t, "an address that the policy denies", err, registry.ErrNotAdmitted)
}

// Mirroring again writes nothing to the table, whatever the number of versions
// that the origin lists. The record of the origin fits into an item.
func TestManyVersions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		count int
		tag   func(i int) string
	}{
		{20_000, func(int) string { return "" }},
		{60_000, func(int) string { return "" }},
		{20_000, func(i int) string {
			return "-x" + providerfiles.Sum([]byte{byte(i), byte(i >> 8)}) + providerfiles.Sum([]byte{byte(i >> 8)})[:50]
		}},
	} {
		t.Run(fmt.Sprint(test.count, " of ", len("0.0.0"+test.tag(1)), " characters"), func(t *testing.T) {
			t.Parallel()
			o, s := simple(t), newStore(t)
			s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
			listed := []any{map[string]any{"version": "1.0.0", "platforms": []any{
				map[string]any{"os": "linux", "arch": "amd64"}}, "published_at": on(-40)}}
			for i := range test.count {
				at := start.Add(-time.Duration(i*7919%5_000_011)*time.Second).AddDate(-5, 0, 0)
				listed = append(listed, map[string]any{"version": fmt.Sprintf("0.%d.%d%s", i%97, i, test.tag(i)),
					"published_at": at.Format(time.RFC3339)})
			}
			o.edit("versions", listed, versionsPage)
			o.date = func() time.Time { return start }
			table := &sized{Table: s.table}
			s.table = table
			m := s.mirror(o)
			m.Now = func() time.Time { return start }
			want := filling.Wanted{Address: inventory}
			if _, err := m.Add(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			t.Logf("the largest item has %d bytes", table.largest)
			if table.largest > 350<<10 {
				t.Errorf("an item has %d bytes", table.largest)
			}
			writes, requests := table.writes, o.times("")
			if _, err := m.Add(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if table.writes != writes {
				t.Errorf("%d writes the second time", table.writes-writes)
			}
			if again := o.times("") - requests; again > 6 {
				t.Errorf("%d requests the second time", again)
			}
		})
	}
}

// Deciding takes a time that is linear in the number of versions.
func BenchmarkDecide(b *testing.B) {
	for _, count := range []int{20_000, manyVersions} {
		names := make([]string, count)
		published := make(map[registry.Version]time.Time, count)
		for i := range names {
			names[i] = fmt.Sprintf("1.%d.0", i)
			published[parseVersion(b, names[i])] = start.AddDate(0, 0, -i%14)
		}
		offered := offers(b, names...)
		rule := registry.MirrorRule{MinAge: int64(7 * day / time.Second)}
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				var o registry.MirrorOrigin
				o.See(published, start)
				o.See(published, start.Add(day))
				ready, waiting, err := filling.Decide(rule, o, offered, start)
				if err != nil || ready == 0 || waiting == 0 {
					b.Fatal(ready, waiting, err)
				}
			}
		})
	}
}

// sized is a table that counts writes, and measures them.
type sized struct {
	catalog.Table
	writes, largest int
}

func (s *sized) Write(ctx context.Context, changes ...catalog.Change) error {
	s.writes++
	for _, c := range changes {
		s.largest = max(s.largest, len(c.Data))
	}
	return s.Table.Write(ctx, changes...)
}

// policyReads is a table that counts reads of the policy.
type policyReads struct {
	catalog.Table
	reads int
}

func (p *policyReads) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if k.Partition == "policy" {
		p.reads++
	}
	return p.Table.Get(ctx, k)
}

// The policy is read once for a short run with any number of providers. If it
// cannot be read, nothing is mirrored.
func TestPolicyIsRead(t *testing.T) {
	t.Parallel()
	o := simple(t)
	folder := string(newFolder(t, release{"1.0.0", []string{"linux_amd64"}, ours, ""}))
	want := wanted(t, "linux_amd64")
	locked := filling.Locked{Address: inventory, Version: parseVersion(t, "1.0.0")}
	for what, run := range map[string]func(m *filling.Mirror) error{
		"add": func(m *filling.Mirror) error { _, err := m.Add(t.Context(), want); return err },
		"sync": func(m *filling.Mirror) error {
			_, err := m.Sync(t.Context(), []filling.Wanted{want, want})
			return err
		},
		"lock": func(m *filling.Mirror) error {
			_, err := m.Lock(t.Context(), []filling.Locked{locked, locked}, want.Platforms, false)
			return err
		},
		"import": func(m *filling.Mirror) error { _, err := m.Import(t.Context(), folder); return err },
		"admit": func(m *filling.Mirror) error {
			_, err := m.Admit(t.Context(), want, locked.Version, "a fix")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStore(t)
			s.setPolicy(t, registry.MirrorRule{})
			table := &policyReads{Table: s.table}
			s.table = table
			if err := run(s.mirror(o)); err != nil {
				t.Error(err)
			}
			if table.reads != 1 {
				t.Errorf("%d reads of the policy", table.reads)
			}
			s = newStore(t)
			s.setPolicy(t, registry.MirrorRule{})
			key := catalog.Key{Partition: "policy", Sort: "mirror"}
			if err := s.table.Write(t.Context(), catalog.Change{Key: key, Revision: 1, Data: []byte("{")}); err != nil {
				t.Fatal(err)
			}
			m := s.mirror(o)
			m.Overrule = "a fix"
			failed(t, "a damaged policy", run(m), registry.ErrCorrupt)
			s.empty(t, "a damaged policy")
			m.Overrule = "two\nlines"
			failed(t, "an invalid reason", run(m), registry.ErrInvalid)
		})
	}
}

// A run that overrules the policy and fails does not admit the version for other
// runs.
func TestOverruleFails(t *testing.T) {
	t.Parallel()
	o, s := newOrigin(t, release{"1.0.0", []string{"linux_amd64"}, ours, ""}), seenWithout(t)
	s.setPolicy(t, registry.MirrorRule{MinAge: int64(7 * day / time.Second), WaitUnknown: true})
	m := s.at(o, start)
	m.Overrule = "a fix"
	m.Publisher.Objects = &limited{Store: s.objects}
	want := filling.Wanted{Address: inventory}
	_, err := m.Add(t.Context(), want)
	failed(t, "a full store", err, tabletest.ErrFault)
	if got := s.audited(t, registry.AuditOverrule); len(got) != 1 {
		t.Errorf("audited %q", got)
	}
	_, err = s.at(o, start).Add(t.Context(), want)
	failed(t, "again, without overruling", err, registry.ErrNotAdmitted, "is too new until")
	s.empty(t, "again, without overruling")
}

// changingPolicy is a table whose policy changes before it is read again.
type changingPolicy struct {
	catalog.Table
	change func()
	read   bool
}

func (c *changingPolicy) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if k.Partition == "policy" {
		if c.read {
			c.change()
		}
		c.read = true
	}
	return c.Table.Get(ctx, k)
}

// A policy that changes during a long run applies to the providers that remain.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	linux := []string{"linux_amd64"}
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", ours))
	for what, run := range map[string]func(m *filling.Mirror) error{
		"sync": func(m *filling.Mirror) error {
			_, err := m.Sync(t.Context(), []filling.Wanted{
				{Address: inventory, Constraint: "1.0.0"}, {Address: inventory, Constraint: "2.0.0"}})
			return err
		},
		"lock": func(m *filling.Mirror) error {
			_, err := m.Lock(t.Context(), []filling.Locked{
				{Address: inventory, Version: parseVersion(t, "1.0.0")},
				{Address: inventory, Version: parseVersion(t, "2.0.0")},
			}, platforms(t, linux...), false)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStore(t)
			s.setPolicy(t, registry.MirrorRule{})
			table := s.table
			s.table = &changingPolicy{Table: table, change: func() {
				(&store{table: table}).setPolicy(t, registry.MirrorRule{Deny: true, Reason: "it is poisoned"})
			}}
			m := s.mirror(o)
			now := time.Now()
			m.Now = func() time.Time {
				now = now.Add(20 * time.Second)
				return now
			}
			failed(t, what, run(m), registry.ErrNotAdmitted, "it is poisoned")
			if got := s.has(t); got != "1.0.0 [linux_amd64]" {
				t.Errorf("mirrored %s", got)
			}
		})
	}
}

// Who admits a version cannot overrule the policy in the same run. Hints name the
// command that can.
func TestAdmitHints(t *testing.T) {
	t.Parallel()
	linux := platforms(t, "linux_amd64")
	for what, rule := range map[string]registry.MirrorRule{
		"a denied address": {Deny: true},
		"a platform":       {Platforms: platforms(t, "darwin_arm64")},
		"a maximum":        {MaxSize: 10},
		"a signing key":    {SigningKeys: []string{keyID(t, stranger)}},
		"no clock":         {MinAge: 7 * 86400},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o, s := simple(t), newStore(t)
			s.setPolicy(t, rule)
			if what == "no clock" {
				o.header = http.Header{"Date": nil}
			}
			_, err := s.mirror(o).Admit(t.Context(), filling.Wanted{Address: inventory, Platforms: linux},
				parseVersion(t, "1.0.0"), "a fix")
			if err == nil {
				t.Fatal("it is mirrored")
			}
			want := "`larder mirror add registry.example.com/acme/inventory --version 1.0.0 --platform PLATFORMS " +
				"--overrule REASON`"
			if hint := registry.Hint(err); !strings.Contains(hint, want) {
				t.Errorf("hint %q", hint)
			}
		})
	}
}
