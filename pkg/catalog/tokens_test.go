package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Only one valid token can have a name.
func TestTokenNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	now := time.Now()
	ci := registry.Token{ID: "1", Name: "ci", Scopes: []string{"read:**"}}
	old := registry.Token{ID: "2", Name: "old", ExpiresAt: now.Add(-time.Minute)}
	for _, r := range []registry.Token{ci, old} {
		if err := c.AddToken(ctx, r.ID, r); err != nil {
			t.Fatal(err)
		}
	}
	again := registry.Token{ID: "3", Name: "ci"}
	err := c.AddToken(ctx, "3", again)
	if !errors.Is(err, registry.ErrExists) {
		t.Errorf("%v, want ErrExists", err)
	}
	if command := "`larder token revoke 1`"; !strings.Contains(registry.Hint(err), command) {
		t.Errorf("hint %q, want one with %s", registry.Hint(err), command)
	}
	golden.New(t).Error(t, err)
	if _, err := c.Token(ctx, "3"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the token is stored: %v", err)
	}
	if err := c.AddToken(ctx, "4", registry.Token{ID: "4", Name: "old"}); err != nil {
		t.Errorf("the name of a token that has expired: %v", err)
	}
	if _, err := c.RevokeToken(ctx, "ci", "ada"); err != nil {
		t.Fatal(err)
	}
	if err := c.AddToken(ctx, "3", again); err != nil {
		t.Errorf("the name of a token that was revoked: %v", err)
	}
}

// If many tokens with one name are created concurrently, one succeeds.
func TestTokenNamesAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	errs := make(chan error)
	const writers = 8
	for i := range writers {
		go func() { errs <- c.AddToken(ctx, fmt.Sprint(i), registry.Token{ID: fmt.Sprint(i), Name: "ci"}) }()
	}
	made := 0
	for range writers {
		switch err := <-errs; {
		case err == nil:
			made++
		case !errors.Is(err, registry.ErrExists):
			t.Error(err)
		}
	}
	all, _, err := c.Tokens(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if made != 1 {
		t.Errorf("%d tokens were created, want 1", made)
	}
	if len(all) != 1 {
		t.Errorf("%d tokens are stored, want 1", len(all))
	}
}

// A name is taken even if another token takes it between reading the names and
// writing.
func TestTokenNameBetween(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	b := &between{Table: table, do: func() {
		if err := c.AddToken(t.Context(), "1", registry.Token{ID: "1", Name: "ci"}); err != nil {
			t.Error(err)
		}
	}}
	err := catalog.New(b).AddToken(t.Context(), "2", registry.Token{ID: "2", Name: "ci"})
	if !errors.Is(err, registry.ErrExists) {
		t.Errorf("%v, want registry.ErrExists", err)
	}
}

// A rotation replaces a token. The old one has its permissions until the overlap
// ends, and never longer than before.
func TestRotateToken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	begin := time.Now().UTC().Truncate(time.Second)
	for name, test := range map[string]struct {
		lifetime, overlap time.Duration
		wantOld, wantNew  time.Duration // from the rotation, or 0 for never
		byID              bool
	}{
		"overlap":       {90 * 24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 90 * 24 * time.Hour, false},
		"by ID":         {90 * 24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 90 * 24 * time.Hour, true},
		"never expires": {0, time.Hour, time.Hour, 0, false},
		"expires first": {time.Hour, 24 * time.Hour, time.Hour, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := catalog.New(open(t))
			old := registry.Token{
				ID: "1", Name: "ci", Scopes: []string{"read:**", "publish:modules/acme/**"}, CreatedAt: begin, CreatedBy: "ada",
			}
			if test.lifetime > 0 {
				old.ExpiresAt = begin.Add(test.lifetime)
			}
			if err := c.AddToken(ctx, "1", old); err != nil {
				t.Fatal(err)
			}
			which := old.Name
			if test.byID {
				which = old.ID
			}
			created, replaced, err := c.RotateToken(ctx, which, "2", test.overlap, "rob")
			if err != nil {
				t.Fatal(err)
			}
			at := created.CreatedAt
			if age := at.Sub(begin); age < 0 || age > time.Hour {
				t.Errorf("the new token was created %s after the old one", age)
			}
			expiry := func(after time.Duration) time.Time {
				if after == 0 {
					return time.Time{}
				}
				return at.Add(after)
			}
			wantNew := registry.Token{
				ID: "2", Name: "ci", Scopes: old.Scopes, CreatedAt: at, CreatedBy: "rob", ExpiresAt: expiry(test.wantNew),
			}
			wantOld := old
			wantOld.Name, wantOld.ExpiresAt = "ci-old-1", expiry(test.wantOld)
			if test.overlap > test.lifetime && test.lifetime > 0 {
				wantOld.ExpiresAt = old.ExpiresAt
			}
			if diff := cmp.Diff([]registry.Token{wantNew, wantOld}, []registry.Token{created, replaced}); diff != "" {
				t.Errorf("the result (-want +got):\n%s", diff)
			}
			stored, _, err := c.Tokens(ctx)
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(stored, func(a, b registry.Token) int { return strings.Compare(a.ID, b.ID) })
			if diff := cmp.Diff([]registry.Token{wantOld, wantNew}, stored); diff != "" {
				t.Errorf("the stored tokens (-want +got):\n%s", diff)
			}
		})
	}
}

// A rotation without an overlap ends the old token. One that fails changes nothing.
func TestRotateTokenFails(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table := open(t)
	c := catalog.New(table)
	long := strings.Repeat("n", 64)
	for _, name := range []string{"ci", "web", long} {
		record := registry.Token{ID: registry.TokenID(name), Name: name, Scopes: []string{"read:**"}}
		if err := c.AddToken(ctx, name, record); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.RotateToken(ctx, "ci", "2", 0, "rob"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Token(ctx, "ci"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the old token: %v, want registry.ErrNotFound", err)
	}
	if err := c.AddToken(ctx, "bad", registry.Token{ID: "bad", Name: "bad"}); err != nil {
		t.Fatal(err)
	}
	_, old, err := c.RotateToken(ctx, long, "5", time.Hour, "rob")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("n", 47) + "-old-nnnnnnnnnnnn"; old.Name != want {
		t.Errorf("the old token with a long name is now %s, want %s", old.Name, want)
	}
	for name, want := range map[string]error{
		old.Name: registry.ErrInvalid, old.ID: registry.ErrInvalid,
		"none": registry.ErrNotFound, "": registry.ErrNotFound, "bad": registry.ErrCorrupt,
	} {
		if _, _, err := c.RotateToken(ctx, name, "3", time.Hour, "rob"); !errors.Is(err, want) {
			t.Errorf("token %q: %v, want %v", name, err, want)
		}
	}
	_, _, err = catalog.New(unwritable{table}).RotateToken(ctx, "web", "4", time.Hour, "rob")
	if !errors.Is(err, errUnwritable) {
		t.Errorf("%v, want the error of the table", err)
	}
	stored, _, err := c.Tokens(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, token := range stored {
		names = append(names, token.ID+" "+token.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"2 ci", "5 " + long, "bad bad", old.ID + " " + old.Name, "web web"}, names); diff != "" {
		t.Errorf("the stored tokens (-want +got):\n%s", diff)
	}
}

var errUnwritable = errors.New("unwritable")

// unwritable is a table whose writes fail.
type unwritable struct{ catalog.Table }

func (unwritable) Write(context.Context, ...catalog.Change) error { return errUnwritable }

// If several rotations of a token happen at the same time, one valid token has the
// name.
func TestRotateTokenAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	if err := c.AddToken(ctx, "0", registry.Token{ID: "0", Name: "ci", Scopes: []string{"read:**"}}); err != nil {
		t.Fatal(err)
	}
	const writers = 4
	errs := make(chan error)
	for i := range writers {
		go func() {
			_, _, err := c.RotateToken(ctx, "ci", fmt.Sprint(i+1), time.Hour, "rob")
			errs <- err
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	stored, _, err := c.Tokens(ctx)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, token := range stored {
		names[token.Name] = true
	}
	if len(stored) != writers+1 {
		t.Errorf("%d tokens are stored, want %d", len(stored), writers+1)
	}
	if len(names) != writers+1 || !names["ci"] {
		t.Errorf("the names are %v", names)
	}
}
