package main

import (
	"errors"

	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/registry"
)

// readContexts reads the file of contexts. If there is none, the result is
// empty.
func (f *finder) readContexts() (contexts.File, error) {
	path, err := contexts.Path()
	if errors.Is(err, contexts.ErrNoFolder) {
		return contexts.File{}, nil
	}
	if err != nil {
		return contexts.File{}, err
	}
	file, err := contexts.Read(path)
	return file, hintContexts(path, err)
}

// hintContexts adds a hint to an error about the content of the file of
// contexts.
func hintContexts(path string, err error) error {
	if !errors.Is(err, registry.ErrInvalid) {
		return err
	}
	return registry.WithHint(err,
		"Correct %s, or delete it and use `larder context add` to add your contexts again.", path)
}

// chooseContext is the hint if there is no current context.
const chooseContext = "To select a context, run `larder context use NAME`."
