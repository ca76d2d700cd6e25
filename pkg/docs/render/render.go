// Package render makes HTML of Markdown from untrusted authors. It takes bounded
// time, memory and stack. Code has the classes of package highlight.
package render

import (
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"github.com/larder-registry/larder/pkg/docs/highlight"
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

// Folder is the folder that a README describes, with what it can refer to.
type Folder struct {
	// Name is the name of the folder, and Path its path in the module, which is
	// empty for the root. Module is the name of the module.
	Name, Path, Module string
	// Files are the files of the module that pages can show, by path, and the
	// folders with such files, which end in a slash.
	Files map[string]File
	// Anchors are those of the page outside of the README, such as input-name.
	Anchors map[string]bool
}

// File is a file of a module. Width and Height are the pixels of an image, or 0
// if it is an SVG.
type File struct {
	IsImage       bool
	Width, Height int
}

// Markdown renders a README in GitHub's Markdown. A first heading that repeats
// the name of the folder is dropped, and so are badges and the sections that
// terraform-docs wrote.
//
// The HTML is safe inside a page: its elements are closed, and have no styles or
// scripts. Besides the classes of code, an item of a list can have task,
// and a quote note, ok, warn or bad. Headings begin at h3, and no level is
// skipped. Anchors begin with "readme-".
//
// Links go to http, https and mailto addresses, to anchors of the README, and to
// those of the folder. Pages complete three kinds of elements, which lead to
// nothing until then. Their paths are relative to the root of the module:
//
//	<a data-folder="modules/endpoints">          a submodule or an example
//	<a data-file="CHANGELOG.md">                 a file, also with a line: main.tf#L12
//	<a data-file="test/">                        a folder without a page of its own
//	<img data-image="docs/a.png" alt="A" …>      an image
//
// All other links are text. An image of another site is a link with its
// alternative text.
//
// Markup that exceeds a limit of the parser is shown as written. A README over
// 256 KiB is plain text in a pre element. The same is true if its HTML would have
// more than four times its size and 64 KiB.
func Markdown(source string, folder Folder) Readme {
	source = strings.ToValidUTF8(strings.TrimPrefix(source, "\uFEFF"), "\uFFFD")
	source = withoutGenerated(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source))
	if len(source) > maxMarkdown {
		return Plain(source)
	}
	document := parse(source)
	if document == nil {
		return Plain(source)
	}
	w := write(document, source, folder, nil)
	if w.hasLocalLinks {
		w = write(document, source, folder, w.used)
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
func write(document ast.Node, source string, folder Folder, anchors map[string]bool) *walker {
	b := &builder{
		limit: maxGrowth*len(source) + freeGrowth, folder: folder, anchors: anchors,
		used: make(map[string]bool), copies: make(map[string]int),
	}
	w := &walker{builder: b, source: []byte(source), noted: make(map[int]bool)}
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
		return "<pre" + preAttributes + ">" + highlight.Plain(source) + "</pre>"
	}
	end := strings.LastIndexByte(source[:min(firstPart, len(source))], '\n') + 1
	if end == 0 || len(source) <= firstPart+minRest {
		return Readme{HTML: pre(source)}
	}
	return Readme{HTML: pre(source[:end]), Rest: pre(source[end:])}
}
