package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
)

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAMESPACE | NAMESPACE/NAME/SYSTEM]",
		Short: "List what is published",
		Long:  `List what is published: all modules, those of a namespace, or the versions of one module.`,
		Example: `  larder list
  larder list acme
  larder list acme/vpc/aws --json`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			data, err := c.openStore(cmd.Context(), false)
			if err != nil {
				if dir, _, _ := parseStore(c.store); dir != "" && errors.Is(err, registry.ErrNotFound) {
					return fmt.Errorf("%w: publish something, or say with --store where it is", err)
				}
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			if len(args) == 1 && strings.Contains(args[0], "/") {
				return c.listVersions(cmd, data, args[0])
			}
			return c.listModules(cmd, data, strings.Join(args, ""))
		},
	}
	c.storeFlag(cmd)
	return cmd
}

func (c *cli) listModules(cmd *cobra.Command, data *store, namespace string) error {
	found := []registry.ModuleSummary{}
	for m, err := range data.catalog.Modules(cmd.Context(), namespace) {
		if err != nil {
			return err
		}
		found = append(found, m)
	}
	switch {
	case len(found) == 0 && namespace != "":
		return fmt.Errorf("modules in namespace %q: %w", namespace, registry.ErrNotFound)
	case c.json:
		return c.printJSON(struct {
			Modules []registry.ModuleSummary `json:"modules"`
		}{found})
	case len(found) == 0:
		c.printf("Nothing is published yet.\n")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODULE\tLATEST\tDESCRIPTION")
	for _, m := range found {
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.Address, m.Latest, m.Description)
	}
	return table.Flush()
}

func (c *cli) listVersions(cmd *cobra.Command, data *store, address string) error {
	m, err := registry.ParseModule(address)
	if err != nil {
		return err
	}
	versions, err := data.catalog.ModuleVersions(cmd.Context(), m)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			Address  string                   `json:"address"`
			Versions []registry.ModuleVersion `json:"versions"`
		}{m.String(), versions})
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tPUBLISHED\tBY\tSIZE\tARCHIVE")
	for _, v := range versions {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\tsha256:%s\n", v.Version, v.PublishedAt.Format("2006-01-02 15:04 MST"), v.PublishedBy, humanize.IBytes(uint64(v.Size)), v.SHA256)
	}
	return table.Flush()
}
