package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
