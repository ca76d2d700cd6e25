package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"time"

	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/metadata"
)

const (
	// entrySize is the bound on the size of a module's catalog entry in bytes.
	entrySize = 1600
	// cachedEntry is the bound on the memory of a cached entry in bytes.
	cachedEntry = 2000
	// fillingTime is the bound on the time to fill a library's tables, in
	// seconds.
	fillingTime = 40
	// fullPage is the least size of the entries in a page of DynamoDB that is not
	// the last, in bytes.
	fullPage = (1 << 20) - entrySize
	// sqlitePage is the number of items in a page of SQLite.
	sqlitePage = 1000
)

// firstBound returns the bound on the processor time of a request that reads the
// catalog. The bounds are about twice what a machine with two cores needs.
func firstBound(modules int) time.Duration {
	return perModule(100*time.Millisecond, 45*time.Microsecond, modules)
}

// nextBound returns the bound on the processor time of the following requests.
func nextBound(modules int) time.Duration {
	return perModule(5*time.Millisecond, 1500*time.Nanosecond, modules)
}

// memoryBound returns the bound on the memory of a function in MiB.
func memoryBound(modules int) float64 { return 40 + 8*float64(modules)/1024 }

func perModule(base, each time.Duration, modules int) time.Duration {
	return base + time.Duration(modules)*each
}

// libraryRequest is a request that is measured on each library.
type libraryRequest struct {
	name, path string
	// described means that it describes one version. It then reads the table
	// twice and one object. All other requests read the whole catalog at most
	// once a minute.
	described bool
}

func (l library) requests() []libraryRequest {
	module := "/v1/" + l.described().Path()
	return []libraryRequest{
		{"search", "/v1/modules/search?q=subnet+gateway", false},
		{"search without results", "/v1/modules/search?q=subnet+unheard", false},
		{"list", "/v1/modules?limit=100", false},
		{"list, the last page", fmt.Sprintf("/v1/modules?limit=100&offset=%d", l.modules-1), false},
		{"list of a namespace", "/v1/modules/" + l.namespace(0), false},
		{"version", module + "/" + version(moduleVersions).String(), true},
		{"newest version", module, true},
	}
}

// search measures lists and searches of libraries.
func search(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	binaries, err := build(ctx, lambda.Architecture(), dir)
	if err != nil {
		return result{}, err
	}
	tables, err := measureSearches(ctx, binaries, dir, n)
	return result{tables: tables}, err
}

func measureSearches(ctx context.Context, binaries map[string]string, dir string, n amounts) (tables []table, err error) {
	inFunction := table{title: "the function", columns: []column{
		{"first search", "ms"}, {"first search, processor", "ms"}, {"next, median", "ms"}, {"next, processor", "ms"},
		{"memory", "MiB"}, {"after a minute", "ms"}, {"after a minute, processor", "ms"}, {"memory then", "MiB"},
	}}
	var running []*searched
	defer func() {
		for _, s := range running {
			s.close()
		}
	}()
	for _, l := range n.libraries() {
		s, err := openLibrary(ctx, l, binaries, filepath.Join(dir, l.name))
		if s != nil {
			running = append(running, s)
		}
		if err != nil {
			return tables, fmt.Errorf("%s: %w", l.name, err)
		}
		found, err := s.measureHandlers(ctx, n)
		tables = append(tables, found...)
		if err != nil {
			return tables, fmt.Errorf("%s: %w", l.name, err)
		}
		figures, err := s.measureFunction(ctx, n)
		if err != nil {
			return tables, fmt.Errorf("%s: %w", l.name, err)
		}
		inFunction.rows = append(inFunction.rows, row{l.name, figures})
	}
	select {
	case <-time.After(n.cached):
	case <-ctx.Done():
		return tables, ctx.Err()
	}
	for i, s := range running {
		figures, err := s.measureAgain(ctx)
		if err != nil {
			return tables, fmt.Errorf("%s: %w", s.name, err)
		}
		inFunction.rows[i].figures = append(inFunction.rows[i].figures, figures...)
	}
	return append(tables, inFunction), nil
}

// searched is a library on both kinds of tables, with a function.
type searched struct {
	library
	*deployment
	sqlite        *sqlite.Table
	documentation []byte
	filled        time.Duration
	function      *lambda.Function
}

func openLibrary(ctx context.Context, l library, binaries map[string]string, dir string) (s *searched, err error) {
	s = &searched{library: l}
	if s.documentation, err = documentation(); err != nil {
		return nil, err
	}
	begun := time.Now()
	s.deployment, err = deployOn(ctx, dynamodbtest.StartLarge(tableName), binaries,
		func(ctx context.Context, t catalog.Table) error {
			return (&shelf{table: t}).library(ctx, l, s.documentation)
		})
	if err != nil {
		return nil, err
	}
	s.object = s.documentation
	if s.sqlite, err = sqlite.Create(ctx, dir+".db"); err != nil {
		return s, err
	}
	err = (&shelf{table: s.sqlite}).library(ctx, l, s.documentation)
	s.filled = time.Since(begun)
	return s, err
}

func (s *searched) close() {
	if s.function != nil {
		s.function.Close()
	}
	if s.sqlite != nil {
		_ = s.sqlite.Close() // its folder is removed anyway
	}
	s.deployment.close()
}

// measureHandlers measures the handler in this process on both tables.
func (s *searched) measureHandlers(ctx context.Context, n amounts) ([]table, error) {
	memory := table{title: s.name + ", memory", columns: []column{
		{"filling the tables", "s"}, {"an entry in the table", "bytes"}, {"an entry in memory", "bytes"},
		{"all entries in memory", "MiB"},
	}}
	size, err := s.entrySize(ctx)
	if err != nil {
		return nil, err
	}
	heap, err := s.heap(ctx)
	if err != nil {
		return nil, err
	}
	memory.rows = []row{{"modules", []*figure{
		atMost(s.filled.Seconds(), fillingTime), atMost(size, entrySize),
		s.bounded(heap/float64(s.modules), cachedEntry), is(heap / (1 << 20)),
	}}}
	tables := []table{memory}
	for _, t := range []struct {
		name  string
		table catalog.Table
		pages func() float64
	}{
		{"SQLite", s.sqlite, func() float64 { return math.Ceil(float64(s.inNamespace()) / sqlitePage) }},
		{"DynamoDB", s.table, func() float64 { return math.Ceil(float64(s.inNamespace()) * size / fullPage) }},
	} {
		// The names of the namespaces, and the entries of each.
		all := 1 + float64(min(s.namespaces, s.modules))*t.pages()
		measured := table{title: s.name + ", " + t.name, columns: searchColumns}
		for _, r := range s.requests() {
			figures, err := s.measureRequest(ctx, t.table, r, all, n)
			if err != nil {
				return tables, fmt.Errorf("%s, %s: %w", t.name, r.name, err)
			}
			measured.rows = append(measured.rows, row{r.name, figures})
		}
		tables = append(tables, measured)
	}
	return tables, nil
}

// inNamespace returns the number of modules in the largest namespace.
func (l library) inNamespace() int { return (l.modules + l.namespaces - 1) / l.namespaces }

// bounded returns a figure of one entry. The figures of a small library are
// mostly those of everything else, so they have no bounds.
func (l library) bounded(value, bound float64) *figure {
	const small = 500
	if l.modules < small {
		return is(value)
	}
	return atMost(value, bound)
}

// entrySize returns the mean size of entries in DynamoDB, in bytes.
func (s *searched) entrySize(ctx context.Context) (float64, error) {
	s.dynamo.Reads()
	for _, err := range catalog.New(s.table).Modules.Summaries(ctx, s.namespace(0)) {
		if err != nil {
			return 0, err
		}
	}
	return float64(s.dynamo.Reads().Bytes) / float64(s.inNamespace()), nil
}

// heap returns the memory of the cached entries in bytes.
func (s *searched) heap(ctx context.Context) (float64, error) {
	used := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // empties the pools
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	before := used()
	h := metadata.New(catalog.New(s.sqlite), oneObject{s.documentation, &callCounter{}}, access.Everyone)
	_, err := sendTo(ctx, h, s.requests()[0].path)
	after := used()
	runtime.KeepAlive(h)
	return max(after-before, 0), err
}

var searchColumns = []column{
	{"reads, first", ""}, {"reads, next", ""}, {"objects read", ""}, {"read, first", "bytes"}, {"read units, first", ""},
	{"read units, next", ""}, {"first, processor", "ms"}, {"next, processor", "ms"}, {"answer", "bytes"},
}

// measureRequest measures a request to a new handler, and the following ones.
// all is the number of calls that read the catalog.
func (s *searched) measureRequest(
	ctx context.Context, on catalog.Table, r libraryRequest, all float64, n amounts,
) ([]*figure, error) {
	table := &countedTable{Table: on, callCounter: &callCounter{}}
	h := metadata.New(catalog.New(table), oneObject{s.documentation, table.callCounter}, access.Everyone)
	s.dynamo.Reads()
	begun := processorTime()
	if _, err := sendTo(ctx, h, r.path); err != nil {
		return nil, err
	}
	took := processorTime() - begun
	first, firstUnits := table.take(), s.dynamo.Reads()
	size, err := sendTo(ctx, h, r.path)
	if err != nil {
		return nil, err
	}
	next, nextUnits := table.take(), s.dynamo.Reads()
	mostFirst, mostNext, mostObjects := all, 0.0, 0.0
	if r.described {
		mostFirst, mostNext, mostObjects = 2, 2, 1
	}
	figures := []*figure{
		atMost(float64(first.reads()), mostFirst), atMost(float64(next.reads()), mostNext),
		atMost(float64(next.objectReads), mostObjects), nil, nil, nil, nil, nil, is(float64(size)),
	}
	if on != catalog.Table(s.sqlite) {
		figures[3], figures[4] = is(float64(firstUnits.Bytes)), is(float64(firstUnits.Units))
		figures[5] = is(float64(nextUnits.Units))
		return figures, nil // the emulator works in this process too
	}
	begun = processorTime()
	for range n.requests {
		if _, err := sendTo(ctx, h, r.path); err != nil {
			return nil, err
		}
	}
	again := (processorTime() - begun) / time.Duration(n.requests)
	figures[6] = atMost(milliseconds(took), milliseconds(firstBound(s.modules)))
	figures[7] = atMost(milliseconds(again), milliseconds(nextBound(s.modules)))
	return figures, nil
}

// sendTo sends a request to a handler and returns the size of the response.
func sendTo(ctx context.Context, h http.Handler, path string) (int, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(ctx, path, ""))
	if w.Code != http.StatusOK {
		return 0, fmt.Errorf("the response has status %d: %s", w.Code, w.Body)
	}
	return w.Body.Len(), nil
}

// oneObject is an object store in which all keys have the same object.
type oneObject struct {
	data []byte
	*callCounter
}

// Open implements metadata.Objects.
func (o oneObject) Open(context.Context, string, int64, int64) (io.ReadCloser, error) {
	o.add(func(c *callCount) { c.objectReads++ })
	return io.NopCloser(bytes.NewReader(o.data)), nil
}

// measureFunction starts the function and measures searches.
func (s *searched) measureFunction(ctx context.Context, n amounts) ([]*figure, error) {
	var err error
	if s.function, err = s.start(ctx, "metadata"); err != nil {
		return nil, err
	}
	first, read, err := s.searches(ctx, 1)
	if err != nil {
		return nil, err
	}
	next, processor, err := s.searches(ctx, n.requests)
	if err != nil {
		return nil, err
	}
	for _, r := range s.requests() {
		if _, err := s.invoke(ctx, r); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	memory, _, err := s.function.Usage()
	return []*figure{
		is(milliseconds(first)), atMost(milliseconds(read), milliseconds(firstBound(s.modules))),
		is(milliseconds(next)), atMost(milliseconds(processor), milliseconds(nextBound(s.modules))),
		atMost(float64(memory>>10)/1024, memoryBound(s.modules)),
	}, err
}

// measureAgain measures a search after the cached entries have expired.
func (s *searched) measureAgain(ctx context.Context) ([]*figure, error) {
	took, processor, err := s.searches(ctx, 1)
	if err != nil {
		return nil, err
	}
	memory, _, err := s.function.Usage()
	return []*figure{
		is(milliseconds(took)), atMost(milliseconds(processor), milliseconds(firstBound(s.modules))),
		atMost(float64(memory>>10)/1024, memoryBound(s.modules)),
	}, err
}

// searches sends n searches to the function. It returns the median of their
// times, and the mean of the function's processor time.
func (s *searched) searches(ctx context.Context, n int) (median, processor time.Duration, err error) {
	_, before, err := s.function.Usage()
	if err != nil {
		return 0, 0, err
	}
	took := make(times, n)
	for i := range took {
		if took[i], err = s.invoke(ctx, s.requests()[0]); err != nil {
			return 0, 0, err
		}
	}
	_, after, err := s.function.Usage()
	return took.median(), (after - before) / time.Duration(n), err
}

// invoke sends a request to the function and returns how long it took.
func (s *searched) invoke(ctx context.Context, r libraryRequest) (time.Duration, error) {
	event, err := lambda.Event(request(ctx, r.path, s.token), r.path)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	_, err = invoke(ctx, s.function, event, http.StatusOK)
	return time.Since(begun), err
}
