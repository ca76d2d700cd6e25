package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// digest returns a text with the form of a SHA-256.
func digest(digit string) string { return strings.Repeat(digit, 64) }

func sessionUntil(at time.Time) registry.Session {
	return registry.Session{
		Identity: registry.Identity{
			Issuer: "https://login.example.com", Name: "ada",
			Claims: map[string]any{"sub": "ada", "groups": []any{"platform"}, "exp": float64(1<<53 - 1), "n": 0.5},
		},
		CreatedAt: at.Add(-time.Hour), ExpiresAt: at,
	}
}

// A session is found as it was stored, until it ends. Another catalog on the
// same table finds neither more nor less.
func TestSession(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table := open(t)
	c, other := catalog.New(table), catalog.New(table)
	want := sessionUntil(time.Now().Add(time.Hour).UTC().Truncate(time.Second))
	if err := c.AddSession(ctx, digest("a"), want, nil); err != nil {
		t.Fatal(err)
	}
	got, err := other.Session(ctx, digest("a"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := c.AddSession(ctx, digest("a"), want, nil); !errors.Is(err, registry.ErrExists) {
		t.Errorf("the same digest again: %v, want ErrExists", err)
	}
	if err := c.EndSession(ctx, digest("a")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*catalog.Catalog{"same process": c, "other process": other} {
		if _, err := c.Session(ctx, digest("a")); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: the session after its end: %v, want ErrNotFound", name, err)
		}
		if err := c.EndSession(ctx, digest("a")); err != nil {
			t.Errorf("%s: ending it again: %v", name, err)
		}
	}
}

// An expired session is absent.
func TestSessionExpires(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	if err := c.AddSession(ctx, digest("a"), sessionUntil(time.Now().Add(-time.Second)), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Session(ctx, digest("a")); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an expired session: %v, want ErrNotFound", err)
	}
	if err := c.EndSession(ctx, digest("a")); err != nil {
		t.Errorf("ending an expired session: %v", err)
	}
}

// A login begins one session, even if many requests use it at the same time.
func TestUsedLogin(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	end := time.Now().Add(time.Hour)
	login := &catalog.UsedLogin{Digest: digest("f"), Until: end}
	errs := make(chan error)
	digits := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	for _, digit := range digits {
		go func() { errs <- c.AddSession(ctx, digest(digit), sessionUntil(end), login) }()
	}
	added := 0
	for range digits {
		switch err := <-errs; {
		case err == nil:
			added++
		case !errors.Is(err, registry.ErrExists):
			t.Errorf("%v, want ErrExists", err)
		}
	}
	if added != 1 {
		t.Errorf("the login began %d sessions", added)
	}
	found := 0
	for _, digit := range digits {
		if _, err := c.Session(ctx, digest(digit)); err == nil {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d sessions are stored", found)
	}
	later := &catalog.UsedLogin{Digest: digest("e"), Until: end}
	if err := c.AddSession(ctx, digest("8"), sessionUntil(end), later); err != nil {
		t.Errorf("another login: %v", err)
	}
}

// A new login ends the oldest session of its identity, and no other one.
func TestSessionsOfIdentity(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	end := time.Now().Add(time.Hour)
	id := func(n int) string { return fmt.Sprintf("%064d", n) }
	other := sessionUntil(end)
	other.Identity.Claims = map[string]any{"sub": "eve"}
	token := registry.Session{Identity: registry.Identity{Token: digest("7")}, ExpiresAt: end}
	for n, s := range []registry.Session{other, token} {
		if err := c.AddSession(ctx, id(1000+n), s, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 23 {
		if err := c.AddSession(ctx, id(n), sessionUntil(end), nil); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			if err := c.EndSession(ctx, id(n)); err != nil { // a logout
				t.Fatal(err)
			}
		}
	}
	for _, n := range []int{0, 1, 2, 3, 22, 1000, 1001} {
		_, err := c.Session(ctx, id(n))
		if isOld := n < 3; isOld != errors.Is(err, registry.ErrNotFound) {
			t.Errorf("session %d: %v, want ErrNotFound: %t", n, err, isOld)
		}
	}
}

// busyTable fails the first writes with a conflict although nothing exists.
type busyTable struct {
	catalog.Table
	conflicts int
	keys      []catalog.Key
}

func (b *busyTable) Write(ctx context.Context, changes ...catalog.Change) error {
	for _, c := range changes {
		b.keys = append(b.keys, c.Key)
	}
	if b.conflicts > 0 {
		b.conflicts--
		return registry.ErrConflict
	}
	return b.Table.Write(ctx, changes...)
}

func (b *busyTable) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	b.keys = append(b.keys, k)
	return b.Table.Get(ctx, k)
}

func (b *busyTable) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	b.keys = append(b.keys, keys...)
	return b.Table.Snapshot(ctx, keys...)
}

// A conflict with nobody is not an error. No call touches another partition,
// because the role of the pages may write only this one.
func TestSessionOnBusyTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	busy := &busyTable{Table: open(t), conflicts: 3}
	c := catalog.New(busy)
	end := time.Now().Add(time.Hour)
	login := &catalog.UsedLogin{Digest: digest("f"), Until: end}
	if err := c.AddSession(ctx, digest("a"), sessionUntil(end), login); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Session(ctx, digest("a")); err != nil {
		t.Error(err)
	}
	busy.conflicts = 3
	if err := c.EndSession(ctx, digest("a")); err != nil {
		t.Error(err)
	}
	if _, err := c.Session(ctx, digest("a")); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the session after its end: %v, want ErrNotFound", err)
	}
	for _, k := range busy.keys {
		if k.Partition != "sessions" {
			t.Errorf("access to item %s", k.Shown())
		}
		if strings.Contains(k.Shown(), digest("a")[:20]) || strings.Contains(k.Shown(), digest("f")[:20]) {
			t.Errorf("the name of an item has its digest: %s", k.Shown())
		}
	}
}
