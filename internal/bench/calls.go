package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

const (
	// callDelay is added to each call of a table while publishing is timed. It
	// is about the latency of DynamoDB.
	callDelay = 5 * time.Millisecond
	// publishWork is the bound on the time of a publish without these delays,
	// also on a slow machine.
	publishWork = 5 * time.Second
	// tinyProgram is the size of providers' programs, in bytes.
	tinyProgram = 1 << 10
)

// operation is an operation whose calls are counted.
type operation struct {
	name string
	most callBounds
	run  func(context.Context) error
}

// callBounds are the bounds on the calls of an operation. The zero value means
// no bounds.
type callBounds struct{ reads, writes, objectReads, objectWrites int }

// bounded returns the number of calls as a figure with a bound.
func (b callBounds) bounded(calls, most int) *figure {
	if b == (callBounds{}) {
		return is(float64(calls))
	}
	return atMost(float64(calls), float64(most))
}

func calls(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	var tables []table
	for _, backend := range []string{"SQLite", "DynamoDB"} {
		at := filepath.Join(dir, backend)
		if err := os.Mkdir(at, 0o700); err != nil {
			return result{}, err
		}
		found, err := measureCalls(ctx, at, backend, n)
		tables = append(tables, found...)
		if err != nil {
			return result{tables: tables}, fmt.Errorf("%s: %w", backend, err)
		}
	}
	return result{tables: tables}, nil
}

// measureCalls measures a registry on one kind of table.
func measureCalls(ctx context.Context, dir, backend string, n amounts) ([]table, error) {
	tables, err := countCalls(ctx, dir, backend, n)
	if err != nil {
		return tables, err
	}
	timed, err := timePublishing(ctx, dir, backend)
	if err != nil {
		return tables, err
	}
	together, err := publishTogether(ctx, dir, backend, n)
	return append(tables, timed, together), err
}

var callColumns = []column{
	{"reads", ""}, {"writes", ""},
	{"Get", ""}, {"Snapshot", ""}, {"items of Snapshot", ""}, {"Query", ""}, {"items of Query", ""},
	{"items of Write", ""},
	{"conflicts", ""}, {"object reads", ""}, {"object writes", ""}, {"HTTP requests", ""},
}

// countCalls counts the calls of each operation.
func countCalls(ctx context.Context, dir, backend string, n amounts) ([]table, error) {
	r, err := openCounted(ctx, dir, backend, 0)
	if err != nil {
		return nil, err
	}
	defer r.close()
	publishing, err := r.publishing()
	if err != nil {
		return nil, err
	}
	mirroring, err := r.mirroring(n.mirrored)
	if err != nil {
		return nil, err
	}
	// Each operation depends on the ones before it.
	var tables []table
	for _, group := range []struct {
		name       string
		operations []operation
	}{
		{"publish", publishing}, {"mirror add", mirroring}, {"requests", r.reading()}, {"list", r.listing()},
		{"deprecate", r.deprecating()}, {"withdraw", r.withdrawing()},
	} {
		t := table{title: group.name + ", " + backend, columns: callColumns}
		for _, o := range group.operations {
			c, requests, err := r.count(ctx, o)
			if err != nil {
				return tables, err
			}
			t.rows = append(t.rows, row{o.name, callFigures(o, c, requests)})
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// callFigures returns the figures for callColumns.
func callFigures(o operation, c callCount, requests int) []*figure {
	figures := []*figure{
		o.most.bounded(c.reads(), o.most.reads), o.most.bounded(c.write.calls, o.most.writes),
		is(float64(c.get.calls)), is(float64(c.snapshot.calls)), is(float64(c.snapshot.items)),
		is(float64(c.query.calls)), is(float64(c.query.items)), is(float64(c.write.items)),
		o.most.bounded(c.conflicts, 0),
		o.most.bounded(c.objectReads, o.most.objectReads), o.most.bounded(c.objectWrites, o.most.objectWrites),
	}
	if requests < 0 {
		return append(figures, nil)
	}
	// Each call is one request.
	return append(figures, atMost(float64(requests), float64(c.reads()+c.write.calls)))
}

// timePublishing measures the time of publishing if the table is far away.
func timePublishing(ctx context.Context, dir, backend string) (table, error) {
	t := table{
		title:   fmt.Sprintf("publishing with %s added to each call, %s", callDelay, backend),
		columns: []column{{"calls", ""}, {"took", "ms"}},
	}
	r, err := openCounted(ctx, dir, backend, callDelay)
	if err != nil {
		return t, err
	}
	defer r.close()
	operations, err := r.publishing()
	if err != nil {
		return t, err
	}
	for _, o := range operations {
		begun := time.Now()
		c, _, err := r.count(ctx, o)
		took := time.Since(begun)
		if err != nil {
			return t, err
		}
		made := c.reads() + c.write.calls
		most := time.Duration(made)*callDelay + publishWork
		t.rows = append(t.rows, row{o.name,
			[]*figure{is(float64(made)), atMost(milliseconds(took), milliseconds(most))}})
	}
	return t, nil
}

// publishTogether publishes two providers of a namespace, signed with the same
// key, at the same time, and repeats that. Each reads its conditions before
// either writes.
func publishTogether(ctx context.Context, dir, backend string, n amounts) (table, error) {
	t := table{title: "two providers published at once, " + backend, columns: []column{
		{"rounds", ""}, {"conflicts", ""}, {"reads of each", ""}, {"writes of each", ""},
	}}
	r, err := openCounted(ctx, dir, backend, 0)
	if err != nil {
		return t, err
	}
	defer r.close()
	kinds := []string{"left", "right"}
	for round := range n.together {
		v := version(round + 1)
		var all []releases.Provider
		for _, kind := range kinds {
			at := filepath.Join(r.dir, "together", kind, v.String())
			if err := writeRelease(at, r.key, kind, v, platforms[:1], tinyProgram); err != nil {
				return t, err
			}
			all = append(all, releases.Provider{Dir: at, Address: registry.Provider{Namespace: "acme", Type: kind}})
		}
		r.table.beforeWrite = newMeeting(len(kinds)).join
		group, ctx := errgroup.WithContext(ctx)
		for _, release := range all {
			group.Go(func() error {
				_, err := r.publisher().Provider(ctx, release)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return t, err
		}
	}
	c := r.take()
	publishes := float64(n.together * len(kinds))
	t.rows = []row{{"the first and further versions", []*figure{
		is(float64(n.together)), atMost(float64(c.conflicts), 0),
		atMost(float64(c.reads())/publishes, float64(providerDirect.reads)),
		atMost(float64(c.write.calls)/publishes, float64(providerDirect.writes)),
	}}}
	return t, nil
}

// expect returns an error unless an operation fails with the error want.
func expect(want, err error) error {
	switch {
	case errors.Is(err, want):
		return nil
	case err == nil:
		return fmt.Errorf("it succeeded, want the error: %w", want)
	}
	return err
}
