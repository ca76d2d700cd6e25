package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/lambda"
)

// attack builds the targets and attacks them. All traffic stays on loopback.
func attack(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	larder := filepath.Join(dir, "larder")
	command := exec.CommandContext(ctx, "go", "build", "-o", larder, "./scripts/larder")
	if out, err := command.CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("cannot build larder: %w\n%s", err, out)
	}
	binaries, err := build(ctx, lambda.Architecture(), dir)
	if err != nil {
		return result{}, err
	}
	return measureAttacks(ctx, larder, binaries, dir, n)
}

// attacked has the targets of attacks, and the results so far.
type attacked struct {
	n      amounts
	larder string
	dir    string
	issuer *issuers.CI
	server *serverVictim
	stack  *hostileStack
	found  result
	// secrets are the credentials that attacks used.
	secrets []string
	// logs are the logs of functions that have exited.
	logs []string
}

// measureAttacks runs every attack against a server and functions.
func measureAttacks(
	ctx context.Context, larder string, binaries map[string]string, dir string, n amounts,
) (result, error) {
	issuer, err := issuers.StartCI()
	if err != nil {
		return result{}, err
	}
	defer issuer.Close()
	a := &attacked{n: n, larder: larder, dir: dir, issuer: issuer}
	a.server, err = newServerVictim(ctx, larder, filepath.Join(dir, "server"), issuer.URL)
	if err != nil {
		return result{}, err
	}
	defer a.server.close()
	if err := a.server.publishGood(ctx); err != nil {
		return result{}, err
	}
	if a.stack, err = startStack(ctx, binaries, filepath.Join(dir, "s3"), issuer.URL); err != nil {
		return result{}, err
	}
	defer a.stack.close()
	steps := []func(context.Context) error{
		a.requests, a.events, a.credentials, a.archives, a.configuration, a.fairness, a.logsHold,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return a.found, err
		}
	}
	return a.found, ctx.Err()
}

// spread returns at most n elements, evenly from all parts of a slice.
func spread[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	picked := make([]T, n)
	for i := range picked {
		picked[i] = all[i*len(all)/n]
	}
	return picked
}

// configuration sends hostile configuration to all its parsers.
func (a *attacked) configuration(ctx context.Context) error {
	kinds := alternating(spread(hostile.All(), a.n.attacks))
	sizes := configSizes
	if len(kinds) < len(hostile.All()) {
		sizes = sizes[:1]
	}
	run := func(name string, sizes ...int) configRun {
		return configRun{name: name, kinds: kinds, sizes: sizes, until: time.Now().Add(a.n.attackTime)}
	}
	function, err := newFunctionVictim(ctx, a.stack)
	if err != nil {
		return err
	}
	defer func() {
		function.kill()
		a.logs = append(a.logs, function.logs...)
	}()
	toServer, toFunction := run("larder serve", sizes...), run("the function that publishes", sizes...)
	err = both(
		func() error { return toServer.publishConfig(ctx, a.server, true) },
		func() error { return toFunction.publishConfig(ctx, function, false) },
	)
	if err != nil {
		return err
	}
	// The commands start a process for each input, so they get fewer sizes.
	archives, texts := sizes, sizes
	if len(sizes) > 1 {
		archives, texts = configSizes[:4], []int{280_000, 100 << 10, 500 << 10}
	}
	doctor := command{larder: a.larder, dir: a.dir, configRun: run("larder doctor --module", archives...)}
	lock := command{larder: a.larder, dir: a.dir, configRun: run("larder mirror lock", texts...)}
	sync := command{larder: a.larder, dir: a.dir, configRun: run("larder mirror sync", texts...)}
	lock.until = time.Now().Add(a.n.attackTime / 2)
	err = both(
		func() error { return doctor.doctor(ctx) },
		func() error {
			if err := lock.mirror(ctx, "lock"); err != nil {
				return err
			}
			return sync.mirror(ctx, "sync")
		},
	)
	if err != nil {
		return err
	}
	for i, c := range []*configRun{&toServer, &toFunction, &doctor.configRun, &lock.configRun, &sync.configRun} {
		a.found.tables = append(a.found.tables, c.table(i == 0, i == 1))
		a.note(c.found.lines...)
		a.secret(c.tokens...)
		a.presigned(c.urls...)
	}
	return nil
}

// alternating returns inputs with the kinds in turns, since the time may not be
// enough for all inputs.
func alternating(inputs []hostile.HCL) []hostile.HCL {
	byKind := make(map[string][]hostile.HCL)
	var kinds []string
	for _, input := range inputs {
		if byKind[input.Kind] == nil {
			kinds = append(kinds, input.Kind)
		}
		byKind[input.Kind] = append(byKind[input.Kind], input)
	}
	var all []hostile.HCL
	for i := 0; len(all) < len(inputs); i++ {
		for _, kind := range kinds {
			if i < len(byKind[kind]) {
				all = append(all, byKind[kind][i])
			}
		}
	}
	return all
}

// mostLines is the maximum number of reported faults for each attack.
const mostLines = 400

// note adds lines to the report.
func (a *attacked) note(lines ...string) {
	a.found.lines = append(a.found.lines, lines[:min(len(lines), mostLines)]...)
	if len(lines) > mostLines {
		a.found.lines = append(a.found.lines, fmt.Sprintf("and %d more", len(lines)-mostLines))
	}
}

// both calls two functions at the same time.
func both(first, second func() error) error {
	var one, two error
	var all sync.WaitGroup
	all.Go(func() { one = first() })
	all.Go(func() { two = second() })
	all.Wait()
	return errors.Join(one, two)
}
