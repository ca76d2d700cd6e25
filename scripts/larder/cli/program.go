// Package cli has what all commands share: one run of the program.
package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// Program is one run of the program: what all its commands share.
type Program struct {
	place.Finder

	// Args are the command line arguments.
	Args []string
	// Result is the view that the command returned.
	Result output.View
}

// Run returns the RunE function of a command that returns a view. A view that
// do returns with an error is a partial result.
func (c *Program) Run(
	do func(ctx context.Context, args []string) (output.View, error),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		c.Result, err = do(cmd.Context(), args)
		return err
	}
}

// Show prints a view. With --json it also prints the registry and the fields of
// an error. Either may be nil.
func (c *Program) Show(v output.View, failed any) error {
	switch {
	case v == nil && (failed == nil || !c.JSON):
	case c.JSON:
		return c.PrintJSON(c.About.Fields(), v, failed)
	default:
		c.Print(v)
	}
	return nil
}
