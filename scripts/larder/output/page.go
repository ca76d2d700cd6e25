package output

import (
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Head prints what a page is about: its title, its description, and the reason for
// its state, such as deprecated. The last three may be empty.
func (p Page) Head(title, description, state, reason string) {
	p.Printf("%s\n", title)
	if description != "" {
		p.Println("%s", description)
	}
	if reason != "" {
		p.Println("%s: %s", p.Paint(strings.ToUpper(state[:1])+state[1:], PaintState(state)), reason)
	}
	p.Printf("\n")
}

// Facts prints short facts in two columns. It omits those without a value.
func (p Page) Facts(all [][2]string) {
	all = slices.DeleteFunc(all, func(fact [2]string) bool { return fact[1] == "" })
	for _, fact := range all {
		p.Printf("%-*s%s\n", FactColumn, fact[0], p.WrapAt(FactColumn, fact[1]))
	}
}

// FactColumn is the column of the values of [Page.Facts].
const FactColumn = len("Published") + 2

// Definition is an entry of a list: a name with what it means.
type Definition struct {
	Name string
	// Value follows Name, About is below it, and Notes are below that. Each
	// may be empty.
	Value, About string
	Notes        []string
}

func (d Definition) lines() (all []string) {
	for _, text := range append([]string{d.Value, d.About}, d.Notes...) {
		if text = Tidy(text); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// Tidy returns a text without tabs and trailing spaces. It removes the
// indentation that all lines after the first one have.
func Tidy(text string) string {
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

// Definitions prints a section with a list. It prints nothing for an empty
// list.
func (p Page) Definitions(title string, all []Definition) {
	if len(all) == 0 {
		return
	}
	p.Printf("\n%s\n", title)
	column := 0
	for _, d := range all {
		if len(d.Name) <= maxName {
			column = max(column, len(d.Name))
		}
	}
	column += len("  ") + len("  ")
	space := strings.Repeat(" ", column)
	for _, d := range all {
		lines := d.lines()
		first := "  " + d.Name
		if len(lines) > 0 && len(first)+2 <= column {
			first += space[len(first):] + p.WrapAt(column, lines[0])
			lines = lines[1:]
		}
		p.Printf("%s\n", first)
		for _, line := range lines {
			p.Printf("%s%s\n", space, p.WrapAt(column, line))
		}
	}
}

// Readme prints a README in Markdown, as written.
func (p Page) Readme(text string) {
	if text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\t", "    "); strings.TrimSpace(text) != "" {
		p.Printf("\nREADME\n\n%s\n", strings.TrimRight(text, "\n"))
	}
}

// PublishedTime formats a time, or returns an empty string for the zero time.
func PublishedTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return FormatTime(t)
}

// maxVersions is the number of versions in a list of facts.
const maxVersions = 6

// VersionList returns the newest of versions, which are sorted from the oldest
// to the newest.
func VersionList(all []registry.Version) string {
	shown := slices.Clone(all[max(0, len(all)-maxVersions):])
	slices.Reverse(shown)
	text := strings.Join(Mapped(shown, registry.Version.String), ", ")
	if len(all) > len(shown) {
		text += " and earlier"
	}
	return text
}
