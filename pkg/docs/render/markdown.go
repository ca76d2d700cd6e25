package render

import (
	"bufio"
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	markdown "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"
)

// walker writes the nodes of Markdown.
type walker struct {
	*builder

	source []byte
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
		w.wrap("li", "", n)
	case *ast.ThematicBreak:
		w.closePhrasing()
		w.write("hr", "")
	case *ast.CodeBlock:
		w.codeBlock("", w.lines(n))
	case *ast.FencedCodeBlock:
		w.codeBlock(string(n.Language(w.source)), w.lines(n))
	case *ast.HTMLBlock:
		source := w.lines(n)
		if n.HasClosure() {
			source += string(n.ClosureLine.Value(w.source))
		}
		w.rawHTML(source) // as a whole, because a comment can have many lines
	case *east.Table:
		w.table(n)
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
		w.linkTo(w.unescape(n.Destination), func() { w.children(n) })
	case *ast.AutoLink:
		target := string(n.URL(w.source))
		if n.AutoLinkType == ast.AutoLinkEmail {
			target = "mailto:" + target
		}
		w.linkTo(target, func() { w.writeText(string(n.Label(w.source))) })
	case *ast.Image:
		w.writeImage(w.plain(n), w.unescape(n.Destination))
	case *ast.RawHTML:
		w.rawHTML(string(n.Segments.Value(w.source)))
	default:
		w.children(n)
	}
}

// alerts are the first lines of quotes that GitHub shows with a title.
var alerts = map[string]string{
	"[!NOTE]": "Note", "[!TIP]": "Tip", "[!IMPORTANT]": "Important", "[!WARNING]": "Warning", "[!CAUTION]": "Caution",
}

func (w *walker) quote(n *ast.Blockquote) {
	w.element("blockquote", "", func() {
		paragraph, ok := n.FirstChild().(*ast.Paragraph)
		if !ok || paragraph.Lines().Len() == 0 {
			w.children(n)
			return
		}
		line := paragraph.Lines().At(0)
		title := alerts[strings.ToUpper(strings.TrimSpace(string(line.Value(w.source))))]
		if title == "" {
			w.children(n)
			return
		}
		w.element("p", "", func() { w.element("strong", "", func() { w.writeText(title) }) })
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
	return code(text), text
}

func (w *walker) lines(n ast.Node) string { return string(n.Lines().Value(w.source)) }

// hclNames are the languages of code blocks in HCL.
var hclNames = []string{"hcl", "hcl2", "opentofu", "terraform", "tf", "tfvars", "tofu"}

func (w *walker) codeBlock(language, source string) {
	source = strings.TrimRight(source, "\n")
	highlighted := code(source)
	if slices.Contains(hclNames, strings.ToLower(language)) {
		highlighted = HCL(source)
	}
	w.element("pre", preAttributes, func() {
		w.element("code", "", func() { w.writeHTML(highlighted, source) })
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
