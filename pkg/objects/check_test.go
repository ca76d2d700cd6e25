package objects_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// held is a store with one object, or none if data is nil.
type held struct {
	data   []byte
	opened int
}

func (h *held) Open(context.Context, string, int64, int64) (io.ReadCloser, error) {
	h.opened++
	if h.data == nil {
		return nil, registry.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(h.data)), nil
}

func (h *held) Stat(_ context.Context, key string) (objects.Info, error) {
	if h.data == nil {
		return objects.Info{}, registry.ErrNotFound
	}
	return objects.Info{Key: key, Size: int64(len(h.data))}, nil
}

// TestCheckStored checks that small objects are compared by their bytes, and
// large ones by their size.
func TestCheckStored(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	flip := func(b []byte) []byte { b[0] ^= 1; return b }
	for name, test := range map[string]struct {
		size   int
		change func([]byte) []byte
		want   error
	}{
		"small":          {100, nil, nil},
		"empty":          {0, nil, nil},
		"small, other":   {100, flip, registry.ErrCorrupt},
		"small, shorter": {100, func(b []byte) []byte { return b[1:] }, registry.ErrCorrupt},
		"small, longer":  {100, func(b []byte) []byte { return append(b, 0) }, registry.ErrCorrupt},
		"small, missing": {100, func([]byte) []byte { return nil }, registry.ErrNotFound},
		"bound, other":   {bound, flip, registry.ErrCorrupt},
		"large":          {bound + 1, nil, nil},
		"large, other":   {bound + 1, flip, nil},
		"large, shorter": {bound + 1, func(b []byte) []byte { return b[1:] }, registry.ErrCorrupt},
		"large, longer":  {bound + 1, func(b []byte) []byte { return append(b, 0) }, registry.ErrCorrupt},
		"large, missing": {bound + 1, func([]byte) []byte { return nil }, registry.ErrNotFound},
	} {
		data := make([]byte, test.size)
		sum := sha256.Sum256(data)
		stored := registry.StoredFile{Object: "x", SHA256: hex.EncodeToString(sum[:]), Size: int64(test.size)}
		store := &held{data: data}
		if test.change != nil {
			store.data = test.change(data)
		}
		if err := objects.CheckStored(t.Context(), store, stored); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if opened := store.opened > 0; opened != (test.size <= bound) {
			t.Errorf("%s: it was opened: %t", name, opened)
		}
	}
}
