package web

import (
	"cmp"
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/docs/moduleblock"
)

// The limits of one type or default on a page.
const (
	// maxLines and maxInline bound a text that shows without a click.
	maxLines  = 12
	maxInline = 1000
	// maxShown bounds a text on the page, in bytes.
	maxShown = 16 << 10
	// maxRows bounds the rows of all inputs, in bytes of HTML.
	maxRows = 1 << 20
	// usualRow is the size of most rows, in bytes of HTML.
	usualRow = 512
	// maxNames is the number of inputs above which a page has an index.
	maxNames = 40
	// maxIndex bounds that index.
	maxIndex = 2000
)

// inputs are the rows of the inputs of a page.
type inputs struct {
	Required, Optional int
	// All are the inputs, the required ones first.
	All []docs.Input
	// RequiredRows are the rows of the required inputs. They are finished HTML,
	// because a template with a thousand fields is slow.
	RequiredRows template.HTML
	// Groups are those of the optional inputs.
	Groups []inputGroup
	// OtherView is the path of the page with the other order of the optional
	// inputs. It is empty if there is only one order.
	OtherView string
	// Cut is the number of inputs that are not on the page.
	Cut int
	// Index is a list of the names. It is empty on a page with groups or few
	// inputs.
	Index template.HTML
}

// byName is the value of the query parameter for inputs without their groups.
const byName = "a-z"

// newInputs returns the inputs of a page. place returns the place of a block in
// the files.
func newInputs(v *visit, all []docs.Input, place func(docs.Place) link) inputs {
	var p inputs
	var required, optional []docs.Input
	for _, in := range all {
		if in.Required {
			required = append(required, in)
		} else {
			optional = append(optional, in)
		}
	}
	p.All, p.Required, p.Optional = slices.Concat(required, optional), len(required), len(optional)
	if len(all) > minGrouped {
		p.Groups = groupsOf(optional)
	}
	if isMarkdown(v.Request) {
		return p
	}
	isByName := v.URL.Query().Get("inputs") == byName
	switch {
	case p.Groups != nil && isByName:
		p.OtherView = v.URL.EscapedPath() + "#inputs"
	case p.Groups != nil:
		p.OtherView = v.URL.EscapedPath() + "?inputs=" + byName + "#inputs"
	}
	if p.Groups == nil || isByName {
		p.Groups = []inputGroup{{inputs: optional}}
		if len(all) > maxNames {
			p.Index = index(p.All)
		}
	}
	size := 0
	p.RequiredRows = p.rows(required, place, &size)
	for i, g := range p.Groups {
		p.Groups[i].Rows = p.rows(g.inputs, place, &size)
	}
	return p
}

// rows returns the rows of inputs. size is the size of all rows so far.
func (p *inputs) rows(all []docs.Input, place func(docs.Place) link, size *int) template.HTML {
	var rows strings.Builder
	rows.Grow(len(all) * usualRow)
	for _, in := range all {
		if *size+rows.Len() > maxRows {
			p.Cut++
			continue
		}
		writeInput(&rows, in, place(in.Place))
	}
	*size += rows.Len()
	return finished(rows.String())
}

func index(all []docs.Input) template.HTML {
	var w strings.Builder
	for _, in := range all[:min(len(all), maxIndex)] {
		id := html.EscapeString(anchor("input", in.Name))
		w.WriteString(`<li><a href=` + attributeValue("#"+id) + `>` + string(breakable(in.Name)) + "</a>\n")
	}
	return finished(w.String())
}

// writeInput writes the row of an input: its name, its type and default, and
// what it is for. The roles are written out because a phone shows rows as
// blocks, which takes them away in some browsers. End tags and quotes that HTML
// does not need are missing, because a page has hundreds of rows. Lines end
// inside a tag, because the cells show the ends of lines.
func writeInput(w *strings.Builder, in docs.Input, at link) {
	id := html.EscapeString(anchor("input", in.Name))
	w.WriteString("<tr\nrole=row id=" + attributeValue(id) + `><th role=rowheader><a href=` + attributeValue("#"+id) + `>`)
	w.WriteString(string(breakable(in.Name)))
	w.WriteString("</a>")
	for _, b := range []struct {
		is         bool
		text, tone string
	}{
		{in.Deprecated != "", "deprecated", " warn"},
		{in.Sensitive, "sensitive", ""}, {in.Ephemeral, "ephemeral", ""}, {in.NotNull, "not null", ""},
	} {
		if b.is {
			w.WriteString(` <span class="badge` + b.tone + `">` + b.text + "</span>")
		}
	}
	fallback, kind := newSnippet(in.DefaultHTML), newSnippet(in.TypeHTML)
	if in.DefaultHTML == "" { // it did not fit into the documentation
		fallback = newSnippet(highlight.Code("json", in.Default))
	}
	if in.TypeHTML == "" {
		kind = newSnippet(highlight.Code("hcl", in.Type))
	}
	w.WriteString(`<td role=cell><code>`)
	if kind.short {
		w.WriteString(kind.html)
	} else {
		w.WriteString(shortTypeHTML(in.Type))
	}
	if fallback.short && fallback.html != "" {
		w.WriteString(" = " + fallback.html)
	}
	w.WriteString(`</code><td role=cell>`)
	w.WriteString(string(describedAt(in.Description, at)))
	if !kind.short {
		kind.write(w, "type")
	}
	if !fallback.short {
		fallback.write(w, "default")
	}
	writeNotes(w, in)
}

// attributeValue returns an escaped value of an attribute, in quotes if it needs them.
func attributeValue(value string) string {
	for i := range len(value) {
		if c := value[i]; c > 'z' || c <= ' ' || c == '"' || c == '\'' || c == '=' || c == '<' || c == '>' || c == '`' {
			return `"` + value + `"`
		}
	}
	return cmp.Or(value, `""`)
}

// writeNotes writes the notes below the description of an input.
func writeNotes(w *strings.Builder, in docs.Input) {
	if in.Deprecated != "" {
		w.WriteString(`<p class="note">Deprecated. ` + string(prose(in.Deprecated)) + "</p>")
	}
	for _, message := range in.Validations {
		w.WriteString(`<p class="note">` + string(prose(message)) + "</p>")
	}
	if in.Default == "" && !in.Required {
		w.WriteString(`<p class="note">It has a default, which is not shown.</p>`)
	}
}

// anchor returns the ID of an input or an output.
func anchor(kind, name string) string { return kind + "-" + highlight.Visible(name) }

// snippet is a type or a default as finished HTML. A short one fits into its
// cell.
type snippet struct {
	html         string
	short        bool
	lines, runes int
	// attributes is the number of lines that are attributes of an object.
	attributes int
	cut        bool
}

// attribute matches the beginning of an attribute of an object in a line.
var attribute = regexp.MustCompile(`(?m)^\s*"?[\w-]+"?\s*=`)

// withShorterTags removes the quotes of classes, which HTML does not need. Older
// releases stored them. Text has no such tags.
func withShorterTags(finishedHTML string) string {
	const tag = "<span class="
	if !strings.Contains(finishedHTML, tag+`"`) {
		return finishedHTML
	}
	parts := strings.Split(finishedHTML, tag+`"`)
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.Replace(parts[i], `"`, "", 1)
	}
	return strings.Join(parts, tag)
}

// newSnippet measures HTML that package render made.
func newSnippet(finishedHTML string) snippet {
	finishedHTML = withShorterTags(finishedHTML)
	s := snippet{html: finishedHTML, short: moduleblock.IsShort(finishedHTML)}
	if s.short {
		return s
	}
	text := textOfHTML(finishedHTML)
	if s.short = moduleblock.IsShort(text); s.short {
		return s
	}
	s.lines, s.runes = strings.Count(text, "\n")+1, utf8.RuneCountInString(text)
	if len(text) > maxShown {
		end := maxShown
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
		s.html, s.cut = html.EscapeString(text), true
	}
	s.attributes = len(attribute.FindAllStringIndex(text, -1))
	return s
}

// write writes a snippet below a description. A long one opens with a click.
func (s snippet) write(w *strings.Builder, what string) {
	if s.html == "" {
		return
	}
	size := plural(s.lines, "line")
	switch {
	case what == "type" && s.attributes > 0:
		size = plural(s.attributes, "attribute")
	case s.lines == 1:
		size = plural(s.runes, "character")
	}
	closed := s.lines > maxLines || s.runes > maxInline
	switch {
	case closed:
		w.WriteString(`<details class="more"><summary>Show ` + what + " · " + size + "</summary>")
	case what == "default":
		w.WriteString(`<p class="note">Default</p>`)
	}
	w.WriteString(`<code class="block">` + s.html + "</code>")
	if s.cut {
		w.WriteString(`<p class="note">Cut at 16 KiB. The rest is in the Markdown and API.</p>`)
	}
	if closed {
		w.WriteString("</details>")
	}
}

// typeName matches the name of a type in HTML, or a whole entity.
var typeName = regexp.MustCompile(`&[#a-z0-9]+;|[a-z]+`)

// shortTypeHTML returns a type in one line with highlighted syntax.
func shortTypeHTML(written string) string {
	short := html.EscapeString(highlight.Visible(moduleblock.ShortType(written)))
	return typeName.ReplaceAllStringFunc(short, func(name string) string {
		if name[0] == '&' {
			return name
		}
		return `<span class=ty>` + name + "</span>"
	})
}
