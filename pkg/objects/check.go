package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/larder-registry/larder/pkg/registry"
)

// maxCompared is the size up to which CheckStored reads an object, in bytes. Most
// modules are smaller, and so are SHA256SUMS and signatures. Reading that much
// takes one request, as looking at the size does, and a fraction of a second.
const maxCompared = 1 << 20

// Reader is what CheckStored needs of a Store.
type Reader interface {
	Opener
	Stat(ctx context.Context, key string) (Info, error)
}

// CheckStored returns nil if an object is stored as it was recorded,
// registry.ErrNotFound if it is missing, and registry.ErrCorrupt if it was
// damaged. It compares the bytes of a small object, and the size of a large one.
func CheckStored(ctx context.Context, store Reader, f registry.StoredFile) error {
	if f.Size > maxCompared {
		info, err := store.Stat(ctx, f.Object)
		if err == nil && info.Size != f.Size {
			err = damaged(f, fmt.Sprintf("it has %d bytes, and %d are recorded", info.Size, f.Size))
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
		return damaged(f, fmt.Sprintf("it has sha256:%s, and sha256:%s is recorded", sum, f.SHA256))
	}
	return nil
}

func damaged(f registry.StoredFile, how string) error {
	return fmt.Errorf("object %s is %w: %s", f.Object, registry.ErrCorrupt, how)
}
