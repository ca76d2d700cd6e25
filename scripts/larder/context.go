package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/contexts"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
)

func (c *cli) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name registries, and choose the one that commands use",
		Long: `Name registries, and choose the one that commands use.

A context is a name for a registry: for its store, which is a folder or
stack:NAME, or for its URL. Commands use the current context unless a flag
(--store, --registry, --context) or a variable (LARDER_STORE, LARDER_REGISTRY,
LARDER_CONTEXT) names another registry. Flags win over variables. Without any of
these, the registry is the folder ` + defaultData + `.

Through a URL you can publish and deprecate. All other commands need the store.

Contexts are in the file larder/config.json, in the folder where your system
keeps configuration: ~/.config on Linux, ~/Library/Application Support on macOS,
%AppData% on Windows. The file has no credentials.`,
		Example: `  larder context add local ./larder-data
  larder context add production stack:larder
  larder context add public https://registry.example.com
  larder context use production
  larder context list`,
	}
	cmd.AddCommand(c.contextAddCommand(), c.contextUseCommand(), c.contextListCommand(), c.contextRemoveCommand())
	return cmd
}

// readContexts reads the file of contexts.
func (c *cli) readContexts() (contexts.File, error) {
	path, err := contexts.Path()
	if errors.Is(err, contexts.ErrNoFolder) {
		return contexts.File{}, nil
	}
	if err != nil {
		return contexts.File{}, err
	}
	file, err := contexts.Read(path)
	return file, repairContexts(path, err)
}

// repairContexts adds to the error of reading the file of contexts what to do.
func repairContexts(path string, err error) error {
	if !errors.Is(err, registry.ErrInvalid) {
		return err
	}
	return registry.WithHint(err, "Correct %s, or delete it and add your contexts again with `larder context add`.", path)
}

// changeContexts reads the file of contexts, changes it and writes it.
func (c *cli) changeContexts(change func(*contexts.File) error) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	file, err := contexts.Read(path)
	if err != nil {
		return repairContexts(path, err)
	}
	if file.Contexts == nil {
		file.Contexts = make(map[string]contexts.Context)
	}
	if err := change(&file); err != nil {
		return err
	}
	return file.Write(path)
}

// contextView is what became of a context.
type contextView struct {
	// Status is added, replaced, unchanged, used or removed.
	Status string `json:"status"`
	Name   string `json:"name"`
	contexts.Context
	// Current says that commands use it unless a flag or a variable says otherwise.
	Current bool `json:"current"`
	// OverriddenBy is the variable that names the registry now in place of any
	// context; empty if there is none.
	OverriddenBy string `json:"overridden_by,omitempty"`

	// Before is what the context named before it was replaced.
	Before *contexts.Context `json:"before,omitempty"`
	// Warnings say why commands may fail with the context.
	Warnings []string `json:"warnings,omitempty"`

	wasCurrent bool
}

func (v contextView) text(p page) {
	say := func(format string, args ...any) { p.printf("%s\n", p.Wrap(fmt.Sprintf(format, args...))) }
	switch v.Status {
	case "added":
		say("Added context %s (%s)", v.Name, v.Target())
	case "replaced":
		say("Replaced context %s: %s → %s", v.Name, v.Before.Target(), v.Target())
	case "unchanged":
		say("Unchanged: context %s (%s)", v.Name, v.Target())
	case "removed":
		say("Removed context %s (%s)", v.Name, v.Target())
		if v.wasCurrent {
			say("No context is current now. Choose one with `larder context use NAME`, or commands use %s.", defaultData)
		}
		return
	}
	p.warnings(v.Warnings)
	if !v.Current {
		say("Use it with `larder context use %s`, or --context %s for one command.", v.Name, v.Name)
		return
	}
	say("Commands now use %s, %s", v.Name, v.Target())
	if v.OverriddenBy != "" {
		say("but not here, since %s is set and names a registry: unset it", v.OverriddenBy)
	}
}

// overridden returns the variable that names a registry in place of the current
// context.
func overridden() string {
	for _, name := range []string{storeFromEnv, registryFromEnv, contextFromEnv} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

func (c *cli) contextAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME [STORE|URL]",
		Short: "Add a context, or change what it names",
		Long: `Add a context, or change what it names. The first context becomes the current
one.

STORE is a folder or stack:NAME. URL is that of a registry, https://HOST[:PORT].`,
		Example: `  larder context add local ./larder-data
  larder context add production stack:larder
  larder context add public https://registry.example.com`,
		RunE: c.run(func(_ context.Context, args []string) (view, error) {
			if isURL(args[0]) {
				return nil, usagef("NAME is missing before the URL")
			}
			if err := contexts.CheckName(args[0]); err != nil {
				return nil, err
			}
			p, err := c.namedPlace(args[1:])
			if err != nil {
				return nil, err
			}
			added := contexts.Context{Store: p.name}
			if p.host != "" {
				added = contexts.Context{Registry: p.name}
			}
			result := contextView{Status: "added", Name: args[0], Context: added, OverriddenBy: overridden()}
			if p.dir != "" && !local.Exists(p.dir) {
				result.Warnings = []string{"there is no registry in " + p.dir}
			}
			err = c.changeContexts(func(f *contexts.File) error {
				before, exists := f.Contexts[args[0]]
				switch {
				case exists && before == added:
					result.Status = "unchanged"
				case exists:
					result.Status, result.Before = "replaced", &before
				}
				f.Contexts[args[0]] = added
				if len(f.Contexts) == 1 {
					f.Current = args[0]
				}
				result.Current = f.Current == args[0]
				return nil
			})
			if err != nil {
				return nil, err
			}
			c.warnQuietly(result.Warnings)
			return result, nil
		}),
	}
	cmd.Flags().StringVar(&c.where.store, "store", "", "the `STORE`, as an argument would name it")
	cmd.Flags().StringVar(&c.where.registry, "registry", "", "the registry's `URL`, as an argument would name it")
	return cmd
}

// namedPlace returns the registry that a new context names, by an argument or a
// flag. A folder is made absolute, so that the context is the same everywhere.
func (c *cli) namedPlace(args []string) (p place, err error) {
	named := append([]string{}, args...)
	for _, flag := range []string{c.where.store, c.where.registry} {
		if flag != "" {
			named = append(named, flag)
		}
	}
	switch {
	case len(named) == 0:
		return place{}, registry.WithHint(usagef("STORE or URL is missing"),
			"%s For a registry's endpoint, give its URL.", storeForms)
	case len(named) > 1:
		return place{}, registry.WithHint(usagef("the registry is named twice"),
			"Give one of STORE, URL, --store and --registry.")
	}
	parse := parseStore
	if isURL(named[0]) || c.where.registry != "" {
		parse = parseRegistry
	}
	if len(args) > 0 && looksLikeHost(args[0]) {
		return place{}, registry.WithHint(usagef("%q is a folder that does not exist, or the host of a registry", args[0]),
			"Did you mean https://%s or ./%s?", args[0], args[0])
	}
	if p, err = parse(named[0]); err != nil || p.dir == "" {
		return p, err
	}
	dir, err := filepath.Abs(p.dir)
	if err != nil {
		return place{}, fmt.Errorf("cannot find the folder %s: %w", p.dir, err)
	}
	return folder(dir), nil
}

// looksLikeHost reports whether a word is more likely a host than a folder.
func looksLikeHost(word string) bool {
	first, _, _ := strings.Cut(word, ":")
	if !strings.Contains(first, ".") || strings.HasPrefix(word, ".") || strings.ContainsAny(word, `/\@`) {
		return false
	}
	_, err := os.Lstat(word)
	return errors.Is(err, fs.ErrNotExist)
}

func (c *cli) contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "use NAME",
		Short:   "Make a context the current one",
		Example: `  larder context use production`,
		RunE: c.run(func(_ context.Context, args []string) (view, error) {
			result := contextView{Status: "used", Name: args[0], Current: true, OverriddenBy: overridden()}
			err := c.changeContexts(func(f *contexts.File) error {
				if _, err := contextNamed(*f, args[0]); err != nil {
					return err
				}
				result.Context = f.Contexts[args[0]]
				f.Current = args[0]
				return nil
			})
			if err != nil {
				return nil, err
			}
			return result, nil
		}),
	}
}

func (c *cli) contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a context",
		Long:    `Remove a context. The registry that it names stays as it is.`,
		Example: `  larder context remove production`,
		RunE: c.run(func(_ context.Context, args []string) (view, error) {
			result := contextView{Status: "removed", Name: args[0]}
			err := c.changeContexts(func(f *contexts.File) error {
				named, ok := f.Contexts[args[0]]
				if !ok {
					return noContext(*f, args[0])
				}
				result.Context = named
				delete(f.Contexts, args[0])
				if f.Current == args[0] {
					f.Current, result.wasCurrent = "", true
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			return result, nil
		}),
	}
}

const chooseContext = "Choose one with `larder context use NAME`."

// contextsView lists contexts.
type contextsView struct {
	Contexts []listedContext `json:"contexts"`
	// Missing is the current context if the file does not have it. Commands use none
	// then.
	Missing string `json:"missing,omitempty"`
}

type listedContext struct {
	Name string `json:"name"`
	contexts.Context
	Current bool `json:"current"`
}

func (v contextsView) text(p page) {
	if v.Missing != "" {
		defer p.println("\nThe current context, %s, is gone. %s", v.Missing, chooseContext)
	}
	if len(v.Contexts) == 0 {
		p.printf("%s\n", p.Wrap("There are no contexts. Add one with `larder context add NAME STORE|URL`."))
		return
	}
	rows := make([][]string, len(v.Contexts))
	for i, one := range v.Contexts {
		state := ""
		if one.Current {
			state = "current"
		}
		rows[i] = []string{one.Name, state, one.Target()}
	}
	p.Table([]terminal.Column{
		{Title: "NAME", Min: 12}, {Title: "STATE", Paint: paintState}, {Title: "REGISTRY", Min: 20},
	}, rows)
}

func (v contextsView) quiet(p page) {
	for _, one := range v.Contexts {
		p.printf("%s\n", one.Name)
	}
}

func (c *cli) contextListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List contexts",
		Example: `  larder context list`,
		RunE: c.run(func(context.Context, []string) (view, error) {
			file, err := c.readContexts()
			if err != nil {
				return nil, err
			}
			list := contextsView{Contexts: []listedContext{}}
			if _, ok := file.Contexts[file.Current]; !ok {
				list.Missing = file.Current
			}
			for _, name := range file.Names() {
				list.Contexts = append(list.Contexts, listedContext{name, file.Contexts[name], name == file.Current})
			}
			return list, nil
		}),
	}
}
