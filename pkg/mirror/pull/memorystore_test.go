package pull_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// memoryStore is an object store in memory, because hundreds of tests would wait
// for the disk.
type memoryStore struct {
	mu      sync.Mutex
	objects map[string]storedObject
}

type storedObject struct {
	objects.Info
	content []byte
}

func (s *memoryStore) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := objects.CheckKey(key); err != nil {
		return err
	}
	if _, taken := s.objects[key]; taken {
		return fmt.Errorf("object %s: %w", key, registry.ErrExists)
	}
	var content bytes.Buffer
	if err := objects.Copy(&content, progress.WithContext(ctx, body), digest); err != nil {
		return err
	}
	if s.objects == nil {
		s.objects = make(map[string]storedObject)
	}
	s.objects[key] = storedObject{objects.Info{Key: key, Size: digest.Size, Modified: time.Now()}, content.Bytes()}
	return nil
}

func (s *memoryStore) find(ctx context.Context, key string) (storedObject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.objects[key]
	if !ok {
		return storedObject{}, fmt.Errorf("object %s: %w", key, registry.ErrNotFound)
	}
	return found, ctx.Err()
}

func (s *memoryStore) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	found, err := s.find(ctx, key)
	if err != nil {
		return nil, err
	}
	if length < 0 {
		length = found.Size - offset
	}
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(found.content), offset, length)), nil
}

func (s *memoryStore) Stat(ctx context.Context, key string) (objects.Info, error) {
	found, err := s.find(ctx, key)
	return found.Info, err
}

func (s *memoryStore) Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	s.mu.Lock()
	keys := slices.Sorted(maps.Keys(s.objects))
	s.mu.Unlock()
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		info, err := s.Stat(ctx, key)
		if err == nil {
			err = visit(info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
