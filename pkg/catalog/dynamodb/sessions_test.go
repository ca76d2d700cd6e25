package dynamodb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// A login begins one session, which ends at once for every client of the table.
func TestSessions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table, _ := open(t)
	c, other := catalog.New(table), catalog.New(table)
	first, second := strings.Repeat("1", 64), strings.Repeat("2", 64)
	until := time.Now().Add(time.Hour)
	s := registry.Session{Identity: registry.Identity{Name: "ada"}, ExpiresAt: until}
	login := &catalog.UsedLogin{Digest: strings.Repeat("f", 64), Until: until}
	if err := c.AddSession(ctx, first, s, login); err != nil {
		t.Fatal(err)
	}
	if err := other.AddSession(ctx, second, s, login); !errors.Is(err, registry.ErrExists) {
		t.Errorf("the same login again: %v, want ErrExists", err)
	}
	if _, err := c.Session(ctx, second); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the second session: %v, want ErrNotFound", err)
	}
	if got, err := other.Session(ctx, first); err != nil || got.Identity.Name != "ada" {
		t.Errorf("the first session: %+v, %v", got, err)
	}
	if err := other.EndSession(ctx, first); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Session(ctx, first); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the session after its end: %v, want ErrNotFound", err)
	}
	if err := c.EndSession(ctx, first); err != nil {
		t.Errorf("ending it again: %v", err)
	}
}
