package archive_test

import (
	"archive/zip"
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/larder-registry/larder/pkg/content/archive"
)

// BenchmarkReadProvider reads zips of programs, which are the content of
// providers, and of random bytes, which do not compress. MB/s is relative to
// the size of the zip.
func BenchmarkReadProvider(b *testing.B) {
	program, err := os.Open(os.Args[0]) // this one
	if err != nil {
		b.Fatal(err)
	}
	defer program.Close()
	for name, content := range map[string]io.Reader{
		"program": program,
		"random":  io.LimitReader(rand.NewChaCha8([32]byte{}), 16<<20),
	} {
		var packed bytes.Buffer
		z := zip.NewWriter(&packed)
		h := &zip.FileHeader{Name: "terraform-provider-foo", Method: zip.Deflate}
		h.SetMode(0o755)
		w, err := z.CreateHeader(h)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(w, content); err != nil {
			b.Fatal(err)
		}
		if err := z.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			in := &counting{zip: bytes.NewReader(packed.Bytes())}
			b.SetBytes(int64(packed.Len()))
			for b.Loop() {
				if _, err := archive.ReadProvider(b.Context(), in, int64(packed.Len()), "foo"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(in.read)/float64(b.N)/float64(packed.Len()), "reads/byte")
		})
	}
}

// counting counts the bytes that are read.
type counting struct {
	zip  io.ReaderAt
	read int64
}

func (c *counting) ReadAt(p []byte, offset int64) (int, error) {
	n, err := c.zip.ReadAt(p, offset)
	c.read += int64(n)
	return n, err
}
