package progress_test

import (
	"io"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/progress"
)

func TestOr(t *testing.T) {
	t.Parallel()
	r := progress.Or(nil)
	r.Step("reading")
	moved, end := r.Transfer("packing", 1)
	moved(1)
	end()
	if progress.Or(r) != r {
		t.Error("Or returns another Reporter than the given one")
	}
}

func TestReadSeeker(t *testing.T) {
	t.Parallel()
	var total int64
	in := progress.ReadSeeker(strings.NewReader("0123456789"), func(n int64) { total += n })
	for range 2 { // the second time is like a repeated request
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, in); err != nil || n != 10 {
			t.Fatal(n, err)
		}
		if total != 10 {
			t.Errorf("%d bytes moved, want 10", total)
		}
	}
}

func TestReaderAt(t *testing.T) {
	t.Parallel()
	var total int64
	in := progress.ReaderAt(strings.NewReader("0123456789"), func(n int64) { total += n })
	for _, step := range []struct{ offset, length, want int64 }{
		{8, 2, 0}, {0, 2, 2}, {0, 3, 3}, {1, 2, 3}, {5, 2, 3}, {3, 4, 7}, {7, 3, 10}, {0, 10, 10},
	} {
		if _, err := in.ReadAt(make([]byte, step.length), step.offset); err != nil {
			t.Fatal(err)
		}
		if total != step.want {
			t.Errorf("%d bytes moved after %d at %d were read, want %d", total, step.length, step.offset, step.want)
		}
	}
}
