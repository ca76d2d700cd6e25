package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
)

func (c *cli) initCommand() *cobra.Command {
	var adopt bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a registry in a folder of this machine",
		Long: `Make a registry in a folder of this machine, which is made if it is not there. Every other command but serve needs a registry that
is there already. Of a registry that is there nothing is changed.

With --adopt it takes a folder without a marker, of an earlier release or a backup, even if its database and its objects do not
agree. larder verify --at-rest then lists what is missing.`,
		Example: `  larder init
  larder init --store dir:/srv/larder`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			dir, _, err := parseStore(c.store)
			if err != nil {
				return err
			}
			if dir == "" {
				return usageError{errors.New("a deployed registry is made by cdk deploy: name a folder with --store dir:FOLDER")}
			}
			open := local.Open
			if adopt {
				open = local.Adopt
			}
			data, err := open(cmd.Context(), dir)
			created := false
			if _, ok := errors.AsType[*local.NoRegistryError](err); ok {
				data, created, err = local.Create(cmd.Context(), dir)
			}
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.Close()) }()
			status, reason := "unchanged", ""
			switch {
			case created:
				status = "created"
			case data.Adopted != nil:
				status, reason = "adopted", data.Adopted.Reason
			}
			if c.json {
				return c.printJSON(struct {
					Status string `json:"status"`
					Data   string `json:"data"`
					Reason string `json:"reason,omitempty"`
				}{status, data.Dir, reason})
			}
			switch status {
			case "created":
				c.printf("Made a registry in %s\n", data.Dir)
			case "adopted":
				c.printf("Adopted the registry in %s, although %s.\nRun `larder verify --at-rest` to see what is missing.\n", data.Dir, reason)
			default:
				c.printf("Unchanged: there is a registry in %s already\n", data.Dir)
			}
			return nil
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().BoolVar(&adopt, "adopt", false, "take a folder without a marker even if its database and its objects do not agree")
	return cmd
}
