package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/internal/testkit/showcase"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/session"
	"github.com/larder-registry/larder/pkg/web"
)

const (
	// pageTime is the bound on the processor time of a page.
	pageTime = 5 * time.Millisecond
	// pageSize is the bound on the compressed size of a page, in KiB.
	pageSize = 30
)

// measuredPage is a page with the bounds of its reads. Home and search read the
// catalog at most once a minute, and nothing else.
type measuredPage struct {
	name, path     string
	reads, objects float64
}

// libraryPages are measured on a library.
var libraryPages = []measuredPage{
	{"home", "/", 0, 0},
	{"search", "/search?q=subnet+gateway", 0, 0},
}

// showcasePages are measured on the showcase.
var showcasePages = []measuredPage{
	{"module", "/modules/acme/vpc/aws", 2, 1},
	{"module with 300 inputs", "/modules/platform/everything/aws", 2, 1},
	{"the same in Markdown", "/modules/platform/everything/aws.md", 2, 1},
	{"submodule", "/modules/acme/vpc/aws/4.2.0/modules/endpoints", 2, 1},
	{"list of versions", "/modules/acme/vpc/aws/versions", 2, 0},
	{"difference", "/modules/acme/vpc/aws/compare?from=3.19.0&to=4.2.0", 2, 2},
	{"provider", "/providers/acme/inventory", 2, 0},
	{"mirrored provider", "/mirror/registry.example.net/hashicorp/aws", 2, 0},
}

// pages measures the pages of a library and of the showcase, which are on
// SQLite in this process.
func pages(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	ofLibrary, err := measureLibraryPages(ctx, n.libraries()[0], filepath.Join(dir, "library.db"), n)
	if err != nil {
		return result{}, err
	}
	ofShowcase, err := measureShowcasePages(ctx, filepath.Join(dir, "showcase"), n)
	return result{tables: []table{ofLibrary, ofShowcase}}, err
}

func measureLibraryPages(ctx context.Context, l library, path string, n amounts) (table, error) {
	text, err := documentation()
	if err != nil {
		return table{}, err
	}
	on, err := sqlite.Create(ctx, path)
	if err != nil {
		return table{}, err
	}
	defer on.Close()
	if err := (&shelf{table: on}).library(ctx, l, text); err != nil {
		return table{}, err
	}
	counter := &callCounter{}
	return measurePages(ctx, l.name, on, oneObject{text, counter}, counter, libraryPages, n)
}

func measureShowcasePages(ctx context.Context, dir string, n amounts) (table, error) {
	data, err := showcase.Create(ctx, dir)
	if err != nil {
		return table{}, err
	}
	defer data.Close()
	on, err := sqlite.Open(ctx, filepath.Join(dir, "larder.db"))
	if err != nil {
		return table{}, err
	}
	defer on.Close()
	store, err := disk.Open(dir)
	if err != nil {
		return table{}, err
	}
	defer store.Close()
	counter := &callCounter{}
	return measurePages(ctx, "the showcase", on, countedStore{store, counter}, counter, showcasePages, n)
}

var pageColumns = []column{
	{"reads", ""}, {"objects read", ""}, {"processor", "ms"}, {"size", "KiB"}, {"compressed", "KiB"},
}

// measurePages measures pages for a caller who may read everything, without a
// session. counter counts the reads of objects, and those of the table.
func measurePages(
	ctx context.Context, title string, on catalog.Table, from stored.Objects, counter *callCounter,
	all []measuredPage, n amounts,
) (table, error) {
	h := web.New(web.Options{
		Catalog: catalog.New(&countedTable{Table: on, callCounter: counter}), Objects: from,
		Accounts: session.New(session.Options{Open: true}),
	})
	t := table{title: title, columns: pageColumns}
	for _, p := range all {
		plain, err := pageBytes(ctx, h, p.path, "identity")
		if err != nil {
			return t, err
		}
		counter.take()
		compressed, err := pageBytes(ctx, h, p.path, "gzip")
		if err != nil {
			return t, err
		}
		calls := counter.take()
		took, err := pageProcessorTime(ctx, h, p.path, n)
		if err != nil {
			return t, err
		}
		t.rows = append(t.rows, row{p.name, []*figure{
			atMost(float64(calls.reads()), p.reads), atMost(float64(calls.objectReads), p.objects),
			atMost(milliseconds(took), milliseconds(pageTime)), is(plain / 1024), atMost(compressed/1024, pageSize),
		}})
	}
	return t, nil
}

// pageProcessorTime returns the processor time of a page: the least of several
// rounds, since other programs on the machine only add to it.
func pageProcessorTime(ctx context.Context, h http.Handler, path string, n amounts) (time.Duration, error) {
	rounds := make(times, n.rounds)
	each := max(n.requests/n.rounds, 1)
	for i := range rounds {
		begun := processorTime()
		for range each {
			if _, err := pageBytes(ctx, h, path, "gzip"); err != nil {
				return 0, err
			}
		}
		rounds[i] = (processorTime() - begun) / time.Duration(each)
	}
	return rounds.min(), nil
}

// pageBytes requests a page and returns the size of the response.
func pageBytes(ctx context.Context, h http.Handler, path, encoding string) (float64, error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return 0, fmt.Errorf("the page %s has status %d", path, w.Code)
	}
	return float64(w.Body.Len()), nil
}
