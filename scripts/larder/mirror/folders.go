package mirror

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func importCommand(c *cli.Program) *cobra.Command {
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Mirror providers from a folder",
		Long: "Mirror providers from a folder that `tofu providers mirror` or\n" +
			"`terraform providers mirror` has written. The command verifies the hashes in\n" +
			"the folder's JSON files. If `larder mirror export` has written the folder, the\n" +
			"command also verifies the signature of the origin. Otherwise you can verify it\n" +
			"later with `larder mirror add`.\n\n" +
			"The command skips providers whose hostname has a port, because clients do not\n" +
			"use mirrors for them. If the folder has no other provider, the exit code is 3.",
		Example: `  tofu providers mirror -platform=linux_amd64 ./folder
  larder mirror import ./folder`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			var v ResultView
			return runWork(ctx, c, fill, &v, func(m *filling.Mirror) ([]filling.Result, error) {
				m.Skip = func(address, reason string) {
					v.Skipped = append(v.Skipped, skippedProvider{address, reason})
				}
				return m.Import(ctx, args[0])
			})
		}),
	}
	addFillFlags(c, cmd, &fill)
	return cmd
}

func exportCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR [HOSTNAME/NAMESPACE/TYPE…]",
		Short: "Write mirrored providers to a folder",
		Long: `Write all mirrored providers, or those that you name, to a folder in the format
of ` + "`tofu providers mirror`" + `. Use the folder as the filesystem_mirror of a machine
without a network, serve it with a static web server, or import it into another
registry. Run the command again to add new versions. Hostnames with non-ASCII
letters are in punycode, as web servers need them.

Beside the zips of a version, the folder has SHA256SUMS as its origin signed it,
the signature, and the origin's keys. Clients ignore these files.`,
		Example: `  larder mirror export ./folder
  larder mirror export ./folder registry.opentofu.org/hashicorp/random`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			var addresses []registry.MirrorAddress
			for _, arg := range args[1:] {
				address, err := registry.ParseMirrorProvider(arg)
				if err != nil {
					return nil, err
				}
				addresses = append(addresses, address)
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				progress := c.NewProgress()
				m := &filling.Mirror{Catalog: s.Catalog, Objects: s.Objects, Progress: progress}
				results, err := m.Export(ctx, args[0], addresses)
				progress.Stop()
				if len(addresses) == 1 {
					err = s.NotFound(ctx, "export", addresses[0], nil, err)
				}
				return output.Partial(ExportView{args[0], mirrored(results)}, len(results), err)
			})
		}),
	}
	c.StoreFlags(cmd)
	return cmd
}

// ExportView is the result of writing mirrored providers to a folder.
type ExportView struct {
	Folder   string            `json:"folder"`
	Versions []mirroredVersion `json:"versions"`
}

// Text implements [output.View].
func (v ExportView) Text(p output.Page) {
	if len(v.Versions) == 0 {
		p.Printf("Nothing is mirrored yet.\n")
	}
	for _, one := range v.Versions {
		one.Text(p, "Exported")
	}
}
