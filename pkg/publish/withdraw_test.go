package publish_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// remover is a store from which objects can be removed.
type remover interface {
	objects.Store
	publish.Remover
}

// ending is a store that removes one object and then fails, like a killed
// process.
type ending struct{ remover }

var errEnded = errors.New("ended")

func (e ending) Remove(ctx context.Context, prefix string) (int, error) {
	uploaded := "" // the object in a folder of its own
	err := e.Walk(ctx, prefix, func(i objects.Info) error {
		if strings.HasPrefix(i.Key, prefix+"api/") {
			uploaded = i.Key
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	n, err := e.remover.Remove(ctx, path.Dir(uploaded)+"/")
	return n, errors.Join(err, errEnded)
}

func (b backend) remover(t *testing.T) remover {
	t.Helper()
	r, ok := b.store.(remover)
	if !ok {
		t.Fatalf("a %T removes nothing", b.store)
	}
	return r
}

// keys returns the keys of all stored objects.
func (b backend) keys(t *testing.T) (all []string) {
	t.Helper()
	collect := func(i objects.Info) error { all = append(all, i.Key); return nil }
	if err := b.store.Walk(t.Context(), "", collect); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWithdraw checks that a withdrawn version has no objects, cannot be
// published again, and that other versions remain. An interrupted withdrawal
// can be completed.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		b := empty(t)
		c, store := catalog.New(b.table), b.remover(t)
		first := module(t, "1.0.0", "a secret")
		address, one := first.Address, first.Version
		for _, m := range []rules.Module{first, module(t, "1.1.0", "another")} {
			if _, err := b.publisher().Module(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for _, body := range []string{"a", "b"} {
			sum := sha256.Sum256([]byte(body))
			digest := objects.Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body))}
			key := registry.UploadKey(address.Path(), one, digest.SHA256, "vpc.tar.gz")
			if err := store.PutOnce(t.Context(), key, strings.NewReader(body), digest); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC)
		w := publish.Withdrawer{Catalog: c, Objects: ending{store}, By: "wim", Now: func() time.Time { return now }}
		for _, reason := range []string{"", " ", "two\nlines", strings.Repeat("x", 501), "\xff"} {
			if _, err := w.Withdraw(t.Context(), address, one, reason); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("reason %.20q: %v", reason, err)
			}
		}
		never := one
		never.Major = 9
		if _, err := w.Withdraw(t.Context(), address, never, "x"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("a version that never was: %v", err)
		}
		if n := b.objects(t); n != 2*perModule+2 {
			t.Fatalf("%d objects", n)
		}

		_, err := w.Withdraw(t.Context(), address, one, "it has a key")
		remains, ok := errors.AsType[*publish.RemainsError](err)
		if !ok || !errors.Is(err, errEnded) {
			t.Fatalf("halfway: got error %v, want a RemainsError", err)
		}
		if remains.Removed != 1 {
			t.Errorf("halfway: %d objects are removed, want 1", remains.Removed)
		}
		texts.Error(t, err)
		if _, err := c.Modules.Get(t.Context(), address, one); !errors.Is(err, registry.ErrNotFound) || b.objects(t) != 2*perModule+1 {
			t.Errorf("halfway: %v, %q", err, b.keys(t))
		}
		w.Objects = store
		now = now.Add(time.Hour)
		result, err := w.Withdraw(t.Context(), address, one, "another reason")
		if err != nil {
			t.Fatal(err)
		}
		want := publish.Withdrawn{
			Withdrawal: registry.Withdrawal{At: now.Add(-time.Hour), By: "wim", Reason: "it has a key"},
			Before:     true, Removed: perModule + 1,
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("again: (-want +got)\n%s", diff)
		}
		left := b.keys(t)
		if len(left) != perModule {
			t.Errorf("stored afterwards: %q", left)
		}
		for _, key := range left {
			if !strings.HasPrefix(key, address.Path()+"/1.1.0/") {
				t.Errorf("stored afterwards: %s", key)
			}
		}
		if result, err := w.Withdraw(t.Context(), address, one, "x"); err != nil || result.Removed != 0 {
			t.Errorf("once more: %+v, %v", result, err)
		}

		// A rejected publish stores nothing.
		type publishFunc = func(context.Context, rules.Module) (rules.ModuleResult, error)
		for _, do := range []publishFunc{b.publisher().Module, b.publisher().CheckModule} {
			_, err := do(t.Context(), first)
			if !errors.Is(err, registry.ErrExists) || !errors.Is(err, registry.ErrWithdrawn) {
				t.Errorf("publishing again: got error %v, want ErrExists and ErrWithdrawn", err)
			}
		}
		if n := b.objects(t); n != perModule {
			t.Errorf("%d objects, want %d: a rejected module is stored", n, perModule)
		}
	})
}

// TestWithdrawProvider withdraws a provider, whose version is then rejected.
func TestWithdrawProvider(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	key := signer(t)
	b.addKey(t, key)
	r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	published, err := b.publisher().Provider(t.Context(), r.provider())
	if err != nil {
		t.Fatal(err)
	}
	w := publish.Withdrawer{Catalog: catalog.New(b.table), Objects: b.remover(t), By: "wim"}
	result, err := w.Withdraw(t.Context(), inventory, published.Record.Version, "it has a key")
	if err != nil || result.Removed != 4 {
		t.Errorf("%+v, %v", result, err)
	}
	type publishFunc = func(context.Context, rules.Provider) (rules.ProviderResult, error)
	for _, do := range []publishFunc{b.publisher().Provider, b.publisher().CheckProvider} {
		if _, err := do(t.Context(), r.provider()); !errors.Is(err, registry.ErrWithdrawn) {
			t.Errorf("publishing again: got error %v, want ErrWithdrawn", err)
		}
	}
	if keys := b.keys(t); len(keys) > 0 {
		t.Errorf("stored afterwards: %q", keys)
	}
}

// unreadable is a table in which the mirror's findings about origins cannot be
// read.
type unreadable struct{ catalog.Table }

func (u unreadable) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if keys[0].Partition == "mirror/providers" {
		return nil, fmt.Errorf("cannot read %s: %w", keys[0].Shown(), registry.ErrUnavailable)
	}
	return u.Table.Snapshot(ctx, keys...)
}

// TestWithdrawFromMirror checks that the objects of a mirrored version are
// removed although the mirror's cache cannot be updated.
func TestWithdrawFromMirror(t *testing.T) {
	t.Parallel()
	provider := registry.MirrorAddress{Hostname: "registry.example.com", Namespace: "acme", Name: "inventory"}
	module := registry.MirrorAddress{Hostname: "registry.example.com", Namespace: "acme", Name: "vpc", System: "aws"}
	version := registry.Version{Major: 1}
	sum := sha256.Sum256([]byte("x"))
	digest := objects.Digest{SHA256: hex.EncodeToString(sum[:]), Size: 1}
	for name, test := range map[string]struct {
		address registry.MirrorAddress
		objects func(remover) publish.Remover
		left    int
		remains bool
	}{
		"the objects can be removed": {provider, func(r remover) publish.Remover { return r }, 0, false},
		"a module":                   {module, func(r remover) publish.Remover { return r }, 0, false},
		// Then this error comes first. The next withdrawal repeats both.
		"the objects cannot be removed": {provider, func(remover) publish.Remover { return fails{} }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, address := embedded(t), test.address
			key := registry.ObjectsOf(address, version) + digest.SHA256 + "/inventory.zip"
			if err := b.store.PutOnce(t.Context(), key, strings.NewReader("x"), digest); err != nil {
				t.Fatal(err)
			}
			w := publish.Withdrawer{
				Catalog: catalog.New(unreadable{b.table}), Objects: test.objects(b.remover(t)), By: "wim", Missing: true,
			}
			_, err := w.Withdraw(t.Context(), address, version, "it has a key")
			if _, remains := errors.AsType[*publish.RemainsError](err); err == nil || remains != test.remains {
				t.Errorf("error is %v, want one for which \"objects remain\" is %t", err, test.remains)
			}
			if !strings.Contains(fmt.Sprint(err), address.String()+" 1.0.0 is withdrawn, but ") {
				t.Errorf("the error does not say that the version is withdrawn: %v", err)
			}
			if registry.Hint(err) == "" {
				t.Error("the error has no hint")
			}
			if n := b.objects(t); n != test.left {
				t.Errorf("%d objects are left, want %d", n, test.left)
			}
			w.Catalog, w.Objects = catalog.New(b.table), b.remover(t)
			result, err := w.Withdraw(t.Context(), address, version, "it has a key")
			if err != nil {
				t.Fatal(err)
			}
			if !result.Before {
				t.Error("the second withdrawal is the first one")
			}
			if n := b.objects(t); n != 0 {
				t.Errorf("%d objects are left after the second withdrawal", n)
			}
		})
	}
}

// fails removes nothing.
type fails struct{}

func (fails) Remove(context.Context, string) (int, error) { return 0, registry.ErrForbidden }

// TestWithdrawWhilePublishing publishes and withdraws a version at once. In the
// end the version is withdrawn, and another withdrawal removes the objects of
// rejected publishes.
func TestWithdrawWhilePublishing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		b := empty(t)
		first := module(t, "1.0.0", "a secret")
		if _, err := b.publisher().Module(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		w := publish.Withdrawer{Catalog: catalog.New(b.table), Objects: b.remover(t), By: "wim"}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if _, err := b.publisher().Module(t.Context(), first); err != nil && !errors.Is(err, registry.ErrWithdrawn) {
					t.Error(err)
				}
			})
			group.Go(func() {
				if _, err := w.Withdraw(t.Context(), first.Address, first.Version, "it has a key"); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if _, err := w.Withdraw(t.Context(), first.Address, first.Version, "it has a key"); err != nil {
			t.Error(err)
		}
		if n := b.objects(t); n != 0 {
			t.Errorf("%d objects are left", n)
		}
		if _, err := catalog.New(b.table).Modules.Listing(t.Context(), first.Address); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("it is listed: %v", err)
		}
	})
}
