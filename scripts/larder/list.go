package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/suggest"
	"github.com/larder-registry/larder/pkg/terminal"
)

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAMESPACE|ADDRESS]",
		Short: "List what is published and mirrored",
		Long: `List what is published and mirrored: all of it, what is in a namespace or from a
hostname, or the versions at an address. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM    a module
  NAMESPACE/TYPE           a provider
  HOSTNAME/NAMESPACE/TYPE  a mirrored provider

The state of a version is deprecated, hidden, withdrawn, or lost if its record
is missing.

With --quiet it prints only addresses, or the versions of an address that
clients can choose, the newest first: none that are hidden, withdrawn or lost.`,
		Example: `  larder list
  larder list acme
  larder list acme/vpc/aws --json
  larder list acme/inventory
  larder list registry.opentofu.org/hashicorp/random`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			list, err := listing(strings.Join(args, ""))
			if err != nil {
				return nil, err
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				defer c.waiting("listing what is published")()
				v, err := list(ctx, s.catalog)
				if errors.Is(err, registry.ErrNotFound) {
					return v, suggestAddress(ctx, s.catalog, args[0], err)
				}
				return v, err
			})
		}),
	}
	c.storeFlags(cmd)
	return cmd
}

// suggestAddress returns the error of listing something that does not exist, with
// a hint at the nearest that does.
func suggestAddress(ctx context.Context, from *catalog.Catalog, what string, failed error) error {
	if near := nearAddress(ctx, from, what); near != "" {
		return registry.WithHint(failed, "Did you mean `larder list %s`?", near)
	}
	return registry.WithHint(failed, "`larder list` lists what there is.")
}

// nearAddress returns the address, the namespace or the hostname that is nearest to
// what somebody has named, or nothing.
func nearAddress(ctx context.Context, from *catalog.Catalog, what string) string {
	paths, err := from.AllEntries(ctx)
	if err != nil {
		return "" // a suggestion is not worth another error
	}
	first, _, _ := strings.Cut(what, "/")
	var beside, known []string // in the same namespace, everywhere
	for _, path := range paths {
		_, address, _ := strings.Cut(path, "/")
		parts := strings.Split(address, "/")
		known = append(known, address, parts[0])
		if strings.Contains(parts[0], ".") { // a hostname, of which a namespace can be listed
			known = append(known, parts[0]+"/"+parts[1])
		}
		if strings.HasPrefix(address, what+"/") {
			return address
		}
		if parts[0] == first {
			beside = append(beside, address)
		}
	}
	for _, words := range [][]string{beside, known} {
		if near, ok := suggest.Nearest(what, words); ok {
			return near
		}
	}
	return ""
}

// listing returns what lists a namespace, a hostname, an address, or everything.
func listing(what string) (func(context.Context, *catalog.Catalog) (view, error), error) {
	first, _, _ := strings.Cut(what, "/")
	hostname := strings.Contains(first, ".") // no namespace has a dot
	slashes := strings.Count(what, "/")
	switch {
	case first == "mirror" && slashes == 3:
		return listVersions(strings.TrimPrefix(what, "mirror/"), registry.ParseMirrorProvider, listMirrorProvider)
	case hostname && slashes < 2:
		return func(ctx context.Context, from *catalog.Catalog) (view, error) {
			return shown(listMirrored(ctx, from, what))
		}, nil
	case hostname:
		return listVersions(what, registry.ParseMirrorProvider, listMirrorProvider)
	case slashes == 0:
		return func(ctx context.Context, from *catalog.Catalog) (view, error) {
			return shown(listNamespace(ctx, from, what))
		}, nil
	case slashes == 1:
		return listVersions(what, registry.ParseProvider, listProvider)
	}
	return listVersions(what, registry.ParseModule, listModule)
}

// listVersions returns what lists the versions of an address.
func listVersions[A any, V view](
	what string, parse func(string) (A, error), list func(context.Context, *catalog.Catalog, A) (V, error),
) (func(context.Context, *catalog.Catalog) (view, error), error) {
	address, err := parse(what)
	return func(ctx context.Context, from *catalog.Catalog) (view, error) {
		v, err := list(ctx, from, address)
		if errors.Is(err, registry.ErrNotFound) {
			err = fmt.Errorf("cannot list %w", err)
		}
		return shown(v, err)
	}, err
}

// summariesView lists modules, providers and mirrored providers.
type summariesView struct {
	Modules   []registry.Summary `json:"modules"`
	Providers []registry.Summary `json:"providers"`
	Mirrored  []registry.Summary `json:"mirrored"`
}

// listNamespace lists what is in a namespace, or everything if it has no name.
func listNamespace(ctx context.Context, from *catalog.Catalog, namespace string) (v summariesView, err error) {
	names := []string{namespace}
	if namespace == "" {
		if names, err = from.Namespaces(ctx); err != nil {
			return v, err
		}
	}
	v = summariesView{[]registry.Summary{}, []registry.Summary{}, []registry.Summary{}}
	for _, name := range names {
		modules, err := collect(from.Modules.Summaries(ctx, name))
		if err != nil {
			return v, err
		}
		providers, err := collect(from.Providers.Summaries(ctx, name))
		if err != nil {
			return v, err
		}
		v.Modules, v.Providers = append(v.Modules, modules...), append(v.Providers, providers...)
	}
	if namespace == "" {
		v.Mirrored, err = collect(from.Mirror.Summaries(ctx, ""))
	} else if len(v.Modules)+len(v.Providers) == 0 {
		err = fmt.Errorf("cannot list namespace %s: %w", namespace, registry.ErrNotFound)
	}
	return v, err
}

// listMirrored lists what is mirrored of a hostname, or of a namespace there.
func listMirrored(ctx context.Context, from *catalog.Catalog, part string) (v summariesView, err error) {
	all, err := collect(from.Mirror.Summaries(ctx, ""))
	if err != nil {
		return v, err
	}
	v = summariesView{[]registry.Summary{}, []registry.Summary{}, slices.DeleteFunc(all, func(s registry.Summary) bool {
		return !strings.HasPrefix(s.Address, strings.TrimSuffix(part, "/")+"/")
	})}
	if len(v.Mirrored) == 0 {
		return v, fmt.Errorf("cannot list mirrored providers of %s: %w", part, registry.ErrNotFound)
	}
	return v, nil
}

func (v summariesView) text(p page) {
	first := true
	for _, part := range []struct {
		title string
		all   []registry.Summary
	}{{"MODULE", v.Modules}, {"PROVIDER", v.Providers}, {"MIRRORED PROVIDER", v.Mirrored}} {
		if len(part.all) == 0 {
			continue
		}
		if !first {
			p.printf("\n")
		}
		first = false
		rows := make([][]string, len(part.all))
		for i, s := range part.all {
			state, _ := state(s.Deprecated, false)
			rows[i] = []string{s.Address, s.Latest.String(), state, s.Description, s.Deprecated}
		}
		p.Table([]terminal.Column{
			{Title: part.title, Min: 24}, {Title: "LATEST"}, stateColumn, {Title: "DESCRIPTION", Min: 12}, reasonColumn,
		}, rows)
	}
	if first {
		p.printf("Nothing is published yet.\n")
	}
}

func (v summariesView) quiet(p page) {
	for _, s := range slices.Concat(v.Modules, v.Providers, v.Mirrored) {
		p.printf("%s\n", s.Address)
	}
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

// state returns the state of a version that is not withdrawn, and the reason.
func state(deprecated string, hidden bool) (name, why string) {
	switch {
	case hidden:
		return "hidden", deprecated
	case deprecated != "":
		return "deprecated", deprecated
	}
	return "", ""
}

// versionRows are rows of a table with a version first, its state and the reason
// behind it.
type versionRows struct {
	between int // columns between the state and the reason
	rows    [][]string
}

func (r *versionRows) add(v registry.Version, state, why string, between ...string) {
	for len(between) < r.between {
		between = append(between, "-")
	}
	r.rows = append(r.rows, append(append([]string{v.String(), state}, between...), why))
}

func (r *versionRows) lost(versions []registry.Version) {
	for _, v := range versions {
		r.add(v, "lost", "its record is missing: see `larder verify`")
	}
}

// withdrawn adds a version that is withdrawn. When and by whom that was done is
// part of the reason: nobody records when the version was published.
func (r *versionRows) withdrawn(p page, v registry.Version, w registry.Withdrawal) {
	by := cmp.Or(w.By, "unknown")
	if p.Width > 0 {
		by = shortIdentity(by, 40)
	}
	r.add(v, "withdrawn", fmt.Sprintf("%s (%s, %s)", w.Reason, by, w.At.UTC().Format(time.DateOnly)))
}

// printVersions prints the versions that clients can choose.
func printVersions[V registry.Record](p page, versions []V) {
	for _, v := range versions {
		if v.Listed() {
			p.printf("%s\n", v.Number())
		}
	}
}

// deprecated prints that all versions of an address are deprecated, if they are.
func (p page) deprecated(address, message string) {
	if message != "" {
		p.println("%s is %s: %s", address, p.Paint("deprecated", paintState("deprecated")), message)
		p.printf("\n")
	}
}

// deprecatedWhole returns why all versions of an address are deprecated; empty if
// they are not.
func deprecatedWhole(all iter.Seq2[registry.Summary, error], address string) (string, error) {
	for summary, err := range all {
		if err != nil || summary.Address == address {
			return summary.Deprecated, err
		}
	}
	return "", nil
}

var (
	versionColumn   = terminal.Column{Title: "VERSION"}
	stateColumn     = terminal.Column{Title: "STATE", Paint: paintState}
	publishedColumn = terminal.Column{Title: "PUBLISHED", Min: len("2006-01-02"), Shorten: shortTime}
	byColumn        = terminal.Column{Title: "BY", Min: 10, Shorten: shortIdentity}
	reasonColumn    = terminal.Column{Title: "REASON", Min: 10}
)

// shortTime leaves out the time of day.
func shortTime(at string, width int) string {
	date, _, _ := strings.Cut(at, " ")
	return terminal.CutEnd(date, width)
}

// shortIdentity keeps the session's name of an ARN, the subject of an identity that
// an issuer has signed, and the beginning of any other name.
func shortIdentity(name string, width int) string {
	switch {
	case strings.HasPrefix(name, "arn:"):
		name = name[strings.LastIndexByte(name, '/')+1:]
	case strings.HasPrefix(name, "https://"):
		if _, subject, found := strings.Cut(name, " "); found {
			name = subject
		}
	}
	return terminal.CutEnd(name, width)
}

// moduleView lists the versions of a module.
type moduleView struct {
	Address string `json:"address"`
	// Deprecated is why no version should be used any more.
	Deprecated string                   `json:"deprecated,omitempty"`
	Versions   []registry.ModuleVersion `json:"versions"`
	Lost       []registry.Version       `json:"lost,omitempty"`
}

func listModule(ctx context.Context, from *catalog.Catalog, m registry.Module) (moduleView, error) {
	versions, err := from.Modules.All(ctx, m)
	lost, err := lostOf(ctx, err, m, from.Modules)
	v := moduleView{Address: m.String(), Versions: versions, Lost: lost}
	if err == nil {
		v.Deprecated, err = deprecatedWhole(from.Modules.Summaries(ctx, m.Namespace), v.Address)
	}
	return v, err
}

func (v moduleView) text(p page) {
	p.deprecated(v.Address, v.Deprecated)
	rows := versionRows{between: 4}
	for _, m := range v.Versions {
		if m.Withdrawn != nil {
			rows.withdrawn(p, m.Version, *m.Withdrawn)
			continue
		}
		name, why := state(m.Deprecated, m.Hidden)
		rows.add(m.Version, name, why,
			minute(m.PublishedAt), shortPublisher(m.PublishedBy), humanize.IBytes(uint64(m.Size)), "sha256:"+m.SHA256)
	}
	rows.lost(v.Lost)
	p.Table([]terminal.Column{
		versionColumn, stateColumn, publishedColumn, byColumn, {Title: "SIZE", Right: true},
		{Title: "ARCHIVE", Min: len("sha256:01234567…"), Optional: true}, reasonColumn,
	}, rows.rows)
}

func (v moduleView) quiet(p page) {
	printVersions(p, v.Versions)
}

// providerView lists the versions of a provider.
type providerView struct {
	Address string `json:"address"`
	// Deprecated is why no version should be used any more.
	Deprecated string                     `json:"deprecated,omitempty"`
	Versions   []registry.ProviderVersion `json:"versions"`
	Lost       []registry.Version         `json:"lost,omitempty"`
}

func listProvider(ctx context.Context, from *catalog.Catalog, a registry.Provider) (providerView, error) {
	versions, err := from.Providers.All(ctx, a)
	lost, err := lostOf(ctx, err, a, from.Providers)
	v := providerView{Address: a.String(), Versions: versions, Lost: lost}
	if err == nil {
		v.Deprecated, err = deprecatedWhole(from.Providers.Summaries(ctx, a.Namespace), v.Address)
	}
	return v, err
}

func (v providerView) text(p page) {
	p.deprecated(v.Address, v.Deprecated)
	rows := versionRows{between: 5}
	for _, one := range v.Versions {
		if one.Withdrawn != nil {
			rows.withdrawn(p, one.Version, *one.Withdrawn)
			continue
		}
		name, why := state(one.Deprecated, false)
		platforms := make([]string, len(one.Packages))
		for i, pkg := range one.Packages {
			platforms[i] = pkg.String()
		}
		rows.add(one.Version, name, why, minute(one.PublishedAt), shortPublisher(one.PublishedBy),
			strings.Join(one.Protocols, " "), one.SigningKey, strings.Join(platforms, " "))
	}
	rows.lost(v.Lost)
	p.Table([]terminal.Column{
		versionColumn, stateColumn, publishedColumn, byColumn,
		{Title: "PROTOCOLS", Optional: true}, {Title: "KEY", Min: 9, Optional: true},
		{Title: "PLATFORMS", Min: len("windows_amd64 +2"), Shorten: shortList}, reasonColumn,
	}, rows.rows)
}

// shortList keeps the first words of a list and the number of the others.
func shortList(list string, width int) string {
	words := strings.Fields(list)
	for n := len(words) - 1; n > 0; n-- {
		short := strings.Join(words[:n], " ") + " +" + strconv.Itoa(len(words)-n)
		if len(short) <= width {
			return short
		}
	}
	return terminal.CutEnd(list, width)
}

func (v providerView) quiet(p page) {
	printVersions(p, v.Versions)
}

// mirrorProviderView lists the versions of a mirrored provider.
type mirrorProviderView struct {
	Address  string                   `json:"address"`
	Versions []registry.MirrorVersion `json:"versions"`
	Lost     []registry.Version       `json:"lost,omitempty"`
}

func listMirrorProvider(
	ctx context.Context, from *catalog.Catalog, a registry.MirrorProvider,
) (mirrorProviderView, error) {
	versions, err := from.Mirror.All(ctx, a)
	lost, err := lostOf(ctx, err, a, from.Mirror.Versions)
	return mirrorProviderView{a.String(), versions, lost}, err
}

func (v mirrorProviderView) text(p page) {
	rows := versionRows{between: 5}
	for _, one := range v.Versions {
		if one.Withdrawn != nil {
			rows.withdrawn(p, one.Version, *one.Withdrawn)
			continue
		}
		for _, pkg := range one.Packages {
			rows.add(one.Version, "", "", minute(pkg.MirroredAt), shortPublisher(pkg.MirroredBy),
				pkg.String(), humanize.IBytes(uint64(pkg.Size)), cmp.Or(pkg.SigningKey, "not verified"))
		}
	}
	rows.lost(v.Lost)
	mirrored := publishedColumn
	mirrored.Title = "MIRRORED"
	p.Table([]terminal.Column{
		versionColumn, stateColumn, mirrored, byColumn, {Title: "PLATFORM"}, {Title: "SIZE", Right: true},
		{Title: "SIGNED BY", Min: 12}, reasonColumn,
	}, rows.rows)
}

func (v mirrorProviderView) quiet(p page) {
	printVersions(p, v.Versions)
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

// lostOf returns the versions whose records are missing. If nothing else is wrong
// with an address, they are listed as lost, and reading it does not fail.
func lostOf[A registry.Address, R registry.Record](
	ctx context.Context, failed error, address A, versions catalog.Versions[A, R],
) ([]registry.Version, error) {
	if !errors.Is(failed, registry.ErrCorrupt) {
		return nil, failed
	}
	s, err := versions.Stored(ctx, address)
	if err == nil && len(s.Lost) > 0 && len(s.Unreadable) == 0 {
		return s.Lost, nil
	}
	return nil, cmp.Or(err, failed)
}
