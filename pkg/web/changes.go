package web

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/compare"
	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// changes are the changes of one kind between two versions of a folder.
type changes struct {
	ID, Title string
	// Sums are such as "3 added · 2 removed · 15 unchanged".
	Sums string
	// Rows are the changes. More is the number of those that are left out.
	Rows []change
	More int
}

// changedFolder has the changes of a submodule.
type changedFolder struct {
	ID, Path string
	Sections []changes
}

// key returns a text that is the same for submodules with the same changes.
func (f changedFolder) key() string {
	var rows strings.Builder
	for _, s := range f.Sections {
		for _, row := range s.Rows {
			row.Path, row.New.URL = "", ""
			fmt.Fprintf(&rows, "%s %#v %d\n", s.Title, row, s.More)
		}
	}
	return rows.String()
}

// change is an added, removed or changed entry.
type change struct {
	Name string
	// Path is where the entry is described, such as the changes of a submodule.
	// It can be empty.
	Path string
	Kind compare.Kind
	// New is the entry that is perhaps the same. Its URL can be empty.
	New link
	// Marks is empty if the change has no consequences.
	Marks []badge
	// Reason explains the change in sentences. Note is the description of an
	// added output or required input.
	Reason, Note string
	Lines        []codeLine
	// Long means that the lines are too many to show at once.
	Long bool
	// Cut means that some lines are left out.
	Cut bool
}

// Verb returns the word for the kind of a change.
func (c change) Verb() string {
	if c.Kind == compare.PerhapsRenamed {
		return "renamed?"
	}
	return string(c.Kind)
}

// The limits of a page.
const (
	maxChanges    = 500
	maxShownLines = 24
	maxLineBytes  = 16 << 10  // of the lines of one change
	maxLinesBytes = 256 << 10 // of the lines of a page
	lineMarkup    = 32        // around each line, in bytes
	maxPairs      = 4 << 20   // of lines that are compared with each other
)

// compare sets the changes between two versions, the verdict, and the links to
// the sections.
func (c *comparison) compare(before, after docs.Documentation) {
	d := compare.Modules(before, after)
	b := changesBuilder{budget: maxLinesBytes, pairs: maxPairs, from: c.From.Path, to: c.To.Path}
	c.Sections, c.Unchanged = b.sections("", d, before.Root, after.Root)
	for i := range c.Sections {
		s := &c.Sections[i]
		c.Head.Sections = append(c.Head.Sections, section{ID: s.ID, Title: s.Title, Count: len(s.Rows) + s.More})
		if s.Title != "Submodules" {
			continue
		}
		paths := make(map[string]string) // of submodules, by their changes
		for k, row := range s.Rows {
			rest := b.budget
			f, changed := b.folder(row, d.Folders[row.Name], before.Submodules, after.Submodules)
			if !changed {
				continue
			}
			key := f.key()
			path, found := paths[key]
			if found {
				b.budget = rest
				s.Rows[k].Reason += " The changes are the same as in " + path + "."
			} else {
				path, paths[key] = f.Path, f.Path
				c.Folders = append(c.Folders, f)
			}
			s.Rows[k].Path = "#" + folderID(path)
		}
	}
	c.IsRenaming = b.isRenaming
	c.summary = sentenceOf(d, c.From.Version, c.To.Version)
	c.Head.Banner = verdictOf(d, c.From.Version, c.To.Version)
	if len(before.Notes)+len(after.Notes) > 0 {
		c.Head.Banner.Text += " Parts of the documentation are missing, and changes in them are not found."
	}
}

func verdictOf(d compare.Difference, from, to string) *banner {
	if d.Breaking > 0 {
		text := fmt.Sprintf("A configuration that works with %s may fail with %s.", from, to)
		if d.ChangedPlans > 0 {
			text += " " + count(d.ChangedPlans) + " more may change plans."
		}
		return &banner{Tone: "bad", Strong: plural(d.Breaking, "breaking change") + ".", Text: text}
	}
	text := compared
	if d.ChangedPlans > 0 {
		text = count(d.ChangedPlans) + " may change plans. " + compared
	}
	return &banner{Tone: "note", Strong: "No breaking changes found.", Text: text}
}

// sentenceOf describes a difference in one sentence.
func sentenceOf(d compare.Difference, from, to string) string {
	var all compare.Section
	for _, s := range d.Sections() {
		all.Changes = append(all.Changes, s.Changes...)
	}
	sums := strings.ReplaceAll(cmp.Or(sumsOf(all), "No changes"), " · ", ", ")
	if d.Breaking > 0 {
		sums = plural(d.Breaking, "breaking change") + ", " + sums
	}
	return fmt.Sprintf("%s, from %s to %s.", sums, from, to)
}

const compared = "The registry compares inputs, outputs and requirements, not what resources do."

// changesBuilder makes the changes of a page.
type changesBuilder struct {
	budget int // in bytes, of the lines that are still to come
	pairs  int // of lines that may still be compared
	// from and to are the paths of both versions of a folder.
	from, to string
	// isRenaming reports whether something was perhaps renamed.
	isRenaming bool
}

// sections returns the sections with changes. unchanged names the others.
func (b *changesBuilder) sections(prefix string, d compare.Difference, before, after docs.Folder) (
	found []changes, unchanged []string,
) {
	l := liner{inputsOf(before), inputsOf(after), outputsOf(after), required(before), before, after, &b.pairs}
	for _, s := range d.Sections() {
		if len(s.Changes) == 0 {
			if s.Unchanged > 0 {
				unchanged = append(unchanged, plural(s.Unchanged, strings.TrimSuffix(strings.ToLower(s.Title), "s")))
			}
			continue
		}
		c := changes{ID: prefix + strings.ToLower(s.Title), Title: s.Title, Sums: sumsOf(s.Section)}
		for i, one := range s.Changes {
			if i == maxChanges {
				c.More = len(s.Changes) - i
				break
			}
			c.Rows = append(c.Rows, b.row(s.Title, one, l))
		}
		found = append(found, c)
	}
	return found, unchanged
}

func folderID(path string) string { return "folder-" + path }

// folder returns the changes of a submodule, and false if there are none to
// list.
func (b *changesBuilder) folder(
	row change, d compare.Difference, before, after []docs.Folder,
) (f changedFolder, changed bool) {
	find := func(all []docs.Folder) int {
		return slices.IndexFunc(all, func(f docs.Folder) bool { return f.Path == row.Name })
	}
	was, is := find(before), find(after)
	if was < 0 || is < 0 {
		return f, false
	}
	defer func(from, to string) { b.from, b.to = from, to }(b.from, b.to)
	b.from, b.to = b.from+restOf(row.Name), b.to+restOf(row.Name)
	f = changedFolder{ID: folderID(row.Name), Path: row.Name}
	f.Sections, _ = b.sections(f.ID+"-", d, before[was], after[is])
	return f, len(f.Sections) > 0
}

func sumsOf(s compare.Section) string {
	var sums []string
	for _, kind := range []compare.Kind{compare.Added, compare.Removed, compare.PerhapsRenamed, compare.Changed} {
		n := 0
		for _, c := range s.Changes {
			if c.Kind == kind {
				n++
			}
		}
		if n > 0 {
			sums = append(sums, count(n)+" "+strings.ReplaceAll(string(kind), "_", " "))
		}
	}
	if s.Unchanged > 0 {
		sums = append(sums, count(s.Unchanged)+" unchanged")
	}
	return strings.Join(sums, " · ")
}

func (b *changesBuilder) row(title string, c compare.Change, l liner) change {
	row := change{Name: c.Name, Kind: c.Kind, Reason: reasonOf(title, c)}
	if c.NewName != "" {
		b.isRenaming, row.New.Text = true, c.NewName
		if kind := strings.ToLower(strings.TrimSuffix(title, "s")); kind != "resource" {
			row.Path, row.New.URL = b.from+"#"+anchor(kind, c.Name), b.to+"#"+anchor(kind, c.NewName)
		}
	}
	switch c.Mark {
	case compare.Breaking:
		row.Marks = []badge{{"breaking", "bad"}}
	case compare.ChangesPlans:
		row.Marks = []badge{{"may change plans", "warn"}}
	}
	switch {
	case c.Kind != compare.Added:
	case title == "Outputs":
		row.Note = l.outputs[c.Name].Description
	case title == "Inputs" && c.Mark == compare.Breaking:
		row.Note = l.after[c.Name].Description
	}
	size := 0
	for _, line := range l.lines(title, c) {
		size += len(line.HTML)
		if size > maxLineBytes || len(line.HTML)+lineMarkup > b.budget {
			row.Cut = true
			break
		}
		b.budget -= len(line.HTML) + lineMarkup
		row.Lines = append(row.Lines, line)
	}
	row.Long = len(row.Lines) > maxShownLines
	return row
}

// reasons are the explanations that people need more words for than programs.
// The keys are a section, a kind and a reason of package compare.
var reasons = map[string]string{
	"Inputs added it is required":             "New and required. Every caller must set it.",
	"Inputs removed it was removed":           "Callers that set it fail.",
	"Inputs changed it became required":       "It had a default and is now required.",
	"Outputs removed it was removed":          "Configurations that read it fail.",
	"Outputs changed it became sensitive":     "It became sensitive. Outputs that pass it on must be sensitive too.",
	"Submodules removed it was removed":       "Configurations that call it fail.",
	"Requirements changed the source changed": "The source of the provider changed.",
}

func reasonOf(title string, c compare.Change) string {
	var sentences []string
	for _, reason := range c.Reasons {
		if reason == c.Renaming() {
			continue // the row has a link
		}
		if reason == "it is deprecated" || reason == "the deprecation changed" {
			for _, f := range c.Fields {
				if f.Name == "deprecated" {
					reason = "Deprecated: " + f.After
				}
			}
		}
		if known := reasons[title+" "+string(c.Kind)+" "+reason]; known != "" {
			reason = known
		}
		sentences = append(sentences, sentence(reason))
	}
	return strings.Join(sentences, " ")
}

// sentence returns a text that begins with a capital letter and ends with a
// full stop.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[size:]
	if last := text[len(text)-1]; last != '.' && last != '!' && last != '?' {
		text += "."
	}
	return text
}

// liner returns the lines of changes from the documentation of both versions.
type liner struct {
	before, after map[string]docs.Input
	outputs       map[string]docs.Output
	required      map[string]docs.ProviderDependency
	was, is       docs.Folder
	pairs         *int // as in changesBuilder
}

func inputsOf(f docs.Folder) map[string]docs.Input {
	all := make(map[string]docs.Input, len(f.Inputs))
	for _, in := range f.Inputs {
		all[in.Name] = in
	}
	return all
}

func outputsOf(f docs.Folder) map[string]docs.Output {
	all := make(map[string]docs.Output, len(f.Outputs))
	for _, out := range f.Outputs {
		all[out.Name] = out
	}
	return all
}

// required returns the requirements of a folder, with the names that package
// compare gives them.
func required(f docs.Folder) map[string]docs.ProviderDependency {
	all := map[string]docs.ProviderDependency{"required_version": {Version: f.RequiredVersion}}
	for _, p := range f.ProviderDependencies {
		all[p.Name] = p
	}
	return all
}

// lines returns the lines of a change: what was and what is.
func (l liner) lines(title string, c compare.Change) []codeLine {
	var was, is []string
	switch title {
	case "Inputs":
		if c.Kind != compare.Added && (c.Kind == compare.Removed || changesSignature(c)) {
			was = signature(l.before[c.Name])
		}
		if c.Kind != compare.Removed && (c.Kind == compare.Added || changesSignature(c)) {
			is = signature(l.after[c.Name])
		}
	case "Requirements":
		// The reason of an added one states all of it.
		if c.Kind == compare.Removed {
			was = requirement(l.required[c.Name])
		}
	case "Modules":
		if c.Kind == compare.Removed {
			was = moduleCall(l.was, c.Name)
		}
		if c.Kind == compare.Added {
			is = moduleCall(l.is, c.Name)
		}
	}
	lines := l.compare(was, is)
	for _, f := range c.Fields {
		if f.Stated {
			continue
		}
		switch f.Name {
		case "type", "default", "required", "deprecated", "sensitive", "ephemeral", "not_null":
			continue
		}
		lines = append(lines, l.compare(fieldLines(f.Name, f.Before), fieldLines(f.Name, f.After))...)
	}
	return lines
}

// compare returns the lines of two versions of code. There are none if both are
// the same.
func (l liner) compare(was, is []string) []codeLine {
	if slices.Equal(was, is) {
		return nil
	}
	pairs := len(was) * len(is)
	if pairs > *l.pairs {
		return append(asLines("-", was), asLines("+", is)...)
	}
	*l.pairs -= pairs
	return compareLines(was, is)
}

func changesSignature(c compare.Change) bool {
	return slices.ContainsFunc(c.Fields, func(f compare.Field) bool {
		return !f.Stated && (f.Name == "type" || f.Name == "default" || f.Name == "required")
	})
}

func signature(in docs.Input) []string {
	text := in.TypeHTML
	if text == "" {
		text = highlight.Plain(in.Type)
	}
	if in.Required || in.Default == "" {
		return splitLines(text)
	}
	value := in.DefaultHTML
	if value == "" {
		value = highlight.Plain(in.Default)
	}
	return splitLines(text + " = " + value)
}

func requirement(p docs.ProviderDependency) []string {
	return append(fieldLines("source", p.Source), fieldLines("version", p.Version)...)
}

func moduleCall(f docs.Folder, name string) []string {
	for _, d := range f.Dependencies {
		if d.Name == name {
			return append(fieldLines("source", d.Source), fieldLines("version", d.Version)...)
		}
	}
	return nil
}

// fieldLines returns the lines of a field, each with the field's name. A
// description and messages need none. An empty field has no lines.
func fieldLines(name, value string) []string {
	if value == "" {
		return nil
	}
	lines := strings.Split(strings.TrimRight(value, "\n"), "\n")
	for i, line := range lines {
		lines[i] = highlight.Plain(line)
		if name != "description" && name != "validations" {
			lines[i] = `<span class="comment">` + html.EscapeString(name) + `</span> ` + lines[i]
		}
	}
	return lines
}
