// Package render makes HTML of Markdown and HCL from untrusted authors. It takes
// bounded time, memory and stack.
//
// The HTML has these classes, all on span elements:
//
//	key      a keyword of HCL, the type of a block, or a meta-argument
//	str      a string
//	num      a number, true, false or null
//	ty       a type
//	comment  a comment
//	bidi     the code of a control character that changes the direction of text
package render

import (
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// Readme is a README in HTML.
type Readme struct {
	// HTML is the first part, and Rest the second one if the README is long.
	HTML, Rest string
	// RestHeadings is the number of headings in Rest.
	RestHeadings int
}

const (
	// firstPart is the number of characters of text in the first part.
	firstPart = 1_500
	// minRest is the number of characters of text that are worth a second part.
	minRest = 500
	// maxGrowth and freeGrowth limit the HTML of a README. It has at most
	// maxGrowth times the bytes of its Markdown, and freeGrowth bytes.
	maxGrowth  = 4
	freeGrowth = 64 << 10
	// maxMarkdown is the size of the longest README with markup, in bytes.
	maxMarkdown = 256 << 10
)

// Markdown renders a README in GitHub's Markdown. name is the name of the folder
// that it describes. A first heading that repeats the name is dropped, and so are
// the sections that terraform-docs wrote.
//
// The HTML is safe inside a page: its elements are closed, have no styles,
// scripts or images, and no classes but those of this package. Headings begin at
// h3, and no level is skipped. Anchors begin with "readme-".
//
// Links go to http, https and mailto addresses, and to anchors of the README. A
// link to a submodule or an example, such as ./modules/endpoints, is the element
// <a data-folder="modules/endpoints">. It is text until a page replaces the
// attribute with href. The path is relative to the folder of the README. All
// other links are text. An image is a link with its alternative text.
//
// Markup that exceeds a limit of the parser is shown as written. A README over
// 256 KiB is plain text in a pre element. The same is true if its HTML would have
// more than four times its size and 64 KiB.
func Markdown(source, name string) Readme {
	source = strings.ToValidUTF8(strings.TrimPrefix(source, "\uFEFF"), "\uFFFD")
	source = withoutGenerated(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source))
	if len(source) > maxMarkdown {
		return Plain(source)
	}
	document := parse(source)
	if document == nil {
		return Plain(source)
	}
	w := write(document, source, name, nil)
	if w.hasLocalLinks {
		w = write(document, source, name, w.used)
	}
	if w.full() {
		return Plain(source)
	}
	return w.split()
}

// parse returns the document of a source, or nil if the parser panics.
func parse(source string) (document ast.Node) {
	defer func() {
		if recover() != nil {
			document = nil
		}
	}()
	return newParser().Parse(text.NewReader([]byte(source)))
}

// write writes a document as HTML. anchors has its anchors, or is nil if they
// are not known yet.
func write(document ast.Node, source, name string, anchors map[string]bool) *walker {
	b := &builder{
		limit: maxGrowth*len(source) + freeGrowth, name: name, anchors: anchors,
		used: make(map[string]bool), copies: make(map[string]int),
	}
	w := &walker{builder: b, source: []byte(source)}
	w.document(document)
	return w
}

var sanitize = sync.OnceValue(policy)

func (w *walker) split() Readme {
	html := string(w.out)
	at := place{out: len(html), text: w.text, headings: w.headings}
	if w.text > firstPart+minRest {
		at = w.splitAt(at)
	}
	if w.text-at.text < minRest {
		at = place{out: len(html), text: w.text, headings: w.headings}
	}
	return Readme{
		HTML:         sanitize().Sanitize(strings.TrimSpace(html[:at.out])),
		Rest:         sanitize().Sanitize(strings.TrimSpace(html[at.out:])),
		RestHeadings: w.headings - at.headings,
	}
}

// splitAt returns the last place within the first part, or else the first one
// after it, or else end.
func (w *walker) splitAt(end place) place {
	found := end
	for _, p := range w.breaks {
		switch {
		case p.text == 0:
		case p.text <= firstPart:
			found = p
		case found == end:
			return p
		}
	}
	return found
}

// Plain renders a README in plain text.
func Plain(source string) Readme {
	pre := func(source string) string {
		if source == "" {
			return ""
		}
		return "<pre" + preAttributes + ">" + plainCode(source) + "</pre>"
	}
	end := strings.LastIndexByte(source[:min(firstPart, len(source))], '\n') + 1
	if end == 0 || len(source) <= firstPart+minRest {
		return Readme{HTML: pre(source)}
	}
	return Readme{HTML: pre(source[:end]), Rest: pre(source[end:])}
}
