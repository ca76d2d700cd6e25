package publish_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// flipping is a store whose objects have the right size and a wrong last byte.
type flipping struct {
	objects.Store
	opened atomic.Int32
}

func (f *flipping) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	f.opened.Add(1)
	in, err := f.Store.Open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(in)
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	data[len(data)-1] ^= 1
	return io.NopCloser(bytes.NewReader(data)), nil
}

func checkDamage(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, registry.ErrCorrupt) {
		t.Errorf("%s over a damaged object: got error %v, want ErrCorrupt", what, err)
	}
}

// TestPublishAgainOverDamage checks that publishing again fails if a stored
// object has other bytes of the same size.
func TestPublishAgainOverDamage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		b := empty(t)
		key := signer(t)
		b.addKey(t, key)
		m, p := module(t, "1.0.0", "a"), newRelease(t, "1.0.0", "linux_amd64").provider()
		mirrored := registry.MirrorAddress{Hostname: "registry.example.com", Namespace: inventory.Namespace, Name: inventory.Type}
		publishes := map[string]func(*publish.Publisher) error{
			"a module":   func(to *publish.Publisher) error { _, err := to.Module(t.Context(), m); return err },
			"a provider": func(to *publish.Publisher) error { _, err := to.Provider(t.Context(), p); return err },
			"a package": func(to *publish.Publisher) error {
				path := filepath.Join(p.Dir, "terraform-provider-inventory_1.0.0_linux_amd64.zip")
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				found, err := archive.ReadProvider(t.Context(), bytes.NewReader(content), int64(len(content)), inventory.Type)
				if err != nil {
					return err
				}
				pkg := publish.MirrorPackage{Path: path, ProviderPackage: registry.ProviderPackage{
					Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: filepath.Base(path), H1: found.H1,
					StoredFile: registry.StoredFile{SHA256: found.SHA256, Size: found.Size},
				}}
				_, _, err = to.Mirror(t.Context(), mirrored, m.Version, []publish.MirrorPackage{pkg})
				return err
			},
		}
		for what, publishAgain := range publishes {
			to := b.publisher()
			for range 2 {
				if err := publishAgain(to); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			to.Objects = &flipping{Store: b.store}
			checkDamage(t, what, publishAgain(to))
		}
	})
}

// TestPublishAgainReadsNoLargeArchive checks that a large archive is only
// compared by its size, so that publishing again does not download it.
func TestPublishAgainReadsNoLargeArchive(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	m := module(t, "1.0.0", "a")
	var noise bytes.Buffer
	for sum := []byte("seed"); noise.Len() < 3<<20; {
		sum = []byte(digestOf(sum))
		noise.Write(sum)
	}
	if err := os.WriteFile(filepath.Join(m.Dir, "noise.txt"), noise.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	to := b.publisher()
	first, err := to.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if first.Record.Size <= 1<<20 {
		t.Fatalf("the archive has %d bytes, too few for this test", first.Record.Size)
	}
	store := &flipping{Store: b.store}
	to.Objects = store
	if again, err := to.Module(t.Context(), m); err != nil || !again.Unchanged {
		t.Errorf("%+v, %v", again, err)
	}
	if n := store.opened.Load(); n != 0 {
		t.Errorf("the archive was opened %d times", n)
	}
	to.Objects = &shrunkStore{b.store}
	_, err = to.Module(t.Context(), m)
	checkDamage(t, "a large module", err)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
