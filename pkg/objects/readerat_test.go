package objects_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// memory is an Opener of one object. It counts streams and bytes.
type memory struct {
	content      []byte
	opens, ended int
	read         int64
	// breaks is the number of bytes after which a stream breaks off, or zero
	// for never.
	breaks int64
	fail   error
}

func (m *memory) Open(_ context.Context, _ string, offset, length int64) (io.ReadCloser, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	m.opens++
	if offset > int64(len(m.content)) {
		return nil, registry.ErrInvalid
	}
	var r io.Reader = io.NewSectionReader(bytes.NewReader(m.content), offset, length)
	if m.breaks > 0 {
		r = io.MultiReader(io.LimitReader(r, m.breaks), iotest.ErrReader(errors.New("the line went dead")))
	}
	return &counted{r, m}, nil
}

type counted struct {
	io.Reader
	m *memory
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p[:min(len(p), 16<<10)]) // as a connection gives it
	c.m.read += int64(n)
	return n, err
}

func (c *counted) Close() error {
	c.m.ended++
	return nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// TestReaderAt checks that random reads return what a reader of the bytes
// returns.
func TestReaderAt(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 100, 256 << 10, 256<<10 + 1, 1 << 20, 9 << 20} {
		for _, breaks := range []int64{0, 300_001} {
			store := &memory{content: random(size), breaks: breaks}
			r := objects.NewReaderAt(t.Context(), store, "key", int64(size))
			want := bytes.NewReader(store.content)
			order := rand.New(rand.NewPCG(1, uint64(size)))
			at := int64(0)
			for range 300 {
				b := make([]byte, order.IntN([]int{1, 50, 5000, 1 << 20}[order.IntN(4)])+1)
				switch order.IntN(4) {
				case 0:
					at = order.Int64N(int64(size) + 10)
				case 1:
					at = max(0, int64(size)-order.Int64N(300<<10))
				}
				wanted := make([]byte, len(b))
				wantN, wantErr := want.ReadAt(wanted, at)
				n, err := r.ReadAt(b, at)
				if n != wantN || !errors.Is(err, wantErr) || !bytes.Equal(b[:n], wanted[:n]) {
					t.Fatalf("size %d: ReadAt(%d bytes, %d) = %d, %v; want %d, %v", size, len(b), at, n, err, wantN, wantErr)
				}
				at += int64(n)
			}
			if err := r.Close(); err != nil || store.ended != store.opens {
				t.Errorf("%d of %d streams are closed, %v", store.ended, store.opens, err)
			}
			if _, err := r.ReadAt(make([]byte, 1), 0); size > 0 && !errors.Is(err, fs.ErrClosed) {
				t.Errorf("reading after Close: %v", err)
			}
		}
	}
}

// TestReaderAtInSequence checks that reading the whole object takes one stream,
// and that a second pass does not read the end again.
func TestReaderAtInSequence(t *testing.T) {
	t.Parallel()
	store := &memory{content: random(5 << 20)}
	r := objects.NewReaderAt(t.Context(), store, "key", 5<<20)
	defer r.Close()
	for pass := 1; pass <= 2; pass++ {
		if got, err := io.ReadAll(io.NewSectionReader(r, 0, 5<<20)); err != nil || !bytes.Equal(got, store.content) {
			t.Fatalf("pass %d reads %d bytes, %v", pass, len(got), err)
		}
		if store.opens != pass || store.ended != pass && pass == 1 {
			t.Errorf("pass %d opens %d streams, and %d are closed", pass, store.opens, store.ended)
		}
	}
	if want := int64(2*5<<20 - 256<<10); store.read != want {
		t.Errorf("%d bytes are read, want %d", store.read, want)
	}
}

func TestReaderAtErrors(t *testing.T) {
	t.Parallel()
	b := make([]byte, 1<<20)
	for at, want := range map[int64]error{
		1 << 20: io.ErrUnexpectedEOF, 1<<20 + 10: io.ErrUnexpectedEOF,
		2 << 20: registry.ErrInvalid, 3<<20 - 10: registry.ErrInvalid,
	} {
		short := &memory{content: random(1<<20 + 10)}
		r := objects.NewReaderAt(t.Context(), short, "key", 3<<20)
		if n, err := r.ReadAt(b, at); !errors.Is(err, want) || n > 10 {
			t.Errorf("an object that is too short, at %d: %d, %v", at, n, err)
		}
		r.Close()
	}
	gone := objects.NewReaderAt(t.Context(), &memory{fail: registry.ErrNotFound}, "key", 3<<20)
	for _, at := range []int64{0, 3<<20 - 10} {
		if _, err := gone.ReadAt(b, at); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("an object that is gone: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	store := &memory{content: random(3 << 20)}
	r := objects.NewReaderAt(ctx, store, "key", 3<<20)
	if _, err := r.ReadAt(b[:10], 0); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := r.ReadAt(b, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
	if _, err := r.ReadAt(b, -1); err == nil {
		t.Error("a negative offset is read")
	}
	// A stream that returns nothing is not opened again forever.
	dead := &memory{content: random(3 << 20)}
	d := objects.NewReaderAt(t.Context(), &deadLine{dead}, "key", 3<<20)
	if _, err := d.ReadAt(b, 0); err == nil || dead.opens > 2 {
		t.Errorf("a dead line is opened %d times: %v", dead.opens, err)
	}
}

type deadLine struct{ *memory }

func (d *deadLine) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := d.memory.Open(ctx, key, offset, length)
	return struct {
		io.Reader
		io.Closer
	}{iotest.ErrReader(errors.New("nobody there")), body}, err
}

// TestReaderAtOfProvider checks that inspecting a provider takes few requests
// and little memory. It reads the zip's end, goes through the members twice,
// and reads the whole zip once.
func TestReaderAtOfProvider(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	add := func(name string, mode fs.FileMode, body []byte) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	add("CHANGELOG.md", 0o644, []byte(strings.Repeat("- fixed\n", 10000)))
	for i := range 900 {
		add(fmt.Sprintf("docs/resources/%04d.md", i), 0o644, random(10+i*7%3000))
	}
	for i := range 2 {
		add(fmt.Sprintf("lib/%d.so", i), 0o755, random(5<<20))
	}
	add("terraform-provider-foo_v1.2.3", 0o755, append([]byte("\x7fELF"), random(10<<20)...))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	store := &memory{content: packed.Bytes()}
	size := int64(packed.Len())
	r := objects.NewReaderAt(t.Context(), store, "key", size)
	defer r.Close()
	p, err := archive.ReadProvider(t.Context(), r, size, "foo")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(packed.Bytes())
	if p.SHA256 != hex.EncodeToString(sum[:]) || len(p.Files) != 904 {
		t.Errorf("it is %s with %d files", p.SHA256, len(p.Files))
	}
	t.Logf("%d streams, %d bytes of %d", store.opens, store.read, size)
	if store.opens > 6 || store.read > 2*size+(4<<20) {
		t.Errorf("%d streams and %d bytes for a zip of %d bytes", store.opens, store.read, size)
	}
}
