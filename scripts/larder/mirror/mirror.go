// Package mirror has the commands that fill and control a mirror.
package mirror

import (
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/scripts/larder/cli"
)

// Command returns `larder mirror`.
func Command(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "Mirror providers and modules from other registries",
		Long: `Mirror providers and modules from other registries. Clients then get them from
this registry, if a host block leads there.

The mirror verifies each package of a provider before it stores it. It verifies
the signature of the origin registry, as clients do, or the hashes in an
imported folder. It pins each version of a module to the commit and the files
that it saw first. A mirrored version never changes. You can add platforms to a
version later. If a command is interrupted, run it again to finish.

A version is not mirrored if it is younger than the mirror policy allows, or if
the key that signed it is not trusted. A version of a module is not mirrored
either if the origin has changed it. The exit code is then 8.`,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --platform all
  larder mirror add registry.opentofu.org/terraform-aws-modules/vpc/aws
  larder mirror lock .terraform.lock.hcl --platform linux_amd64
  larder mirror sync mirror.hcl
  larder mirror import ./folder
  larder mirror trust registry.opentofu.org/hashicorp/random 34365D9472D7468F`,
	}
	cmd.AddCommand(addCommand(c), lockCommand(c), syncCommand(c),
		importCommand(c), exportCommand(c), admitCommand(c), trustCommand(c),
		policyCommand(c), setupCommand(c))
	return cmd
}
