package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// mostTime and mostMemory are the bounds for one input: in seconds, and in
	// MiB of all processes together.
	mostTime, mostMemory = 5, 300
	// largestFile is the maximum size of a configuration file.
	largestFile = 1 << 20
)

// configSizes are the unpacked sizes of inputs. The first one has as many
// tokens as a file may have, and finds most faults.
var configSizes = []int{280_000, 100 << 10, 1 << 20, 4 << 20, 400 << 10, 10 << 10}

// tally counts the outcomes of inputs of one kind.
type tally struct {
	kind                          string
	sent, refused, accepted       int
	died, silent, failed          int
	diedAgain, ordinaryFailed     int
	slowest                       time.Duration
	memory                        float64
	slowestOrdinary               time.Duration
	excluded, notSent, ordinaries int
}

// tallies are the tallies by kind, in the order of their first input.
type tallies struct {
	all   []*tally
	lines []string
}

func (t *tallies) of(kind string) *tally {
	for _, one := range t.all {
		if one.kind == kind {
			return one
		}
	}
	t.all = append(t.all, &tally{kind: kind})
	return t.all[len(t.all)-1]
}

// note records a line about an input that exceeds a bound.
func (t *tallies) note(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// configRun sends inputs to one target.
type configRun struct {
	name  string
	kinds []hostile.HCL
	sizes []int
	until time.Time
	found tallies
	// tokens and urls are secrets that were used.
	tokens, urls []string
}

// each calls send with every input and size until the time is over. It skips
// the remaining sizes of an input that has failed.
func (c *configRun) each(ctx context.Context, send func(hostile.HCL, int, *tally) (ok bool, err error)) error {
	failed := make(map[string]bool)
	for _, size := range c.sizes {
		for _, input := range c.kinds {
			t := c.found.of(input.Kind)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case failed[input.Name]:
				t.excluded++
			case time.Now().After(c.until):
				t.notSent++
			default:
				ok, err := send(input, size, t)
				if err != nil {
					return err
				}
				t.sent++
				failed[input.Name] = !ok
			}
		}
	}
	return nil
}

// moduleOf packs an input. It is in several files if it exceeds the maximum
// size of one.
func moduleOf(input hostile.HCL, size int) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for i := 0; size > 0; i++ {
		data := input.Make(min(size, largestFile))
		size -= largestFile
		name := input.File()
		if i > 0 {
			name = strings.Replace(name, "main", fmt.Sprintf("more%d", i), 1)
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// publishConfig publishes inputs to a victim. It restarts the victim after each
// input that makes it exit or that it is still busy with.
func (c *configRun) publishConfig(ctx context.Context, v victim, pinged bool) error {
	token, err := newCredential(ctx, v.catalog(), "configuration", "publish:modules/acme/**", "read:**")
	if err != nil {
		return err
	}
	a := &attacker{v: v, token: token}
	defer func() { c.tokens, c.urls = append(c.tokens, token), append(c.urls, a.urls...) }()
	m := registry.Module{Namespace: "acme", Name: "attack", System: "null"}
	memory := watchMemory(v.process())
	defer func() { memory.close() }()
	number := 0
	return c.each(ctx, func(input hostile.HCL, size int, t *tally) (bool, error) {
		number++
		archive, err := moduleOf(input, size)
		if err != nil {
			return false, err
		}
		var meanwhile *ordinary
		if pinged {
			meanwhile = startOrdinary(ctx, v, token)
		}
		memory.take()
		// Each input has its own version, since the registry stores rejections.
		at := fmt.Sprintf("0.0.%d", number)
		r := a.inspect(ctx, m.Path(), at, sentFile{"attack.tar.gz", archive})
		peak := memory.take()
		if meanwhile != nil {
			meanwhile.end()
			t.ordinaries += meanwhile.sent
			t.ordinaryFailed += meanwhile.failed
			t.slowestOrdinary = max(t.slowestOrdinary, meanwhile.worst)
		}
		t.memory, t.slowest = max(t.memory, peak), max(t.slowest, r.took)
		what := fmt.Sprintf("%s: %s, %d bytes", c.name, input.Name, size)
		ok := c.judge(v, what, t, r, peak)
		// A process does not return its memory, which would count for the next
		// input.
		if r.status != 0 && !v.ended() && peak <= mostMemory {
			return ok, nil
		}
		memory.close()
		v.kill()
		if err := v.start(ctx); err != nil {
			return false, err
		}
		memory = watchMemory(v.process())
		if pinged || r.status != 0 {
			if r.status == 0 {
				a.giveUp(ctx, m.Path(), at, r.upload)
			}
			return ok, nil
		}
		return ok, c.again(ctx, a, m.Path(), at, r.upload, what, t, func() error {
			memory.close()
			v.kill()
			err := v.start(ctx)
			memory = watchMemory(v.process())
			return err
		})
	})
}

// judge counts a response, and reports whether it is within all bounds.
func (c *configRun) judge(v victim, what string, t *tally, r reply, peak float64) bool {
	// A dying process closes the connection before it exits.
	for range 100 {
		if r.status != 0 || v.ended() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	ok := true
	switch {
	case v.ended():
		t.died++
		c.found.note("%s: the process exited after %.1f s, %.0f MiB: %s", what, r.took.Seconds(), peak,
			lastWords(v.logged()))
		return false
	case r.status == 0:
		t.silent++
		c.found.note("%s: no response within %.1f s, %.0f MiB", what, r.took.Seconds(), peak)
		return false
	case r.status >= 500 || r.stage != "inspect":
		t.failed++
		c.found.note("%s: %s", what, r)
		ok = false
	case r.refused():
		t.refused++
	default:
		t.accepted++
	}
	if r.took.Seconds() > mostTime || peak > mostMemory {
		c.found.note("%s: %.1f s, %.0f MiB, then %d", what, r.took.Seconds(), peak, r.status)
		ok = false
	}
	return ok
}

// again requests an inspection that has made the function exit before. The
// registry must reject it without a new attempt.
func (c *configRun) again(
	ctx context.Context, a *attacker, path, version, upload string, what string, t *tally, restart func() error,
) error {
	if err := expireInspection(ctx, a.v, upload); err != nil {
		return err
	}
	r := a.inspectFile(ctx, path, version, upload, 0)
	if r.refused() {
		a.giveUp(ctx, path, version, upload)
		return nil
	}
	t.diedAgain++
	c.found.note("%s: the second request is not rejected: %.100s", what, r)
	if r.status != 0 && !a.v.ended() {
		return nil
	}
	return restart()
}

// expireInspection makes an inspection expire whose process has exited, as it
// would some seconds later.
func expireInspection(ctx context.Context, v victim, upload string) error {
	u, found, err := v.catalog().Upload(ctx, upload)
	if err != nil || found[0].State != registry.InspectionRunning {
		return nil //nolint:nilerr // the inspection never began, so it cannot expire
	}
	found[0].Until = time.Now()
	return v.catalog().RecordInspection(ctx, &catalog.Claim{Upload: u}, found[0], time.Now())
}

// lastWords returns the line of a log that has the reason for a process's exit.
func lastWords(log string) string {
	found := "it was killed"
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "panic:") {
			found = strings.TrimSpace(line)
		}
	}
	return found
}

// table has a row for each kind of input.
func (c *configRun) table(ordinary, function bool) table {
	t := table{title: "configuration, " + c.name, columns: []column{
		{"sent", ""}, {"refused", ""}, {"accepted", ""}, {"ended it", ""}, {"second request not refused", ""},
		{"no answer", ""}, {"other answers", ""}, {"slowest", "s"}, {"memory, peak", "MiB"},
		{"other requests", ""}, {"of these failed", ""}, {"slowest of these", "s"}, {"left out", ""}, {"out of time",
			""},
	}}
	for _, one := range c.found.all {
		ended := atMost(float64(one.died), 0)
		var again, others, failed, slowest *figure
		if function {
			ended, again = is(float64(one.died)), atMost(float64(one.diedAgain), 0)
		}
		if ordinary {
			others, failed = is(float64(one.ordinaries)), atMost(float64(one.ordinaryFailed), 0)
			slowest = is(one.slowestOrdinary.Seconds())
		}
		t.rows = append(t.rows, row{one.kind, []*figure{
			is(float64(one.sent)), is(float64(one.refused)), is(float64(one.accepted)), ended, again,
			atMost(float64(one.silent), 0), atMost(float64(one.failed), 0),
			atMost(one.slowest.Seconds(), mostTime), atMost(one.memory, mostMemory),
			others, failed, slowest, is(float64(one.excluded)), is(float64(one.notSent)),
		}})
	}
	return t
}
