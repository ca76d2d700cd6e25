package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// showFlags has the flags of `larder show`.
type showFlags struct {
	path   string
	readme bool
}

func showCommand(c *cli.Program) *cobra.Command {
	var flags showFlags
	cmd := &cobra.Command{
		Use:   "show ADDRESS [VERSION]",
		Short: "Show what is in a module or provider",
		Long: `Show who published a version of a module or provider, from what, and how to use
it, and which modules of this registry use it. For a module, also show its
inputs, outputs, resources, requirements, submodules and examples. Without
VERSION, show the newest version.

ADDRESS is NAMESPACE/NAME/SYSTEM for a module and NAMESPACE/TYPE for a provider.
For a mirrored module, HOSTNAME/NAMESPACE/NAME/SYSTEM, show what the version is
bound to, and what the origin has changed. For a mirrored provider, use
` + "`larder list`" + ` instead.

With --quiet the command prints only the version. With --json it prints all
folders of a module, whatever --path is.` + place.ReadThroughRegistry,
		Example: `  larder show acme/vpc/aws
  larder show acme/vpc/aws 1.2.0 --readme
  larder show acme/vpc/aws --path modules/endpoints
  larder show registry.opentofu.org/terraform-aws-modules/vpc/aws 5.8.1
  larder show acme/inventory --registry https://registry.example.com`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			a, err := registry.ParseAddress(args[0])
			if err != nil {
				return nil, err
			}
			version, err := arguments.Version(args[1:])
			if err != nil {
				return nil, err
			}
			if err := flags.check(a); err != nil {
				return nil, err
			}
			return c.OnReader(ctx, func(r *place.Reader) (output.View, error) { return showVersion(ctx, r, a, version, flags) })
		}),
	}
	c.RegistryFlags(cmd)
	cmd.Flags().StringVar(&flags.path, "path", "", "show the submodule or example at `PATH`, such as modules/endpoints")
	cmd.Flags().BoolVar(&flags.readme, "readme", false, "also print the README, in Markdown")
	return cmd
}

// check checks the flags for an address.
func (f showFlags) check(a registry.Address) error {
	switch a := a.(type) {
	case registry.MirrorAddress:
		if a.IsModule() && f.path == "" && !f.readme {
			return nil
		}
		if a.IsModule() {
			return arguments.Errorf("--path and --readme are for modules of this registry, but %s is a mirrored module", a)
		}
		return registry.WithHint(arguments.Errorf("cannot show %s: it is a mirrored provider", a),
			"Run `larder list %s` to list its versions.", a)
	case registry.Provider:
		if f.path != "" || f.readme {
			return arguments.Errorf("--path and --readme are for modules, but %s is a provider", a)
		}
	}
	return nil
}

// showVersion returns the view of a version, or of the newest version if version is
// nil.
func showVersion(
	ctx context.Context, r *place.Reader, a registry.Address, version *registry.Version, f showFlags,
) (output.View, error) {
	if p, ok := a.(registry.Provider); ok {
		found, err := r.Provider(ctx, p, version)
		if err != nil {
			return nil, r.NotFound(ctx, a, version, err)
		}
		return shownProviderView{found, r.Dependents(ctx, p), p, r.Host}, nil
	}
	if mirrored, ok := a.(registry.MirrorAddress); ok {
		return output.As(showMirrored(ctx, r, mirrored, version))
	}
	m, ok := a.(registry.Module)
	if !ok {
		return nil, fmt.Errorf("cannot show %s: %w address", a, registry.ErrInvalid)
	}
	found, err := r.Module(ctx, m, version)
	if err != nil {
		return nil, r.NotFound(ctx, a, version, err)
	}
	if !found.Documented && f.path != "" {
		return nil, r.DocumentationError("show", m, found.Version)
	}
	v := shownModuleView{
		ModuleDetail: found, Dependents: r.Dependents(ctx, m), address: m, host: r.Host, readme: f.readme, flags: r.Flags,
		rebuildHint: r.RebuildHint(m, found.Version),
	}
	v.folder, err = folderAt(found.Documentation, f.path)
	if err != nil {
		return nil, fmt.Errorf("cannot show %s %s: %w", a, found.Version, err)
	}
	return v, nil
}

// folderAt returns the folder of a module at a path. The root has an empty
// path.
func folderAt(d docs.Documentation, path string) (docs.Folder, error) {
	path = strings.Trim(strings.TrimPrefix(path, "./"), "/")
	if path == "" || path == "." {
		return d.Root, nil
	}
	folders := slices.Concat(d.Submodules, d.Examples)
	for _, f := range folders {
		if f.Path == path {
			return f, nil
		}
	}
	err := fmt.Errorf("the folder%s is %w", arguments.InError(path), registry.ErrNotFound)
	if len(folders) == 0 {
		return docs.Folder{}, registry.WithHint(err, "The module has no submodules and no examples.")
	}
	paths := output.Mapped(folders, func(f docs.Folder) string { return f.Path })
	return docs.Folder{}, registry.WithHint(err, "Use one of %s.", strings.Join(paths, ", "))
}

// shownModuleView is a version of a module.
type shownModuleView struct {
	protocol.ModuleDetail
	// Dependents are missing if there are none, or if they cannot be read.
	Dependents *place.Dependents `json:"dependents,omitempty"`

	address registry.Module
	folder  docs.Folder
	host    place.Addressing
	readme  bool
	// flags are those of [place.Finder.RepeatedFlags].
	flags string
	// rebuildHint describes how to make the documentation if there is none.
	rebuildHint string
}

func (v shownModuleView) Text(p output.Page) {
	source := v.address.String()
	if v.folder.Path != "" {
		source += "//" + v.folder.Path
	}
	state := protocol.StateDeprecated
	if v.Hidden {
		state = protocol.StateHidden
	}
	p.Head(source+" "+v.Version.String(), v.Description, state, reasonOf(v.Deprecation))
	p.Facts(slices.Concat(publication(p, v.PublishedAt, v.PublishedBy, v.Source), claimed(v.Claimed), copies(v.Copies), [][2]string{
		{"Archive", p.Digest("sha256:"+v.SHA256) + ", " + humanize.IBytes(uint64(max(v.Size, 0)))},
		{"Versions", output.VersionList(v.Versions)},
		{"Called by", v.Dependents.String()},
	}))
	if !v.Documented {
		block := place.ModuleBlock(v.address.Name, v.host.Host+"/"+source, v.Version.String(), place.UnknownInputs)
		place.PrintUse(p, block, v.host)
		p.Printf("\n")
		p.Println("This version has no readable documentation. %s", v.rebuildHint)
		return
	}
	if folders := v.callable(); len(folders) > 0 && !v.Hidden {
		place.PrintUse(p, place.ModuleBlocks(v.host.Host, v.address, v.Version, folders), v.host)
	}
	printFolder(p, v.folder)
	if v.folder.Path == "" {
		printFolders(p, "Submodules", v.Submodules)
		printFolders(p, "Examples", v.Examples)
		if all := slices.Concat(v.Submodules, v.Examples); len(all) > 0 {
			p.Printf("\n")
			p.Println("To see one of them, run `larder show %s %s --path %s%s`.",
				v.address, v.Version, all[0].Path, v.flags)
		}
	}
	if v.readme {
		p.Readme(v.folder.Readme)
	}
	if len(v.Notes) > 0 {
		p.Printf("\n")
		p.Warnings(v.Notes)
	}
}

// callable returns the folders to suggest in module blocks. An example is never one.
func (v shownModuleView) callable() []docs.Folder {
	switch {
	case v.folder.Path == "":
		return v.Callable()
	case v.folder.Empty || strings.HasPrefix(v.folder.Path, "examples/"):
		return nil
	}
	return []docs.Folder{v.folder}
}

func (v shownModuleView) Quiet(p output.Page) { p.Printf("%s\n", v.Version) }

// shownProviderView is a version of a provider.
type shownProviderView struct {
	protocol.ProviderDetail
	Dependents *place.Dependents `json:"dependents,omitempty"`

	address registry.Provider
	host    place.Addressing
}

func (v shownProviderView) Text(p output.Page) {
	address := v.address.String()
	p.Head(address+" "+v.Version.String(), v.Description, protocol.StateDeprecated, reasonOf(v.Deprecation))
	p.Facts(slices.Concat(publication(p, v.PublishedAt, v.PublishedBy, v.Source), copies(v.Copies), [][2]string{
		{"Signed by", v.SigningKey},
		{"Protocols", strings.Join(v.Protocols, ", ")},
		{"Versions", output.VersionList(v.Versions)},
		{"Used by", v.Dependents.String()},
	}))
	place.PrintUse(p, place.ProviderBlock(v.address.Type, v.host.Host+"/"+address, v.Version.String()), v.host)
	rows := make([]output.Definition, len(v.Packages))
	for i, one := range v.Packages {
		rows[i] = output.Definition{
			Name: one.String(), Value: humanize.IBytes(uint64(max(one.Size, 0))) + "  " + p.Digest("sha256:"+one.SHA256),
		}
	}
	p.Definitions("Platforms", rows)
}

func (v shownProviderView) Quiet(p output.Page) { p.Printf("%s\n", v.Version) }

// publication returns the facts about when a version was published, by whom and
// from what. On a terminal it shortens an identity.
func publication(p output.Page, at time.Time, by registry.Publisher, source string) [][2]string {
	facts := [][2]string{{"Published", output.PublishedTime(at)}}
	if by.Repository == "" {
		name := by.String()
		if p.Width > 0 {
			name = output.ShortIdentity(name, max(p.Width-output.FactColumn, 20))
		}
		return append(facts, [2]string{"By", name})
	}
	job := strings.TrimSpace(by.Repository+" "+by.Ref) + ", a CI job of " + strings.TrimPrefix(by.Issuer, "https://")
	return append(facts, [2]string{"By", job}, [2]string{"Source", source}, [2]string{"Commit", by.Commit})
}

// claimed returns the Git source as the publisher states it.
func claimed(c *registry.ClaimedSource) (facts [][2]string) {
	if c != nil {
		facts = append(facts, [2]string{"Claimed", c.String() + " (as the publisher claims)"})
	}
	return facts
}

// copies returns where a version was copied from and to.
func copies(c protocol.Copies) (facts [][2]string) {
	if from := c.CopiedFrom; from != nil {
		text := from.Source
		if by := from.PublishedBy.String(); by != "" {
			text += ", published there by " + by
		}
		if from.Claimed != nil {
			text += ", claimed as " + from.Claimed.String()
		}
		facts = append(facts, [2]string{"Copy of", text})
	}
	for _, note := range c.CopyNotes {
		facts = append(facts, [2]string{"Note", note})
	}
	if len(c.CopiedTo) > 0 {
		facts = append(facts, [2]string{"Copied to", strings.Join(c.CopiedTo, ", ")})
	}
	return facts
}

// printFolders prints the submodules or examples of a module.
func printFolders(p output.Page, title string, all []docs.Folder) {
	rows := make([]output.Definition, len(all))
	for i, f := range all {
		rows[i] = output.Definition{Name: f.Path, Value: english.Plural(len(f.Inputs), "input", "") + ", " +
			english.Plural(len(f.Outputs), "output", "")}
	}
	p.Definitions(title, rows)
}

func printFolder(p output.Page, f docs.Folder) {
	if f.Empty {
		p.Printf("\n")
		p.Println("This folder has no configuration.")
		return
	}
	var required, optional []output.Definition
	for _, i := range f.Inputs {
		if i.Required {
			required = append(required, inputOf(p, i))
		} else {
			optional = append(optional, inputOf(p, i))
		}
	}
	p.Definitions("Required inputs", required)
	p.Definitions("Optional inputs", optional)
	outputs := make([]output.Definition, len(f.Outputs))
	for i, o := range f.Outputs {
		outputs[i] = output.Definition{
			Name: o.Name, About: o.Description,
			Value: flags(map[string]bool{"sensitive": o.Sensitive, "ephemeral": o.Ephemeral}),
			Notes: deprecationNote(p, o.Deprecated),
		}
	}
	p.Definitions("Outputs", outputs)
	p.Definitions("Resources", slices.Concat(
		byType("", f.Resources), byType("data.", f.DataResources), byType("ephemeral.", f.EphemeralResources)))
	modules := make([]output.Definition, len(f.Dependencies))
	for i, d := range f.Dependencies {
		modules[i] = output.Definition{Name: d.Name, Value: strings.TrimSpace(d.Source + " " + d.Version)}
	}
	p.Definitions("Modules", modules)
	p.Definitions("Requirements", requirementsOf(f))
}

func requirementsOf(f docs.Folder) (rows []output.Definition) {
	if f.RequiredVersion != "" {
		rows = append(rows, output.Definition{Name: "required_version", Value: f.RequiredVersion})
	}
	for _, d := range f.ProviderDependencies {
		row := output.Definition{Name: d.Name, Value: strings.TrimSpace(d.Source + " " + d.Version)}
		if len(d.Aliases) > 0 {
			row.Notes = []string{"Pass " + strings.Join(d.Aliases, ", ") + "."}
		}
		rows = append(rows, row)
	}
	return rows
}

// byType returns a definition for each type of resources, with their names.
func byType(prefix string, all []docs.Resource) (rows []output.Definition) {
	for _, r := range all {
		last := len(rows) - 1
		if last >= 0 && rows[last].Name == prefix+r.Type {
			rows[last].Value += ", " + r.Name
			continue
		}
		rows = append(rows, output.Definition{Name: prefix + r.Type, Value: r.Name})
	}
	return rows
}

func inputOf(p output.Page, i docs.Input) output.Definition {
	d := output.Definition{Name: i.Name, Value: strings.TrimSpace(i.Type), About: i.Description}
	if !i.Required && i.Default != "" {
		d.Value += " = " + shortValue(p, i.Default)
	}
	more := flags(map[string]bool{"sensitive": i.Sensitive, "ephemeral": i.Ephemeral, "not null": i.NotNull})
	if more != "" {
		d.Value += " (" + more + ")"
	}
	d.Notes = deprecationNote(p, i.Deprecated)
	for _, message := range i.Validations {
		d.Notes = append(d.Notes, "Rule: "+message)
	}
	return d
}

// maxValue bounds a default on a terminal.
const maxValue = 200

// shortValue shortens a long value on a terminal.
func shortValue(p output.Page, value string) string {
	if p.Width <= 0 || len(value) <= maxValue {
		return value
	}
	return string([]rune(value)[:min(maxValue, len([]rune(value)))]) + "…"
}

func deprecationNote(p output.Page, reason string) []string {
	if reason == "" {
		return nil
	}
	return []string{p.Paint("Deprecated", output.PaintState("deprecated")) + ": " + reason}
}

// flags returns the names that are set, sorted and separated by commas.
func flags(set map[string]bool) string {
	var names []string
	for name, is := range set {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// reasonOf returns the reason for a deprecation, or an empty string without
// one.
func reasonOf(note *protocol.DeprecationNote) string {
	if note == nil {
		return ""
	}
	return note.Reason
}
