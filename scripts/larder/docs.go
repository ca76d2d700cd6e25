package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func docsCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Manage the documentation of modules",
		Long: `Manage the documentation of modules. Publishing a module extracts its
documentation: inputs, outputs, resources, dependencies and READMEs. It also
stores the files that people can browse.`,
		Example: "  larder docs rebuild",
	}
	cmd.AddCommand(docsRebuildCommand(c))
	return cmd
}

func docsRebuildCommand(c *cli.Program) *cobra.Command {
	var r docsRebuild
	cmd := &cobra.Command{
		Use:   "rebuild [NAMESPACE/NAME/SYSTEM [VERSION]]",
		Short: "Make missing documentation from the archives",
		Long: `Make the documentation and the files to browse of published modules from
their archives: of all modules, of one module, or of one version. The command
only makes what is missing or damaged. With --all it makes the rest again too,
for example because a new release of Larder extracts more.

The exit code is 0 if all these versions have documentation afterwards, and 1
otherwise.`,
		Example: `  larder docs rebuild
  larder docs rebuild acme/vpc/aws
  larder docs rebuild acme/vpc/aws 1.2.0 --all`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			if len(args) > 0 {
				m, err := registry.ParseModule(args[0])
				if err != nil {
					return nil, err
				}
				r.module = &m
			}
			if len(args) > 1 {
				v, err := registry.ParseTag(args[1])
				if err != nil {
					return nil, err
				}
				r.version = &v
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return rebuildDocs(ctx, c, s, r) })
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().BoolVar(&r.all, "all", false, "also make documentation again that is stored and valid")
	return cmd
}

// docsRebuild has the arguments and flags of the command.
type docsRebuild struct {
	// module and version select what to document. If nil, all are selected.
	module  *registry.Module
	version *registry.Version
	all     bool
}

func documenter(ctx context.Context, s *place.Store) (*publish.Documenter, error) {
	by, err := s.By(ctx)
	if err != nil {
		return nil, err
	}
	return &publish.Documenter{
		Catalog: s.Catalog, Objects: s.Objects, Inspector: inspection.Process{}, By: by.String(),
	}, nil
}

func rebuildDocs(ctx context.Context, c *cli.Program, s *place.Store, r docsRebuild) (output.View, error) {
	d, err := documenter(ctx, s)
	if err != nil {
		return nil, err
	}
	progress := c.NewProgress()
	defer progress.Stop()
	v := docsView{Versions: []documentedVersion{}}
	for m, err := range modulesOf(ctx, s, r.module) {
		if err != nil {
			return nil, err
		}
		records, err := r.records(ctx, s, m)
		switch {
		case err == nil:
		case isDamage(err) && (r.module == nil || len(records) > 0):
			v.Versions = append(v.Versions, documentedVersion{Address: m.String(), Status: docsFailed, Error: err.Error()})
		default:
			return nil, err
		}
		for _, record := range records {
			if !r.all && d.Check(ctx, record) == nil {
				v.Valid++
				continue
			}
			progress.Step(fmt.Sprintf("documenting %s %s", m, record.Version))
			one, err := document(ctx, d, m, record.Version)
			if err != nil {
				return nil, err
			}
			v.Versions = append(v.Versions, one)
		}
	}
	if n := v.count(docsFailed); n > 0 {
		return v, fmt.Errorf("cannot document %s", english.Plural(n, "version", ""))
	}
	return v, nil
}

// records returns the selected versions of a module, without withdrawn ones. If
// some records cannot be read, it returns the others with registry.ErrCorrupt.
func (r docsRebuild) records(
	ctx context.Context, s *place.Store, m registry.Module,
) ([]registry.ModuleVersion, error) {
	if r.version != nil {
		record, err := s.Catalog.Modules.Get(ctx, m, *r.version)
		if err != nil {
			err = fmt.Errorf("cannot document %s %s: %w", m, *r.version, err)
			return nil, s.NotFound(ctx, "document", m, r.version, err)
		}
		return []registry.ModuleVersion{record}, nil
	}
	records, err := s.Catalog.Modules.All(ctx, m)
	records = slices.DeleteFunc(records, func(v registry.ModuleVersion) bool { return v.Withdrawn != nil })
	return records, s.NotFound(ctx, "document", m, nil, err)
}

// document makes the documentation of a version. The result has the error if it
// concerns only this version.
func document(
	ctx context.Context, d *publish.Documenter, m registry.Module, n registry.Version,
) (documentedVersion, error) {
	one := documentedVersion{Address: m.String(), Version: n, Status: docsMade}
	notes, err := d.Rebuild(ctx, m, n)
	if err != nil && !isDamage(err) {
		return one, err
	}
	if one.Notes = notes; err != nil {
		one.Status, one.Error = docsFailed, err.Error()
	}
	return one, nil
}

// isDamage reports whether an error concerns one version and not the registry.
func isDamage(err error) bool {
	return errors.Is(err, registry.ErrInvalid) || errors.Is(err, registry.ErrCorrupt) || errors.Is(err, registry.ErrNotFound)
}

// modulesOf returns one module, or all modules of a store, including those whose
// versions are all hidden.
func modulesOf(ctx context.Context, s *place.Store, one *registry.Module) iter.Seq2[registry.Module, error] {
	return func(yield func(registry.Module, error) bool) {
		if one != nil {
			yield(*one, nil)
			return
		}
		paths, err := s.Catalog.AllEntries(ctx)
		if err != nil {
			yield(registry.Module{}, err)
			return
		}
		for _, path := range paths {
			address, found := strings.CutPrefix(path, "modules/")
			if !found {
				continue
			}
			if m, err := registry.ParseModule(address); err == nil && !yield(m, nil) { // verify reports other paths
				return
			}
		}
	}
}

// docsView is the result of documenting modules.
type docsView struct {
	// Valid counts the versions whose documentation was stored and valid.
	Valid    int                 `json:"valid"`
	Versions []documentedVersion `json:"versions"`
}

// The results of documenting a version.
const (
	docsMade   = "documented"
	docsFailed = "failed"
)

// documentedVersion is a version that the command has tried to document.
type documentedVersion struct {
	Address string `json:"address"`
	// Version is missing if the record cannot be read.
	Version registry.Version `json:"version,omitzero"`
	// Status is documented or failed.
	Status string `json:"status"`
	// Notes describe what is missing in the documentation.
	Notes []string `json:"notes,omitempty"`
	// Error is why the version could not be documented.
	Error string `json:"error,omitempty"`
}

func (v docsView) count(status string) (n int) {
	for _, one := range v.Versions {
		if one.Status == status {
			n++
		}
	}
	return n
}

func (v docsView) Text(p output.Page) {
	for _, one := range v.Versions {
		status := p.Paint(one.Status, output.PaintState(one.Status))
		if one.Error != "" {
			p.Println("%s: %s", status, printable.Escape(one.Error))
			continue
		}
		p.Println("%s %s %s", status, one.Address, one.Version)
		p.Notes(one.Notes)
	}
	text := fmt.Sprintf("Documented %s.", english.Plural(v.count(docsMade), "version", ""))
	if v.Valid > 0 {
		text += fmt.Sprintf(" The documentation of %s was valid.", english.Plural(v.Valid, "other version", ""))
	}
	p.Println("%s", text)
}
