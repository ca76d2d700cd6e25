package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
)

func initCommand(c *cli.Program) *cobra.Command {
	var adopt bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a registry in a folder",
		Long: `Create a registry in a folder of this machine. The command creates the folder
too. It does not change a registry that already exists. Only init and serve
create registries: other commands need one that exists.

A folder from an incomplete backup may have no marker file. --adopt accepts it
even if its database and its objects do not match. Then run
` + "`larder verify --at-rest`" + ` to list what is missing.`,
		Example: `  larder init
  larder init --store /srv/larder`,
		RunE: c.Run(func(ctx context.Context, _ []string) (found output.View, err error) {
			p, err := c.FindStore()
			if err != nil {
				return nil, err
			}
			if p.Dir == "" {
				return nil, registry.WithHint(arguments.Errorf("cannot create a registry in %s: it is not a folder", p),
					"To create a registry on AWS, use `cdk deploy`. To create one on this machine, name a folder with --store.")
			}
			open := local.Open
			if adopt {
				open = local.Adopt
			}
			data, err := open(ctx, p.Dir)
			created := false
			if _, ok := errors.AsType[*local.NoRegistryError](err); ok {
				data, created, err = local.Create(ctx, p.Dir)
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
	c.StoreFlags(cmd)
	cmd.Flags().BoolVar(&adopt, "adopt", false,
		"accept a folder without a marker file even if its database and its objects do not match")
	return cmd
}

// initView is the result of creating a registry.
type initView struct {
	// Status is created, adopted or unchanged.
	Status string `json:"status"`
	// Data is the registry's folder.
	Data string `json:"data"`
	// Reason explains why the folder needed --adopt.
	Reason string `json:"reason,omitempty"`
}

func (v initView) Text(p output.Page) {
	switch v.Status {
	case "created":
		p.Printf("%s\n", p.Wrap("Created a registry in "+v.Data))
	case "adopted":
		p.Printf("%s\n", p.Wrap("Adopted the registry in "+v.Data+", although "+v.Reason+"."))
		p.Printf("Run `larder verify --at-rest` to list what is missing.\n")
	default:
		p.Printf("%s\n", p.Wrap("Unchanged: "+v.Data+" already has a registry"))
	}
}
