package disk_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/smalldisk"
	"github.com/larder-registry/larder/pkg/registry"
)

const roomKey = "modules/acme/vpc/aws/1.0.0/x.tar.gz"

// A file system that reports no size, such as ramfs, has room.
func TestNoSize(t *testing.T) {
	t.Parallel()
	s := open(t, smalldisk.New(t, "ramfs", ""))
	defer s.Close()
	if err := s.PutOnce(t.Context(), roomKey, strings.NewReader("content"), digestOf("content")); err != nil {
		t.Error(err)
	}
}

// On a nearly full disk, an object that exists is reported as such.
func TestExistsOnFullDisk(t *testing.T) {
	t.Parallel()
	dir := smalldisk.New(t, "tmpfs", "size=1m")
	s := open(t, dir)
	defer s.Close()
	stage := func(key string) error {
		return s.PutStaged(t.Context(), key, strings.NewReader("content"), digestOf("content"))
	}
	if err := stage(roomKey); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 980<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stage(roomKey); !errors.Is(err, registry.ErrExists) {
		t.Errorf("the same object: %v, want ErrExists", err)
	}
	if err := stage(roomKey + "2"); !errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("another object: %v, want ErrDiskFull", err)
	}
}

// onRead calls f before each read.
type onRead struct {
	*bytes.Reader
	f func()
}

func (r onRead) Read(p []byte) (int, error) {
	r.f()
	return r.Reader.Read(p)
}

// An upload ends if the disk becomes nearly full meanwhile.
func TestDiskFillsDuringUpload(t *testing.T) {
	t.Parallel()
	dir := smalldisk.New(t, "tmpfs", "size=64m")
	s := open(t, dir)
	defer s.Close()
	content := bytes.NewReader(make([]byte, 24<<20))
	fill := sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 60<<20), 0o600); err != nil {
			t.Error(err)
		}
	})
	err := s.PutOnce(t.Context(), roomKey, onRead{content, fill}, digestOf(string(make([]byte, 24<<20))))
	if !errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("%v, want ErrDiskFull", err)
	}
	if read := content.Size() - int64(content.Len()); read > 2<<20 {
		t.Errorf("the upload was read for %d bytes", read)
	}
}
