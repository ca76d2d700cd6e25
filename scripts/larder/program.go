package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// cli is one run of the program: what all its commands share.
type cli struct {
	finder

	// now returns the time.
	now func() time.Time
	// args are the command line arguments.
	args []string
	// result is the view that the command returned.
	result view
}

// run returns the RunE function of a command that returns a view. A view that
// do returns with an error is a partial result.
func (c *cli) run(do func(ctx context.Context, args []string) (view, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		c.result, err = do(cmd.Context(), args)
		return err
	}
}

// show prints a view. With --json it also prints the registry and the fields of
// an error. Either may be nil.
func (c *cli) show(v view, failed any) error {
	switch {
	case v == nil && (failed == nil || !c.json):
	case c.json:
		return c.printJSON(c.about.fields(), v, failed)
	default:
		c.print(v)
	}
	return nil
}
