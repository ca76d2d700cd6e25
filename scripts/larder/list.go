package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAMESPACE | NAMESPACE/NAME/SYSTEM | NAMESPACE/TYPE | HOSTNAME/NAMESPACE/TYPE]",
		Short: "List what is published and mirrored",
		Long: `List what is published and mirrored: all modules and providers, those of a namespace, or the versions of a module, a provider or a
mirrored provider, with what is deprecated and withdrawn, and what has lost its record.`,
		Example: `  larder list
  larder list acme
  larder list acme/vpc/aws --json
  larder list acme/inventory
  larder list registry.opentofu.org/hashicorp/random`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			what := strings.Join(args, "")
			first, _, _ := strings.Cut(what, "/")
			hostname := strings.Contains(first, ".") // no namespace has a dot
			switch slashes := strings.Count(what, "/"); {
			case first == "mirror" && slashes == 3:
				return c.listMirrorVersions(cmd, data, strings.TrimPrefix(what, "mirror/"))
			case hostname && slashes < 2:
				return c.listMirrored(cmd, data, what)
			case hostname:
				return c.listMirrorVersions(cmd, data, what)
			case slashes == 0:
				return c.listAll(cmd, data, what)
			case slashes == 1:
				return c.listProviderVersions(cmd, data, what)
			}
			return c.listVersions(cmd, data, what)
		},
	}
	c.storeFlag(cmd)
	return cmd
}

func (c *cli) listAll(cmd *cobra.Command, data *store, namespace string) error {
	modules, err := collect(data.catalog.Modules.Summaries(cmd.Context(), namespace))
	if err != nil {
		return err
	}
	providers, err := collect(data.catalog.Providers.Summaries(cmd.Context(), namespace))
	if err != nil {
		return err
	}
	mirrored := []registry.Summary{}
	if namespace == "" {
		if mirrored, err = collect(data.catalog.Mirror.Summaries(cmd.Context(), "")); err != nil {
			return err
		}
	}
	switch {
	case len(modules)+len(providers) == 0 && namespace != "":
		return fmt.Errorf("namespace %q: %w", namespace, registry.ErrNotFound)
	case c.json:
		return c.printJSON(struct {
			Modules   []registry.Summary `json:"modules"`
			Providers []registry.Summary `json:"providers"`
			Mirrored  []registry.Summary `json:"mirrored"`
		}{modules, providers, mirrored})
	case len(modules)+len(providers)+len(mirrored) == 0:
		c.printf("Nothing is published yet.\n")
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	if len(modules) > 0 {
		fmt.Fprintln(table, "MODULE\tLATEST\tDESCRIPTION")
		for _, m := range modules {
			fmt.Fprintf(table, "%s\t%s\t%s\n", m.Address, m.Latest, deprecated(m.Deprecated, m.Description))
		}
	}
	if len(providers) > 0 {
		if len(modules) > 0 {
			fmt.Fprintln(table)
		}
		fmt.Fprintln(table, "PROVIDER\tLATEST\t")
		for _, p := range providers {
			fmt.Fprintf(table, "%s\t%s\t%s\n", p.Address, p.Latest, deprecated(p.Deprecated, ""))
		}
	}
	if len(mirrored) > 0 {
		if len(modules)+len(providers) > 0 {
			fmt.Fprintln(table)
		}
		printMirrored(table, mirrored)
	}
	return table.Flush()
}

// collect returns all that a sequence has.
func collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	found := []T{}
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// deprecated puts a deprecation before what else there is to say.
func deprecated(message, otherwise string) string {
	if message == "" {
		return otherwise
	}
	return "deprecated: " + message
}

func (c *cli) listProviderVersions(cmd *cobra.Command, data *store, address string) error {
	p, err := registry.ParseProvider(address)
	if err != nil {
		return err
	}
	versions, err := data.catalog.Providers.All(cmd.Context(), p)
	lost, err := lostOf(cmd.Context(), err, p, data.catalog.Providers)
	if err != nil {
		return err
	}
	whole := ""
	for summary, err := range data.catalog.Providers.Summaries(cmd.Context(), p.Namespace) {
		if err != nil {
			return err
		}
		if summary.Address == p.String() {
			whole = summary.Deprecated
		}
	}
	if c.json {
		return c.printJSON(struct {
			Address    string                     `json:"address"`
			Deprecated string                     `json:"deprecated,omitempty"`
			Versions   []registry.ProviderVersion `json:"versions"`
			Lost       []registry.Version         `json:"lost,omitempty"`
		}{p.String(), whole, versions, lost})
	}
	if whole != "" {
		c.printf("%s is deprecated: %s\n", p, whole)
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tPUBLISHED\tBY\tPROTOCOLS\tKEY\tPLATFORMS\t")
	for _, v := range versions {
		if v.Withdrawn != nil {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t%s\n", v.Version, withdrawal(*v.Withdrawn))
			continue
		}
		platforms := make([]string, len(v.Packages))
		for i, pkg := range v.Packages {
			platforms[i] = pkg.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Version, v.PublishedAt.Format("2006-01-02 15:04 MST"), shortPublisher(v.PublishedBy), strings.Join(v.Protocols, " "), v.SigningKey, strings.Join(platforms, " "), deprecated(v.Deprecated, ""))
	}
	printLost(table, lost, 5)
	return table.Flush()
}

// listMirrored lists what is mirrored of a host, or of a namespace there.
func (c *cli) listMirrored(cmd *cobra.Command, data *store, part string) error {
	mirrored, err := collect(data.catalog.Mirror.Summaries(cmd.Context(), ""))
	if err != nil {
		return err
	}
	mirrored = slices.DeleteFunc(mirrored, func(s registry.Summary) bool {
		return !strings.HasPrefix(s.Address, strings.TrimSuffix(part, "/")+"/")
	})
	switch {
	case len(mirrored) == 0:
		return fmt.Errorf("mirrored providers of %s: %w", part, registry.ErrNotFound)
	case c.json:
		return c.printJSON(struct {
			Mirrored []registry.Summary `json:"mirrored"`
		}{mirrored})
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	printMirrored(table, mirrored)
	return table.Flush()
}

func printMirrored(w io.Writer, mirrored []registry.Summary) {
	fmt.Fprintln(w, "MIRRORED PROVIDER\tLATEST\t")
	for _, p := range mirrored {
		fmt.Fprintf(w, "%s\t%s\t\n", p.Address, p.Latest)
	}
}

func (c *cli) listMirrorVersions(cmd *cobra.Command, data *store, address string) error {
	p, err := registry.ParseMirrorProvider(address)
	if err != nil {
		return err
	}
	versions, err := data.catalog.Mirror.All(cmd.Context(), p)
	lost, err := lostOf(cmd.Context(), err, p, data.catalog.Mirror.Versions)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			Address  string                   `json:"address"`
			Versions []registry.MirrorVersion `json:"versions"`
			Lost     []registry.Version       `json:"lost,omitempty"`
		}{p.String(), versions, lost})
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tPLATFORM\tMIRRORED\tBY\tSIZE\tSIGNED BY")
	for _, v := range versions {
		if v.Withdrawn != nil {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t%s\n", v.Version, withdrawal(*v.Withdrawn))
			continue
		}
		for _, pkg := range v.Packages {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", v.Version, pkg.Platform, pkg.MirroredAt.Format("2006-01-02 15:04 MST"), shortPublisher(pkg.MirroredBy), humanize.IBytes(uint64(pkg.Size)), cmp.Or(pkg.SigningKey, "not verified"))
		}
	}
	printLost(table, lost, 4)
	return table.Flush()
}

func (c *cli) listVersions(cmd *cobra.Command, data *store, address string) error {
	m, err := registry.ParseModule(address)
	if err != nil {
		return err
	}
	versions, err := data.catalog.Modules.All(cmd.Context(), m)
	lost, err := lostOf(cmd.Context(), err, m, data.catalog.Modules)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			Address  string                   `json:"address"`
			Versions []registry.ModuleVersion `json:"versions"`
			Lost     []registry.Version       `json:"lost,omitempty"`
		}{m.String(), versions, lost})
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tPUBLISHED\tBY\tSIZE\tARCHIVE")
	for _, v := range versions {
		if v.Withdrawn != nil {
			fmt.Fprintf(table, "%s\t-\t-\t-\t%s\n", v.Version, withdrawal(*v.Withdrawn))
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", v.Version, v.PublishedAt.Format("2006-01-02 15:04 MST"), shortPublisher(v.PublishedBy), humanize.IBytes(uint64(v.Size)), archived(v))
	}
	printLost(table, lost, 3)
	return table.Flush()
}

// shortPublisher returns what a table shows of a publisher: the repository, ref and
// short commit of a CI job with its issuer, or the name of anybody else.
func shortPublisher(p registry.Publisher) string {
	if p.Repository == "" {
		return p.String()
	}
	text := p.Repository
	if p.Ref != "" {
		text += " " + p.Ref
	}
	if p.Commit != "" {
		text += " " + p.Commit[:min(len(p.Commit), 7)]
	}
	return text + " (" + p.Issuer + ")"
}

// withdrawal says what there is to know of a version that is withdrawn.
func withdrawal(w registry.Withdrawal) string {
	return fmt.Sprintf("withdrawn on %s by %s: %s", minute(w.At), w.By, w.Reason)
}

// lostOf returns the versions that have lost their records, which is no failure to read an address where nothing else is wrong with
// it: they are shown as that.
func lostOf[A registry.Address, R registry.Record](ctx context.Context, failed error, address A, versions catalog.Versions[A, R]) ([]registry.Version, error) {
	if !errors.Is(failed, registry.ErrCorrupt) {
		return nil, failed
	}
	s, err := versions.Stored(ctx, address)
	if err == nil && len(s.Lost) > 0 && len(s.Unreadable) == 0 {
		return s.Lost, nil
	}
	return nil, cmp.Or(err, failed)
}

// printLost prints the versions of which the record is lost, with as many columns of which nothing is known.
func printLost(w io.Writer, lost []registry.Version, unknown int) {
	for _, v := range lost {
		fmt.Fprintf(w, "%s\t%sits record is lost: see larder verify\n", v, strings.Repeat("-\t", unknown))
	}
}

// archived says what there is to know of a version's archive.
func archived(v registry.ModuleVersion) string {
	switch {
	case v.Hidden:
		return "hidden: " + v.Deprecated
	case v.Deprecated != "":
		return deprecated(v.Deprecated, "")
	}
	return "sha256:" + v.SHA256
}
