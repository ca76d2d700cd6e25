package main

import (
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// head prints what a page is about: its title, its description and its
// deprecation. The last two may be empty.
func (p page) head(title, description, deprecated string) {
	p.printf("%s\n", title)
	if description != "" {
		p.println("%s", description)
	}
	if deprecated != "" {
		p.println("%s: %s", p.Paint("Deprecated", paintState("deprecated")), deprecated)
	}
	p.printf("\n")
}

// facts prints short facts in two columns. It omits those without a value.
func (p page) facts(all [][2]string) {
	all = slices.DeleteFunc(all, func(fact [2]string) bool { return fact[1] == "" })
	for _, fact := range all {
		p.printf("%-*s%s\n", factColumn, fact[0], p.wrapAt(factColumn, fact[1]))
	}
}

// factColumn is the column of the values of [page.facts].
const factColumn = len("Published") + 2

// definition is an entry of a list: a name with what it means.
type definition struct {
	name string
	// value follows the name, about is below it, and notes are below that. Each
	// may be empty.
	value, about string
	notes        []string
}

func (d definition) lines() (all []string) {
	for _, text := range append([]string{d.value, d.about}, d.notes...) {
		if text = tidy(text); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// tidy returns a text without tabs and trailing spaces. It removes the
// indentation that all lines after the first one have.
func tidy(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\t", "  ")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	indent := len(text)
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
		if i > 0 && lines[i] != "" {
			indent = min(indent, len(line)-len(strings.TrimLeft(line, " ")))
		}
	}
	for i, line := range lines[1:] {
		lines[i+1] = line[min(indent, len(line)):]
	}
	return strings.Join(lines, "\n")
}

// maxName is the longest name that has its value next to it.
const maxName = 28

// definitions prints a section with a list. It prints nothing for an empty
// list.
func (p page) definitions(title string, all []definition) {
	if len(all) == 0 {
		return
	}
	p.printf("\n%s\n", title)
	column := 0
	for _, d := range all {
		if len(d.name) <= maxName {
			column = max(column, len(d.name))
		}
	}
	column += len("  ") + len("  ")
	space := strings.Repeat(" ", column)
	for _, d := range all {
		lines := d.lines()
		first := "  " + d.name
		if len(lines) > 0 && len(first)+2 <= column {
			first += space[len(first):] + p.wrapAt(column, lines[0])
			lines = lines[1:]
		}
		p.printf("%s\n", first)
		for _, line := range lines {
			p.printf("%s%s\n", space, p.wrapAt(column, line))
		}
	}
}

// readme prints a README in Markdown, as written.
func (p page) readme(text string) {
	if text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\t", "    "); strings.TrimSpace(text) != "" {
		p.printf("\nREADME\n\n%s\n", strings.TrimRight(text, "\n"))
	}
}

// publishedTime formats a time, or returns an empty string for the zero time.
func publishedTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return formatTime(t)
}

// maxVersions is the number of versions in a list of facts.
const maxVersions = 6

// versionList returns the newest of versions, which are sorted from the oldest
// to the newest.
func versionList(all []registry.Version) string {
	shown := slices.Clone(all[max(0, len(all)-maxVersions):])
	slices.Reverse(shown)
	text := strings.Join(mapped(shown, registry.Version.String), ", ")
	if len(all) > len(shown) {
		text += " and earlier"
	}
	return text
}
