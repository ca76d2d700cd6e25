package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// finder finds and opens the registry of a command.
type finder struct {
	printer

	// flags are those of the running command.
	flags *pflag.FlagSet
	// agent is the User-Agent of requests.
	agent string

	placeFlags placeFlags
	remote     remote
	// about is the registry that the command reads or writes. It is empty until
	// the command has found out which one that is.
	about place
}

// onStore opens the registry's store, calls do with it, and closes it. It
// returns the result of do.
func (f *finder) onStore(ctx context.Context, do func(*store) (view, error)) (found view, err error) {
	return f.onStoreBy(ctx, local.Open, do)
}

// onStoreToRemove is like onStore, for a command that must work on a full disk.
func (f *finder) onStoreToRemove(ctx context.Context, do func(*store) (view, error)) (found view, err error) {
	return f.onStoreBy(ctx, local.OpenToRemove, do)
}

func (f *finder) onStoreBy(ctx context.Context, open folderOpener, do func(*store) (view, error)) (found view, err error) {
	s, err := f.openStore(ctx, open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return do(s)
}

// printRegistry prints which registry the command reads or writes.
func (f *finder) printRegistry() {
	if !f.quiet && !f.json {
		fmt.Fprintf(terminal.New(f.stderr), "Registry %s\n", f.about)
	}
}
