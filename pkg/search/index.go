package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
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
	// loadTimeout bounds the time that a search waits for contents.
	loadTimeout = 5 * time.Second
	// totalsTimeout bounds the time in which downloads are read. Entries are useful
	// without them.
	totalsTimeout = 3 * time.Second
	// single is the part of the modules of a namespace whose contents are read
	// one by one. If more of them have changed, all are read.
	single = 8
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

// read returns the kind with whose entries those of k are read: the two kinds
// of the mirror are in one catalog.
func (k Kind) read() Kind {
	if k.IsMirrored() {
		return Mirrored
	}
	return k
}

// Shape returns the number of parts of the addresses of the kind, and the index
// of their names.
func (k Kind) Shape() (parts, name int) {
	switch k {
	case Providers:
		return 2, 1
	case Mirrored:
		return 3, 2
	case MirroredModules:
		return 4, 2
	}
	return 3, 1
}

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
	catalog   *catalog.Catalog
	downloads Downloads
	// totals are the downloads of all addresses when countedAt was the time by the wall
	// clock. They are read while counting is locked, so that the kinds share them.
	totals    map[string]registry.Downloads
	countedAt time.Time
	counting  sync.Mutex
	now       func() time.Time
	cached    *ttlcache.Cache[Kind, []*Entry]

	mu    sync.Mutex
	reads map[Kind]*read
	// last are the entries that were read last. Those that have not changed are
	// used again, so that a large catalog is not in memory twice.
	last map[Kind][]*Entry

	names *names
	// loading is what is read so that the names follow the entries, or nil.
	// loaded identifies the entries of each kind that they follow, by where the
	// first one is.
	loading *loading
	loaded  map[Kind]**Entry
}

// read is the reading of all entries of a kind. Concurrent requests share it.
type read struct {
	done    chan struct{}
	entries []*Entry
	damaged error // the entries, or the downloads, that cannot be read
	err     error
}

// loading is the reading of contents.
type loading struct {
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func (l *loading) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = fmt.Errorf("cannot read the contents of modules: %w", err)
}

// Downloads has the downloads of all addresses whose paths begin with a prefix,
// by path.
type Downloads interface {
	AllTotals(ctx context.Context, prefix string) (map[string]registry.Downloads, error)
}

// New returns the index of a catalog. If downloads is nil, all entries have 0.
// now is the clock, or nil for the time of the system.
func New(c *catalog.Catalog, downloads Downloads, now func() time.Time) *Index {
	if now == nil {
		now = time.Now
	}
	return &Index{
		catalog: c, downloads: downloads, now: now, cached: ttlcache.New[Kind, []*Entry](4, cacheTime),
		reads: make(map[Kind]*read), last: make(map[Kind][]*Entry), names: newNames(), loaded: make(map[Kind]**Entry),
	}
}

// Entries returns all entries of a kind, sorted by address. They are cached for
// a minute, unless the catalog has no namespace. If they cannot be read, the
// error is that of the table. Entries that cannot be decoded are omitted, and
// have no downloads if those cannot be read. The request that reads them logs
// that.
func (x *Index) Entries(ctx context.Context, k Kind) ([]*Entry, error) {
	all, err := x.entries(ctx, k.read())
	if !k.IsMirrored() {
		return all, err
	}
	from, _ := slices.BinarySearchFunc(all, k, func(e *Entry, k Kind) int { return cmp.Compare(e.Kind, k) })
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
func (x *Index) entries(ctx context.Context, k Kind) ([]*Entry, error) {
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

// In reads the entries of one namespace, which the mirror does not have, and
// returns those that include accepts. It caches nothing. Entries that cannot be
// decoded are omitted and logged.
func (x *Index) In(ctx context.Context, k Kind, namespace string, include func(*Entry) bool) (found Found, err error) {
	var read collected
	if err := read.collect(k, x.summaries(ctx, k, namespace)); err != nil {
		return found, fmt.Errorf("cannot read the catalog: %w", err)
	}
	totals, uncounted := x.totalsBelow(ctx, string(k)+namespace+"/")
	count(read.entries, totals)
	if err := errors.Join(damage(read.damaged), uncounted); err != nil {
		requestlog.From(ctx).Err = err
	}
	found.Entries = slices.DeleteFunc(read.entries, func(e *Entry) bool { return !include(e) })
	return found, nil
}

// load returns the names of some kinds after reading what has changed. If that
// takes longer than a client likes to wait, it continues after load returns,
// and the names are not complete.
func (x *Index) load(ctx context.Context, kinds []Kind) (*names, error) {
	entries := make(map[Kind][]*Entry)
	for _, k := range kinds {
		var err error
		if entries[k.read()], err = x.entries(ctx, k.read()); err != nil {
			return nil, err
		}
	}
	x.mu.Lock()
	if x.loading == nil && (x.names.isWaiting() || x.isNew(entries)) {
		if x.names.isSparse() {
			x.names = newNames()
			maps.DeleteFunc(x.loaded, func(k Kind, _ **Entry) bool { return entries[k] == nil })
		}
		x.loading = &loading{done: make(chan struct{})}
		go x.follow(context.WithoutCancel(ctx), entries, x.names, x.loading)
	}
	n, current := x.names, x.loading
	x.mu.Unlock()
	if current == nil {
		return n, nil
	}
	wait := time.NewTimer(loadTimeout)
	defer wait.Stop()
	select {
	case <-current.done:
		if current.err != nil {
			requestlog.From(ctx).Err = current.err
		}
	case <-wait.C:
	case <-ctx.Done():
	}
	return n, nil
}

// isNew reports whether the names do not follow some entries yet, and records
// that they will.
func (x *Index) isNew(entries map[Kind][]*Entry) (isNew bool) {
	for k, all := range entries {
		var first **Entry
		if len(all) > 0 {
			first = &all[0]
		}
		if before, known := x.loaded[k]; !known || before != first {
			x.loaded[k], isNew = first, true
		}
	}
	return isNew
}

// follow makes the names follow the entries.
func (x *Index) follow(ctx context.Context, entries map[Kind][]*Entry, n *names, l *loading) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	missing, count := make(map[string][]string), make(map[string]int) // by namespace
	for _, path := range n.set(entries) {
		namespace := namespaceOf(path)
		missing[namespace] = append(missing[namespace], path)
	}
	if len(missing) > 0 {
		for _, all := range entries {
			for _, e := range all {
				count[namespaceOf(e.Path())]++
			}
		}
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, readers)
	for namespace, paths := range missing {
		wanted := paths
		if len(paths)*single > count[namespace] {
			wanted = nil
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			for c, err := range x.catalog.Contents(ctx, namespace, wanted...) {
				if err != nil {
					l.fail(err)
					return // the next search tries again
				}
				n.addContents(c.Path, c.Data)
			}
			for _, path := range paths {
				n.addContents(path, nil) // it is missing
			}
		})
	}
	wait.Wait()
	x.mu.Lock()
	x.loading = nil
	x.mu.Unlock()
	close(l.done)
}

// namespaceOf returns the namespace of a path, or "" if that of a mirrored
// module.
func namespaceOf(path string) string {
	if strings.HasPrefix(path, string(MirroredModules)) {
		return ""
	}
	return strings.Split(path, "/")[1]
}

// contents returns the contents of a module. They are empty if they cannot be
// read.
func (x *Index) contents(ctx context.Context, n *names, e *Entry) registry.Contents {
	path := e.Path()
	n.mu.RLock()
	var data []byte
	if at, found := n.byPath[path]; found {
		data = n.documents[at].cached
	}
	n.mu.RUnlock()
	if data == nil {
		for c, err := range x.catalog.Contents(ctx, namespaceOf(path), path) {
			if err != nil {
				requestlog.From(ctx).Err = err
				return registry.Contents{}
			}
			data = c.Data
		}
	}
	return registry.DecodeContents(data)
}

func (x *Index) fill(ctx context.Context, k Kind, r *read) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := x.now()
	x.mu.Lock()
	last := x.last[k]
	x.mu.Unlock()
	r.entries, r.damaged, r.err = x.read(ctx, k, last)
	if r.err != nil {
		r.err = fmt.Errorf("cannot read the catalog: %w", r.err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.err == nil && r.entries != nil {
		x.cached.Add(k, r.entries, begin, time.Time{})
		x.last[k] = r.entries
	}
	delete(x.reads, k)
	close(r.done)
}

// read reads all entries of a kind. They are nil if the catalog has no
// namespace. That takes one request. It is not cached, so that the first
// publish is visible at once. Entries that are equal to those in last, which is
// sorted, are the same.
func (x *Index) read(ctx context.Context, k Kind, last []*Entry) (entries []*Entry, damaged, err error) {
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
	for i := range parts {
		parts[i].last = last
	}
	var wait sync.WaitGroup
	var totals map[string]registry.Downloads
	var uncounted error
	wait.Go(func() { totals, uncounted = x.allTotals(ctx) })
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
	entries = []*Entry{}
	var bad []error
	for _, p := range parts {
		entries, bad = append(entries, p.entries...), append(bad, p.damaged...)
	}
	slices.SortFunc(entries, compareEntries)
	count(entries, totals)
	return entries, errors.Join(damage(bad), uncounted), nil
}

// allTotals returns the downloads of all addresses, which are cached for a
// minute.
func (x *Index) allTotals(ctx context.Context) (map[string]registry.Downloads, error) {
	x.counting.Lock()
	defer x.counting.Unlock()
	now := x.now().Round(0)
	if age := now.Sub(x.countedAt); age >= 0 && age < cacheTime {
		return x.totals, nil
	}
	ctx, cancel := context.WithTimeout(ctx, totalsTimeout)
	defer cancel()
	totals, err := x.totalsBelow(ctx, "")
	if err == nil {
		x.totals, x.countedAt = totals, now
	}
	return totals, err
}

// totalsBelow reads the downloads of the addresses whose paths begin with a
// prefix.
func (x *Index) totalsBelow(ctx context.Context, prefix string) (map[string]registry.Downloads, error) {
	if x.downloads == nil {
		return nil, nil
	}
	totals, err := x.downloads.AllTotals(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot read the downloads: %w", err)
	}
	return totals, nil
}

// count sets the downloads of entries. It replaces those that change, because
// others may use them.
func count(entries []*Entry, totals map[string]registry.Downloads) {
	for i, e := range entries {
		if n := totals[e.Path()].Count; n != e.Downloads {
			counted := *e
			counted.Downloads = n
			entries[i] = &counted
		}
	}
}

func compareEntries(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Address, b.Address))
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
	last    []*Entry // that were read before
	entries []*Entry
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
			c.entries = append(c.entries, c.same(&e))
		case errors.Is(err, registry.ErrCorrupt):
			c.damaged = append(c.damaged, err)
		default:
			return err
		}
	}
	return nil
}

// same returns the equal entry that was read before, or else e.
func (c *collected) same(e *Entry) *Entry {
	at, found := slices.BinarySearchFunc(c.last, e, compareEntries)
	if !found {
		return e
	}
	before := c.last[at]
	e.Downloads = before.Downloads
	if reflect.DeepEqual(before, e) {
		return before
	}
	return e
}

// nameOf returns the name in an address. The error is registry.ErrCorrupt if
// the address is not of the kind.
func nameOf(k Kind, address string) (name string, err error) {
	parts := strings.Split(address, "/")
	count, at := k.Shape()
	if len(parts) != count || slices.Contains(parts, "") {
		return "", fmt.Errorf("an entry has the address %.100q: %w", address, registry.ErrCorrupt)
	}
	return parts[at], nil
}
