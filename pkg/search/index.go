package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
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

// Kind is a kind of entries. The value is the beginning of their paths.
type Kind string

// The kinds of entries.
const (
	Modules         Kind = "modules/"
	Providers       Kind = "providers/"
	Mirrored        Kind = registry.MirrorPrefix
	MirroredModules Kind = registry.MirrorModulePrefix
)

// IsMirrored reports whether the addresses begin with a hostname.
func (k Kind) IsMirrored() bool { return k == Mirrored || k == MirroredModules }

// AllowsNamespace reports whether addresses of the kind may be in a namespace.
func (k Kind) AllowsNamespace(namespace string) bool {
	var err error
	if k == Modules || k == MirroredModules {
		_, err = registry.ParseModule(namespace + "/any/any")
	} else {
		_, err = registry.ParseProvider(namespace + "/any")
	}
	return err == nil
}

// Index caches the entries of the whole catalog for all callers. Create one with
// [New].
type Index struct {
	catalog *catalog.Catalog
	now     func() time.Time
	cached  *ttlcache.Cache[Kind, []Entry]

	mu    sync.Mutex
	reads map[Kind]*read
}

// read is the reading of all entries of a kind. Concurrent requests share it.
type read struct {
	done    chan struct{}
	entries []Entry
	damaged error // the entries that cannot be read
	err     error
}

// New returns the index of a catalog. now is the clock, or nil for the time of
// the system.
func New(c *catalog.Catalog, now func() time.Time) *Index {
	if now == nil {
		now = time.Now
	}
	return &Index{
		catalog: c, now: now, cached: ttlcache.New[Kind, []Entry](4, cacheTime), reads: make(map[Kind]*read),
	}
}

// Entries returns all entries of a kind, sorted by address. They are cached for
// a minute, unless the catalog has no namespace. If they cannot be read, the
// error is that of the table. Entries that cannot be decoded are omitted, and the
// request that reads them logs them.
func (x *Index) Entries(ctx context.Context, k Kind) ([]Entry, error) {
	if !k.IsMirrored() {
		return x.entries(ctx, k)
	}
	all, err := x.entries(ctx, Mirrored) // both kinds, because they are read together
	from, _ := slices.BinarySearchFunc(all, k, func(e Entry, k Kind) int { return cmp.Compare(e.Kind, k) })
	to := from
	for to < len(all) && all[to].Kind == k {
		to++
	}
	if all != nil {
		all = all[from:to:to]
	}
	return all, err
}

// entries returns the cached entries of a kind, or reads them.
func (x *Index) entries(ctx context.Context, k Kind) ([]Entry, error) {
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

// EntriesIn reads the entries of one namespace, which the mirror does not have. It
// caches nothing. Entries that cannot be decoded are omitted and logged.
func (x *Index) EntriesIn(ctx context.Context, k Kind, namespace string) ([]Entry, error) {
	var found collected
	if err := found.collect(k, x.summaries(ctx, k, namespace)); err != nil {
		return nil, fmt.Errorf("cannot read the catalog: %w", err)
	}
	if damaged := damage(found.damaged); damaged != nil {
		requestlog.From(ctx).Err = damaged
	}
	return found.entries, nil
}

func (x *Index) fill(ctx context.Context, k Kind, r *read) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := x.now()
	r.entries, r.damaged, r.err = x.read(ctx, k)
	if r.err != nil {
		r.err = fmt.Errorf("cannot read the catalog: %w", r.err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.err == nil && r.entries != nil {
		x.cached.Add(k, r.entries, begin, time.Time{})
	}
	delete(x.reads, k)
	close(r.done)
}

// read reads all entries of a kind. They are nil if the catalog has no namespace.
// That takes one request. It is not cached, so that the first publish is visible
// at once.
func (x *Index) read(ctx context.Context, k Kind) (entries []Entry, damaged, err error) {
	namespaces := []string{""} // the mirror has none
	if !k.IsMirrored() {
		if namespaces, err = x.catalog.Namespaces(ctx); err != nil {
			return nil, nil, err
		}
		if len(namespaces) == 0 {
			return nil, nil, nil
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
	entries = []Entry{}
	var bad []error
	for _, p := range parts {
		entries, bad = append(entries, p.entries...), append(bad, p.damaged...)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Address, b.Address))
	})
	return entries, damage(bad), nil
}

// damage returns the error for entries that cannot be decoded, or nil without one.
func damage(bad []error) error {
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("cannot list %d entries of the catalog; the first: %w", len(bad), bad[0])
}

func (x *Index) summaries(ctx context.Context, k Kind, namespace string) iter.Seq2[registry.Summary, error] {
	switch k {
	case Modules:
		return x.catalog.Modules.Summaries(ctx, namespace)
	case Providers:
		return x.catalog.Providers.Summaries(ctx, namespace)
	}
	return x.catalog.Mirror.Summaries(ctx, "")
}

// collected are the entries of one namespace.
type collected struct {
	entries []Entry
	damaged []error
}

func (c *collected) collect(k Kind, summaries iter.Seq2[registry.Summary, error]) error {
	for s, err := range summaries {
		// Mirrored modules share the catalog of mirrored providers, but no scope.
		of := k
		if k == Mirrored && strings.Count(s.Address, "/") == 3 {
			of = MirroredModules
		}
		var e Entry
		if err == nil {
			e, err = NewEntry(of, s)
		}
		switch {
		case err == nil:
			c.entries = append(c.entries, e)
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
func nameOf(k Kind, address string) (name string, err error) {
	parts := strings.Split(address, "/")
	slashes, at := 2, 1
	switch k {
	case Modules:
	case Providers:
		slashes, at = 1, 1
	case Mirrored:
		at = 2
	case MirroredModules:
		slashes, at = 3, 2
	}
	if len(parts) != slashes+1 || slices.Contains(parts, "") {
		return "", fmt.Errorf("an entry has the address %.100q: %w", address, registry.ErrCorrupt)
	}
	return parts[at], nil
}
