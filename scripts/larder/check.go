package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/publish"
)

func checkCommand(c *cli.Program) *cobra.Command {
	var since string
	var allowSecrets []string
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Check modules before you publish them",
		Long: `Check whether the module in a folder, by default the working directory, could
be published. If the folder has a larder.hcl, the command checks the modules
that this file lists. It publishes nothing, needs no registry, and sends no
request. It reports all problems at once, with exit code 3. A module that no
client can load is a problem, for example if it declares a variable twice. A
well-known secret in a file, such as a private key, is a problem too. Use
--allow-secret for a file that may be public.

With --changed-since, the command checks only the modules that have changed
since the branch left a Git revision. Changes that are not committed count too.
A module has changed if a file in its folder, or its block in larder.hcl, has
changed.`,
		Example: `  larder check ./vpc
  larder check --changed-since origin/main
  larder check --quiet`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			if err := publish.CheckAllowSecrets(allowSecrets); err != nil {
				return nil, err
			}
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			} else if since != "" {
				repository, err := monorepo.Open(ctx, dir)
				if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
					err = registry.WithHint(err, "Run the command in a Git repository, or without --changed-since.")
				}
				if err != nil {
					return nil, err
				}
				path, err := repository.PathOf(".")
				if err != nil {
					return nil, err
				}
				// The root is as many folders above as the path has parts.
				if path != "." {
					dir = strings.Repeat("../", strings.Count(path, "/")) + ".."
				}
			}
			return checkModules(ctx, c, dir, since, allowSecrets)
		}),
	}
	cmd.Flags().StringVar(&since, "changed-since", "",
		"check only modules that have changed since the Git `REVISION`")
	publish.AllowSecretsFlag(cmd, &allowSecrets)
	return cmd
}

func checkModules(ctx context.Context, c *cli.Program, dir, since string, allowSecrets []string) (output.View, error) {
	v := checkedView{Since: since, Modules: []checkedModule{}}
	modules, err := monorepo.ReadModules(ctx, dir)
	if _, failed := os.Stat(dir); failed != nil {
		return nil, registry.Errorf(registry.ErrInvalid, "%w", regularfile.Unreadable(dir, failed))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && since != "":
		return nil, registry.WithHint(arguments.Errorf("--changed-since needs %s, and %s has none", monorepo.FileName, dir),
			"Run the command at the root of the repository.")
	case errors.Is(err, fs.ErrNotExist):
		one, unmatched, err := checkModule(ctx, dir, dir, allowSecrets)
		one.Notes = append(one.Notes, publish.UnmatchedWarnings(unmatched)...)
		v.Modules = append(v.Modules, one)
		return v, err
	case err != nil:
		return nil, err
	}
	defer c.Waiting(fmt.Sprintf("checking %s", english.Plural(len(modules), "module", "modules")))()
	if since != "" {
		if modules, err = changedSince(ctx, dir, since, modules); err != nil {
			return nil, err
		}
	}
	var failed []error
	unused := slices.Clone(allowSecrets)
	for _, m := range modules {
		var one checkedModule
		var unmatched []string
		err := monorepo.CheckPath(dir, m.Path)
		if err == nil {
			one, unmatched, err = checkModule(ctx, filepath.Join(dir, filepath.FromSlash(m.Path)), m.Path,
				slices.Concat(m.AllowSecrets, allowSecrets))
		} else {
			one = checkedModule{Path: m.Path, Status: "invalid", Problems: failure.All(err)}
		}
		if err != nil && !errors.Is(err, registry.ErrInvalid) {
			return nil, err
		}
		one.Address = m.Address.String()
		unused = publish.InBoth(unused, unmatched)
		one.Notes = append(one.Notes, publish.UnmatchedWarnings(publish.InBoth(m.AllowSecrets, unmatched))...)
		v.Modules = append(v.Modules, one)
		if err != nil {
			failed = append(failed, err)
		}
	}
	if len(modules) > 0 {
		v.Notes = publish.UnmatchedWarnings(unused)
	}
	return v, failure.Join(failed, fmt.Sprintf("publish %d of %s", len(failed),
		english.Plural(len(modules), "module", "modules")))
}

// changedSince returns the modules that have changed since a revision. dir must
// be the root of the repository.
func changedSince(ctx context.Context, dir, since string, modules []monorepo.Module) ([]monorepo.Module, error) {
	repository, err := monorepo.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	given, err := os.Stat(dir)
	if err != nil {
		return nil, regularfile.Unreadable(dir, err)
	}
	root, err := os.Stat(repository.Root)
	if err != nil {
		return nil, regularfile.Unreadable(repository.Root, err)
	}
	if !os.SameFile(given, root) {
		return nil, arguments.Errorf("--changed-since needs the root of the repository, and %s is below it", dir)
	}
	return repository.ChangedSince(ctx, since, modules)
}

// checkModule checks the module in a folder. shown is its path for people. It
// also returns the allowed paths that contain no file.
func checkModule(
	ctx context.Context, dir, shown string, allowSecrets []string,
) (_ checkedModule, unmatched []string, _ error) {
	one := checkedModule{Path: filepath.ToSlash(filepath.Clean(shown)), Status: "ok"}
	result, err := rules.Preparer{}.CheckFolder(ctx, dir, allowSecrets)
	if err != nil {
		one.Status, one.Problems = "invalid", failure.All(err)
		return one, nil, err
	}
	one.Files, one.Size, one.Notes = len(result.Files), result.Record.Size, append(result.Notes, result.LoadNotes...)
	for _, e := range result.Excluded {
		if e.NamedBy != "" && !e.Ignored {
			one.Notes = append(one.Notes, fmt.Sprintf("%s names %s, which would be excluded", e.NamedBy,
				printable.Escape(e.Path)))
		}
	}
	return one, result.Unmatched, nil
}

// checkedView is the result of checking modules.
type checkedView struct {
	// Since is the revision since which the modules have changed. It is missing
	// if all modules were checked.
	Since   string          `json:"since,omitempty"`
	Modules []checkedModule `json:"modules"`
	// Notes describe what people may not expect of all modules.
	Notes []string `json:"notes,omitempty"`
}

// checkedModule is a module that was checked.
type checkedModule struct {
	// Status is ok or invalid.
	Status string `json:"status"`
	// Path is the folder of the module. With larder.hcl, it is relative to that
	// file.
	Path string `json:"path"`
	// Address is the module's address in larder.hcl. It is missing without this
	// file.
	Address string `json:"address,omitempty"`
	// Files is the number of files to pack. It is missing if the module is
	// invalid.
	Files int `json:"files,omitempty"`
	// Size is the size of the archive in bytes. It is missing if the module is
	// invalid.
	Size int64 `json:"size,omitempty"`
	// Problems describe why the module cannot be published.
	Problems []failure.Problem `json:"problems,omitempty"`
	// Notes describe what is missing in the documentation or in the archive.
	Notes []string `json:"notes,omitempty"`
}

func (v checkedView) Text(p output.Page) {
	if len(v.Modules) == 0 {
		p.Println("No module has changed since %s.", printable.Escape(v.Since))
	}
	for _, m := range v.Modules {
		what := printable.Escape(m.Path)
		if m.Address != "" {
			what = m.Address + " in " + what
		}
		if m.Status == "ok" {
			what += fmt.Sprintf(": %s, %s packed", english.Plural(m.Files, "file", "files"), humanize.IBytes(uint64(m.Size)))
		}
		p.Item(m.Status, what)
		p.Notes(m.Notes)
	}
	p.Notes(v.Notes)
}
