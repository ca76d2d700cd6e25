package catalog_test

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/registry"
)

func policy(text, by string) registry.MirrorPolicy {
	return registry.MirrorPolicy{
		Text: text, Rules: []registry.MirrorRule{{Pattern: "*/*/*", Line: 1, MinAge: 60}},
		SetAt: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC), SetBy: by,
	}
}

func TestMirrorPolicy(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	if p, err := c.MirrorPolicy(t.Context()); p != nil || err != nil {
		t.Errorf("no policy: %+v, %v", p, err)
	}
	corrected := policy("b", "eve")
	corrected.Rules = []registry.MirrorRule{{Pattern: "*/*/*", Line: 1, Deny: true}}
	pulling := policy("c", "eve")
	pulling.Rules = []registry.MirrorRule{{
		Pattern: "providers.example.com/*/*", Line: 1, Pull: registry.PullClosed, Upstream: "https://registry.example.com",
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
	}}
	budgeted := pulling
	budgeted.Budget = registry.PullBudget{Packages: 7, Bytes: 1 << 40}
	// A policy that is set in the same second as the one before has a later time.
	// Findings with the earlier one then do not count.
	later := func(p registry.MirrorPolicy, seconds int) registry.MirrorPolicy {
		p.SetAt = p.SetAt.Add(time.Duration(seconds) * time.Second)
		return p
	}
	for _, step := range []struct {
		policy  registry.MirrorPolicy
		changed bool
		want    registry.MirrorPolicy
	}{
		{policy("a", "ada"), true, policy("a", "ada")},
		{policy("a", "bob"), false, later(policy("a", "bob"), 1)},
		{policy("b", "bob"), true, later(policy("b", "bob"), 2)},
		{corrected, true, later(corrected, 3)},
		{corrected, false, later(corrected, 4)},
		{pulling, true, later(pulling, 5)},
		{pulling, false, later(pulling, 6)},
		{budgeted, true, later(budgeted, 7)},
		{budgeted, false, later(budgeted, 8)},
	} {
		changed, err := c.SetMirrorPolicy(t.Context(), step.policy, "of "+step.policy.Text)
		if err != nil {
			t.Fatal(err)
		}
		if changed != step.changed {
			t.Errorf("%s by %s: changed is %t", step.policy.Text, step.policy.SetBy, changed)
		}
		got, err := c.MirrorPolicy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&step.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s by %s (-want +got):\n%s", step.policy.Text, step.policy.SetBy, diff)
		}
	}
	want := []string{
		"eve: set-policy policy/mirror: of c", "eve: set-policy policy/mirror: of c",
		"eve: set-policy policy/mirror: of c", "eve: set-policy policy/mirror: of c",
		"eve: set-policy policy/mirror: of b", "eve: set-policy policy/mirror: of b",
		"bob: set-policy policy/mirror: of b", "bob: set-policy policy/mirror: of a", "ada: set-policy policy/mirror: of a",
	}
	if diff := cmp.Diff(want, trail(t, c, time.Time{})); diff != "" {
		t.Errorf("the audit trail (-want +got):\n%s", diff)
	}
}

// Nobody may mirror as if there were no policy, because it cannot be read. A new
// one replaces it.
func TestDamagedMirrorPolicy(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	damaged := catalog.Change{Key: catalog.Key{Partition: "policy", Sort: "mirror"}, Data: []byte("{")}
	if err := table.Write(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := c.MirrorPolicy(t.Context()); !errors.Is(err, registry.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
	if changed, err := c.SetMirrorPolicy(t.Context(), policy("a", "ada"), ""); !changed || err != nil {
		t.Errorf("a new policy: %t, %v", changed, err)
	}
	if p, err := c.MirrorPolicy(t.Context()); err != nil || p.Text != "a" {
		t.Errorf("after a new policy: %+v, %v", p, err)
	}
}

// admit returns an edit that admits a version.
func admit(v registry.Version) func(*registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
	return func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		if seen, _ := o.Seen(v); seen.Admitted != nil {
			return false, nil, nil
		}
		o.Admit(v, registry.Decision{By: "ada", Reason: "a fix"})
		return true, &registry.AuditEntry{By: "ada", Action: registry.AuditAdmit, Version: &v, Detail: "a fix"}, nil
	}
}

func TestUpdateOrigin(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	v := registry.Version{Major: 1}
	o, err := c.Mirror.Origin(t.Context(), random)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(registry.MirrorOrigin{Address: random.String()}, o); diff != "" {
		t.Errorf("before any update (-want +got):\n%s", diff)
	}
	for range 2 {
		updated, err := c.Mirror.UpdateOrigin(t.Context(), random, admit(v))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := c.Mirror.Origin(t.Context(), random)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stored, updated); diff != "" {
			t.Errorf("the result differs from what is stored:\n%s", diff)
		}
		if seen, _ := stored.Seen(v); seen.Admitted == nil {
			t.Error("the version is not admitted")
		}
	}
	failure := errors.New("no")
	if _, err := c.Mirror.UpdateOrigin(t.Context(), random,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) { return true, nil, failure },
	); !errors.Is(err, failure) {
		t.Errorf("an edit that fails: %v", err)
	}
	want := []string{"ada: admit mirror/registry.opentofu.org/hashicorp/random 1.0.0: a fix"}
	if diff := cmp.Diff(want, trail(t, c, time.Time{})); diff != "" {
		t.Errorf("the audit trail (-want +got):\n%s", diff)
	}
	if got := mirrored(t, c); got != "" {
		t.Errorf("it lists %s as mirrored", got)
	}
	if _, err := c.Mirror.Listing(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("its listing: %v, want ErrNotFound", err)
	}
}

// A change that could not be read again is not stored.
func TestUpdateOriginInvalid(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	invalid := registry.OriginKey{ID: "34365D9472D7468F", Fingerprint: "51852D87348FFC4C"}
	for name, edit := range map[string]func(*registry.MirrorOrigin){
		"address": func(o *registry.MirrorOrigin) { o.Address = "" },
		"key":     func(o *registry.MirrorOrigin) { o.Trust(invalid) },
		"refusal": func(o *registry.MirrorOrigin) { o.Refuse(registry.RefusedVersion{Key: invalid}) },
	} {
		_, err := c.Mirror.UpdateOrigin(t.Context(), random,
			func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
				edit(o)
				return true, &registry.AuditEntry{By: "ada", Action: registry.AuditTrustKey}, nil
			})
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		if o, err := c.Mirror.Origin(t.Context(), random); err != nil || len(o.Keys)+len(o.Refused) > 0 {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if diff := cmp.Diff(0, len(trail(t, c, time.Time{}))); diff != "" {
		t.Errorf("audit entries (-want +got):\n%s", diff)
	}
}

// Writers at the same time lose nothing of one another.
func TestUpdateOriginAtOnce(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	const writers = 8
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			if _, err := c.Mirror.UpdateOrigin(t.Context(), random, admit(registry.Version{Major: uint64(i)})); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	o, err := c.Mirror.Origin(t.Context(), random)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(writers, len(o.Versions)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// A failed update changes nothing, unless only its answer was lost. Its audit
// entry is stored with it or not at all.
func TestUpdateOriginFails(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		for at := int64(1); ; at++ {
			table := open(t)
			faulty := catalog.New(&tabletest.Faulty{Table: table, FailAt: at, Done: done})
			_, err := faulty.Mirror.UpdateOrigin(t.Context(), random, admit(registry.Version{Major: 1}))
			if err == nil {
				if at == 1 {
					t.Error("no call fails")
				}
				break
			}
			c := catalog.New(table)
			o, err := c.Mirror.Origin(t.Context(), random)
			if err != nil {
				t.Fatal(err)
			}
			stored, recorded := len(o.Versions) > 0, len(trail(t, c, time.Time{})) > 0
			if stored != recorded {
				t.Errorf("call %d failed: it is stored: %t, and audited: %t", at, stored, recorded)
			}
			if _, err := c.Mirror.UpdateOrigin(t.Context(), random, admit(registry.Version{Major: 1})); err != nil {
				t.Errorf("call %d failed, and then: %v", at, err)
			}
		}
	}
}

// An origin that cannot be read stops every change, because a trusted key could
// be lost.
func TestDamagedOrigin(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	damaged := catalog.Change{Key: catalog.Key{Partition: "mirror/providers", Sort: random.String()}, Data: []byte("{}")}
	if err := table.Write(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mirror.Origin(t.Context(), random); !errors.Is(err, registry.ErrCorrupt) {
		t.Errorf("Origin: %v, want ErrCorrupt", err)
	}
	_, err := c.Mirror.UpdateOrigin(t.Context(), random, admit(registry.Version{Major: 1}))
	if !errors.Is(err, registry.ErrCorrupt) {
		t.Errorf("UpdateOrigin: %v, want ErrCorrupt", err)
	}
}
