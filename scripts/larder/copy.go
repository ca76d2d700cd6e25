package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/fetch"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/sources/copying"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// copyFlags are the flags of larder copy.
type copyFlags struct {
	from, to   string
	constraint string
	rename     []string
	networks   []string
	allowHosts []string
	addKeys    bool
	dryRun     bool

	dependencies    bool
	dependencyHosts []string
}

func copyCommand(c *cli.Program) *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "copy ADDRESS… [VERSION…] --from ORIGIN",
		Short: "Copy modules and providers from another registry",
		Long: `Copy modules and providers from another registry, with the versions that follow
each address. Without versions, the command copies all of them, or those that
meet --versions.

ORIGIN is the host of a registry, a context, or the store of a Larder. The
command reads a host through the protocols of modules and providers, with the
credentials that OpenTofu and Terraform have for it. The target is the registry
of the command, or the one that --to names.

From another Larder, the command copies modules byte for byte, with their
descriptions and deprecations. Both audit trails record the copy. From any other
registry, it fetches each module as clients do, from an archive or with git, and
packs it. It copies what clients install, with notes on what a new version must
not have. If the origin leads to another host, git uses no credentials or keys
of this machine there, unless --allow-host names the host. The SHA256SUMS and
the signature of a provider stay the same. Its namespace must have the key: see
--add-keys.

With --with-dependencies, the command also copies the modules that copied ones
call, and those that they call, in the versions that clients install. It follows
sources with the host in --from. It follows those without a host if it copies
from registry.opentofu.org or registry.terraform.io. If the origin has copies of
modules of another host, name it with --dependency-host. The command lists what
it does not follow, such as modules in a namespace that you do not name. It
changes no sources, and copies no providers that modules require.

Run the command again after an interruption, or for new versions. It does only
what is missing. It skips and lists withdrawn versions.`,
		Example: `  larder copy acme/vpc/aws --from app.terraform.io
  larder copy acme/vpc/aws hashicorp/random --from HOST --versions '>= 2.0'
  larder copy acme/vpc/aws 1.2.0 --from dev --to prod
  larder copy acme/eks/aws 20.0.0 --from HOST --with-dependencies
  larder copy infra/vpc/aws --from HOST --rename infra/vpc/aws=acme/vpc/aws`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return arguments.Errorf("ADDRESS is missing")
			}
			return nil
		},
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) { return copyVersions(ctx, c, args, f) }),
	}
	c.RegistryFlags(cmd)
	cmd.Flags().StringVar(&f.from, "from", "", "the `ORIGIN`: a host, a context, stack:NAME or a folder")
	cmd.Flags().StringVar(&f.to, "to", "", "the `TARGET`: a context, https://HOST, stack:NAME or a folder")
	cmd.Flags().StringVar(&f.constraint, "versions", "", "copy the versions that meet a `CONSTRAINT`, such as '~> 2.0'")
	cmd.Flags().StringArrayVar(&f.rename, "rename", nil,
		"copy `OLD=NEW`: a module to another address, or a provider to another namespace; can be repeated")
	cmd.Flags().StringSliceVar(&f.networks, "network", nil,
		"private `NETWORKS` to which the origin may lead, such as 10.0.0.0/8; can be repeated")
	cmd.Flags().StringSliceVar(&f.allowHosts, "allow-host", nil,
		"`HOST` of repositories for which git may use your credentials and keys; can be repeated")
	cmd.Flags().BoolVar(&f.addKeys, "add-keys", false,
		"add the keys that signed the copied providers to their namespaces in the target")
	cmd.Flags().BoolVar(&f.dependencies, "with-dependencies", false, "also copy the modules that copied modules call")
	cmd.Flags().StringSliceVar(&f.dependencyHosts, "dependency-host", nil,
		"with dependencies whose sources name `HOST`, if the origin has them; can be repeated")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be copied without copying it")
	return cmd
}

func copyVersions(ctx context.Context, c *cli.Program, args []string, f copyFlags) (output.View, error) {
	wanted, err := parseWanted(args, f)
	if err != nil {
		return nil, err
	}
	networks, err := parseNetworks(f.networks)
	if err != nil {
		return nil, err
	}
	from, err := namedOrigin(f.from)
	if err != nil {
		return nil, err
	}
	if _, err := parseHosts("allow-host", f.allowHosts); err != nil {
		return nil, err
	}
	dependencyHosts, err := parseHosts("dependency-host", f.dependencyHosts)
	if err != nil {
		return nil, err
	}
	to, err := copyTarget(c, f.to)
	if err != nil {
		return nil, err
	}
	if f.addKeys && to.Host != "" {
		return nil, registry.WithHint(arguments.Errorf("--add-keys needs the store of the target, but %s is its URL", to),
			"Name the store, or add the keys with `larder key add` and remove --add-keys.")
	}
	if from.Host == to.Host && from.Stack == to.Stack && sameFolder(from.Dir, to.Dir) {
		return nil, registry.WithHint(arguments.Errorf("the origin and the target are the same registry, %s", to.Name),
			"Name another one with `--to`.")
	}
	c.About = to
	c.PrintRegistry()
	v := copyView{DryRun: f.dryRun, From: from.Name, To: to.Name}
	reporter := c.NewProgress()
	copier := copying.Copier{
		AddKeys: f.addKeys, DryRun: f.dryRun, Progress: reporter,
		Dependencies: f.dependencies || len(dependencyHosts) > 0, DependencyHosts: dependencyHosts,
	}
	fetcher := &fetch.Fetcher{Hosts: append(f.allowHosts, from.Host), Progress: reporter}
	var report copying.Report
	err = withOrigin(ctx, c, from, networks, fetcher, reporter, func(origin copying.Origin) error {
		return withTarget(ctx, c, to, reporter, func(target copying.Target) (err error) {
			copier.Origin, copier.Target = origin, target
			v.From, v.To = origin.Name(), target.Name()
			report, err = copier.Copy(ctx, wanted)
			return err
		})
	})
	reporter.Stop()
	if errors.Is(err, client.ErrRefusedAddress) {
		err = registry.WithHint(err, "If it is a server of your own, permit its network with `--network`.")
	}
	_, ofOrigin := errors.AsType[*copying.OriginError](err)
	if errors.Is(err, registry.ErrNotFound) && (ofOrigin || from.Host == "") && registry.Hint(err) == "" {
		hint := "`larder list --store " + arguments.Quoted(from.Name) + "` has its addresses."
		if from.Host != "" {
			hint = "If the origin is a Larder, `larder list --registry " + from.Name + "` has its addresses."
		}
		err = registry.WithHint(err, "Check the address. %s", hint)
	}
	for _, host := range fetcher.Others() {
		report.Notes = append(report.Notes, fmt.Sprintf(
			"modules came from %s, to which %s leads, without a credential", host, v.From))
	}
	v.set(report)
	return output.Partial(v, len(v.Versions), err)
}

// sameFolder reports whether two folders are the same, or both empty.
func sameFolder(a, b string) bool {
	return a == b || a != "" && b != "" && filepath.Clean(place.Absolute(a)) == filepath.Clean(place.Absolute(b))
}

// parseWanted parses addresses, each with the versions that follow it.
func parseWanted(args []string, f copyFlags) ([]copying.Wanted, error) {
	if _, err := registry.ParseConstraint(f.constraint); err != nil {
		return nil, arguments.Errorf("--versions: %w", err)
	}
	renamed, err := parseRenames(f.rename)
	if err != nil {
		return nil, err
	}
	var all []copying.Wanted
	for i, arg := range args {
		if !strings.Contains(arg, "/") && i > 0 {
			v, err := registry.ParseTag(arg)
			if err != nil {
				return nil, err
			}
			if f.constraint != "" {
				return nil, arguments.Errorf("--versions cannot be combined with the version %s", v)
			}
			last := &all[len(all)-1]
			if last.Exact == nil {
				last.Exact = &v
			} else {
				all = append(all, copying.Wanted{Address: last.Address, As: last.As, Exact: &v})
			}
			continue
		}
		a, err := parseCopied(arg)
		if err != nil {
			return nil, err
		}
		as, isRenamed := renamed[a.Path()]
		if !isRenamed {
			as = a
		}
		all = append(all, copying.Wanted{Address: a, As: as, Constraint: f.constraint})
	}
	return all, checkNames(all, renamed)
}

// checkNames returns an error if two addresses get the same name, or if a renamed
// address is not wanted.
func checkNames(all []copying.Wanted, renamed map[string]registry.Address) error {
	unused := maps.Clone(renamed)
	sources := make(map[string]registry.Address, len(all)) // by the paths of the names
	for _, w := range all {
		delete(unused, w.Address.Path())
		other, found := sources[w.As.Path()]
		if found && other.Path() != w.Address.Path() {
			return arguments.Errorf("%s and %s would both be copied to %s", other, w.Address, w.As)
		}
		sources[w.As.Path()] = w.Address
	}
	for path := range unused {
		return arguments.Errorf("--rename names %s, which is not copied", strings.SplitN(path, "/", 2)[1])
	}
	return nil
}

// parseCopied parses the address of a module or a provider.
func parseCopied(text string) (registry.Address, error) {
	a, err := registry.ParseAddress(text)
	if err != nil {
		return nil, err
	}
	if _, mirrored := a.(registry.MirrorAddress); mirrored {
		return nil, registry.WithHint(
			fmt.Errorf("cannot copy %s: %w address: it has the host of another registry", a, registry.ErrInvalid),
			"To copy a provider, write NAMESPACE/TYPE and name its registry with `--from`. "+
				"To mirror it, use `larder mirror add %s`.", a)
	}
	return a, nil
}

// parseRenames parses the values of --rename. It returns the new addresses by
// the paths of the old ones.
func parseRenames(texts []string) (map[string]registry.Address, error) {
	renamed := make(map[string]registry.Address, len(texts))
	for _, text := range texts {
		before, after, found := strings.Cut(text, "=")
		if !found {
			return nil, arguments.Errorf("--rename %s: it must be OLD=NEW", arguments.Quoted(text))
		}
		from, err := parseCopied(before)
		if err != nil {
			return nil, fmt.Errorf("--rename: %w", err)
		}
		to, err := parseCopied(after)
		if err != nil {
			return nil, fmt.Errorf("--rename: %w", err)
		}
		p, isProvider := from.(registry.Provider)
		q, alsoProvider := to.(registry.Provider)
		switch {
		case isProvider != alsoProvider:
			return nil, arguments.Errorf("--rename %s: one is a module, and the other one a provider", arguments.Quoted(text))
		case p.Type != q.Type:
			return nil, registry.WithHint(arguments.Errorf("--rename %s: a provider must keep its type", arguments.Quoted(text)),
				"Its signed files have the type in their names.")
		case renamed[from.Path()] != nil:
			return nil, arguments.Errorf("--rename names %s twice", from)
		}
		renamed[from.Path()] = to
	}
	return renamed, nil
}

func parseHosts(flag string, texts []string) ([]registry.Host, error) {
	hosts := make([]registry.Host, len(texts))
	for i, text := range texts {
		var err error
		if hosts[i], err = registry.ParseHost(text); err != nil {
			return nil, registry.WithHint(arguments.Errorf("--%s %s: it is not a host", flag, arguments.Quoted(text)),
				"Use the form git.example.com.")
		}
	}
	return hosts, nil
}

func parseNetworks(texts []string) ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		var err error
		if networks[i], err = netip.ParsePrefix(text); err != nil {
			return nil, registry.WithHint(arguments.Errorf("--network %s: it is not a network", arguments.Quoted(text)),
				"Use the form 10.0.0.0/8 or fd00::/8.")
		}
	}
	return networks, nil
}

func namedOrigin(text string) (place.Place, error) {
	if text == "" {
		return place.Place{}, registry.WithHint(arguments.Errorf("--from is missing"),
			"Name the registry to copy from, for example `--from registry.example.com`.")
	}
	p, err := registryNamed(text)
	if err != nil {
		return place.Place{}, fmt.Errorf("--from: %w", err)
	}
	return p, nil
}

// registryNamed returns the registry that a word names: a context, a URL, a store or a
// host.
func registryNamed(text string) (place.Place, error) {
	file, err := place.ReadContexts()
	if err != nil {
		return place.Place{}, err
	}
	_, isContext := file.Contexts[text]
	kind, _, hasKind := strings.Cut(text, ":")
	switch {
	case isContext:
		return place.OfContext(file, text)
	case place.IsURL(text):
		return place.ParseRegistry(text)
	case hasKind && (kind == "stack" || kind == "dir"), strings.ContainsAny(text, `/\~`):
		return place.ParseStore(text)
	case strings.ContainsAny(text, ".:"):
		return place.ParseRegistry("https://" + text)
	}
	if info, err := os.Stat(text); err == nil && info.IsDir() {
		return place.Place{}, registry.WithHint(arguments.Errorf("there is no context%s", arguments.InError(text)),
			"For the folder, write %s.", arguments.Quoted("./"+text))
	}
	return place.Place{}, place.NoContext(file, text)
}

// copyTarget returns the registry that --to names, or else that of the command.
func copyTarget(c *cli.Program, text string) (place.Place, error) {
	if text == "" {
		return c.FindAny()
	}
	for _, name := range []string{"store", "registry", "context"} {
		if c.Flags.Changed(name) {
			return place.Place{}, registry.WithHint(arguments.Errorf("--to and --%s both name a registry", name), "Use only one of them.")
		}
	}
	p, err := registryNamed(text)
	if err != nil {
		return place.Place{}, fmt.Errorf("--to: %w", err)
	}
	return p, nil
}

// copyStore returns a store as an origin or a target. The caller closes it.
func copyStore(
	ctx context.Context, c *cli.Program, p place.Place, reporter *output.Steps,
) (copying.Store, func() error, error) {
	s, err := c.OpenPlace(ctx, p, local.Open)
	if err != nil {
		return copying.Store{}, nil, err
	}
	by, err := s.By(ctx)
	if err != nil {
		return copying.Store{}, nil, errors.Join(err, s.Close())
	}
	host := cmp.Or(s.Host, p.Name)
	if s.Host == "" && p.Dir != "" {
		host = "folder:" + strings.Map(func(r rune) rune {
			if errs.IsPlain(string(r)) {
				return r
			}
			return '_'
		}, filepath.Base(place.Absolute(p.Dir)))
	}
	publisher := &publish.Publisher{Catalog: s.Catalog, Objects: s.Objects, By: by, Progress: reporter}
	return copying.Store{Host: host, Publisher: publisher}, s.Close, nil
}

// withOrigin calls do with the registry to copy from. The fetcher gets its
// client.
func withOrigin(
	ctx context.Context, c *cli.Program, p place.Place, networks []netip.Prefix, fetcher *fetch.Fetcher, reporter *output.Steps,
	do func(copying.Origin) error,
) error {
	if p.Host == "" {
		s, closeStore, err := copyStore(ctx, c, p, reporter)
		if err != nil {
			return err
		}
		return errors.Join(do(s), closeStore())
	}
	configuration, err := place.ClientConfiguration()
	if err != nil {
		return err
	}
	configuration.IgnoreServices(hostblock.ModulesPath, hostblock.ProvidersPath) // a mirror has only a part of it
	var failed error
	err = c.AsHost(configuration, p.Host, client.Identity{Only: c.Remote.CIIdentity}, func(credentials *client.Client) error {
		confined := credentials.Confine(ctx, "https://"+p.Host, networks...)
		fetcher.Client = confined
		origin, err := copying.OpenHost(ctx, confined, p.Host, fetcher, reporter)
		if err != nil {
			return err
		}
		failed = do(origin)
		// Only for errors of the origin, its credential matters.
		if _, own := errors.AsType[*copying.OriginError](failed); own {
			return failed
		}
		return nil
	})
	return cmp.Or(err, failed)
}

func withTarget(
	ctx context.Context, c *cli.Program, p place.Place, reporter *output.Steps, do func(copying.Target) error,
) error {
	if p.Host == "" {
		s, closeStore, err := copyStore(ctx, c, p, reporter)
		if err != nil {
			return err
		}
		return errors.Join(do(copying.StoreTarget{Store: s}), closeStore())
	}
	var failed error
	err := c.OnHost(p.Host, func(credentials *client.Client) error {
		publisher, err := publishclient.Open(ctx, credentials, p.Host)
		if err != nil {
			return err
		}
		publisher.Progress = reporter
		reader, err := metadataclient.Open(ctx, credentials, p.Host)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		failed = do(&copying.HostTarget{Publisher: publisher, Metadata: reader})
		if _, others := errors.AsType[*copying.OriginError](failed); others {
			return nil
		}
		return failed
	})
	return cmp.Or(err, failed)
}

// copyView is the result of copying versions.
type copyView struct {
	// From and To are the hosts of the registries, or the names of their stores.
	From   string `json:"from"`
	To     string `json:"to"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Versions are all wanted versions, and their dependencies.
	Versions []copiedVersion `json:"versions"`
	// NotFollowed are module blocks whose modules were not copied. It is missing
	// if there are none, or without --with-dependencies.
	NotFollowed []copying.NotFollowed `json:"not_followed,omitempty"`
	// Notes concern the whole copy.
	Notes []string `json:"notes,omitempty"`
}

// copiedVersion is the result for one version.
type copiedVersion struct {
	Address string `json:"address"`
	// As is the address in the target. It is missing if it is the same.
	As string `json:"as,omitempty"`
	// Version is missing if the versions of the address cannot be listed.
	Version string `json:"version,omitempty"`
	// CalledBy is the first module with its version of which this version is a
	// dependency. It is missing if the version was wanted itself.
	CalledBy string `json:"called_by,omitempty"`
	// Status is copied, unchanged, skipped or failed. In a dry run, copied means
	// that the version would be copied.
	Status copying.Status `json:"status"`
	// Reason is why the version was skipped or failed.
	Reason string `json:"reason,omitempty"`
	// SHA256 is the digest of the module's archive or of the provider's SHA256SUMS
	// in the target. It is missing if it is not known.
	SHA256 string `json:"sha256,omitempty"`
	// Deprecated is set if the deprecation was copied now.
	Deprecated string `json:"deprecated,omitempty"`
	// Hidden means that this deprecation hides the version too.
	Hidden bool `json:"hidden,omitempty"`
	// Notes describe what differs from the original, such as excluded files.
	Notes []string `json:"notes,omitempty"`
}

func (v *copyView) set(r copying.Report) {
	v.Notes, v.NotFollowed, v.Versions = r.Notes, r.NotFollowed, make([]copiedVersion, len(r.Results))
	for i, one := range r.Results {
		v.Versions[i] = copiedVersion{
			Address: one.Address.String(), Version: one.Version, Status: one.Status, Reason: one.Reason,
			SHA256: one.SHA256, Deprecated: one.Deprecated, Hidden: one.Hidden, Notes: one.Notes, CalledBy: one.CalledBy,
		}
		if one.As.String() != one.Address.String() {
			v.Versions[i].As = one.As.String()
		}
	}
}

func (v copyView) Text(p output.Page) {
	count := make(map[copying.Status]int)
	var rows [][]string
	for _, one := range v.Versions {
		count[one.Status]++
		reasons := slices.Clone(one.Notes)
		if one.CalledBy != "" && one.Status != copying.Unchanged {
			reasons = append(reasons, "called by "+one.CalledBy)
		}
		switch {
		case one.Hidden:
			reasons = append(reasons, "hidden: "+one.Deprecated)
		case one.Deprecated != "":
			reasons = append(reasons, "deprecated: "+one.Deprecated)
		case one.Reason != "":
			reasons = append(reasons, one.Reason)
		}
		failedAlone := one.Version == "" && len(v.Versions) == 1 // the error follows
		if failedAlone || one.Status == copying.Unchanged && len(reasons) == 0 {
			continue
		}
		rows = append(rows, []string{
			cmp.Or(one.As, one.Address), cmp.Or(one.Version, "-"), v.shown(one.Status),
			printable.Escape(strings.Join(reasons, "; ")),
		})
	}
	p.Table([]terminal.Column{{Title: "ADDRESS"}, output.VersionColumn, {Title: "STATUS"}, output.ReasonColumn}, rows)
	if len(rows) > 0 {
		p.Printf("\n")
	}
	verb := "Copied"
	if v.DryRun {
		verb = "Would copy"
	}
	text := fmt.Sprintf("%s %s from %s to %s", verb, english.Plural(count[copying.Copied], "version", ""), v.From, v.To)
	for _, status := range []copying.Status{copying.Unchanged, copying.Skipped, copying.Failed} {
		if count[status] > 0 {
			text += fmt.Sprintf(", %d %s", count[status], status)
		}
	}
	p.Println("%s", text)
	for _, block := range v.NotFollowed {
		p.Println("  %s: %s", p.Paint("not followed", terminal.Yellow), printable.Escape(block.String()))
	}
	p.Notes(v.Notes)
}

func (v copyView) shown(s copying.Status) string {
	if v.DryRun && s == copying.Copied {
		return "would copy"
	}
	return string(s)
}

func (v copyView) Quiet(p output.Page) {
	for _, one := range v.Versions {
		if one.Status == copying.Copied {
			p.Printf("%s %s\n", cmp.Or(one.As, one.Address), one.Version)
		}
	}
}
