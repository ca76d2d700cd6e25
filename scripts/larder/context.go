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

	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func contextCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name registries and select the one to use",
		Long: `Name registries and select the one to use.

A context is a name for a registry's URL or for its store, which is a folder or
stack:NAME. Commands use the current context unless a flag (--store, --registry,
--context) or a variable (LARDER_STORE, LARDER_REGISTRY, LARDER_CONTEXT) names
another registry. Flags take precedence over variables. The default registry is
the folder ` + place.DefaultFolder + `.

With a URL you can publish, deprecate, list, search, show, diff and run doctor.
All other commands need the store.

Contexts are in the file larder/config.json in your configuration folder:
~/.config on Linux, ~/Library/Application Support on macOS, %AppData% on
Windows. The file contains no credentials.`,
		Example: `  larder context add local ./larder-data
  larder context add production stack:larder
  larder context add public https://registry.example.com
  larder context use production
  larder context list`,
	}
	cmd.AddCommand(contextAddCommand(c), contextUseCommand(c), contextListCommand(c), contextRemoveCommand(c))
	return cmd
}

func changeContexts(change func(*contexts.File) error) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	file, err := contexts.Read(path)
	if err != nil {
		return place.HintContexts(path, err)
	}
	if file.Contexts == nil {
		file.Contexts = make(map[string]contexts.Context)
	}
	if err := change(&file); err != nil {
		return err
	}
	return file.Write(path)
}

// contextView is the result of a change to a context.
type contextView struct {
	// Status is added, replaced, unchanged, used or removed.
	Status string `json:"status"`
	Name   string `json:"name"`
	contexts.Context
	// Current is true if commands use the context by default.
	Current bool `json:"current"`
	// OverriddenBy is the environment variable that takes precedence over the
	// current context. It is missing if none is set.
	OverriddenBy string `json:"overridden_by,omitempty"`

	// Before is the registry that the context named before the command replaced
	// it.
	Before *contexts.Context `json:"before,omitempty"`
	// Warnings describe why commands may fail with the context.
	Warnings []string `json:"warnings,omitempty"`

	wasCurrent bool
}

func (v contextView) Text(p output.Page) {
	switch v.Status {
	case "added":
		p.Println("Added context %s (%s)", v.Name, v.Target())
	case "replaced":
		p.Println("Replaced context %s: %s → %s", v.Name, v.Before.Target(), v.Target())
	case "unchanged":
		p.Println("Unchanged: context %s (%s)", v.Name, v.Target())
	case "removed":
		p.Println("Removed context %s (%s)", v.Name, v.Target())
		if v.wasCurrent {
			p.Println("There is no current context. Until you select one, commands use %s. %s", place.DefaultFolder, place.ChooseContext)
		}
		return
	}
	p.Warnings(v.Warnings)
	if !v.Current {
		p.Println("To use it, run `larder context use %s`. For a single command, use --context %s.", v.Name, v.Name)
		return
	}
	p.Println("The current context is %s (%s)", v.Name, v.Target())
	if v.OverriddenBy != "" {
		p.Println("To use it in this shell, unset %s, which takes precedence.", v.OverriddenBy)
	}
}

// overridden returns the environment variable that takes precedence over the
// current context, or an empty string.
func overridden() string {
	for _, name := range []string{place.StoreVariable, place.RegistryVariable, place.ContextVariable} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

func contextAddCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME [STORE|URL]",
		Short: "Add or change a context",
		Long: `Add or change a context. The first context becomes the current one.

STORE is a folder or stack:NAME. URL is the URL of a registry,
https://HOST[:PORT].`,
		Example: `  larder context add local ./larder-data
  larder context add production stack:larder
  larder context add public https://registry.example.com`,
		RunE: c.Run(func(_ context.Context, args []string) (output.View, error) {
			if place.IsURL(args[0]) {
				return nil, arguments.Errorf("NAME is missing before the URL")
			}
			if err := contexts.CheckName(args[0]); err != nil {
				return nil, err
			}
			p, err := namedPlace(c, args[1:])
			if err != nil {
				return nil, err
			}
			added := contexts.Context{Store: p.Name}
			if p.Host != "" {
				added = contexts.Context{Registry: p.Name}
			}
			result := contextView{Status: "added", Name: args[0], Context: added, OverriddenBy: overridden()}
			if p.Dir != "" && !local.Exists(p.Dir) {
				result.Warnings = []string{"there is no registry in " + p.Dir}
				// The folder of a service is only for its user.
				if _, err := os.ReadDir(p.Dir); errors.Is(err, fs.ErrPermission) {
					result.Warnings = []string{"this user may not read " + p.Dir}
				}
			}
			err = changeContexts(func(f *contexts.File) error {
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
			c.WarnQuietly(result.Warnings)
			return result, nil
		}),
	}
	cmd.Flags().StringVar(&c.PlaceFlags.Store, "store", "", "the registry's `STORE`, like the argument STORE")
	cmd.Flags().StringVar(&c.PlaceFlags.Registry, "registry", "", "the registry's `URL`, like the argument URL")
	return cmd
}

// namedPlace returns the registry for a new context, from an argument or a
// flag. It makes a folder absolute, so that the context works in every folder.
func namedPlace(c *cli.Program, args []string) (p place.Place, err error) {
	named := append([]string{}, args...)
	for _, flag := range []string{c.PlaceFlags.Store, c.PlaceFlags.Registry} {
		if flag != "" {
			named = append(named, flag)
		}
	}
	switch {
	case len(named) == 0:
		return place.Place{}, registry.WithHint(arguments.Errorf("STORE or URL is missing"),
			"%s To use a registry through its endpoint, give its URL.", place.StoreForms)
	case len(named) > 1:
		return place.Place{}, registry.WithHint(arguments.Errorf("STORE or URL is given twice"),
			"Use only one of STORE, URL, --store and --registry.")
	}
	parse := place.ParseStore
	if place.IsURL(named[0]) || c.PlaceFlags.Registry != "" {
		parse = place.ParseRegistry
	}
	if len(args) > 0 && looksLikeHost(args[0]) {
		return place.Place{}, registry.WithHint(arguments.Errorf("%q is neither a URL nor an existing folder", args[0]),
			"Did you mean https://%s or ./%s?", args[0], args[0])
	}
	if p, err = parse(named[0]); err != nil || p.Dir == "" {
		return p, err
	}
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return place.Place{}, fmt.Errorf("cannot find the folder %s: %w", p.Dir, err)
	}
	return place.Folder(dir), nil
}

// looksLikeHost reports whether a word is more likely a host than a folder: it
// has a dot, and no such file exists.
func looksLikeHost(word string) bool {
	first, _, _ := strings.Cut(word, ":")
	if !strings.Contains(first, ".") || strings.HasPrefix(word, ".") || strings.ContainsAny(word, `/\@`) {
		return false
	}
	_, err := os.Lstat(word)
	return errors.Is(err, fs.ErrNotExist)
}

func contextUseCommand(c *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "use NAME",
		Short:   "Select the current context",
		Example: `  larder context use production`,
		RunE: c.Run(func(_ context.Context, args []string) (output.View, error) {
			result := contextView{Status: "used", Name: args[0], Current: true, OverriddenBy: overridden()}
			err := changeContexts(func(f *contexts.File) error {
				if _, err := place.OfContext(*f, args[0]); err != nil {
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

func contextRemoveCommand(c *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a context",
		Long:    `Remove a context. The command does not change the registry.`,
		Example: `  larder context remove production`,
		RunE: c.Run(func(_ context.Context, args []string) (output.View, error) {
			result := contextView{Status: "removed", Name: args[0]}
			err := changeContexts(func(f *contexts.File) error {
				named, ok := f.Contexts[args[0]]
				if !ok {
					return place.NoContext(*f, args[0])
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

// contextsView is a list of contexts.
type contextsView struct {
	Contexts []listedContext `json:"contexts"`
	// Missing is the name of the current context if the file has no such
	// context. Commands then use the default registry.
	Missing string `json:"missing,omitempty"`
}

type listedContext struct {
	Name string `json:"name"`
	contexts.Context
	Current bool `json:"current"`
}

func (v contextsView) Text(p output.Page) {
	if v.Missing != "" {
		defer p.Println("\nThe current context, %s, does not exist. %s", v.Missing, place.ChooseContext)
	}
	if len(v.Contexts) == 0 {
		p.Printf("%s\n", p.Wrap("There are no contexts. To add one, run `larder context add NAME STORE|URL`."))
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
		{Title: "NAME", Min: 12}, {Title: "STATE", Paint: output.PaintState}, {Title: "REGISTRY", Below: true},
	}, rows)
}

func (v contextsView) Quiet(p output.Page) {
	for _, one := range v.Contexts {
		p.Printf("%s\n", one.Name)
	}
}

func contextListCommand(c *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List contexts",
		Example: `  larder context list`,
		RunE: c.Run(func(context.Context, []string) (output.View, error) {
			file, err := place.ReadContexts()
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
