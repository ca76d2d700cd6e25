package place

import (
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// ReadContexts reads the file of contexts. If there is none, the result is
// empty.
func ReadContexts() (contexts.File, error) {
	path, err := contexts.Path()
	if errors.Is(err, contexts.ErrNoFolder) {
		return contexts.File{}, nil
	}
	if err != nil {
		return contexts.File{}, err
	}
	file, err := contexts.Read(path)
	return file, HintContexts(path, err)
}

// HintContexts adds a hint to an error about the content of the file of
// contexts.
func HintContexts(path string, err error) error {
	if !errors.Is(err, registry.ErrInvalid) {
		return err
	}
	return registry.WithHint(err,
		"Correct %s, or delete it and use `larder context add` to add your contexts again.", path)
}

// ChooseContext is the hint if there is no current context.
const ChooseContext = "To select a context, run `larder context use NAME`."

// OfContext returns the registry of a context in a file.
func OfContext(file contexts.File, name string) (Place, error) {
	found, ok := file.Contexts[name]
	if !ok {
		return Place{}, NoContext(file, name)
	}
	parse := ParseStore
	if found.Registry != "" {
		parse = ParseRegistry
	}
	p, err := parse(found.Target())
	if err != nil {
		return Place{}, fmt.Errorf("context %s: %w", name, err)
	}
	p.From, p.Context = "context "+name, name
	return p, nil
}

// NoContext returns the error for a context that file does not have.
func NoContext(file contexts.File, name string) error {
	err := arguments.Errorf("there is no context%s", arguments.InError(name))
	names := file.Names()
	switch near, ok := suggest.Nearest(name, names); {
	case ok:
		return registry.WithHint(err, "Did you mean %s?", near)
	case len(names) == 1:
		return registry.WithHint(err, "The only context is %s.", names[0])
	case len(names) > 1:
		return registry.WithHint(err, "The contexts are %s.", strings.Join(names, ", "))
	case contexts.CheckName(name) != nil:
		return registry.WithHint(err, "Add one with `larder context add NAME STORE|URL`.")
	}
	return registry.WithHint(err, "Add it with `larder context add %s STORE|URL`.", name)
}
