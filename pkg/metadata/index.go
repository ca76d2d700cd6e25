package metadata

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/requestlog"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

const (
	// cacheTime is how long entries are cached.
	cacheTime = time.Minute
	// readTimeout bounds reading all entries. Requests do not wait that long,
	// but the next one gets the result.
	readTimeout = 30 * time.Second
	// readers is how many namespaces are read at the same time.
	readers = 8
)

// kind is a kind of entries. The value is the beginning of their paths.
type kind string

const (
	moduleEntries   kind = "modules/"
	providerEntries kind = "providers/"
	mirrorEntries   kind = "mirror/"
)

// allowsNamespace reports whether addresses of the kind may be in a namespace.
func (k kind) allowsNamespace(namespace string) bool {
	var err error
	if k == moduleEntries {
		_, err = registry.ParseModule(namespace + "/any/any")
	} else {
		_, err = registry.ParseProvider(namespace + "/any")
	}
	return err == nil
}

// index caches the entries of the whole catalog for all callers.
type index struct {
	catalog *catalog.Catalog
	now     func() time.Time
	cached  *ttlcache.Cache[kind, []entry]

	mu    sync.Mutex
	reads map[kind]*read
}

// read is the reading of all entries of a kind. Concurrent requests share it.
type read struct {
	done    chan struct{}
	entries []entry
	damaged error // the entries that cannot be read
	err     error
}

func newIndex(c *catalog.Catalog) *index {
	return &index{
		catalog: c, now: time.Now, cached: ttlcache.New[kind, []entry](3, cacheTime), reads: make(map[kind]*read),
	}
}

// entries returns all entries of a kind, sorted by address. They are cached for
// a minute. If they cannot be read, the error is that of the table. Entries
// that cannot be decoded are omitted, and the request that reads them logs
// them.
func (x *index) entries(ctx context.Context, k kind) ([]entry, error) {
	x.mu.Lock()
	if found, ok := x.cached.Get(k, x.now()); ok {
		x.mu.Unlock()
		return found, nil
	}
	r, begun := x.reads[k]
	if !begun {
		r = &read{done: make(chan struct{})}
		x.reads[k] = r
		go x.fill(context.WithoutCancel(ctx), k, r)
	}
	x.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: reading the catalog takes too long: %w", registry.ErrUnavailable, ctx.Err())
	}
	if r.err == nil && r.damaged != nil && !begun {
		requestlog.From(ctx).Err = r.damaged
	}
	return r.entries, r.err
}

func (x *index) fill(ctx context.Context, k kind, r *read) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := x.now()
	r.entries, r.damaged, r.err = x.read(ctx, k)
	if r.err != nil {
		r.err = fmt.Errorf("cannot read the catalog: %w", r.err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.err == nil {
		x.cached.Add(k, r.entries, begin, time.Time{})
	}
	delete(x.reads, k)
	close(r.done)
}

// read reads all entries of a kind.
func (x *index) read(ctx context.Context, k kind) (entries []entry, damaged, err error) {
	namespaces := []string{""} // mirrored providers have none
	if k != mirrorEntries {
		if namespaces, err = x.catalog.Namespaces(ctx); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parts := make([]collected, len(namespaces))
	var wait sync.WaitGroup
	slots := make(chan struct{}, readers)
	for i, namespace := range namespaces {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if err := parts[i].collect(k, x.summaries(ctx, k, namespace)); err != nil {
				cancel(err)
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	entries = []entry{}
	var bad []error
	for _, p := range parts {
		entries, bad = append(entries, p.entries...), append(bad, p.damaged...)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Address, b.Address) })
	if len(bad) > 0 {
		damaged = fmt.Errorf("cannot list %d entries of the catalog; the first: %w", len(bad), bad[0])
	}
	return entries, damaged, nil
}

func (x *index) summaries(ctx context.Context, k kind, namespace string) iter.Seq2[registry.Summary, error] {
	switch k {
	case moduleEntries:
		return x.catalog.Modules.Summaries(ctx, namespace)
	case providerEntries:
		return x.catalog.Providers.Summaries(ctx, namespace)
	}
	return x.catalog.Mirror.Summaries(ctx, "")
}

// collected are the entries of one namespace.
type collected struct {
	entries []entry
	damaged []error
}

func (c *collected) collect(k kind, summaries iter.Seq2[registry.Summary, error]) error {
	for s, err := range summaries {
		var name string
		if err == nil {
			name, err = nameOf(k, s.Address)
		}
		switch {
		case err == nil:
			c.entries = append(c.entries, newEntry(s, name))
		case errors.Is(err, registry.ErrCorrupt):
			c.damaged = append(c.damaged, err)
		default:
			return err
		}
	}
	return nil
}

// nameOf returns the name in an address. The error is registry.ErrCorrupt if
// the address is not of the kind.
func nameOf(k kind, address string) (name string, err error) {
	parts := strings.Split(address, "/")
	slashes, at := 2, 1
	switch k {
	case moduleEntries:
	case providerEntries:
		slashes, at = 1, 1
	case mirrorEntries:
		at = 2
	}
	if len(parts) != slashes+1 || slices.Contains(parts, "") {
		return "", fmt.Errorf("an entry has the address %.100q: %w", address, registry.ErrCorrupt)
	}
	return parts[at], nil
}
