package main

import (
	"cmp"
	"context"
	"slices"
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
		Long: `Search modules and providers, own and mirrored ones. All words must match a word
or a part of one in the address, the description, the README, or a name in the
documentation. These names are those of inputs, outputs, providers, types of
resources, submodules and examples. Everything but letters and digits separates
words. A word can be a source from a module block. The best results are first.

If a word is nowhere, a word that differs from it in one letter, or in two that
are swapped, replaces it. It needs at least four letters. The column FOUND has
the names in the documentation that match. The exit code is 0 even if there are
no results. With --quiet the command prints only addresses.` + place.ReadThroughRegistry,
		Example: `  larder search vpc
  larder search flow logs --limit 50
  larder search registry.example.com/acme/vpc/aws//modules/endpoints
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
	cmd.Flags().IntVar(&limit, "limit", limit, "print at most `N` results of each kind")
	return cmd
}

func searchFor(ctx context.Context, r *place.Reader, q metadataclient.Query) (v searchView, err error) {
	v.Query = q.Words
	var metas [4]protocol.ListMeta
	if v.Modules, metas[0], err = r.Modules(ctx, q); err != nil {
		return v, err
	}
	if v.Providers, metas[1], err = r.Providers(ctx, q); err != nil {
		return v, err
	}
	if v.MirroredModules, metas[2], err = r.MirroredModules(ctx, q); err != nil {
		return v, err
	}
	if v.MirroredProviders, metas[3], err = r.MirroredProviders(ctx, q); err != nil {
		return v, err
	}
	exact := slices.ContainsFunc(metas[:], func(m protocol.ListMeta) bool { return m.Total > 0 && m.Corrected == "" })
	for i, m := range metas {
		if exact && m.Corrected != "" { // another kind has the word
			metas[i].Total = 0
			v.drop(i)
			continue
		}
		v.Corrected = cmp.Or(v.Corrected, m.Corrected)
		v.NotIndexed, v.NotYetIndexed = v.NotIndexed+m.NotIndexed, v.NotYetIndexed+m.NotYetIndexed
	}
	v.ModulesTotal, v.ProvidersTotal = metas[0].Total, metas[1].Total
	v.MirroredModulesTotal, v.MirroredProvidersTotal = metas[2].Total, metas[3].Total
	return v, nil
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

	MirroredModules        []protocol.MirroredDetail `json:"mirrored_modules"`
	MirroredModulesTotal   int                       `json:"mirrored_modules_total"`
	MirroredProviders      []protocol.MirroredDetail `json:"mirrored_providers"`
	MirroredProvidersTotal int                       `json:"mirrored_providers_total"`

	// Corrected, NotIndexed and NotYetIndexed are those of the metadata API's
	// lists.
	Corrected     string `json:"corrected,omitempty"`
	NotIndexed    int    `json:"not_indexed,omitempty"`
	NotYetIndexed int    `json:"not_yet_indexed,omitempty"`
}

// drop removes the results of the kind with a number.
func (v *searchView) drop(kind int) {
	switch kind {
	case 0:
		v.Modules = []protocol.ModuleSummary{}
	case 1:
		v.Providers = []protocol.ProviderSummary{}
	case 2:
		v.MirroredModules = []protocol.MirroredDetail{}
	case 3:
		v.MirroredProviders = []protocol.MirroredDetail{}
	}
}

func (v searchView) Text(p output.Page) {
	if v.Corrected != "" {
		p.Println("Nothing was found for what you typed. These are the results for %q.\n", v.Corrected)
	}
	modules, providers := make([][]string, len(v.Modules)), make([][]string, len(v.Providers))
	for i, m := range v.Modules {
		modules[i] = resultRow(metadataclient.ModuleAddress(m), m.Version.String(), m.Description, m.Deprecation, m.Matches)
	}
	for i, m := range v.Providers {
		providers[i] = resultRow(metadataclient.ProviderAddress(m), m.Version.String(), m.Description, m.Deprecation, nil)
	}
	first := true
	for _, part := range []struct {
		title, kind string
		rows        [][]string
		total       int
	}{
		{"MODULE", "module", modules, v.ModulesTotal},
		{"PROVIDER", "provider", providers, v.ProvidersTotal},
		{"MIRRORED MODULE", "mirrored module", mirroredRows(v.MirroredModules), v.MirroredModulesTotal},
		{"MIRRORED PROVIDER", "mirrored provider", mirroredRows(v.MirroredProviders), v.MirroredProvidersTotal},
	} {
		if len(part.rows) == 0 {
			continue
		}
		if !first {
			p.Printf("\n")
		}
		first = false
		printResults(p, part.title, part.kind, part.rows, part.total)
	}
	if first {
		p.Println("No results for %q. Check the spelling, or search for part of a name, an input or a resource.", v.Query)
	}
	if v.NotYetIndexed > 0 {
		p.Println("%s found only by address and description so far. Search again in a minute.",
			english.Plural(v.NotYetIndexed, "module is", "modules are"))
	}
	if v.NotIndexed > 0 {
		p.Println("%s of large modules are not searched.", english.Plural(v.NotIndexed, "name or word", "names and words"))
	}
}

func mirroredRows(all []protocol.MirroredDetail) [][]string {
	rows := make([][]string, len(all))
	for i, m := range all {
		rows[i] = resultRow(metadataclient.MirroredAddress(m), m.Version.String(), "", nil, nil)
	}
	return rows
}

func resultRow(address, latest, description string, note *protocol.DeprecationNote, matches []string) []string {
	state := ""
	if note != nil {
		state = "deprecated"
	}
	return []string{address, latest, state, strings.Join(matches, " "), description}
}

// printResults prints a table of results.
func printResults(p output.Page, title, kind string, rows [][]string, total int) {
	p.Table([]terminal.Column{
		{Title: title}, {Title: "LATEST"}, output.StateColumn, {Title: "FOUND", Min: 16, Shorten: output.ShortList},
		{Title: "DESCRIPTION", Min: 12},
	}, rows)
	if total > len(rows) {
		p.Println("These are %d of %s. For more, use --limit.",
			len(rows), english.Plural(total, kind, kind+"s"))
	}
}

func (v searchView) Quiet(p output.Page) {
	for _, m := range v.Modules {
		p.Printf("%s\n", metadataclient.ModuleAddress(m))
	}
	for _, m := range v.Providers {
		p.Printf("%s\n", metadataclient.ProviderAddress(m))
	}
	for _, m := range slices.Concat(v.MirroredModules, v.MirroredProviders) {
		p.Printf("%s\n", metadataclient.MirroredAddress(m))
	}
}
