package render

import (
	"bytes"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// The limits of Markdown. Without them, the time, memory or stack to parse some
// texts grows with the square of their length. READMEs that people write are
// far below them. What exceeds a limit is shown as written.
const (
	// maxNesting is the number of quotes, lists and items that may nest.
	maxNesting = 40
	// maxMarks is the number of marks in one paragraph, heading or cell. A mark
	// may start or end a link, an emphasis, code or an HTML tag.
	maxMarks = 1_000
	// maxDefinitionLines is the number of lines of a paragraph that may define
	// the targets of links.
	maxDefinitionLines = 1_000
	// maxCells is the number of cells in all tables. A cell takes half a
	// kilobyte of memory.
	maxCells = 50_000
	// maxFootnotes is the number of footnotes. Each link to one reads them all.
	maxFootnotes = 200
)

// newParser returns a parser of GitHub's Markdown.
func newParser() parser.Parser {
	marks := &markCounter{}
	return parser.NewParser(
		parser.WithBlockParsers(
			util.Prioritized(parser.NewSetextHeadingParser(), 100),
			util.Prioritized(parser.NewThematicBreakParser(), 200),
			util.Prioritized(container{parser.NewListParser()}, 300),
			util.Prioritized(parser.NewListItemParser(), 400),
			util.Prioritized(parser.NewCodeBlockParser(), 500),
			util.Prioritized(parser.NewATXHeadingParser(), 600),
			util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
			util.Prioritized(container{parser.NewBlockquoteParser()}, 800),
			util.Prioritized(parser.NewHTMLBlockParser(), 900),
			util.Prioritized(&footnotes{BlockParser: extension.NewFootnoteBlockParser()}, 999),
			util.Prioritized(parser.NewParagraphParser(), 1000),
		),
		parser.WithInlineParsers(
			util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
			util.Prioritized(limited{parser.NewCodeSpanParser(), marks}, 100),
			util.Prioritized(limited{extension.NewFootnoteParser(), marks}, 101),
			util.Prioritized(limitedLinks{limited{parser.NewLinkParser(), marks}}, 200),
			util.Prioritized(limited{parser.NewAutoLinkParser(), marks}, 300),
			util.Prioritized(limited{parser.NewRawHTMLParser(), marks}, 400),
			util.Prioritized(limited{parser.NewEmphasisParser(), marks}, 500),
			util.Prioritized(limited{extension.NewStrikethroughParser(), marks}, 600),
			util.Prioritized(extension.NewLinkifyParser(), 999),
		),
		parser.WithParagraphTransformers(
			util.Prioritized(definitions{parser.LinkReferenceParagraphTransformer}, 100),
			util.Prioritized(&tables{ParagraphTransformer: extension.NewTableParagraphTransformer()}, 200),
		),
		parser.WithASTTransformers(
			util.Prioritized(extension.NewTableASTTransformer(), 0),
			util.Prioritized(extension.NewFootnoteASTTransformer(), 999),
		),
	)
}

// container limits the depth of quotes or lists.
type container struct{ parser.BlockParser }

// Open opens a block unless it is nested too deeply.
func (c container) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for n := parent; n != nil; n = n.Parent() {
		depth++
	}
	if depth > maxNesting {
		return nil, parser.NoChildren
	}
	return c.BlockParser.Open(parent, reader, pc)
}

// footnotes limits the number of footnotes.
type footnotes struct {
	parser.BlockParser

	count int
}

// Open opens a footnote unless there are too many.
func (f *footnotes) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	if f.count >= maxFootnotes {
		return nil, parser.NoChildren
	}
	n, state := f.BlockParser.Open(parent, reader, pc)
	if n != nil {
		f.count++
	}
	return n, state
}

// markCounter counts the marks of the block that is being parsed. All parsers
// of marks share it.
type markCounter struct {
	block ast.Node
	count int
}

// limited limits the marks of a block.
type limited struct {
	parser.InlineParser

	marks *markCounter
}

// Parse parses a mark unless there are too many in its block.
func (l limited) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if parent != l.marks.block {
		l.marks.block, l.marks.count = parent, 0
	}
	if l.marks.count++; l.marks.count > maxMarks {
		return nil
	}
	return l.InlineParser.Parse(parent, block, pc)
}

// limitedLinks is like limited for the parser of links, which acts at the end of
// a block.
type limitedLinks struct{ limited }

// CloseBlock ends the links of a block.
func (l limitedLinks) CloseBlock(parent ast.Node, block text.Reader, pc parser.Context) {
	if closer, ok := l.InlineParser.(parser.CloseBlocker); ok {
		closer.CloseBlock(parent, block, pc)
	}
}

// definitions limits the lines of a paragraph that may define targets of links.
// Footnotes beyond their limit are not definitions, so that their text is shown.
type definitions struct{ parser.ParagraphTransformer }

// Transform removes the definitions from a paragraph.
func (d definitions) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	lines := node.Lines()
	if lines.Len() == 0 || lines.Len() > maxDefinitionLines {
		return
	}
	if first := lines.At(0); !bytes.HasPrefix(bytes.TrimSpace(first.Value(reader.Source())), []byte("[^")) {
		d.ParagraphTransformer.Transform(node, reader, pc)
	}
}

// tables limits the cells of tables. The transformer adds empty cells to a row
// that lacks some.
type tables struct {
	parser.ParagraphTransformer

	cells int
}

// Transform makes a table of a paragraph if its cells have at least a byte each
// on average.
func (t *tables) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	lines, columns, size := node.Lines(), 0, 0
	for i := range lines.Len() {
		segment := lines.At(i)
		line := segment.Value(reader.Source())
		size += len(line)
		if len(bytes.Trim(line, "|:- \t\n")) == 0 {
			columns = max(columns, 1+bytes.Count(line, []byte("|")))
		}
	}
	cells := columns * lines.Len()
	if columns == 0 || cells > size || t.cells+cells > maxCells {
		return
	}
	t.cells += cells
	t.ParagraphTransformer.Transform(node, reader, pc)
}
