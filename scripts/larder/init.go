package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

func (c *cli) initCommand() *cobra.Command {
	var adopt bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a registry in a folder of this machine",
		Long: `Make a registry in a folder of this machine. The folder is made too if it is
missing. A registry that is there already stays as it is. All other commands but
serve need a registry that is there.

--adopt accepts a folder of an earlier release, or a backup, that has no marker,
even if its database and its objects do not agree. ` + "`larder verify --at-rest`" + `
then lists what is missing.`,
		Example: `  larder init
  larder init --store /srv/larder`,
		RunE: c.run(func(ctx context.Context, _ []string) (found view, err error) {
			p, err := c.storePlace()
			if err != nil {
				return nil, err
			}
			if p.dir == "" {
				return nil, registry.WithHint(usagef("cannot make a registry in %s: it is not a folder", p),
					"`cdk deploy` makes a deployed registry. For one on this machine, name a folder with --store.")
			}
			open := local.Open
			if adopt {
				open = local.Adopt
			}
			data, err := open(ctx, p.dir)
			created := false
			if _, ok := errors.AsType[*local.NoRegistryError](err); ok {
				data, created, err = local.Create(ctx, p.dir)
			}
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, data.Close()) }()
			v := initView{Status: "unchanged", Data: data.Dir}
			switch {
			case created:
				v.Status = "created"
			case data.Adopted != nil:
				v.Status, v.Reason = "adopted", data.Adopted.Reason
			}
			return v, nil
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().BoolVar(&adopt, "adopt", false,
		"accept a folder without a marker even if its database and its objects do not agree")
	return cmd
}

// initView is what became of the folder of a registry.
type initView struct {
	// Status is created, adopted or unchanged.
	Status string `json:"status"`
	// Data is the folder.
	Data string `json:"data"`
	// Reason is why the folder had to be adopted.
	Reason string `json:"reason,omitempty"`
}

func (v initView) text(p page) {
	switch v.Status {
	case "created":
		p.printf("%s\n", p.Wrap("Made a registry in "+v.Data))
	case "adopted":
		p.printf("%s\n", p.Wrap("Adopted the registry in "+v.Data+", although "+v.Reason+"."))
		p.printf("Run `larder verify --at-rest` to see what is missing.\n")
	default:
		p.printf("%s\n", p.Wrap("Unchanged: there is a registry in "+v.Data+" already"))
	}
}
