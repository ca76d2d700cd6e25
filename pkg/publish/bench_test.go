package publish_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// BenchmarkProvider publishes a release of four zips, of programs and of random
// bytes, to a store that discards them. MB/s is relative to the size of the
// zips.
func BenchmarkProvider(b *testing.B) {
	key, err := builds.Signer()
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.ReadFile(os.Args[0]) // this one
	if err != nil {
		b.Fatal(err)
	}
	random := make([]byte, 16<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for name, content := range map[string][]byte{"program": program[:min(len(program), 16<<20)], "random": random} {
		r := newRelease(b, "1.0.0")
		for _, platform := range []string{"linux_amd64", "linux_386", "freebsd_amd64", "openbsd_amd64"} {
			r.Zip(b, r.Name+"_"+platform+".zip", map[string]string{"terraform-provider-inventory": platform + string(content)})
		}
		r.Sign(b)
		backend := embedded(b)
		backend.addKey(b, key)
		b.Run(name, func(b *testing.B) {
			var sent discarding
			p := publish.Publisher{Catalog: catalog.New(forgetful{backend.table}), Objects: &sent}
			before := readHere(b)
			var size int64
			for b.Loop() {
				result, err := p.Provider(b.Context(), r.provider())
				if err != nil {
					b.Fatal(err)
				}
				size = 0
				for _, pkg := range result.Record.Packages {
					size += pkg.Size
				}
			}
			b.SetBytes(size)
			if before > 0 {
				b.ReportMetric(float64(readHere(b)-before)/float64(b.N)/float64(size), "reads/byte")
			}
		})
	}
}

// discarding is a store that accepts objects and has none.
type discarding struct{}

func (discarding) PutOnce(_ context.Context, _ string, body io.ReadSeeker, want objects.Digest) error {
	return objects.Copy(io.Discard, body, want)
}

func (discarding) Open(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return nil, registry.ErrNotFound
}

func (discarding) Stat(context.Context, string) (objects.Info, error) {
	return objects.Info{}, registry.ErrNotFound
}

// forgetful is a table that ignores writes.
type forgetful struct{ catalog.Table }

func (forgetful) Write(context.Context, ...catalog.Change) error { return nil }

// readHere returns how many bytes this process has read so far, or 0 if the
// system does not report it.
func readHere(tb testing.TB) (bytes int64) {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "rchar: "); ok {
			if bytes, err = strconv.ParseInt(strings.TrimSpace(n), 10, 64); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return bytes
}
