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

	"github.com/larder-registry/larder/pkg/catalog"
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
		Use:   "rebuild [ADDRESS [VERSION]]",
		Short: "Make missing documentation from the archives",
		Long: `Make the documentation and the files to browse of modules from their archives:
of all modules, of one module, or of one version. The command only makes what is
missing or damaged. With --all it makes the rest again too, for example because
a new release of Larder extracts more.

ADDRESS is NAMESPACE/NAME/SYSTEM, or HOSTNAME/NAMESPACE/NAME/SYSTEM for a
mirrored module.

The exit code is 0 if all these versions have documentation afterwards, and 1
otherwise.`,
		Example: `  larder docs rebuild
  larder docs rebuild acme/vpc/aws
  larder docs rebuild acme/vpc/aws 1.2.0 --all`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			if len(args) > 0 {
				a, err := registry.ParseAddress(args[0])
				if err != nil {
					return nil, err
				}
				if r.module = a; !isModule(a.Path()) {
					return nil, registry.WithHint(
						registry.Errorf(registry.ErrInvalid, "cannot document %s: it is a provider", a),
						"A module is NAMESPACE/NAME/SYSTEM, or HOSTNAME/NAMESPACE/NAME/SYSTEM if it is mirrored.")
				}
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

// ownModules begins the paths of own modules.
const ownModules = "modules/"

// isModule reports whether a path is that of a module, own or mirrored.
func isModule(path string) bool {
	return strings.HasPrefix(path, ownModules) || strings.HasPrefix(path, registry.MirrorModulePrefix)
}

// docsRebuild has the arguments and flags of the command.
type docsRebuild struct {
	// module and version select what to document. If nil, all are selected.
	module  registry.Address
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
		found, err := r.find(ctx, s, m)
		switch {
		case err == nil:
		case isDamage(err) && (r.module == nil || len(found) > 0):
			v.Versions = append(v.Versions, documentedVersion{Address: m.String(), Status: docsFailed, Error: err.Error()})
		default:
			return nil, err
		}
		for _, one := range found {
			if !r.all && d.Check(ctx, one.Documents) == nil {
				v.Valid++
				continue
			}
			progress.Step(fmt.Sprintf("documenting %s %s", m, one.Version))
			one, err := document(ctx, d, m, one.Version)
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

// storedDocuments are the stored files of a version of a module.
type storedDocuments struct {
	registry.Version
	registry.Documents
}

// find returns the selected versions of a module, without withdrawn ones. If
// some records cannot be read, it returns the others with registry.ErrCorrupt.
func (r docsRebuild) find(ctx context.Context, s *place.Store, a registry.Address) ([]storedDocuments, error) {
	if m, ok := a.(registry.MirrorAddress); ok {
		return find(ctx, s, r, m, s.Catalog.Mirror.Versions, func(v registry.MirrorVersion) registry.Documents {
			if v.Module == nil {
				return registry.Documents{}
			}
			return v.Module.Documents
		})
	}
	return find(ctx, s, r, a.(registry.Module), s.Catalog.Modules, func(v registry.ModuleVersion) registry.Documents {
		return v.Documents
	})
}

func find[A registry.Address, R registry.Record](
	ctx context.Context, s *place.Store, r docsRebuild, a A, versions catalog.Versions[A, R],
	documents func(R) registry.Documents,
) (found []storedDocuments, err error) {
	if r.version != nil {
		record, err := versions.Get(ctx, a, *r.version)
		if err != nil {
			err = fmt.Errorf("cannot document %s %s: %w", a, *r.version, err)
			return nil, s.NotFound(ctx, "document", a, r.version, err)
		}
		return []storedDocuments{{record.Number(), documents(record)}}, nil
	}
	records, err := versions.All(ctx, a)
	for _, one := range slices.Backward(records) { // each is compared with the one before
		if one.Withdrawal() == nil {
			found = append(found, storedDocuments{one.Number(), documents(one)})
		}
	}
	return found, s.NotFound(ctx, "document", a, nil, err)
}

// document makes the documentation of a version. The result has the error if it
// concerns only this version.
func document(
	ctx context.Context, d *publish.Documenter, m registry.Address, n registry.Version,
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

// modulesOf returns one module, or all modules of a store, own and mirrored,
// including those whose versions are all hidden.
func modulesOf(ctx context.Context, s *place.Store, one registry.Address) iter.Seq2[registry.Address, error] {
	return func(yield func(registry.Address, error) bool) {
		if one != nil {
			yield(one, nil)
			return
		}
		paths, err := s.Catalog.AllEntries(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, path := range paths {
			if !isModule(path) {
				continue
			}
			a, err := registry.ParseAddress(strings.TrimPrefix(path, ownModules))
			if err == nil && !yield(a, nil) { // verify reports other paths
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
