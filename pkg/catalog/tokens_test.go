package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// addTwin adds a token as releases did that did not check its name.
func addTwin(ctx context.Context, table catalog.Table, digest string, r registry.Token) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return table.Write(ctx, catalog.Change{Key: catalog.Key{Partition: "tokens", Sort: digest}, Data: data, Expires: r.ExpiresAt})
}

// A name is that of one valid token.
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
	if want := `cannot create the token: a valid token "ci" already exists`; !errors.Is(err, registry.ErrExists) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if want := "Choose another name, or revoke that one first: `larder token revoke 1`."; registry.Hint(err) != want {
		t.Errorf("hint %q, want %q", registry.Hint(err), want)
	}
	if _, err := c.Token(ctx, "3"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("it is there: %v", err)
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

// Of many tokens of one name that are made at once, one is.
func TestTokenNamesAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	errs := make(chan error)
	const writers = 8
	for i := range writers {
		go func() {
			errs <- c.AddToken(ctx, fmt.Sprint(i), registry.Token{ID: fmt.Sprint(i), Name: "ci"})
		}()
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
	if made != 1 || len(all) != 1 || err != nil {
		t.Errorf("%d were made, and %d are there: %v", made, len(all), err)
	}
}

// A name that is taken between reading the names and writing is taken.
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
