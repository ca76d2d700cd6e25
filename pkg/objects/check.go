package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/larder-registry/larder/pkg/registry"
)

// maxCompared is the size up to which [CheckStored] reads an object, in bytes.
// Most modules, SHA256SUMS and signatures are smaller. Reading this much takes
// one request, like Stat, and a fraction of a second.
const maxCompared = 1 << 20

// Reader is the part of a [Store] that [CheckStored] needs.
type Reader interface {
	Opener
	Stat(ctx context.Context, key string) (Info, error)
}

// CheckStored returns nil if a stored object matches its record. It returns
// registry.ErrNotFound if the object is missing, and registry.ErrCorrupt if it
// is damaged. It compares the bytes of a small object, and only the size of a
// large one.
func CheckStored(ctx context.Context, store Reader, f registry.StoredFile) error {
	if f.Size > maxCompared {
		info, err := store.Stat(ctx, f.Object)
		if err == nil && info.Size != f.Size {
			err = damaged(f, fmt.Sprintf("it has %d bytes instead of %d", info.Size, f.Size))
		}
		return err
	}
	in, err := store.Open(ctx, f.Object, 0, -1)
	if err != nil {
		return err
	}
	defer in.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(in, f.Size+1))
	if err != nil {
		return fmt.Errorf("cannot read object %s: %w", f.Object, err)
	}
	switch sum := hex.EncodeToString(hash.Sum(nil)); {
	case n < f.Size:
		return damaged(f, fmt.Sprintf("it has %d of %d bytes", n, f.Size))
	case n > f.Size:
		return damaged(f, fmt.Sprintf("it has more than %d bytes", f.Size))
	case sum != f.SHA256:
		return damaged(f, fmt.Sprintf("it has sha256:%s instead of sha256:%s", sum, f.SHA256))
	}
	return nil
}

func damaged(f registry.StoredFile, how string) error {
	return fmt.Errorf("object %s is %w: %s", f.Object, registry.ErrCorrupt, how)
}
