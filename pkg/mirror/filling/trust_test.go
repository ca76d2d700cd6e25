package filling_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

func fingerprint(t testing.TB, of keyMaker) string {
	t.Helper()
	e, _ := entity(t, of)
	return fmt.Sprintf("%X", e.PrimaryKey.Fingerprint)
}

// A keyChange is a row of the table of keys. Version 1.0.0 is mirrored. The row
// is about version 2.0.0.
type keyChange struct {
	what string
	// first and second sign the versions.
	first, second keyMaker
	// names are the keys that the origin names for version 2.0.0, if these are
	// not just the one that signed. They can be empty.
	names []keyMaker
	// lost reports that the item of the origin was removed.
	lost bool
	// policy are the signing keys that the policy names.
	policy []keyMaker
	// keys replace the recorded keys.
	keys func(t *testing.T) []registry.OriginKey
	// trust is what an operator trusts. If empty, it is the key that has signed.
	trust    string
	unsigned bool // uses --allow-unsigned
}

var keyChanges = []keyChange{
	{what: "the same key", first: ours, second: ours},
	{what: "another key instead", first: ours, second: stranger},
	{what: "another key beside it, and the first one signs", first: ours, second: ours, names: []keyMaker{ours, stranger}},
	{what: "another key beside it, and that one signs", first: ours, second: stranger, names: []keyMaker{ours, stranger}},
	{what: "no keys", first: ours, second: ours, names: []keyMaker{}, trust: filling.Unsigned},
	{what: "no keys, with `--allow-unsigned`", first: ours, second: ours, names: []keyMaker{},
		trust: filling.Unsigned, unsigned: true},
	{what: "another key, which the policy names", first: ours, second: stranger, policy: []keyMaker{ours, stranger}},
	{what: "the same key, but the policy names another one", first: ours, second: ours, policy: []keyMaker{stranger}},
	{what: "another key, but the policy names the first one", first: ours, second: stranger, policy: []keyMaker{ours}},
	{what: "the same key, which has expired", first: lapsed, second: lapsed},
	{what: "another key, which has expired", first: ours, second: lapsed},
	{what: "the same key, after the origin's item was removed", first: ours, second: ours, lost: true},
	{what: "another key, after the origin's item was removed", first: ours, second: stranger, lost: true},
	{what: "no keys, after the origin's item was removed", first: ours, second: ours, lost: true,
		names: []keyMaker{}, trust: filling.Unsigned, unsigned: true},
	{what: "another key with the same ID", first: ours, second: ours, keys: func(t *testing.T) []registry.OriginKey {
		t.Helper()
		id := keyID(t, ours)
		return []registry.OriginKey{{ID: id, Fingerprint: strings.Repeat("0", 24) + id}}
	}},
}

// outcome mirrors version 2.0.0. If that is refused, outcome checks that nothing
// of it is downloaded or stored.
func (c keyChange) outcome(t *testing.T, o *origin, s *store) string {
	t.Helper()
	before, objects, zips := fmt.Sprint(s.records(t)), s.count(t), o.times(".zip")
	results, err := s.mirror(o).Add(t.Context(),
		filling.Wanted{Address: inventory, Constraint: "2.0.0", AllowUnsigned: c.unsigned})
	if err == nil {
		if got := describe(results); got != "2.0.0 [linux_amd64 added]" {
			t.Errorf("mirrored %s", got)
		}
		return "mirrored"
	}
	if diff := cmp.Diff(before, fmt.Sprint(s.records(t))); diff != "" {
		t.Errorf("records changed: %s", diff)
	}
	if got := s.count(t); got != objects {
		t.Errorf("%d objects, want %d", got, objects)
	}
	if got := o.times(".zip"); got != zips {
		t.Errorf("%d downloads, want %d", got, zips)
	}
	switch {
	case errors.Is(err, registry.ErrNotAdmitted) && strings.Contains(err.Error(), "line 1 of the mirror policy"):
		return "refused by the policy"
	case errors.Is(err, registry.ErrNotAdmitted):
		if refused := s.originItem(t).Refused; len(refused) != 1 || refused[0].Version.String() != "2.0.0" {
			t.Errorf("refused %+v", refused)
		}
		if !strings.Contains(registry.Hint(err), "larder mirror trust "+inventory.String()) {
			t.Errorf("hint %q", registry.Hint(err))
		}
		return "refused"
	case errors.Is(err, registry.ErrInvalid) && strings.Contains(registry.Hint(err), "--allow-unsigned"):
		return "needs `--allow-unsigned`"
	}
	t.Fatal(err)
	return ""
}

func (c keyChange) run(t *testing.T) (before, after string) {
	t.Helper()
	linux := []string{"linux_amd64"}
	o, s := newOrigin(t, release{"1.0.0", linux, c.first, ""}, release{"2.0.0", linux, c.second, ""}), newStore(t)
	if c.names != nil {
		var keys []any
		for _, of := range c.names {
			_, key := entity(t, of)
			keys = append(keys, map[string]any{"ascii_armor": string(key.Public)})
		}
		o.edit("signing_keys", map[string]any{"gpg_public_keys": keys}, packagePage("2.0.0", "linux_amd64"))
	}
	s.adds(t, o, "1.0.0")
	if c.lost {
		s.loseOrigin(t)
	}
	if c.keys != nil {
		s.editOrigin(t, func(o *registry.MirrorOrigin) { o.Keys = c.keys(t) })
	}
	if len(c.policy) > 0 {
		var names []string
		for i, of := range c.policy {
			names = append(names, []string{keyID(t, of), fingerprint(t, of)}[i%2])
		}
		s.setPolicy(t, registry.MirrorRule{SigningKeys: names})
	}
	before = c.outcome(t, o, s)
	if before == "mirrored" {
		if got := s.audited(t, registry.AuditRefuseKey); len(got) > 0 {
			t.Errorf("audited %q", got)
		}
		return before, ""
	}
	if before == "refused" {
		// The second refusal is not recorded again.
		c.outcome(t, o, s)
		if got := s.audited(t, registry.AuditRefuseKey); len(got) != 1 {
			t.Errorf("audited %q", got)
		}
	}
	key := c.trust
	if key == "" {
		key = keyID(t, c.second)
	}
	_, changed, err := s.mirror(nil).Trust(t.Context(), inventory, key, "")
	if before == "refused by the policy" {
		return before, c.outcome(t, o, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !changed {
		t.Errorf("key %s was trusted before", key)
	}
	if got := s.originItem(t).Refused; len(got) > 0 {
		t.Errorf("still refused: %+v", got)
	}
	return before, c.outcome(t, o, s)
}

// loseOrigin removes the record of the origin, as operators do if it is damaged.
func (s *store) loseOrigin(t testing.TB) {
	t.Helper()
	item, err := s.table.Get(t.Context(), catalog.Key{Partition: "mirror/providers", Sort: inventory.String()})
	if err == nil {
		err = s.table.Write(t.Context(), catalog.Change{Key: item.Key, Revision: item.Revision, Delete: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setPulled changes what was found at the origin for clients.
func (s *store) setPulled(t testing.TB, edit func(*registry.PulledAddress)) {
	t.Helper()
	state, err := catalog.New(s.table).Mirror.State(t.Context(), inventory, inventory.Hostname, nil, time.Now())
	if err == nil {
		err = state.Update(t.Context(), func() error {
			edit(&state.Pulled)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// editOrigin changes the record of the origin.
func (s *store) editOrigin(t testing.TB, edit func(*registry.MirrorOrigin)) {
	t.Helper()
	_, err := catalog.New(s.table).Mirror.UpdateOrigin(t.Context(), inventory,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) { edit(o); return true, nil, nil })
	if err != nil {
		t.Fatal(err)
	}
}

// The table describes which signing keys are accepted. A refusal stores nothing, and
// downloads no package.
func TestTrust(t *testing.T) {
	t.Parallel()
	rows := make([]string, len(keyChanges))
	t.Run("rows", func(t *testing.T) {
		for i, c := range keyChanges {
			t.Run(c.what, func(t *testing.T) {
				t.Parallel()
				before, after := c.run(t)
				rows[i] = fmt.Sprintf("| %s | %s | %s |\n", c.what, before, after)
			})
		}
	})
	golden.Equal(t, filepath.Join("testdata", "keys.md"), []byte("# Which signing keys are accepted\n\n"+
		"A version is mirrored, and signed by the first key. The origin then publishes another version.\n\n"+
		"| The origin names for the other version | Result | After `larder mirror trust` |\n"+
		"| --- | --- | --- |\n"+strings.Join(rows, "")))
}

// adds mirrors a version.
func (s *store) adds(t testing.TB, o *origin, version string) {
	t.Helper()
	if err := s.adder(t, o)(version); err != nil {
		t.Fatal(err)
	}
}

// mirrors mirrors the wanted versions.
func (s *store) mirrors(t testing.TB, o *origin, want filling.Wanted) {
	t.Helper()
	if _, err := s.mirror(o).Add(t.Context(), want); err != nil {
		t.Fatal(err)
	}
}

// adder returns a function that mirrors one version from an origin.
func (s *store) adder(t testing.TB, o *origin) func(version string) error {
	t.Helper()
	return func(v string) error {
		_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: v})
		return err
	}
}

// If the record of the origin was lost, the keys that signed mirrored versions
// stay trusted, also beside a key that an operator trusts.
func TestTrustAfterLoss(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger), build("3.0.0", ours))
	s := newStore(t)
	add := s.adder(t, o)
	if err := add("1.0.0"); err != nil {
		t.Fatal(err)
	}
	s.loseOrigin(t)
	failed(t, "another key", add("2.0.0"), registry.ErrNotAdmitted, keyID(t, stranger))
	if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, fingerprint(t, stranger), "a new key"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(add("2.0.0"), add("3.0.0")); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, k := range s.originItem(t).Keys {
		keys = append(keys, k.Fingerprint)
	}
	slices.Sort(keys)
	want := []string{fingerprint(t, ours), fingerprint(t, stranger)}
	slices.Sort(want)
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

// The first key of a provider is recorded when its first version is stored.
func TestFirstKey(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	want := wanted(t, "linux_amd64")
	o.set(zipPage("1.0.0", "linux_amd64"), page{body: providerfiles.Zip(t, "terraform-provider-inventory", "another")})
	_, err := s.mirror(o).Add(t.Context(), want)
	failed(t, "a wrong package", err, registry.ErrInvalid)
	if got := s.originItem(t).Keys; len(got) > 0 {
		t.Errorf("recorded %+v", got)
	}
	o.heal(t)
	s.mirrors(t, o, want)
	got := s.originItem(t).Keys
	if len(got) != 1 || got[0].Fingerprint != fingerprint(t, ours) || got[0].Trusted != nil || got[0].SeenAt.IsZero() {
		t.Errorf("recorded %+v", got)
	}
}

// Two keys sign at the same time for a provider that is new. One of them is the
// first one.
func TestFirstKeyAtOnce(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger))
	s := newStore(t)
	errs := make([]error, 2)
	var group sync.WaitGroup
	for i, v := range []string{"1.0.0", "2.0.0"} {
		group.Go(func() { _, errs[i] = s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: v}) })
	}
	group.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("errors %v", errs)
	}
	if err := errors.Join(errs...); !errors.Is(err, registry.ErrNotAdmitted) {
		t.Errorf("error %v", err)
	}
	if got := len(s.records(t)[inventory]); got != 1 {
		t.Errorf("%d versions are mirrored", got)
	}
	if got := s.originItem(t); len(got.Keys) != 1 || len(got.Refused) != 1 {
		t.Errorf("keys %+v, refused %+v", got.Keys, got.Refused)
	}
}

func TestTrustNames(t *testing.T) {
	t.Parallel()
	record(t)
	id := "0123456789ABCDEF"
	first, second := strings.Repeat("A", 24)+id, strings.Repeat("B", 24)+id
	refuse := func(keys ...registry.OriginKey) func(*registry.MirrorOrigin) {
		return func(o *registry.MirrorOrigin) {
			for i, k := range keys {
				v := parseVersion(t, fmt.Sprintf("1.%d.0", i))
				o.Refuse(registry.RefusedVersion{Version: v, Key: k, At: start})
			}
		}
	}
	for _, test := range []struct {
		what, key string
		origin    func(*registry.MirrorOrigin)
		err       error
		want      string // the fingerprint
	}{
		{"an ID that nothing has", id, refuse(), registry.ErrNotFound, ""},
		{"an ID of a refused key", id, refuse(registry.OriginKey{ID: id, Fingerprint: first}), nil, first},
		{"an ID in lower case", strings.ToLower(id), refuse(registry.OriginKey{ID: id, Fingerprint: first}), nil, first},
		{"an ID of two refused keys", id, refuse(registry.OriginKey{ID: id, Fingerprint: first},
			registry.OriginKey{ID: id, Fingerprint: second}), registry.ErrInvalid, ""},
		{"a fingerprint", first, refuse(), nil, first},
		{"a fingerprint with spaces", first[:20] + " " + first[20:], refuse(), nil, first},
		{"a long fingerprint", id + strings.Repeat("C", 48), refuse(), nil, id + strings.Repeat("C", 48)},
		{"a short ID", id[8:], refuse(), registry.ErrInvalid, ""},
		{"no hexadecimal digits", strings.Repeat("x", 40), refuse(), registry.ErrInvalid, ""},
		{"nothing", "", refuse(), registry.ErrInvalid, ""},
		{"unsigned", "unsigned", refuse(), nil, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newStore(t)
			s.editOrigin(t, test.origin)
			trusted, changed, err := s.mirror(nil).Trust(t.Context(), inventory, test.key, "it was announced")
			if test.err != nil {
				failed(t, test.what, err, test.err)
				return
			}
			if err != nil || !changed {
				t.Fatalf("changed %t, %v", changed, err)
			}
			if trusted.Fingerprint != test.want {
				t.Errorf("trusted %s, want %s", trusted.Fingerprint, test.want)
			}
			if test.want != "" && trusted.ID != id && trusted.ID != test.want[24:] {
				t.Errorf("ID %s", trusted.ID)
			}
			before := s.originItem(t)
			if _, changed, err := s.mirror(nil).Trust(t.Context(), inventory, test.key, "again"); err != nil || changed {
				t.Errorf("again: changed %t, %v", changed, err)
			}
			if diff := cmp.Diff(before, s.originItem(t)); diff != "" {
				t.Errorf("again: %s", diff)
			}
			if got := s.audited(t, registry.AuditTrustKey); len(got) != 1 || !strings.HasSuffix(got[0], ": it was announced") {
				t.Errorf("audited %q", got)
			}
		})
	}
	s := newStore(t)
	_, _, err := s.mirror(nil).Trust(t.Context(), inventory, first, "two\nlines")
	failed(t, "a reason of two lines", err, registry.ErrInvalid)
}

// A version that was refused is no longer refused once it is mirrored.
func TestRefusalEnds(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger))
	s := newStore(t)
	add := s.adder(t, o)
	if err := add("1.0.0"); err != nil {
		t.Fatal(err)
	}
	failed(t, "another key", add("2.0.0"), registry.ErrNotAdmitted)
	o.mu.Lock()
	o.releases[1].by = ours
	o.mu.Unlock()
	o.heal(t)
	if err := add("2.0.0"); err != nil {
		t.Fatal(err)
	}
	if got := s.originItem(t); len(got.Refused) > 0 || len(got.Keys) != 1 {
		t.Errorf("keys %+v, refused %+v", got.Keys, got.Refused)
	}
}

// Overruling the policy does not trust a key.
func TestOverruleTrustsNoKey(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger))
	s := newStore(t)
	s.adds(t, o, "1.0.0")
	m := s.mirror(o)
	m.Overrule = "an urgent fix"
	_, err := m.Add(t.Context(), filling.Wanted{Address: inventory})
	failed(t, "another key", err, registry.ErrNotAdmitted, keyID(t, stranger))
	if s.has(t) != "1.0.0 [linux_amd64]" {
		t.Error(s.has(t))
	}
}

// Any call of the table can fail when an operator trusts a key, or when a key is
// refused. Repeating it works.
func TestTrustInterrupted(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger))
	want := filling.Wanted{Address: inventory, Constraint: "2.0.0"}
	for _, done := range []bool{false, true} {
		for call := int64(1); ; call++ {
			s := newStore(t)
			s.adds(t, o, "1.0.0")
			faulty := &tabletest.Faulty{Table: s.table, FailAt: call, Done: done}
			m := s.mirror(o)
			m.Catalog, m.Publisher.Catalog = catalog.New(faulty), catalog.New(faulty)
			_, err := m.Add(t.Context(), want)
			if errors.Is(err, registry.ErrNotAdmitted) {
				_, _, err = m.Trust(t.Context(), inventory, keyID(t, stranger), "")
			}
			if err != nil && !errors.Is(err, tabletest.ErrFault) {
				t.Fatalf("call %d: %v", call, err)
			}
			if s.has(t) != "1.0.0 [linux_amd64]" {
				t.Errorf("call %d: %s", call, s.has(t))
			}
			complete := err == nil
			if _, err := s.mirror(o).Add(t.Context(), want); err != nil && !errors.Is(err, registry.ErrNotAdmitted) {
				t.Errorf("call %d, then again: %v", call, err)
			}
			_, _, err = s.mirror(o).Trust(t.Context(), inventory, keyID(t, stranger), "")
			if err == nil {
				_, err = s.mirror(o).Add(t.Context(), want)
			}
			if err != nil || len(s.audited(t, registry.AuditTrustKey)) != 1 || len(s.audited(t, registry.AuditRefuseKey)) != 1 {
				t.Errorf("call %d, then trusted: %v, audited %q and %q", call, err, s.audited(t, registry.AuditTrustKey),
					s.audited(t, registry.AuditRefuseKey))
			}
			if complete {
				break
			}
		}
	}
}

// All times are those of [filling.Mirror.Now].
func TestKeySeenAt(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	o.date = func() time.Time { return start }
	m := s.mirror(o)
	m.Now = func() time.Time { return start }
	if _, err := m.Add(t.Context(), filling.Wanted{Address: inventory}); err != nil {
		t.Fatal(err)
	}
	if got := s.originItem(t).Keys[0].SeenAt; !got.Equal(start) {
		t.Errorf("seen at %s, want %s", got, start)
	}
}

// A key that the policy does not allow is not trusted because an operator
// overrules the policy.
func TestOverruleTrustsNoFirstKey(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", stranger), build("2.0.0", ours), build("3.0.0", stranger))
	s := newStore(t)
	s.setPolicy(t, registry.MirrorRule{SigningKeys: []string{keyID(t, ours)}})
	m := s.mirror(o)
	m.Overrule = "one version"
	if _, err := m.Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "1.0.0"}); err != nil {
		t.Fatal(err)
	}
	if got := s.originItem(t).Keys; len(got) > 0 {
		t.Errorf("recorded %+v", got)
	}
	s.setPolicy(t, registry.MirrorRule{})
	s.gives(t, "again", "1.0.0 [linux_amd64 unchanged]")(
		s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "1.0.0"}),
	)
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "3.0.0"})
	failed(t, "the key that was overruled, without another one", err, registry.ErrNotAdmitted, "trusted keys: none")
	s.adds(t, o, "2.0.0")
	if got := s.originItem(t).Keys; len(got) != 1 || got[0].ID != keyID(t, ours) {
		t.Errorf("recorded %+v", got)
	}
	_, err = s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "3.0.0"})
	failed(t, "the key that was overruled", err, registry.ErrNotAdmitted, "which is not trusted")
	if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, keyID(t, stranger), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "3.0.0"}); err != nil {
		t.Error(err)
	}
}

// An origin that signs again must then sign every version.
func TestSignsAgain(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours),
		build("2.0.0", ours), build("3.0.0", ours), build("4.0.0", ours))
	for _, v := range []string{"2.0.0", "4.0.0"} {
		o.edit("signing_keys", map[string]any{"gpg_public_keys": []any{}}, packagePage(v, "linux_amd64"))
	}
	s := newStore(t)
	add := func(v string) error {
		_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: v, AllowUnsigned: true})
		return err
	}
	if err := add("1.0.0"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, filling.Unsigned, ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		version  string
		unsigned bool
	}{{"1.0.0", true}, {"2.0.0", true}, {"1.1.0", true}, {"3.0.0", false}} {
		if err := add(test.version); err != nil {
			t.Fatal(err)
		}
		if got := s.originItem(t).Unsigned != nil; got != test.unsigned {
			t.Errorf("after %s, unsigned versions are accepted: %t", test.version, got)
		}
	}
	failed(t, "no signature", add("4.0.0"), registry.ErrNotAdmitted, "lists no signing keys")
}

// The audit trail names keys by their fingerprints.
func TestKeysInAudit(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger))
	s := newStore(t)
	s.adds(t, o, "1.0.0")
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory})
	failed(t, "another key", err, registry.ErrNotAdmitted)
	if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, keyID(t, stranger), "it was announced"); err != nil {
		t.Fatal(err)
	}
	e, _ := entity(t, stranger)
	want := fingerprint(t, stranger) + " " + e.PrimaryIdentity().Name
	if diff := cmp.Diff([]string{"somebody 2.0.0: " + want}, s.audited(t, registry.AuditRefuseKey)); diff != "" {
		t.Errorf("refused: %s", diff)
	}
	if diff := cmp.Diff([]string{"somebody all: " + want + ": it was announced"},
		s.audited(t, registry.AuditTrustKey)); diff != "" {
		t.Errorf("trusted: %s", diff)
	}
}

// An origin that changes its key signs with both for some time. One of them must
// be trusted, whatever their order.
func TestTwoSigners(t *testing.T) {
	t.Parallel()
	for what, order := range map[string][]keyMaker{"the old key first": {ours, stranger}, "the new key first": {stranger, ours}} {
		for _, policy := range [][]keyMaker{nil, {ours}} {
			o := newOrigin(t, build("1.0.0", ours), build("2.0.0", stranger))
			s := newStore(t)
			s.adds(t, o, "1.0.0")
			if policy != nil {
				s.setPolicy(t, registry.MirrorRule{SigningKeys: []string{keyID(t, ours)}})
			}
			sums := o.pages[sumsPage("2.0.0")].body
			o.set(signaturePage("2.0.0"), page{body: slices.Concat(sign(t, ours, sums), sign(t, stranger, sums))})
			var keys []any
			for _, of := range order {
				_, key := entity(t, of)
				keys = append(keys, map[string]any{"ascii_armor": string(key.Public)})
			}
			o.edit("signing_keys", map[string]any{"gpg_public_keys": keys}, packagePage("2.0.0", "linux_amd64"))
			results, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "2.0.0"})
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if got := results[0].Signer; got != keyID(t, ours) {
				t.Errorf("%s: signed by %s", what, got)
			}
			if got := s.originItem(t).Keys; len(got) != 1 || got[0].ID != keyID(t, ours) {
				t.Errorf("%s: recorded %+v", what, got)
			}
		}
	}
}

// An origin can renew the signature of a mirrored version with another key. A
// run that adds nothing does not fail then.
func TestRenewedSignature(t *testing.T) {
	t.Parallel()
	both := []string{"linux_amd64", "darwin_arm64"}
	o, s := newOrigin(t, release{"1.0.0", both, ours, ""}), newStore(t)
	sync := func(names ...string) ([]filling.Result, error) {
		return s.mirror(o).Sync(t.Context(), []filling.Wanted{{Address: inventory, Platforms: platforms(t, names...)}})
	}
	if _, err := sync("linux_amd64"); err != nil {
		t.Fatal(err)
	}
	renewed := newOrigin(t, release{"1.0.0", both, stranger, ""})
	o.mu.Lock()
	o.releases, o.pages = renewed.releases, renewed.pages
	o.mu.Unlock()
	before := s.originItem(t)
	check := func(what, want string) {
		t.Helper()
		results, err := sync("linux_amd64")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := describe(results); got != want {
			t.Errorf("%s: %s", what, got)
		}
		noted(t, what, results, keyID(t, stranger))
		if diff := cmp.Diff(before, s.originItem(t)); diff != "" {
			t.Errorf("%s: the origin changed: %s", what, diff)
		}
		if got := s.records(t)[inventory][0].Packages[0].SigningKey; got != keyID(t, ours) {
			t.Errorf("%s: signed by %s", what, got)
		}
	}
	check("unchanged", "1.0.0 [linux_amd64 unchanged]")
	if err := os.Remove(s.file(s.records(t)[inventory][0].Packages[0])); err != nil {
		t.Fatal(err)
	}
	s.setPolicy(t, registry.MirrorRule{MaxSize: 10})
	check("a lost file", "1.0.0 [linux_amd64 restored]")
	_, err := sync("linux_amd64", "darwin_arm64")
	failed(t, "a new platform", err, registry.ErrNotAdmitted, "which is not trusted")
	if got := s.has(t); got != "1.0.0 [linux_amd64]" {
		t.Errorf("mirrored %s", got)
	}
}
