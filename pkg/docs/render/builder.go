package render

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// builder writes HTML in which every element is allowed, is closed, and has a
// parent that may contain it.
type builder struct {
	out []byte
	// limit is the size of the longest output in bytes.
	limit    int
	exceeded bool
	// open has the open elements. Raw HTML can only close those from index
	// floor on.
	open  []element
	floor int
	// text is the number of characters of text so far.
	text int

	// folder is the folder of the README, and images the number of images of
	// the module so far.
	folder Folder
	images int
	// anchors has the anchors of the whole README. If it is nil, they are not
	// known yet.
	anchors map[string]bool
	// used has the anchors so far, and copies the number of headings for each
	// anchor without a number.
	used   map[string]bool
	copies map[string]int
	// hasLocalLinks means that a link leads to an anchor.
	hasLocalLinks bool

	heading *heading // the open one
	// inImage means that the text is that of an image.
	inImage bool
	// headings is the number of headings in the output, and sawHeading is set
	// even if the output lacks it.
	headings   int
	sawHeading bool
	// outline has the levels that the author chose for the last heading and the
	// headings above it.
	outline []int
}

// element is an open element. Its output begins at start, and its content at
// body.
type element struct {
	tag         string
	start, body int
}

// heading is what a builder records about an open heading. text has its text
// without that of its images.
type heading struct {
	level        int
	text, images []byte
	textBefore   int
}

// title returns the text of a heading, or that of its images if it has no other.
func (h *heading) title() string {
	if text := strings.TrimSpace(string(h.text)); text != "" {
		return text
	}
	return string(h.images)
}

// maxOpen is the number of elements that may nest. Deeper ones become text.
const maxOpen = 100

type kind int

// The kinds of elements.
const (
	forbidden kind = iota
	phrasing
	block
	void
)

// elements are the elements of a README. Headings have their final levels.
var elements = map[string]kind{
	"a": phrasing, "abbr": phrasing, "b": phrasing, "cite": phrasing, "code": phrasing, "del": phrasing, "dfn": phrasing,
	"em": phrasing, "i": phrasing, "ins": phrasing, "kbd": phrasing, "mark": phrasing, "q": phrasing, "s": phrasing,
	"samp": phrasing, "small": phrasing, "strong": phrasing, "sub": phrasing, "sup": phrasing, "u": phrasing,
	"var": phrasing,

	"blockquote": block, "caption": block, "dd": block, "details": block, "div": block, "dl": block, "dt": block,
	"h3": block, "h4": block, "h5": block, "h6": block, "li": block, "ol": block, "p": block, "pre": block,
	"summary": block, "table": block, "tbody": block, "td": block, "tfoot": block, "th": block, "thead": block,
	"tr": block, "ul": block,

	"br": void, "hr": void, "img": void,
}

// parents are the elements inside which an element must be.
var parents = map[string][]string{
	"li": {"ul", "ol"}, "dt": {"dl"}, "dd": {"dl"}, "summary": {"details"},
	"caption": {"table"}, "thead": {"table"}, "tbody": {"table"}, "tfoot": {"table"},
	"tr": {"thead", "tbody", "tfoot", "table"}, "td": {"tr"}, "th": {"tr"},
}

func isTablePart(tag string) bool {
	switch tag {
	case "caption", "thead", "tbody", "tfoot", "tr", "td", "th":
		return true
	}
	return false
}

func isHeading(tag string) bool { return len(tag) == 2 && tag[0] == 'h' && tag != "hr" }

// full reports whether the output has exceeded its limit. It may be shorter by
// now, because empty elements are dropped.
func (b *builder) full() bool {
	b.exceeded = b.exceeded || len(b.out) > b.limit
	return b.exceeded
}

// element writes an element of the Markdown with its content. Raw HTML in the
// content cannot close it.
func (b *builder) element(tag, attributes string, content func()) {
	if elements[tag] == block {
		b.closePhrasing()
	}
	before, floor := len(b.open), b.floor
	if before < maxOpen {
		b.write(tag, attributes)
	}
	b.floor = len(b.open)
	content()
	b.floor = floor
	b.closeTo(before)
}

// closePhrasing closes the elements of raw HTML that cannot contain a block of
// the Markdown.
func (b *builder) closePhrasing() {
	for i := b.floor; i < len(b.open); i++ {
		tag := b.open[i].tag
		if elements[tag] == phrasing || tag == "p" || tag == "pre" || tag == "summary" || isHeading(tag) {
			b.closeTo(i)
			return
		}
	}
}

// start opens an element of raw HTML, and reports whether it is allowed here.
func (b *builder) start(tag, attributes string) bool {
	kind := elements[tag]
	switch {
	case kind == forbidden || len(b.open) >= maxOpen:
		return false
	case tag == "a" && b.isIn("a"):
		return false
	case (kind == block || tag == "hr") && !b.makeRoom(tag):
		return false
	}
	b.write(tag, attributes)
	return true
}

func (b *builder) write(tag, attributes string) {
	start := len(b.out)
	b.out = append(b.out, "<"+tag+attributes+">"...)
	if elements[tag] != void {
		b.open = append(b.open, element{tag: tag, start: start, body: len(b.out)})
	}
}

// makeRoom closes the elements of raw HTML that cannot contain a block, and
// reports whether the block is allowed here.
func (b *builder) makeRoom(tag string) bool {
	if parents[tag] != nil {
		parent := b.find(tag, parents[tag]...)
		if parent < 0 {
			return false
		}
		b.closeTo(parent + 1)
		return true
	}
	for i := len(b.open) - 1; i >= 0; i-- {
		if b.open[i].tag == "p" || isHeading(b.open[i].tag) {
			if i < b.floor {
				return false
			}
			b.closeTo(i)
			return true
		}
	}
	return true
}

// find returns the index of the innermost open element among tags that a tag of
// raw HTML refers to, or -1.
func (b *builder) find(tag string, among ...string) int {
	for i := len(b.open) - 1; i >= b.floor; i-- {
		open := b.open[i].tag
		switch {
		case slices.Contains(among, open):
			return i
		case elements[tag] == phrasing && elements[open] == block:
			return -1
		case open == "table", isTablePart(open) && !isTablePart(tag) && tag != "table":
			return -1
		}
	}
	return -1
}

// end closes an element of raw HTML if it is open.
func (b *builder) end(tag string) {
	if i := b.find(tag, tag); i >= 0 {
		b.closeTo(i)
	}
}

// closeTo closes all elements but the outermost n.
func (b *builder) closeTo(n int) {
	for len(b.open) > n {
		last := b.open[len(b.open)-1]
		b.open = b.open[:len(b.open)-1]
		switch {
		case (last.tag == "p" || last.tag == "div" || last.tag == "a") && len(bytes.TrimSpace(b.out[last.body:])) == 0:
			b.out = b.out[:last.start]
		case isHeading(last.tag):
			b.closeHeading(last)
		default:
			b.out = append(b.out, "</"+last.tag+">"...)
		}
	}
}

// headingTag returns the element for a heading of the README's level.
func headingTag(level int) string { return "h" + strconv.Itoa(min(level+2, 6)) }

// startHeading records that a heading has been opened.
func (b *builder) startHeading(level int) {
	b.heading = &heading{level: level, textBefore: b.text}
}

// closeHeading ends a heading. It adds the anchor, or drops the heading if it is
// empty or repeats the name.
func (b *builder) closeHeading(e element) {
	h := b.heading
	b.heading = nil
	isFirst := !b.sawHeading
	b.sawHeading = true
	title := h.title()
	if title == "" || isFirst && h.level == 1 && repeats(title, b.folder.Name) {
		b.out, b.text = b.out[:e.start], h.textBefore
		return
	}
	b.headings++
	tag := headingTag(b.outlineLevel(h.level))
	copy(b.out[e.start:], "<"+tag)
	if id := b.anchor(slug(title)); id != "" {
		b.out = slices.Insert(b.out, e.body-1, []byte(` id="readme-`+id+`"`)...)
	}
	b.out = append(b.out, "</"+tag+">"...)
}

// outlineLevel returns the level of a heading whose author chose another one.
// The first heading has level 1. Each further one is at most one level below the
// heading before it.
func (b *builder) outlineLevel(chosen int) int {
	for len(b.outline) > 0 && b.outline[len(b.outline)-1] >= chosen {
		b.outline = b.outline[:len(b.outline)-1]
	}
	b.outline = append(b.outline, chosen)
	return len(b.outline)
}

func (b *builder) anchor(slug string) string {
	if slug == "" {
		return ""
	}
	unique := slug
	for b.used[unique] {
		b.copies[slug]++
		unique = slug + "-" + strconv.Itoa(b.copies[slug])
	}
	b.used[unique] = true
	return unique
}

func (b *builder) isIn(tags ...string) bool {
	return slices.ContainsFunc(b.open, func(e element) bool { return slices.Contains(tags, e.tag) })
}

// writeText writes text, or code if an element for code is open.
func (b *builder) writeText(text string) {
	if b.isIn("pre", "code") {
		b.writeHTML(highlight.Plain(text), text)
		return
	}
	text = highlight.Visible(text)
	b.writeHTML(highlight.Plain(text), text)
}

func (b *builder) endLine() {
	if n := len(b.out); n > 0 && b.out[n-1] != '\n' {
		b.out = append(b.out, '\n')
	}
}

// writeHTML writes valid HTML with the given text.
func (b *builder) writeHTML(source, text string) {
	b.out = append(b.out, source...)
	b.text += utf8.RuneCountInString(text)
	switch {
	case b.heading == nil:
	case b.inImage:
		b.heading.images = append(b.heading.images, text...)
	default:
		b.heading.text = append(b.heading.text, text...)
	}
}
