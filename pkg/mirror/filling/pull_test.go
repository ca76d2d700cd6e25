package filling_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// pulled is a registry whose clients make the mirror fetch from an origin with
// the versions 1.0.0 and 2.0.0, each for two platforms.
type pulled struct {
	*store
	*origin
	pull   filling.Pull
	policy *registry.MirrorPolicy
	now    time.Time
}

func newPulled(t testing.TB) *pulled {
	t.Helper()
	both := []string{"linux_amd64", "darwin_arm64"}
	p := &pulled{
		store: newStore(t), now: start,
		origin: newOrigin(t, release{"1.0.0", both, ours, ""}, release{"2.0.0", both, ours, ""}),
		policy: &registry.MirrorPolicy{SetAt: start, Rules: []registry.MirrorRule{{
			Pattern: "*/*/*", Line: 1, Pull: registry.PullOpen, Platforms: platforms(t, both...),
		}}},
	}
	p.on(start)
	return p
}

// on sets the clocks of the registry and of the origin.
func (p *pulled) on(now time.Time) {
	p.now = now
	mirror := p.at(p.origin, now)
	p.pull = filling.Pull{
		Mirror: mirror, MaxBytes: 1 << 20, Services: p.pull.Services, Spend: p.pull.Spend,
		// The origin of these tests dials by itself.
		Clients: func(...netip.Prefix) (*client.Client, error) { return mirror.Client, nil },
	}
}

func (p *pulled) rule() *registry.MirrorRule { return &p.policy.Rules[0] }

// look returns the versions that clients can get.
func (p *pulled) look(t testing.TB) (string, error) {
	t.Helper()
	found, err := p.list(t)
	return fmt.Sprint(found), err
}

func (p *pulled) list(t testing.TB) (found []registry.Version, err error) {
	t.Helper()
	return found, p.run(t, nil, func(from filling.Pull) error {
		listing, err := from.List(t.Context(), p.policy, inventory)
		found = listing.Versions
		return err
	})
}

// run runs a method with the stored data, and stores its findings.
func (p *pulled) run(t testing.TB, v *registry.Version, method func(filling.Pull) error) error {
	t.Helper()
	s, err := p.pull.Mirror.Catalog.Mirror.State(t.Context(), inventory, inventory.Hostname, v, p.now)
	if err != nil {
		return err
	}
	from := p.pull.With(s)
	failed := method(from)
	if err := s.Update(t.Context(), from.Settle); err != nil {
		return err
	}
	return failed
}

// offer returns the platforms of a version at the origin.
func (p *pulled) offer(t testing.TB, version string) (string, error) {
	t.Helper()
	v := parseVersion(t, version)
	var found registry.PulledVersion
	err := p.run(t, &v, func(from filling.Pull) (err error) {
		found, err = from.Offer(t.Context(), p.policy, inventory, v)
		return err
	})
	var all []string
	for _, a := range found.Archives {
		all = append(all, a.String())
		if want := providerfiles.Sum(p.pages[zipPage(version, a.String())].body); a.SHA256 != want {
			t.Errorf("%s has the digest %s, want %s", a, a.SHA256, want)
		}
		if !strings.HasSuffix(a.URL, zipPage(version, a.String())) {
			t.Errorf("%s is at %s", a, a.URL)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " "), err
}

func (p *pulled) copy(t testing.TB, version string) error {
	t.Helper()
	v := parseVersion(t, version)
	return p.run(t, &v, func(from filling.Pull) error {
		_, err := from.Copy(t.Context(), p.policy, inventory, v)
		return err
	})
}

// blamed checks the kind of an error, and whether the origin is its cause.
func blamed(t *testing.T, what string, err, kind error, origin bool) {
	t.Helper()
	if kind == nil {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v is not %v", what, err, kind)
	}
	if errors.Is(err, filling.ErrOrigin) != origin {
		t.Errorf("%s: the origin is the cause of %v: %t, want %t", what, err, !origin, origin)
	}
}

const week = int64(7 * day / time.Second)

// Look returns the versions that are mirrored, and those that may be.
func TestPullList(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*testing.T, *pulled)
		want    string
		kind    error
		origin  bool
	}{
		"all": {want: "[2.0.0 1.0.0]"},
		"one is too new": {prepare: func(_ *testing.T, p *pulled) {
			p.rule().MinAge = week
			p.listVersions(map[string]any{"1.0.0": on(-100), "2.0.0": on(-1)})
		}, want: "[1.0.0]"},
		"one is too new, and its time is in its metadata": {prepare: func(_ *testing.T, p *pulled) {
			p.rule().MinAge = week
			p.listVersions(map[string]any{"1.0.0": on(-100), "2.0.0": nil})
			p.set("/v1/providers/acme/inventory/2.0.0", publishedIn("2.0.0", on(-1))(0))
		}, want: "[1.0.0]"},
		"one has a time that cannot be read": {prepare: func(_ *testing.T, p *pulled) {
			p.rule().MinAge = week
			p.listVersions(map[string]any{"1.0.0": on(-100), "2.0.0": nil})
			p.set("/v1/providers/acme/inventory/2.0.0", page{status: http.StatusServiceUnavailable})
		}, want: "[1.0.0]"},
		"one appears later without a time, and must wait": {prepare: func(t *testing.T, p *pulled) {
			p.rule().MinAge, p.rule().WaitUnknown = week, true
			p.listVersions(map[string]any{"1.0.0": nil})
			if _, err := p.look(t); err != nil {
				t.Fatal(err)
			}
			p.on(start.Add(day))
			p.listVersions(map[string]any{"1.0.0": nil, "2.0.0": nil})
		}, want: "[1.0.0]"},
		"one appears later without a time, and need not wait": {prepare: func(t *testing.T, p *pulled) {
			p.rule().MinAge = week
			p.listVersions(map[string]any{"1.0.0": nil})
			if _, err := p.look(t); err != nil {
				t.Fatal(err)
			}
			p.on(start.Add(day))
			p.listVersions(map[string]any{"1.0.0": nil, "2.0.0": nil})
		}, want: "[2.0.0 1.0.0]"},
		"one is withdrawn": {prepare: func(t *testing.T, p *pulled) { p.withdrawn(t) }, want: "[1.0.0]"},
		"one is signed by another key": {prepare: func(t *testing.T, p *pulled) {
			p.strange(t)
			blamed(t, "offer", second(p.offer(t, "2.0.0")), registry.ErrNotAdmitted, true)
		}, want: "[1.0.0]"},
		"one is mirrored, and the origin lists nothing": {prepare: func(t *testing.T, p *pulled) {
			p.copied(t, "1.0.0")
			p.edit("versions", []any{}, versionsPage)
		}, want: "[1.0.0]"},
		"one is mirrored, and the origin does not have the provider": {prepare: func(t *testing.T, p *pulled) {
			p.copied(t, "1.0.0")
			p.set(versionsPage, page{status: http.StatusNotFound})
		}, want: "[1.0.0]"},
		"the clock cannot be compared": {prepare: func(_ *testing.T, p *pulled) {
			p.header = http.Header{"Date": nil}
		}, want: "[2.0.0 1.0.0]"},
		"the origin is down": {prepare: func(_ *testing.T, p *pulled) {
			p.set(versionsPage, page{status: http.StatusServiceUnavailable})
		}, want: "[]", kind: registry.ErrUnavailable, origin: true},
		"discovery fails": {prepare: func(_ *testing.T, p *pulled) {
			p.set(discovery, page{status: http.StatusServiceUnavailable})
		}, want: "[]", kind: registry.ErrUnavailable, origin: true},
		"the cache of discovery fails": {prepare: func(_ *testing.T, p *pulled) {
			p.pull.Services = func(context.Context, string, func(context.Context) (string, error)) (string, error) {
				return "", registry.ErrUnavailable
			}
		}, want: "[]", kind: registry.ErrUnavailable},
		"the policy denies it": {prepare: func(_ *testing.T, p *pulled) { p.rule().Deny = true }, want: "[]",
			kind: registry.ErrNotAdmitted},
		"the policy does not let clients fetch it": {prepare: func(_ *testing.T, p *pulled) { p.rule().Pull = "" },
			want: "[]", kind: registry.ErrNotAdmitted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			if test.prepare != nil {
				test.prepare(t, p)
			}
			got, err := p.look(t)
			blamed(t, "look", err, test.kind, test.origin)
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// copied mirrors a version.
func (p *pulled) copied(t *testing.T, version string) {
	t.Helper()
	if _, err := p.look(t); err != nil {
		t.Fatal(err)
	}
	if err := p.copy(t, version); err != nil {
		t.Fatal(err)
	}
}

// withdrawn mirrors version 2.0.0 and withdraws it.
func (p *pulled) withdrawn(t *testing.T) {
	t.Helper()
	const version = "2.0.0"
	p.copied(t, version)
	why := registry.Withdrawal{At: p.now, By: "somebody", Reason: "it leaks"}
	if _, _, err := catalog.New(p.table).Mirror.Withdraw(t.Context(), inventory, parseVersion(t, version), why,
		false); err != nil {
		t.Fatal(err)
	}
}

// strange mirrors version 1.0.0, and makes the origin sign 2.0.0 with another
// key.
func (p *pulled) strange(t *testing.T) {
	t.Helper()
	p.copied(t, "1.0.0")
	p.releases[1].by = stranger
	p.heal(t)
}

// Offer and Check refuse the same versions for reasons that the table shows.
// Offer and Copy refuse what the origin shows.
func TestPullOffer(t *testing.T) {
	t.Parallel()
	both := "darwin_arm64 linux_amd64"
	for name, test := range map[string]struct {
		prepare func(*testing.T, *pulled)
		want    string
		// offer, check and copied are the errors of the methods. The origin is the
		// cause of those of Offer, unless table is set.
		offer, check, copied error
		table                bool
	}{
		"healthy": {want: both},
		"the origin lists only one platform": {prepare: func(t *testing.T, p *pulled) {
			p.releases[1].platforms = []string{"linux_amd64"}
			p.heal(t)
			p.set(packagePage("2.0.0", "darwin_arm64"), page{status: http.StatusNotFound})
		}, want: "linux_amd64"},
		"the origin has no platform of the policy": {prepare: func(t *testing.T, p *pulled) {
			p.rule().Platforms = platforms(t, "windows_amd64")
		}, offer: registry.ErrNotFound, copied: registry.ErrNotFound},
		"the policy allows all platforms": {prepare: func(_ *testing.T, p *pulled) { p.rule().Platforms = nil }, want: both},
		"the description of one platform fails": {prepare: func(_ *testing.T, p *pulled) {
			p.set(packagePage("2.0.0", "darwin_arm64"), page{status: http.StatusServiceUnavailable})
		}, offer: registry.ErrUnavailable, copied: registry.ErrUnavailable},
		"no keys": {prepare: func(_ *testing.T, p *pulled) {
			p.edit("signing_keys", nil, packagePage("2.0.0", "linux_amd64"), packagePage("2.0.0", "darwin_arm64"))
		}, offer: registry.ErrInvalid, copied: registry.ErrInvalid},
		"SHA256SUMS without one package": {prepare: func(t *testing.T, p *pulled) {
			changed := []byte(providerfiles.Sum(nil) + "  other.zip\n")
			p.set(sumsPage("2.0.0"), page{body: changed})
			p.set(signaturePage("2.0.0"), page{body: sign(t, ours, changed)})
		}, offer: registry.ErrInvalid, copied: registry.ErrInvalid},
		"signature by another key than the first": {prepare: func(t *testing.T, p *pulled) { p.strange(t) },
			offer: registry.ErrNotAdmitted, copied: registry.ErrNotAdmitted},
		"a key that the policy does not name": {prepare: func(_ *testing.T, p *pulled) {
			p.rule().SigningKeys = []string{strings.Repeat("A", 16)}
		}, offer: registry.ErrNotAdmitted, copied: registry.ErrNotAdmitted},
		"other plugin protocols": {prepare: func(_ *testing.T, p *pulled) {
			p.edit("protocols", []any{"4.0"}, packagePage("2.0.0", "linux_amd64"))
		}, offer: registry.ErrInvalid, copied: registry.ErrInvalid},
		"too new": {prepare: func(_ *testing.T, p *pulled) {
			p.rule().MinAge = week
			p.listVersions(map[string]any{"2.0.0": on(-1)})
		}, offer: registry.ErrNotAdmitted, check: registry.ErrNotAdmitted, copied: registry.ErrNotAdmitted},
		"withdrawn": {prepare: func(t *testing.T, p *pulled) { p.withdrawn(t) },
			offer: registry.ErrWithdrawn, check: registry.ErrWithdrawn, copied: registry.ErrWithdrawn, table: true},
		"publication time cannot be read": {prepare: func(_ *testing.T, p *pulled) {
			p.rule().MinAge = week
			p.listVersions(map[string]any{"2.0.0": nil})
			p.set("/v1/providers/acme/inventory/2.0.0", page{status: http.StatusServiceUnavailable})
		}, offer: registry.ErrUnavailable, check: registry.ErrUnavailable, copied: registry.ErrUnavailable},
		"not listed": {prepare: func(_ *testing.T, p *pulled) { p.listVersions(map[string]any{"1.0.0": nil}) },
			offer: registry.ErrNotFound, check: registry.ErrNotFound, copied: registry.ErrNotFound, table: true},
		"packages of a mirrored platform have changed": {prepare: func(t *testing.T, p *pulled) {
			p.rule().Platforms = platforms(t, "linux_amd64")
			p.copied(t, "2.0.0")
			p.releases[1].content = " changed"
			p.heal(t)
			p.rule().Platforms = platforms(t, "linux_amd64", "darwin_arm64")
		}, offer: registry.ErrExists, copied: registry.ErrExists},
		"packages of a mirrored platform that is not requested have changed": {prepare: func(t *testing.T, p *pulled) {
			p.rule().Platforms = platforms(t, "linux_amd64")
			p.copied(t, "2.0.0")
			p.releases[1].content = " changed"
			p.heal(t)
			p.rule().Platforms = platforms(t, "darwin_arm64")
		}, offer: registry.ErrExists, copied: registry.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			if test.prepare != nil {
				test.prepare(t, p)
			}
			if _, err := p.look(t); err != nil {
				t.Fatal(err)
			}
			got, err := p.offer(t, "2.0.0")
			blamed(t, "offer", err, test.offer, !test.table)
			if got != test.want {
				t.Errorf("offered %q, want %q", got, test.want)
			}
			v := parseVersion(t, "2.0.0")
			err = p.run(t, &v, func(from filling.Pull) error {
				return from.Check(t.Context(), p.policy, inventory, v)
			})
			blamed(t, "check", err, test.check, !test.table)
			if err := p.copy(t, "2.0.0"); !errors.Is(err, test.copied) {
				t.Errorf("copy: %v, want %v", err, test.copied)
			}
			refused := test.copied != nil && !errors.Is(test.copied, registry.ErrExists)
			if stored := p.has(t); refused && strings.Contains(stored, "2.0.0") {
				t.Errorf("%s is stored", stored)
			}
		})
	}
}

// Offer records the first key of a provider, and refuses another one then.
func TestPullFirstKey(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	p.releases[1].by = stranger
	p.heal(t)
	if _, err := p.look(t); err != nil {
		t.Fatal(err)
	}
	if _, err := p.offer(t, "2.0.0"); err != nil {
		t.Fatal(err)
	}
	var trusted []string
	for _, key := range p.originItem(t).Keys {
		trusted = append(trusted, key.ID)
	}
	if diff := cmp.Diff([]string{keyID(t, stranger)}, trusted); diff != "" {
		t.Errorf("trusted keys (-want +got):\n%s", diff)
	}
	blamed(t, "another key", second(p.offer(t, "1.0.0")), registry.ErrNotAdmitted, true)
	p.empty(t, "after offers")
}

// A failure of the table is not that of the origin, wherever it happens.
func TestPullTableFails(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]func(*testing.T, *pulled) error{
		"look":  func(t *testing.T, p *pulled) error { return second(p.look(t)) },
		"offer": func(t *testing.T, p *pulled) error { return second(p.offer(t, "2.0.0")) },
		"refused key": func(t *testing.T, p *pulled) error {
			p.releases[1].by = stranger
			p.heal(t)
			return second(p.offer(t, "2.0.0"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for call := int64(1); ; call++ {
				if call > 50 {
					t.Fatal("the method never succeeds")
				}
				p := newPulled(t)
				p.copied(t, "1.0.0")
				faulty := &failing{Table: p.table, at: call}
				p.pull.Mirror.Catalog = catalog.New(faulty)
				err := method(t, p)
				if faulty.calls < call {
					if call == 1 {
						t.Error("it makes no call of the table")
					}
					return
				}
				if !errors.Is(err, errTable) {
					t.Errorf("call %d: %v is not the failure of the table", call, err)
				}
				if errors.Is(err, filling.ErrOrigin) {
					t.Errorf("call %d: the origin gets the blame for %v", call, err)
				}
			}
		})
	}
}

var errTable = errors.New("the table is throttled")

// failing is a table of which one call fails.
type failing struct {
	catalog.Table
	at, calls int64
}

func (f *failing) err() error {
	if f.calls++; f.calls == f.at {
		return errTable
	}
	return nil
}

func (f *failing) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if err := f.err(); err != nil {
		return catalog.Item{}, err
	}
	return f.Table.Get(ctx, k)
}

func (f *failing) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Table.Snapshot(ctx, keys...)
}

func (f *failing) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if err := f.err(); err != nil {
		return catalog.Page{}, err
	}
	return f.Table.Query(ctx, q)
}

func (f *failing) Write(ctx context.Context, changes ...catalog.Change) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Table.Write(ctx, changes...)
}

// Copy downloads no more than the bounds allow. It spends the bytes that it
// stores, and those that it downloaded and refused.
func TestPullBounds(t *testing.T) {
	t.Parallel()
	errSpent := errors.New("spent")
	size := int64(len(newPulled(t).pages[zipPage("2.0.0", "linux_amd64")].body) +
		len(newPulled(t).pages[zipPage("2.0.0", "darwin_arm64")].body))
	for name, test := range map[string]struct {
		max    int64
		spend  error
		before func(*testing.T, *pulled, context.CancelFunc) // the packages are stored
		want   error
		spent  string
	}{
		"room":                {max: 1 << 20, spent: fmt.Sprint("2 ", size)},
		"just enough":         {max: size, spent: fmt.Sprint("2 ", size)},
		"one byte too little": {max: size - 1, want: registry.ErrInvalid, spent: fmt.Sprint("0 ", size)},
		"no budget":           {max: 1 << 20, spend: errSpent, want: errSpent, spent: fmt.Sprintf("2 %d, 0 %d", size, size)},
		"withdrawn meanwhile": {
			max: 1 << 20, before: func(t *testing.T, p *pulled, _ context.CancelFunc) { p.withdrawn(t) },
			want: registry.ErrWithdrawn, spent: fmt.Sprintf("2 %d, -2 0", size),
		},
		"interrupted": {
			max: 1 << 20, before: func(_ *testing.T, _ *pulled, cancel context.CancelFunc) { cancel() },
			want: context.Canceled, spent: fmt.Sprintf("2 %d, -2 -%d", size, size),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			if _, err := p.look(t); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var spent []string
			p.pull.MaxBytes = test.max
			p.pull.Spend = func(_ context.Context, packages int, bytes int64) error {
				spent = append(spent, fmt.Sprint(packages, " ", bytes))
				if packages > 0 && test.before != nil {
					p.pull.Spend = nil // of other copies
					test.before(t, p, cancel)
				}
				return test.spend
			}
			v := parseVersion(t, "2.0.0")
			err := p.run(t, &v, func(from filling.Pull) error {
				_, err := from.Copy(ctx, p.policy, inventory, v)
				return err
			})
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if got := strings.Join(spent, ", "); got != test.spent {
				t.Errorf("spent %q, want %q", got, test.spent)
			}
			if test.want != nil && test.before == nil {
				p.empty(t, name)
			}
		})
	}
}

// If the origin gives no answer, clients get the last known versions, without
// those that they may not get any more.
func TestPullRecall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*testing.T, *pulled)
		want    string
	}{
		"unchanged":              {want: "[2.0.0 1.0.0]"},
		"one is withdrawn since": {prepare: func(t *testing.T, p *pulled) { p.withdrawn(t) }, want: "[1.0.0]"},
		"one is refused since": {prepare: func(t *testing.T, p *pulled) {
			p.strange(t)
			blamed(t, "offer", second(p.offer(t, "2.0.0")), registry.ErrNotAdmitted, true)
		}, want: "[1.0.0]"},
		"one is too new for the policy of now": {prepare: func(_ *testing.T, p *pulled) { p.rule().MinAge = week },
			want: "[1.0.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			p.listVersions(map[string]any{"1.0.0": on(-100), "2.0.0": on(-1)})
			last, err := p.list(t)
			if err != nil {
				t.Fatal(err)
			}
			if test.prepare != nil {
				test.prepare(t, p)
			}
			p.set(discovery, page{status: http.StatusServiceUnavailable})
			var got []registry.Version
			if err := p.run(t, nil, func(from filling.Pull) error {
				listing, err := from.LastVersions(p.policy, inventory, protocol.MirrorListing(last).Index(nil))
				got = listing.Versions
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, fmt.Sprint(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Without a clock to compare with, no version is recorded as seen. Then the
// last index has the versions that the origin lists.
func TestPullWithoutClock(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	p.header = http.Header{"Date": nil}
	found, err := p.list(t)
	if err != nil {
		t.Fatal(err)
	}
	blamed(t, "before", second(p.offer(t, "2.0.0")), registry.ErrNotFound, false)
	index, err := protocol.Compress(protocol.MirrorListing(found))
	if err != nil {
		t.Fatal(err)
	}
	p.setPulled(t, func(f *registry.PulledAddress) { f.Index, f.RequestedAt = index, p.now })
	got, err := p.offer(t, "2.0.0")
	if err != nil {
		t.Error(err)
	}
	if want := "darwin_arm64 linux_amd64"; got != want {
		t.Errorf("offered %q, want %q", got, want)
	}
	blamed(t, "another version", second(p.offer(t, "3.0.0")), registry.ErrNotFound, false)
}

// What clients install is mirrored, by operators and by clients, and is offered to them
// before.
func TestReleasesThatClientsInstall(t *testing.T) {
	t.Parallel()
	plain := func(text string) string { return text }
	for name, test := range map[string]struct {
		sums func(string) string
		by   keyMaker
		note string
	}{
		"fewer platforms than SHA256SUMS": {
			func(text string) string {
				return text + strings.Repeat("0", 64) + "  " + zipName("1.0.0", "plan9_386") + "\n"
			}, ours, "",
		},
		"a comment in SHA256SUMS":   {func(text string) string { return "# of build 7\n" + text }, ours, ""},
		"a blank line":              {func(text string) string { return "\n" + text }, ours, ""},
		"one space in SHA256SUMS":   {func(text string) string { return strings.ReplaceAll(text, "  ", " ") }, ours, ""},
		"tabs and lines of Windows": {func(text string) string { return strings.NewReplacer("  ", "\t", "\n", "\r\n").Replace(text) }, ours, ""},
		"SHA256SUMS in upper case": {func(text string) string {
			digest, rest, _ := strings.Cut(text, " ")
			return strings.ToUpper(digest) + " " + rest
		}, ours, ""},
		"a key that has expired since": {plain, lapsed, "has expired; clients still accept it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			p.origin = newOrigin(t, build("1.0.0", test.by))
			_, key := entity(t, test.by)
			changed := []byte(test.sums(string(p.pages[sumsPage("1.0.0")].body)))
			p.set(sumsPage("1.0.0"), page{body: changed})
			p.set(signaturePage("1.0.0"), page{body: providerfiles.Sign(t, key, changed)})
			p.on(start)
			if _, err := p.look(t); err != nil {
				t.Fatal(err)
			}
			if got, err := p.offer(t, "1.0.0"); err != nil || got != "linux_amd64" {
				t.Errorf("offered: %s, %v", got, err)
			}
			if err := p.copy(t, "1.0.0"); err != nil {
				t.Errorf("copied for clients: %v", err)
			}
			results, err := newStore(t).mirror(p.origin).Add(t.Context(), wanted(t, "linux_amd64"))
			if err != nil || describe(results) != "1.0.0 [linux_amd64 added]" {
				t.Errorf("added: %s, %v", describe(results), err)
			}
			if got := notes(results); !strings.Contains(got, test.note) || test.note == "" && got != "" {
				t.Errorf("the notes are %q, want %q", got, test.note)
			}
		})
	}
}
