package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// maxAnswer is the bound on the time until a client has a document, from when a
// process has its request. Lambda starts a process for each request that finds
// none. Clients give up after 10 seconds.
const maxAnswer = 9 * time.Second

// pullCase is a mirror that clients find empty.
type pullCase struct {
	name      string
	mode      registry.PullMode
	providers int
	// platforms are those of the policy. If empty, it allows all of them.
	platforms []registry.Platform
	delay     time.Duration // of each response of the origins to the mirror
}

// pullCases returns the measured mirrors.
func pullCases(n amounts) []pullCase {
	return []pullCase{
		{"one provider, open", registry.PullOpen, 1, nil, 0},
		{"one provider, closed", registry.PullClosed, 1, nil, 0},
		{"five providers, open", registry.PullOpen, 5, nil, 0},
		{"five providers, closed", registry.PullClosed, 5, nil, 0},
		{"one provider, open, slow origin", registry.PullOpen, 1, platforms[:1], n.slow},
		{"one provider, closed, slow origin", registry.PullClosed, 1, platforms[:1], n.slow},
	}
}

func pull(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	binaries, err := build(ctx, lambda.Architecture(), dir)
	if err != nil {
		return result{}, err
	}
	return measurePull(ctx, binaries, dir, pullCases(n), n)
}

// measurePull lets many clients initialise at once from an empty mirror. The
// functions in binaries serve it.
func measurePull(ctx context.Context, binaries map[string]string, dir string, cases []pullCase, n amounts) (
	result, error,
) {
	times := table{title: fmt.Sprintf("times, %d clients of %d processes", n.cold, n.processes), columns: []column{
		{"index, median", "ms"}, {"index, 99 %", "ms"}, {"index, most", "ms"},
		{"version, median", "ms"}, {"version, 99 %", "ms"}, {"version, most", "ms"},
		{"with the wait for a process, most", "ms"},
	}}
	answers := table{title: "answers", columns: []column{
		{"from the origin", ""}, {"from the mirror", ""}, {"no archives yet", ""}, {"no index yet", ""}, {"failures", ""},
	}}
	work := table{title: "work", columns: []column{
		{"requests of a document to an origin, most", ""}, {"downloads of a package by the mirror, most", ""},
		{"uploads of a package, most", ""}, {"packages not copied", ""}, {"events that were dropped", ""},
		{"GetItem", ""}, {"processes of pull", ""},
	}}
	var r result
	for _, c := range cases {
		found, err := c.measure(ctx, binaries, dir, n)
		if err != nil {
			return r, fmt.Errorf("%s: %w", c.name, err)
		}
		times.rows = append(times.rows, row{c.name, found.times()})
		answers.rows = append(answers.rows, row{c.name, found.answers()})
		work.rows = append(work.rows, row{c.name, found.work})
		r.lines = append(r.lines, found.problems(c.name)...)
	}
	r.tables = []table{times, answers, work}
	return r, nil
}

// measure starts an empty mirror and all clients at once, and waits for the
// copies that they cause.
func (c pullCase) measure(ctx context.Context, binaries map[string]string, dir string, n amounts) (
	*pullClients, error,
) {
	m, err := startPulling(ctx, binaries, dir, c, n.processes)
	if err != nil {
		return nil, err
	}
	defer m.close()
	clients := &pullClients{mirror: m}
	m.dynamo.Reads()
	var all sync.WaitGroup
	for range n.cold {
		all.Go(func() { clients.initialise(ctx) })
	}
	all.Wait()
	m.api.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	clients.work, err = m.workFigures(ctx)
	return clients, err
}

// pullClients are clients of an empty mirror.
type pullClients struct {
	mirror *emptyMirror
	work   []*figure

	mu                     sync.Mutex
	index, version, queued times
	fromOrigin             int
	fromMirror             int
	noArchives             int
	noIndex                int
	failed                 []error
}

func (c *pullClients) times() []*figure {
	most := milliseconds(maxAnswer)
	figures := make([]*figure, 0, 7)
	for _, t := range []times{c.index, c.version} {
		if len(t) == 0 {
			figures = append(figures, nil, nil, nil)
			continue
		}
		figures = append(figures, is(milliseconds(t.median())), is(milliseconds(t.percentile(99))),
			atMost(milliseconds(slices.Max(t)), most))
	}
	return append(figures, is(milliseconds(slices.Max(c.queued))))
}

func (c *pullClients) answers() []*figure {
	return []*figure{
		is(float64(c.fromOrigin)), is(float64(c.fromMirror)), is(float64(c.noArchives)), is(float64(c.noIndex)),
		atMost(float64(len(c.failed)), 0),
	}
}

// problems describes the first failures.
func (c *pullClients) problems(name string) []string {
	lines := make([]string, 0, len(c.failed))
	for _, err := range c.failed[:min(len(c.failed), 3)] {
		lines = append(lines, name+": "+err.Error())
	}
	return lines
}

// initialise sends the requests of an init.
func (c *pullClients) initialise(ctx context.Context) {
	for _, p := range c.mirror.addresses {
		if err := c.install(ctx, p); err != nil {
			c.mu.Lock()
			c.failed = append(c.failed, fmt.Errorf("%s: %w", p, err))
			c.mu.Unlock()
		}
	}
}

// install sends the requests for one provider. It stops when the mirror sends the
// client to its next source.
func (c *pullClients) install(ctx context.Context, p registry.MirrorProvider) error {
	var index protocol.MirrorIndex
	status, took, err := c.mirror.get(ctx, p, "index.json", &index)
	c.count(func() { c.index, c.queued = append(c.index, took.answer), append(c.queued, took.queued) })
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound:
		c.count(func() { c.noIndex++ })
		return nil
	case status != http.StatusOK:
		return fmt.Errorf("index.json: status %d", status)
	}
	if _, listed := index.Versions[pulledVersion]; !listed {
		return fmt.Errorf("index.json lacks %s", pulledVersion)
	}
	var packages protocol.MirrorPackages
	status, took, err = c.mirror.get(ctx, p, pulledVersion+".json", &packages)
	c.count(func() { c.version, c.queued = append(c.version, took.answer), append(c.queued, took.queued) })
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("%s.json: status %d", pulledVersion, status)
	case len(packages.Archives) == 0:
		c.count(func() { c.noArchives++ })
		return nil
	}
	archive := packages.Archives[platforms[0].String()]
	if err := c.mirror.download(ctx, archive); err != nil {
		return err
	}
	c.count(func() {
		if c.mirror.isOrigin(archive.URL) {
			c.fromOrigin++
		} else {
			c.fromMirror++
		}
	})
	return nil
}

func (c *pullClients) count(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// wait is how long a client waits for a document, without and with the time until
// a process is free.
type wait struct{ answer, queued time.Duration }

// get requests a document from a process of the mirror that is free. It decodes
// the document if the status is 200.
func (m *emptyMirror) get(ctx context.Context, p registry.MirrorProvider, document string, into any) (
	status int, took wait, err error,
) {
	path := mirror.Path + p.String() + "/" + document
	r := request(ctx, path, m.token)
	r.Header.Del("Accept-Encoding")
	event, err := lambda.Event(r, mirror.Path+"{hostname}/{namespace}/{type}/{document}")
	if err != nil {
		return 0, took, err
	}
	sent := time.Now()
	f := <-m.free
	begun := time.Now()
	payload, err := f.Invoke(ctx, event)
	m.free <- f
	took = wait{time.Since(begun), time.Since(sent)}
	if err != nil {
		return 0, took, fmt.Errorf("%s: %w", document, err)
	}
	var a answer
	err = json.Unmarshal(payload, &a)
	if err == nil && a.StatusCode == http.StatusOK {
		err = json.Unmarshal([]byte(a.Body), into)
	}
	return a.StatusCode, took, err
}

// download downloads an archive and compares it with its hash.
func (m *emptyMirror) download(ctx context.Context, archive protocol.MirrorArchive) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, archive.URL, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "OpenTofu/1.12.6 (+https://opentofu.org)")
	response, err := m.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, response.Body); err != nil {
		return err
	}
	zh := "zh:" + hex.EncodeToString(digest.Sum(nil))
	if response.StatusCode != http.StatusOK || !slices.Contains(archive.Hashes, zh) {
		return errors.New("the archive does not have its hash: " + response.Status)
	}
	return nil
}

// isOrigin reports whether a URL is one of an origin.
func (m *emptyMirror) isOrigin(url string) bool {
	return slices.ContainsFunc(m.origins, func(o *slowOrigin) bool { return strings.HasPrefix(url, o.server.URL+"/") })
}
