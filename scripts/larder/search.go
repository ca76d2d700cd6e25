package main

import (
	"context"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func searchCommand(c *cli.Program) *cobra.Command {
	limit := 20
	cmd := &cobra.Command{
		Use:   "search WORD…",
		Short: "Search modules and providers",
		Long: `Search modules and providers. All words must match a part of the address, the
description, or a name in the documentation. These names are those of inputs,
outputs, providers, types of resources and submodules. The best results are
first, and deprecated ones are last.

The column FOUND has the names in the documentation that match. The exit code is
0 even if there are no results. With --quiet the command prints only addresses.` + place.ReadThroughRegistry,
		Example: `  larder search vpc
  larder search flow logs --limit 50
  larder search aws_s3_bucket --quiet`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			fields := strings.Fields(strings.Join(args, " "))
			words := strings.Join(fields, " ")
			switch {
			case words == "":
				return nil, arguments.Errorf("WORD is empty")
			case len(fields) > protocol.MaxSearchWords:
				return nil, arguments.Errorf("there are more than %d words to search for", protocol.MaxSearchWords)
			case len(words) > protocol.MaxSearch:
				return nil, arguments.Errorf("the words to search for have more than %d bytes", protocol.MaxSearch)
			case limit < 1:
				return nil, arguments.Errorf("--limit must be at least 1")
			}
			return c.OnReader(ctx, func(r *place.Reader) (output.View, error) {
				return output.As(searchFor(ctx, r, metadataclient.Query{Words: words, Limit: limit}))
			})
		}),
	}
	c.RegistryFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", limit, "print at most `N` modules and N providers")
	return cmd
}

func searchFor(ctx context.Context, r *place.Reader, q metadataclient.Query) (v searchView, err error) {
	v.Query = q.Words
	if v.Modules, v.ModulesTotal, err = r.Modules(ctx, q); err != nil {
		return v, err
	}
	v.Providers, v.ProvidersTotal, err = r.Providers(ctx, q)
	return v, err
}

// searchView has the results of a search, the best first.
type searchView struct {
	Query   string                   `json:"query"`
	Modules []protocol.ModuleSummary `json:"modules"`
	// ModulesTotal and ProvidersTotal are the numbers of results without the
	// limit.
	ModulesTotal   int                        `json:"modules_total"`
	Providers      []protocol.ProviderSummary `json:"providers"`
	ProvidersTotal int                        `json:"providers_total"`
}

func (v searchView) Text(p output.Page) {
	if len(v.Modules)+len(v.Providers) == 0 {
		p.Println("No results for %q. Check the spelling, or search for part of a name, an input or a resource.", v.Query)
		return
	}
	modules := make([][]string, len(v.Modules))
	for i, m := range v.Modules {
		modules[i] = resultRow(metadataclient.ModuleAddress(m), m.Version.String(), m.Description, m.Deprecation, m.Matches)
	}
	providers := make([][]string, len(v.Providers))
	for i, m := range v.Providers {
		providers[i] = resultRow(metadataclient.ProviderAddress(m), m.Version.String(), m.Description, m.Deprecation, nil)
	}
	printResults(p, "MODULE", "modules", modules, v.ModulesTotal)
	if len(modules) > 0 && len(providers) > 0 {
		p.Printf("\n")
	}
	printResults(p, "PROVIDER", "providers", providers, v.ProvidersTotal)
}

func resultRow(address, latest, description string, note *protocol.DeprecationNote, matches []string) []string {
	state := ""
	if note != nil {
		state = "deprecated"
	}
	return []string{address, latest, state, strings.Join(matches, " "), description}
}

// printResults prints a table of results. It prints nothing if there are none.
func printResults(p output.Page, title, kind string, rows [][]string, total int) {
	if len(rows) == 0 {
		return
	}
	p.Table([]terminal.Column{
		{Title: title}, {Title: "LATEST"}, output.StateColumn, {Title: "FOUND", Min: 16, Shorten: output.ShortList},
		{Title: "DESCRIPTION", Min: 12},
	}, rows)
	if total > len(rows) {
		p.Println("These are %d of %s. For more, use --limit.",
			len(rows), english.Plural(total, strings.TrimSuffix(kind, "s"), kind))
	}
}

func (v searchView) Quiet(p output.Page) {
	for _, m := range v.Modules {
		p.Printf("%s\n", metadataclient.ModuleAddress(m))
	}
	for _, m := range v.Providers {
		p.Printf("%s\n", metadataclient.ProviderAddress(m))
	}
}
