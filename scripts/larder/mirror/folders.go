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
		Short: "Mirror providers and modules from a folder",
		Long: "Mirror providers from a folder that `tofu providers mirror` or\n" +
			"`terraform providers mirror` has written. The command verifies the hashes in\n" +
			"the folder's JSON files. If `larder mirror export` has written the folder, the\n" +
			"command also verifies the signature of the origin. Otherwise you can verify it\n" +
			"later with `larder mirror add`.\n\n" +
			"A folder of `larder mirror export` can have modules. The command compares the\n" +
			"files of each with its pin, and refuses a version that the mirror has seen with\n" +
			"another pin. To accept that, use --accept.\n\n" +
			"The command skips providers whose hostname has a port, because clients do not\n" +
			"use mirrors for them. If the folder has nothing else, the exit code is 3.",
		Example: `  tofu providers mirror -platform=linux_amd64 ./folder
  larder mirror import ./folder`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			var v ResultView
			return runWork(ctx, c, fill, &v, func(m *filling.Mirror) ([]filling.Result, error) {
				m.Skip = func(address, reason string) {
					v.Skipped = append(v.Skipped, skippedAddress{address, reason})
				}
				return m.Import(ctx, args[0])
			})
		}),
	}
	addFillFlags(c, cmd, &fill)
	cmd.Flags().Func("accept",
		"accept modules that are not what the mirror has seen, for a `REASON` of one line; the audit trail shows it",
		reasonFor(&fill.accept))
	return cmd
}

func exportCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR [ADDRESS…]",
		Short: "Write mirrored providers and modules to a folder",
		Long: `Write all mirrored providers and modules, or those that you name, to a folder.
Import it into another registry. Providers are in the format of
` + "`tofu providers mirror`" + `. So you can also use the folder as the filesystem_mirror
of a machine without a network, or serve it with a static web server. Run the
command again to add new versions. Hostnames with non-ASCII letters are in
punycode, as web servers need them.

Beside the zips of a version, the folder has SHA256SUMS as its origin signed it,
the signature, and the origin's keys. The folder mirror-modules has the archive
and the pin of each version of a module. Clients ignore these files.`,
		Example: `  larder mirror export ./folder
  larder mirror export ./folder registry.opentofu.org/hashicorp/random \
    registry.opentofu.org/terraform-aws-modules/vpc/aws`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			var addresses []registry.MirrorAddress
			for _, arg := range args[1:] {
				address, err := registry.ParseMirrorAddress(arg)
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

// ExportView is the result of writing mirrored providers and modules to a folder.
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
