package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// bounds are the bounds of the size of the zip and of the time to the first
// poll. They are relative to the bare function. Clients wait for a cold start
// if their first request finds no running function. Nobody waits for the start
// of publish, so it has no bounds. The tests of functions check the sizes too.
var bounds = map[string]struct{ size, start float64 }{
	"discovery": {1.1, 1.3},
	"modules":   {1.7, 3},
	"providers": {1.7, 3},
	"mirror":    {1.7, 3},
	"metadata":  {1.7, 3},
	// The templates of web call methods by name, so the linker drops none.
	"web": {2.3, 2},
}

// beside returns a ratio to the bare function, with a bound unless that is 0.
func beside(value, bound float64) *figure {
	if bound == 0 {
		return is(value)
	}
	return atMost(value, bound)
}

// first has the requests with which the time to a function's first response is
// measured. Nobody waits for the first response of publish.
var first = []struct{ function, path string }{
	{bare, "/"},
	{"discovery", "/.well-known/terraform.json"},
	{"modules", "/v1/modules/acme/vpc/aws/versions"},
	{"providers", "/v1/providers/acme/inventory/versions"},
	{"mirror", "/v1/mirror/registry.example.com/acme/inventory/index.json"},
	{"metadata", "/v1/providers/acme/inventory"},
	{"web", "/"},
	{"publish", ""},
}

func cold(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	deployed, err := build(ctx, "arm64", dir)
	if err != nil {
		return result{}, err
	}
	sizes, err := measureSizes(deployed)
	if err != nil {
		return result{}, err
	}
	if lambda.Architecture() != "arm64" {
		if deployed, err = build(ctx, lambda.Architecture(), dir); err != nil {
			return result{}, err
		}
	}
	starts, err := measureStarts(ctx, deployed, n)
	return result{tables: []table{sizes, starts}}, err
}

func measureSizes(binaries map[string]string) (table, error) {
	t := table{title: "sizes, arm64",
		columns: []column{{"binary", "MiB"}, {"binary, times bare", ""}, {"zip", "MiB"}, {"zip, times bare", ""}}}
	var least struct{ binary, zip float64 }
	for _, f := range first {
		info, err := os.Stat(binaries[f.function])
		if err != nil {
			return t, err
		}
		packed, err := lambda.PackedSize(binaries[f.function])
		if err != nil {
			return t, err
		}
		binary, zip := float64(info.Size()), float64(packed)
		if f.function == bare {
			least.binary, least.zip = binary, zip
		}
		t.rows = append(t.rows, row{f.function,
			[]*figure{is(binary / (1 << 20)), is(binary / least.binary), is(zip / (1 << 20)),
				beside(zip/least.zip, bounds[f.function].size)}})
	}
	return t, nil
}

// measureStarts starts the functions in binaries, in turns.
func measureStarts(ctx context.Context, binaries map[string]string, n amounts) (table, error) {
	t := table{title: fmt.Sprintf("starts, %d of each", n.starts), columns: []column{
		{"first poll, least", "ms"}, {"first poll, median", "ms"}, {"poll, times bare", ""},
		{"first answer, least", "ms"}, {"first answer, median", "ms"}, {"answer, times bare", ""}, {"memory", "MiB"},
	}}
	d, err := deploy(ctx, binaries, func(ctx context.Context, table catalog.Table) error {
		s := &shelf{table: table}
		address := registry.Provider{Namespace: "acme", Type: "inventory"}
		for _, put := range []func() error{
			func() error {
				return s.module(ctx, registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, 100, 1)
			},
			func() error { return s.provider(ctx, address, "0C0AF313E5FD9F80", 100, 1, 11) },
			func() error {
				return s.mirrored(ctx, registry.MirrorProvider{Hostname: "registry.example.com", Provider: address},
					100, 14)
			},
		} {
			if err := put(); err != nil {
				return err
			}
		}
		return s.flush(ctx)
	})
	if err != nil {
		return t, err
	}
	defer d.close()
	polls, answers, memory := make([]times, len(first)), make([]times, len(first)), make([]int64, len(first))
	for range n.starts {
		for i, f := range first {
			if binaries[f.function] == "" {
				continue
			}
			started, err := d.measureStart(ctx, f.function, f.path)
			if err != nil {
				return t, err
			}
			polls[i], answers[i] = append(polls[i], started.poll), append(answers[i], started.answer)
			memory[i] = max(memory[i], started.memory)
		}
	}
	for i, f := range first {
		if len(polls[i]) == 0 {
			continue
		}
		r := row{f.function, []*figure{
			is(milliseconds(polls[i].min())), is(milliseconds(polls[i].median())), beside(ratio(polls[i].median(),
				polls[0].median()), bounds[f.function].start),
			is(milliseconds(answers[i].min())), is(milliseconds(answers[i].median())), is(ratio(answers[i].median(),
				answers[0].median())), is(float64(memory[i]>>10) / 1024),
		}}
		if f.path == "" {
			r.figures[3], r.figures[4], r.figures[5] = nil, nil, nil
		}
		t.rows = append(t.rows, r)
	}
	return t, nil
}

// start has the times since a function's process was started, and its peak
// memory.
type start struct {
	poll, answer time.Duration
	memory       int64
}

func (d *deployment) measureStart(ctx context.Context, function, path string) (s start, err error) {
	status := http.StatusOK
	switch {
	case function == bare:
		status = 0 // its response is not for a gateway
	case path == "":
		path, status = "/v1/publish/modules/acme/vpc/aws/1.0.0/uploads", http.StatusForbidden
	}
	event, err := lambda.Event(request(ctx, path, d.token), path)
	if err != nil {
		return s, err
	}
	f, err := d.start(ctx, function)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if _, err := invoke(ctx, f, event, status); err != nil {
		return s, fmt.Errorf("function %s: %w", function, err)
	}
	s.answer, s.poll = time.Since(f.Begun()), f.Polled().Sub(f.Begun())
	s.memory, _, err = f.Usage()
	return s, err
}
