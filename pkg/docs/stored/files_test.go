package stored_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/registry"
)

// slow is an object store in which reading an object takes a second.
type slow struct {
	data      []byte
	now, most atomic.Int64
}

func (s *slow) Open(context.Context, string, int64, int64) (io.ReadCloser, error) {
	defer s.now.Add(-1)
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	time.Sleep(time.Second)
	return io.NopCloser(bytes.NewReader(s.data)), nil
}

// However many requests there are, few objects are in memory.
func TestFewFilesAtOnce(t *testing.T) {
	t.Parallel()
	data, err := docs.EncodeFiles(docs.FileList{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		objects := &slow{data: data}
		files := stored.NewFiles(objects, time.Now)
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				sum := sha256.Sum256(data)
				file := registry.StoredFile{
					Object: string(rune('a' + i)), SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data)),
				}
				if _, err := files.Read(t.Context(), file); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if most := objects.most.Load(); most > 2 {
			t.Errorf("%d objects are read at once, want at most 2", most)
		}
	})
}
