package storetest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

// remove checks that Remove removes everything below a prefix and nothing else.
// Removed objects can be stored again, and removing again removes nothing.
func remove(t *testing.T, s Backend) {
	const below = "modules/acme/vpc/aws/1.0.0/"
	others := []string{"modules/acme/vpc/aws/1.0.0+a/x", "modules/acme/vpc/aws/1.0.01", "modules/acme/vpc/aws/1.1.0/x"}
	for _, key := range append([]string{below + "x", below + "y/z"}, others...) {
		put(t, s, key, "content of "+key)
	}
	const staged = below + "api/00ff/x"
	stage(t, s, staged, "staged")

	if removed, err := s.Remove(t.Context(), below); removed != 3 || err != nil {
		t.Errorf("Remove: %d, %v", removed, err)
	}
	if got := keys(t, s, ""); fmt.Sprint(got) != fmt.Sprint(others) {
		t.Errorf("stored afterwards: %q", got)
	}
	for _, key := range []string{below + "x", below + "y/z", staged} {
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if removed, err := s.Remove(t.Context(), below); removed != 0 || err != nil {
		t.Errorf("Remove of nothing: %d, %v", removed, err)
	}
	put(t, s, below+"x", "other")
	put(t, s, staged, "staged")
	if got := content(t, s, below+"x", 0, -1); got != "other" {
		t.Errorf("stored again: %q", got)
	}
	for _, prefix := range []string{
		"", "/", "modules", strings.TrimSuffix(below, "/"), "modules//", "../", "modules/../",
	} {
		if removed, err := s.Remove(t.Context(), prefix); removed != 0 || !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("Remove(%q): %d, %v", prefix, removed, err)
		}
	}
	if got := len(keys(t, s, "")); got != len(others)+2 {
		t.Errorf("%d objects remain", got)
	}
}

// removing is a body whose first read calls a function.
type removing struct {
	io.ReadSeeker
	once sync.Once
	do   func()
}

func (r *removing) Read(p []byte) (int, error) {
	r.once.Do(r.do)
	return r.ReadSeeker.Read(p)
}

// removeWhilePutting checks that an object can be stored while others below the
// same prefix are removed.
func removeWhilePutting(t *testing.T, s Backend) {
	const below, body = "modules/acme/vpc/aws/1.0.0/", "content"
	put(t, s, below+"y/z", "other")
	slow := &removing{ReadSeeker: strings.NewReader(body), do: func() {
		if removed, err := s.Remove(t.Context(), below); removed != 1 || err != nil {
			t.Errorf("Remove: %d, %v", removed, err)
		}
	}}
	if err := s.PutOnce(t.Context(), below+"y/x", slow, digest(body)); err != nil {
		t.Errorf("PutOnce: %v", err)
	}
	if got := keys(t, s, below); len(got) != 1 || got[0] != below+"y/x" {
		t.Errorf("stored: %q", got)
	}
}
