package publish_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// largeZip returns a release of one zip that is sent in many parts.
func largeZip(t *testing.T) (r release, path string) {
	t.Helper()
	r = newRelease(t, "1.0.0")
	content := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	name := r.Name + "_linux_amd64.zip"
	r.Zip(t, name, map[string]string{"terraform-provider-inventory": "program", "LICENSE": string(content), "empty": ""})
	r.Sign(t)
	return r, filepath.Join(r.Dir, name)
}

// TestDamagedZip checks that a damaged zip is rejected during the upload. The
// store does not receive it completely, does not retry, and nothing is visible.
func TestDamagedZip(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		t.Helper()
		key := signer(t)
		r, path := largeZip(t)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{1 << 20, 2 << 20, 4 << 20} {
			damaged := bytes.Clone(whole)
			damaged[at] ^= 1
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			r.Sign(t)
			for _, dry := range []bool{true, false} {
				b := empty(t)
				b.addKey(t, key)
				p := b.publisher()
				store := &rereading{Objects: b.store}
				p.Objects = store
				do := p.Provider
				if dry {
					do = p.CheckProvider
				}
				if _, err := do(t.Context(), r.provider()); !errors.Is(err, registry.ErrInvalid) {
					t.Errorf("damaged at %d: %v", at, err)
				}
				if b.providerVersions(t) != "[]" || store.begun > 1 {
					t.Errorf("damaged at %d: %s is visible, and it was read %d times", at, b.providerVersions(t), store.begun)
				}
				if err := b.store.Walk(t.Context(), "", func(info objects.Info) error {
					if filepath.Ext(info.Key) == ".zip" {
						t.Errorf("damaged at %d: the store has %s", at, info.Key)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestHashedOnTheWay checks that the h1 of a zip is found in whatever way the
// store reads it.
func TestHashedOnTheWay(t *testing.T) {
	t.Parallel()
	key := signer(t)
	r, path := largeZip(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, give := range []int64{0, 1, 1 << 20, info.Size() - 1, info.Size()} {
		for _, there := range []bool{false, true} {
			b := embedded(t)
			b.addKey(t, key)
			p := b.publisher()
			want, err := p.CheckProvider(t.Context(), r.provider())
			if err != nil {
				t.Fatal(err)
			}
			p.Objects = &rereading{Objects: b.store, give: give, there: there}
			got, err := p.Provider(t.Context(), r.provider())
			if err != nil || got.Record.Packages[0] != want.Record.Packages[0] || want.Record.Packages[0].H1 == "" {
				t.Errorf("after %d bytes: %+v and %+v, %v", give, got.Record.Packages, want.Record.Packages, err)
			}
		}
	}
}

// TestStoredAlready checks that stored zips are read but not sent.
func TestStoredAlready(t *testing.T) {
	t.Parallel()
	key := signer(t)
	r, _ := largeZip(t)
	b := embedded(t)
	b.addKey(t, key)
	want, err := b.publisher().Provider(t.Context(), r.provider())
	if err != nil {
		t.Fatal(err)
	}
	fresh := embedded(t) // nothing is published here
	fresh.addKey(t, key)
	p := fresh.publisher()
	p.Objects = &countingStore{Store: b.store}
	got, err := p.Provider(t.Context(), r.provider())
	if err != nil || got.Record.Packages[0] != want.Record.Packages[0] {
		t.Errorf("%+v, want %+v: %v", got.Record.Packages, want.Record.Packages, err)
	}
}

// TestZipThatChanges checks that a zip that changes during the publish is
// rejected, whether it or another publisher's zip is stored.
func TestZipThatChanges(t *testing.T) {
	t.Parallel()
	key := signer(t)
	for name, change := range map[string]func(zip []byte) []byte{
		"in its directory": func(zip []byte) []byte {
			at := bytes.LastIndex(zip, []byte("PK\x01\x02"))
			zip[at+12] ^= 1 // the time of a file
			return zip
		},
		"longer":  func(zip []byte) []byte { return append(zip, 0) },
		"shorter": func(zip []byte) []byte { return zip[:len(zip)-1] },
	} {
		for _, there := range []bool{false, true} {
			r, path := largeZip(t)
			b := embedded(t)
			b.addKey(t, key)
			p := b.publisher()
			p.Objects = &changing{Objects: b.store, there: there, change: func() {
				zip, err := os.ReadFile(path)
				if err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(path, change(zip), 0o600); err != nil {
					t.Error(err)
				}
			}}
			got, err := p.Provider(t.Context(), r.provider())
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%s, there %v: got %+v and error %v, want ErrInvalid", name, there, got.Record, err)
			}
			if versions := b.providerVersions(t); versions != "[]" {
				t.Errorf("%s, there %v: the versions are %s", name, there, versions)
			}
		}
	}
}

// changing is a store that changes the zip before it stores it, or reports that
// the object exists.
type changing struct {
	publish.Objects
	change func()
	there  bool
}

func (c *changing) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if filepath.Ext(key) != ".zip" {
		return c.Objects.PutOnce(ctx, key, body, digest)
	}
	c.change()
	if c.there {
		_, _ = io.Copy(io.Discard, body) // this may detect the change
		return registry.ErrExists
	}
	return c.Objects.PutOnce(ctx, key, body, digest)
}

// rereading is a store that starts again after some bytes, as S3's client does.
// It may then report that the object exists.
type rereading struct {
	publish.Objects
	give  int64
	there bool
	begun int // number of reads of zips from the beginning
}

// beginnings counts how often a body is read from its beginning.
type beginnings struct {
	io.ReadSeeker
	at int64
	n  *int
}

func (b *beginnings) Seek(offset int64, whence int) (at int64, err error) {
	at, err = b.ReadSeeker.Seek(offset, whence)
	b.at = at
	return at, err
}

func (b *beginnings) Read(p []byte) (int, error) {
	if b.at == 0 {
		*b.n++
	}
	n, err := b.ReadSeeker.Read(p)
	b.at += int64(n)
	return n, err
}

func (s *rereading) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if filepath.Ext(key) != ".zip" {
		return s.Objects.PutOnce(ctx, key, body, digest)
	}
	body = &beginnings{body, 0, &s.begun}
	if _, err := io.CopyN(io.Discard, body, s.give); err != nil {
		return err
	}
	if s.there {
		return registry.ErrExists
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.Objects.PutOnce(ctx, key, body, digest)
}
