package render

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	markdown "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// walker writes the nodes of Markdown.
type walker struct {
	*builder

	source []byte
	// noted has the numbers of footnotes with a link so far.
	noted map[int]bool
	// breaks are the places where the output can be split.
	breaks []place
}

// place is a place between two blocks of the output.
type place struct{ out, text, headings int }

// document writes a whole README.
func (w *walker) document(document ast.Node) {
	for n := document.FirstChild(); n != nil; n = n.NextSibling() {
		if _, isHeading := n.PreviousSibling().(*ast.Heading); len(w.open) == 0 && !isHeading {
			w.breaks = append(w.breaks, place{len(w.out), w.text, w.headings})
		}
		w.node(n)
	}
	w.closeTo(0)
}

func (w *walker) children(parent ast.Node) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		w.node(n)
	}
}

func (w *walker) wrap(tag, attributes string, n ast.Node) {
	w.element(tag, attributes, func() { w.children(n) })
}

// node writes a node. Recursion is limited by the limits of the parser.
func (w *walker) node(n ast.Node) {
	if w.full() {
		return
	}
	switch n := n.(type) {
	case *ast.Heading:
		tag := headingTag(n.Level)
		w.element(tag, "", func() {
			if len(w.open) > 0 && w.open[len(w.open)-1].tag == tag {
				w.startHeading(n.Level)
			}
			w.children(n)
		})
	case *ast.Paragraph:
		w.wrap("p", "", n)
	case *ast.Blockquote:
		w.quote(n)
	case *ast.List:
		w.list(n)
	case *ast.ListItem:
		attributes := ""
		if isTask(n) {
			attributes = ` class="task"`
		}
		w.wrap("li", attributes, n)
	case *ast.ThematicBreak:
		w.closePhrasing()
		w.write("hr", "")
	case *ast.CodeBlock:
		w.codeBlock("", w.lines(n))
	case *ast.FencedCodeBlock:
		w.codeBlock(strings.ToLower(string(n.Language(w.source))), w.lines(n))
	case *ast.HTMLBlock:
		source := w.lines(n)
		if n.HasClosure() {
			source += string(n.ClosureLine.Value(w.source))
		}
		w.rawHTML(source) // as a whole, because a comment can have many lines
	case *east.Table:
		w.table(n)
	case *east.FootnoteList:
		w.write("hr", "")
		w.endLine()
		w.wrap("ol", "", n)
	case *east.Footnote:
		w.wrap("li", fmt.Sprintf(` id="readme-fn:%d"`, n.Index), n)
	case *ast.LinkReferenceDefinition:
	default:
		w.inline(n)
	}
	if n.Type() == ast.TypeBlock && n.Kind() != ast.KindTextBlock && n.Kind() != east.KindTableCell {
		w.endLine()
	}
}

func (w *walker) inline(n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		w.textNode(n)
	case *ast.String:
		w.writeText(string(n.Value))
	case *ast.Emphasis:
		w.wrap(map[bool]string{true: "strong", false: "em"}[n.Level == 2], "", n)
	case *east.Strikethrough:
		w.wrap("del", "", n)
	case *ast.CodeSpan:
		w.element("code", "", func() { w.writeHTML(w.codeSpan(n)) })
	case *ast.Link:
		if !w.isBadges(n) {
			w.linkTo(w.unescape(n.Destination), func() { w.children(n) })
		}
	case *ast.AutoLink:
		target := string(n.URL(w.source))
		if n.AutoLinkType == ast.AutoLinkEmail {
			target = "mailto:" + target
		}
		w.linkTo(target, func() { w.writeText(string(n.Label(w.source))) })
	case *ast.Image:
		w.writeImage(w.plain(n), w.unescape(n.Destination), "")
	case *ast.RawHTML:
		w.rawHTML(string(n.Segments.Value(w.source)))
	case *east.TaskCheckBox:
		box := "☐ "
		if n.IsChecked {
			box = "☑ "
		}
		w.writeText(box)
	case *east.FootnoteLink:
		w.footnoteLink(n)
	case *east.FootnoteBacklink:
		if n.RefIndex == 0 && w.noted[n.Index] {
			w.writeText(" ")
			link := fmt.Sprintf(` href="#readme-fnref:%d" aria-label="Back to the text"`, n.Index)
			w.element("a", link, func() { w.writeText("↩") })
		}
	default:
		w.children(n)
	}
}

// isTask reports whether an item of a list begins with a box to check.
func isTask(item ast.Node) bool {
	first := item.FirstChild()
	return first != nil && first.FirstChild() != nil && first.FirstChild().Kind() == east.KindTaskCheckBox
}

// footnoteLink writes the number of a footnote, which is not part of the anchor
// of a heading. The first link has the anchor to which the footnote leads back.
func (w *walker) footnoteLink(n *east.FootnoteLink) {
	heading := w.heading
	w.heading = nil
	defer func() { w.heading = heading }()
	number := func() { w.writeText(strconv.Itoa(n.Index)) }
	attributes := fmt.Sprintf(` href="#readme-fn:%d"`, n.Index)
	switch {
	case w.isIn("a"):
		w.element("sup", "", number)
		return
	case !w.noted[n.Index]:
		w.noted[n.Index] = true
		attributes = fmt.Sprintf(` id="readme-fnref:%d"`, n.Index) + attributes
	}
	w.element("sup", "", func() { w.element("a", attributes, number) })
}

// alert is a quote that GitHub shows with a title and a color.
type alert struct{ title, class string }

// alerts are the first lines of such quotes.
var alerts = map[string]alert{
	"[!NOTE]": {"Note", "note"}, "[!TIP]": {"Tip", "ok"}, "[!IMPORTANT]": {"Important", "note"},
	"[!WARNING]": {"Warning", "warn"}, "[!CAUTION]": {"Caution", "bad"},
}

func (w *walker) quote(n *ast.Blockquote) {
	var found alert
	paragraph, ok := n.FirstChild().(*ast.Paragraph)
	if ok && paragraph.Lines().Len() > 0 {
		line := paragraph.Lines().At(0)
		found = alerts[strings.ToUpper(strings.TrimSpace(string(line.Value(w.source))))]
	}
	if found.title == "" {
		w.wrap("blockquote", "", n)
		return
	}
	w.element("blockquote", ` class="`+found.class+`"`, func() {
		line := paragraph.Lines().At(0)
		w.element("p", "", func() { w.element("strong", "", func() { w.writeText(found.title) }) })
		w.endLine()
		w.element("p", "", func() { w.inlineAfter(paragraph, line.Stop) })
		w.endLine()
		for rest := paragraph.NextSibling(); rest != nil; rest = rest.NextSibling() {
			w.node(rest)
		}
	})
}

// inlineAfter writes the children of a node that begin at or after start in the
// source.
func (w *walker) inlineAfter(parent ast.Node, start int) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Pos() >= start {
			w.node(n)
		}
	}
}

// isBadges reports whether a link has badges and nothing else.
func (w *walker) isBadges(link *ast.Link) bool {
	for n := link.FirstChild(); n != nil; n = n.NextSibling() {
		image, ok := n.(*ast.Image)
		if !ok || !w.isBadge(w.unescape(image.Destination)) {
			return false
		}
	}
	return link.HasChildren()
}

// linkTo writes content as a link if the destination can be linked.
func (w *walker) linkTo(destination string, content func()) {
	attributes := w.link(destination)
	if attributes == "" || w.isIn("a") {
		content()
		return
	}
	w.element("a", attributes, content)
}

func (w *walker) textNode(n *ast.Text) {
	text := string(n.Value(w.source))
	if !n.IsRaw() {
		text = w.unescape(n.Value(w.source))
	}
	w.writeText(text)
	switch {
	case n.HardLineBreak():
		w.write("br", "")
	case n.SoftLineBreak():
		w.writeText("\n")
	}
}

// unescape returns the text for Markdown with backslashes and entities.
func (w *walker) unescape(source []byte) string {
	if !bytes.ContainsAny(source, `\&`) {
		return string(source)
	}
	var out bytes.Buffer
	buffered := bufio.NewWriterSize(&out, 16)
	markdown.DefaultWriter.Write(buffered, source)
	if err := buffered.Flush(); err != nil {
		return ""
	}
	return html.UnescapeString(out.String())
}

// plain returns the text in a node, without elements.
func (w *walker) plain(n ast.Node) string {
	var out strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			out.WriteString(w.unescape(c.Value(w.source)))
			if c.SoftLineBreak() || c.HardLineBreak() {
				out.WriteString(" ")
			}
		default:
			out.WriteString(w.plain(c))
		}
	}
	return out.String()
}

// codeSpan returns the code in a text, as HTML and as text.
func (w *walker) codeSpan(n *ast.CodeSpan) (source, text string) {
	var out strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			out.Write(t.Value(w.source))
		}
	}
	text = strings.ReplaceAll(out.String(), "\n", " ")
	if w.isIn("td", "th") {
		text = strings.ReplaceAll(text, `\|`, "|")
	}
	return highlight.Plain(text), text
}

func (w *walker) lines(n ast.Node) string { return string(n.Lines().Value(w.source)) }

func (w *walker) codeBlock(language, source string) {
	source = strings.TrimRight(source, "\n")
	if language == "mermaid" {
		w.element("p", "", func() { w.element("small", "", func() { w.writeText("Diagram in Mermaid:") }) })
		w.endLine()
	}
	w.element("pre", preAttributes, func() {
		w.element("code", "", func() { w.writeHTML(highlight.Code(language, source), source) })
	})
}

func (w *walker) list(n *ast.List) {
	switch {
	case !n.IsOrdered():
		w.wrap("ul", "", n)
	case n.Start != 1:
		w.wrap("ol", ` start="`+strconv.Itoa(n.Start)+`"`, n)
	default:
		w.wrap("ol", "", n)
	}
}

func (w *walker) table(table *east.Table) {
	w.element("table", "", func() {
		header, isHeader := table.FirstChild().(*east.TableHeader)
		if !isHeader {
			return
		}
		w.element("thead", "", func() { w.row(header, "th") })
		if header.NextSibling() == nil {
			return
		}
		w.element("tbody", "", func() {
			for row := header.NextSibling(); row != nil && !w.full(); row = row.NextSibling() {
				w.row(row, "td")
			}
		})
	})
}

func (w *walker) row(row ast.Node, tag string) {
	w.element("tr", "", func() {
		for n := row.FirstChild(); n != nil; n = n.NextSibling() {
			if cell, ok := n.(*east.TableCell); ok {
				w.wrap(tag, align(cell.Alignment.String()), cell)
			}
		}
	})
	w.endLine()
}
