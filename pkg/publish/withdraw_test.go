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

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// remover is a store from which objects can be removed.
type remover interface {
	objects.Store
	publish.Remover
}

// ending is a store that removes one object and ends then, as whoever is killed.
type ending struct{ remover }

var errEnded = errors.New("ended")

func (e ending) Remove(ctx context.Context, prefix string) (int, error) {
	uploaded := "" // it has a folder of its own
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

// keys are those of all objects that are stored.
func (b backend) keys(t *testing.T) (all []string) {
	t.Helper()
	if err := b.store.Walk(t.Context(), "", func(i objects.Info) error { all = append(all, i.Key); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// A withdrawn version has no bytes any more, wherever they came from, nothing takes its place, and its neighbours stay. One that
// ends halfway is withdrawn, and is finished by the next.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		b := empty(t)
		c, store := catalog.New(b.table), b.remover(t)
		first := module(t, "1.0.0", "a secret")
		address, one := first.Address, first.Version
		for _, m := range []releases.Module{first, module(t, "1.1.0", "another")} {
			if _, err := b.publisher().Module(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for _, body := range []string{"a", "b"} {
			sum := sha256.Sum256([]byte(body))
			digest := objects.Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body))}
			if err := store.PutOnce(t.Context(), registry.UploadKey(address.Path(), one, digest.SHA256, "vpc.tar.gz"), strings.NewReader(body), digest); err != nil {
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
		if n := b.objects(t); n != 4 {
			t.Fatalf("%d objects", n)
		}

		_, err := w.Withdraw(t.Context(), address, one, "it has a key")
		if remains, ok := errors.AsType[*publish.RemainsError](err); !ok || remains.Removed != 1 || !errors.Is(err, errEnded) || !strings.Contains(registry.Hint(err), "again") {
			t.Fatalf("halfway: %v", err)
		}
		if _, err := c.Modules.Get(t.Context(), address, one); !errors.Is(err, registry.ErrNotFound) || b.objects(t) != 3 {
			t.Errorf("halfway: %v, %q", err, b.keys(t))
		}
		w.Objects = store
		now = now.Add(time.Hour)
		result, err := w.Withdraw(t.Context(), address, one, "another reason")
		if err != nil || !result.Before || result.Removed != 2 || result.Reason != "it has a key" || !result.At.Equal(now.Add(-time.Hour)) {
			t.Errorf("again: %+v, %v", result, err)
		}
		if left := b.keys(t); len(left) != 1 || !strings.HasPrefix(left[0], address.Path()+"/1.1.0/") {
			t.Errorf("what is left: %q", left)
		}
		if result, err := w.Withdraw(t.Context(), address, one, "x"); err != nil || result.Removed != 0 {
			t.Errorf("once more: %+v, %v", result, err)
		}

		// Nothing of a publish that is refused is stored.
		for _, do := range []func(context.Context, releases.Module) (releases.ModuleResult, error){b.publisher().Module, b.publisher().CheckModule} {
			_, err := do(t.Context(), first)
			if !errors.Is(err, registry.ErrExists) || !errors.Is(err, registry.ErrWithdrawn) || !strings.Contains(fmt.Sprint(err), "withdrawn on 2026-11-21 01:02 UTC: it has a key") {
				t.Errorf("publishing again: %v", err)
			}
		}
		if n := b.objects(t); n != 1 {
			t.Errorf("%d objects: what was refused is stored", n)
		}
		if _, err := b.publisher().Module(t.Context(), module(t, "1.0.0+b", "x")); !errors.Is(err, registry.ErrWithdrawn) {
			t.Errorf("publishing what differs in build metadata alone: %v", err)
		}
	})
}

// The same of a provider, whose key signs nothing any more.
func TestWithdrawProvider(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		b := empty(t)
		key, err := builds.Signer()
		if err != nil {
			t.Fatal(err)
		}
		b.addKey(t, key)
		r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
		published, err := b.publisher().Provider(t.Context(), r.provider())
		if err != nil {
			t.Fatal(err)
		}
		w := publish.Withdrawer{Catalog: catalog.New(b.table), Objects: b.remover(t), By: "wim"}
		result, err := w.Withdraw(t.Context(), inventory, published.Record.Version, "it has a key")
		if err != nil || result.Removed != 4 || b.objects(t) != 0 {
			t.Errorf("%+v, %v, %q", result, err, b.keys(t))
		}
		for _, do := range []func(context.Context, releases.Provider) (releases.ProviderResult, error){b.publisher().Provider, b.publisher().CheckProvider} {
			if _, err := do(t.Context(), r.provider()); !errors.Is(err, registry.ErrExists) || !errors.Is(err, registry.ErrWithdrawn) || b.objects(t) != 0 {
				t.Errorf("publishing again: %v, %q", err, b.keys(t))
			}
		}
		if signed, err := catalog.New(b.table).Signed(t.Context(), "acme"); err != nil || len(signed) > 0 {
			t.Errorf("%v, %v", signed, err)
		}
	})
}

// Of a publish and a withdrawal at once either comes first. In the end the version is withdrawn, and withdrawing again removes
// what a publish has stored that was refused.
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
