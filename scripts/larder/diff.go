package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/docs/changelog"
	"github.com/larder-registry/larder/pkg/docs/compare"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func diffCommand(c *cli.Program) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "diff NAMESPACE/NAME/SYSTEM VERSION [VERSION]",
		Short: "Compare two versions of a module",
		Long: `Compare two versions of a module: its inputs, outputs, requirements,
resources, module blocks and submodules. Without the second VERSION, compare
with the newest version.

Each line begins with + for an added entry, - for a removed one and ~ for a
changed or renamed one. A change is breaking if a configuration that works with
the first version may fail with the second one. It may change plans if, for
example, a default or the version of a module block changed. The command does
not compare READMEs, examples, the arguments of resources, or the conditions of
validations.

An entry was perhaps renamed if another one with a similar name is new and has
the same type and default. Nothing proves that both mean the same.

If the second version has a changelog, such as CHANGELOG.md, its part since the
first version follows. It has at most 16 KiB.

The exit code is 7 if there are breaking changes, and 0 if there are none.` + place.ReadThroughRegistry,
		Example: `  larder diff acme/vpc/aws 1.2.0 2.0.0
  larder diff acme/vpc/aws 1.2.0 --path modules/endpoints
  larder diff acme/vpc/aws 1.2.0 2.0.0 --json`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			m, err := registry.ParseModule(args[0])
			if err != nil {
				return nil, err
			}
			from, err := arguments.Version(args[1:])
			if err != nil {
				return nil, err
			}
			to, err := arguments.Version(args[2:])
			if err != nil {
				return nil, err
			}
			return c.OnReader(ctx, func(r *place.Reader) (output.View, error) {
				v, err := compareVersions(ctx, r, m, from, to, path)
				if err == nil && path == "" && (c.JSON || !c.Quiet) {
					v.Changelog, err = changelogOf(ctx, r, m, v.From, v.To)
				}
				if err != nil {
					return nil, err
				}
				return v, v.verdict()
			})
		}),
	}
	c.RegistryFlags(cmd)
	cmd.Flags().StringVar(&path, "path", "", "compare the submodule or example at `PATH`, such as modules/endpoints")
	return cmd
}

// compareVersions compares two versions of a module. If path is not empty, it
// compares this folder of them.
func compareVersions(
	ctx context.Context, r *place.Reader, m registry.Module, from, to *registry.Version, path string,
) (v diffView, err error) {
	v.Address, v.flags = m.String(), r.Flags
	before, err := documented(ctx, r, m, from)
	if err != nil {
		return v, err
	}
	after, err := documented(ctx, r, m, to)
	if err != nil {
		return v, err
	}
	v.From, v.To = before.Version, after.Version
	if path == "" {
		v.Difference = compare.Modules(before.Documentation, after.Documentation)
		return v, nil
	}
	old, err := folderAt(before.Documentation, path)
	if err != nil {
		return v, fmt.Errorf("cannot compare %s %s: %w", m, v.From, err)
	}
	current, err := folderAt(after.Documentation, path)
	if err != nil {
		return v, fmt.Errorf("cannot compare %s %s: %w", m, v.To, err)
	}
	v.Path, v.Difference = old.Path, compare.Folders(old, current)
	return v, nil
}

// changelogOf returns the part of a changelog between two versions. Its text is
// empty if there is none, or if the registry is of a release without files.
func changelogOf(ctx context.Context, r *place.Reader, m registry.Module, from, to registry.Version) (
	changelog.Part, error,
) {
	if registry.CompareVersions(from, to) >= 0 {
		return changelog.Part{}, nil
	}
	stored, err := r.ModuleFiles(ctx, m, to)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return changelog.Part{}, err
	}
	return changelog.Read(stored.Files, from, to, func(path string) ([]byte, error) {
		return r.ModuleFile(ctx, m, to, path)
	})
}

func documented(
	ctx context.Context, r *place.Reader, m registry.Module, version *registry.Version,
) (protocol.ModuleDetail, error) {
	found, err := r.Module(ctx, m, version)
	switch {
	case err != nil:
		return found, r.NotFound(ctx, m, version, err)
	case !found.Documented:
		return found, r.DocumentationError("compare", m, found.Version)
	}
	return found, nil
}

// verdict returns an error if there are breaking changes.
func (v diffView) verdict() error {
	if v.Breaking == 0 {
		return nil
	}
	return registry.WithHint(failure.BreakingChanges(fmt.Errorf("%s %s has %s since %s",
		v.subject(), v.To, english.Plural(v.Breaking, "breaking change", ""), v.From)),
		"A configuration that works with %s may fail with %s.", v.From, v.To)
}

// diffView is the difference between two versions of a module.
type diffView struct {
	Address string           `json:"address"`
	From    registry.Version `json:"from"`
	To      registry.Version `json:"to"`
	// Path is the path of the compared folder. It is missing if all folders are
	// compared.
	Path string `json:"path,omitempty"`
	compare.Difference
	// Changelog is the part of the changelog between the versions. It is
	// missing if there is none.
	Changelog changelog.Part `json:"changelog,omitzero"`

	// flags are those of [place.Finder.RepeatedFlags].
	flags string
}

func (v diffView) subject() string {
	if v.Path == "" {
		return v.Address
	}
	return v.Address + "//" + v.Path
}

// kindNames are the names of entries in lines, by the titles of sections.
var kindNames = map[string]string{
	"Inputs": "input", "Outputs": "output", "Requirements": "requirement", "Resources": "resource",
	"Modules": "module block", "Submodules": "submodule",
}

func (v diffView) Text(p output.Page) {
	p.Printf("%s %s → %s\n", v.subject(), v.From, v.To)
	column := v.column()
	for _, s := range v.Sections() {
		if len(s.Changes) > 0 {
			p.Printf("\n")
		}
		for _, change := range s.Changes {
			printChange(p, kindNames[s.Title], change, column)
		}
	}
	for _, change := range v.Submodules.Changes {
		if change.Kind == compare.Changed {
			p.Printf("\n")
			p.Println("To see the changes of a submodule, run `larder diff %s %s %s --path %s%s`.",
				v.Address, v.From, v.To, change.Name, v.flags)
			break
		}
	}
	v.printChangelog(p)
	if v.Breaking == 0 {
		p.Printf("\n")
		p.Println("%s", v.harmless())
	}
}

// maxChangelogLines bounds the lines of a changelog on a terminal.
const maxChangelogLines = 40

func (v diffView) printChangelog(p output.Page) {
	if v.Changelog.Text == "" {
		return
	}
	p.Printf("\nFrom line %d of %s:\n\n", v.Changelog.Line, v.Changelog.File)
	lines := strings.Split(v.Changelog.Plain(), "\n")
	shown := lines
	if p.Width > 0 {
		shown = lines[:min(len(lines), maxChangelogLines)]
	}
	for _, line := range shown {
		text := strings.TrimLeft(strings.ReplaceAll(line, "\t", "  "), " ")
		if text == "" {
			p.Printf("\n")
			continue
		}
		column := len("  ") + min(len(line)-len(text), maxEntry)
		p.Printf("%s%s\n", strings.Repeat(" ", column), p.WrapAt(column, text))
	}
	switch more := len(lines) - len(shown); {
	case more > 0:
		p.Printf("\n")
		p.Println("%s follow. To see them, add --json.", english.Plural(more, "more line", ""))
	case v.Changelog.Cut:
		p.Printf("\nThe text is cut at 16 KiB.\n")
	}
}

// harmless describes a difference without breaking changes.
func (v diffView) harmless() string {
	for _, s := range v.Sections() {
		if len(s.Changes) > 0 {
			return "No breaking changes found. The command compares documentation and not what resources do."
		}
	}
	return "No changes found. The command compares documentation and not what resources do."
}

// maxEntry is the longest entry that has its reasons next to it.
const maxEntry = 40

func (v diffView) column() (column int) {
	for _, s := range v.Sections() {
		for _, change := range s.Changes {
			if n := len(entry(kindNames[s.Title], change)); n <= maxEntry {
				column = max(column, n)
			}
		}
	}
	return column + len("  ")
}

// signs are the signs of changes.
var signs = map[compare.Kind]string{
	compare.Added: "+", compare.Removed: "-", compare.Changed: "~", compare.PerhapsRenamed: "~",
}

// entry returns a change without its consequences, such as "+ input x".
func entry(kind string, c compare.Change) string { return signs[c.Kind] + " " + kind + " " + c.Name }

// printChange prints a change, its consequences, and its short fields.
func printChange(p output.Page, kind string, c compare.Change, column int) {
	line := entry(kind, c)
	colored := p.Paint(line[:1], output.PaintState(string(c.Kind))) + line[1:]
	space := strings.Repeat(" ", column)
	why := consequence(p, c)
	switch {
	case why == "":
		p.Printf("%s\n", colored)
	case len(line)+2 <= column:
		p.Printf("%s%s%s\n", colored, space[len(line):], p.WrapAt(column, why))
	default:
		p.Printf("%s\n%s%s\n", colored, space, p.WrapAt(column, why))
	}
	for _, f := range c.Fields {
		if shownFields[f.Name] && !f.Stated {
			printField(p, f, space)
		}
	}
}

// shownFields are the fields whose values are printed. The reasons describe the
// others.
var shownFields = map[string]bool{"type": true, "default": true, "version": true, "source": true}

// maxField bounds a value in a line with two values.
const maxField = 30

// printField prints both values of a field, in one line if they are short.
func printField(p output.Page, f compare.Field, space string) {
	before, after := orNothing(output.Tidy(f.Before)), orNothing(output.Tidy(f.After))
	if len(before) <= maxField && len(after) <= maxField && !strings.Contains(before+after, "\n") {
		p.Printf("%s%s → %s\n", space, before, after)
		return
	}
	for _, value := range []struct {
		sign, text string
		color      terminal.Color
	}{{"-", before, output.PaintState(string(compare.Removed))}, {"+", after, output.PaintState(string(compare.Added))}} {
		for line := range strings.SplitSeq(shortValue(p, value.text), "\n") {
			p.Printf("%s%s %s\n", space, p.Paint(value.sign, value.color), p.WrapAt(len(space)+2, line))
		}
	}
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// markNames are the words for marks.
var markNames = map[compare.Mark]string{compare.Breaking: "breaking", compare.ChangesPlans: "may change plans"}

func consequence(p output.Page, c compare.Change) string {
	reasons := strings.Join(c.Reasons, "; ")
	name := markNames[c.Mark]
	if name == "" {
		return reasons
	}
	return p.Paint(name, output.PaintState(name)) + ": " + reasons
}
