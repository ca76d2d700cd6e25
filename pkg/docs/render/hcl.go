package render

import (
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/safehcl"
)

const (
	// maxHighlighted is the size of the longest source with highlighted syntax,
	// in bytes.
	maxHighlighted = 64 << 10
	// freeHTML is the HTML that a source may need in addition to four times its
	// size.
	freeHTML = 4 << 10
)

// HCL returns an expression or a file in HCL's native syntax as HTML with
// highlighted syntax. The HTML has only text, and span elements with a class.
//
// The source need not be valid. If it is longer than 64 KiB, is not valid UTF-8,
// or has an open comment, it is not highlighted. The same is true if the HTML
// would have more than four times its size and 4 KiB.
func HCL(source string) string {
	if len(source) > maxHighlighted {
		return plainCode(source)
	}
	tokens, err := safehcl.Tokens([]byte(source))
	if err != nil {
		return plainCode(source)
	}
	h := highlighter{source: source, tokens: tokens}
	for i, t := range tokens {
		if t.Start < h.end {
			return plainCode(source)
		}
		h.extend(t.Start, "")
		h.extend(t.Start+len(strings.TrimRight(h.text(i), "\n")), h.class(i))
		h.extend(t.End, "")
	}
	h.extend(len(source), "")
	h.flush()
	if h.out.Len() > 4*len(source)+freeHTML {
		return plainCode(source)
	}
	return h.out.String()
}

// highlighter writes tokens with their classes. It reads them once, in order.
type highlighter struct {
	source string
	tokens []safehcl.Token
	out    strings.Builder
	// The source is written up to start. Its part from start to end has the
	// class current.
	start, end int
	current    string
	// open has the brackets that are open. A true element is the body of a
	// block.
	open []bool
}

// extend reads the source up to end, which has the given class.
func (h *highlighter) extend(end int, class string) {
	if end == h.end {
		return
	}
	if class != h.current {
		h.flush()
		h.current = class
	}
	h.end = end
}

// flush writes what has been read.
func (h *highlighter) flush() {
	text := code(h.source[h.start:h.end])
	if h.current != "" {
		text = `<span class="` + h.current + `">` + text + "</span>"
	}
	h.out.WriteString(text)
	h.start = h.end
}

// The words with a class of their own.
var (
	typeWords = []string{"any", "bool", "list", "map", "number", "object", "optional", "set", "string", "tuple"}
	values    = []string{"false", "null", "true"}
	forWords  = []string{"for", "if", "in"}
	// directives are words after %{ in a template.
	directives = []string{"else", "endfor", "endif", "for", "if"}
	// metaArguments mean the same in each block.
	metaArguments = []string{"count", "depends_on", "for_each", "provider", "providers", "source", "version"}
)

// class returns the class of token i, or an empty string.
func (h *highlighter) class(i int) string {
	switch h.tokens[i].Kind {
	case safehcl.Comment:
		return "comment"
	case safehcl.String:
		return "str"
	case safehcl.Number:
		return "num"
	case safehcl.Name:
		return h.classOfName(i)
	case safehcl.Sign:
		h.bracket(i)
	}
	return ""
}

// bracket records an opening or closing bracket.
func (h *highlighter) bracket(i int) {
	switch text := h.text(i); text {
	case "(", "[", "{", "${", "%{":
		h.open = append(h.open, text == "{" && h.isHeader(h.firstOfLine(i)))
	case ")", "]", "}", "~}":
		h.open = h.open[:max(0, len(h.open)-1)]
	}
}

func (h *highlighter) classOfName(i int) string {
	name, next := h.text(i), h.text(i+1)
	inBody := len(h.open) == 0 || h.open[len(h.open)-1]
	isArgument := next == "=" || next == ":" && !slices.Contains(values, name)
	before := h.text(i - 1)
	switch {
	case before == ".":
		return ""
	case isArgument:
		if len(h.open) > 0 && inBody && slices.Contains(metaArguments, name) {
			return "key"
		}
		return ""
	case inBody && h.firstOfLine(i) == i && h.isHeader(i):
		return "key"
	case slices.Contains(values, name):
		return "num"
	case strings.HasPrefix(before, "%{") && slices.Contains(directives, name):
		return "key"
	case !inBody && slices.Contains(forWords, name):
		return "key"
	case slices.Contains(typeWords, name):
		return "ty"
	}
	return ""
}

// maxHeader is the number of tokens of a block's first line that count.
const maxHeader = 20

// firstOfLine returns the index of the first token in the line of token i. It
// returns i if the line has too many tokens.
func (h *highlighter) firstOfLine(i int) int {
	for first := i; i-first <= maxHeader; first-- {
		if first == 0 || h.endsLine(first-1) {
			return first
		}
	}
	return i
}

func (h *highlighter) endsLine(i int) bool {
	return h.tokens[i].Kind == safehcl.Newline || h.tokens[i].Kind == safehcl.Comment && strings.HasSuffix(h.text(i), "\n")
}

// isHeader reports whether token i begins the header of a block: a name, then
// labels, then an opening brace.
func (h *highlighter) isHeader(i int) bool {
	if i >= len(h.tokens) || h.tokens[i].Kind != safehcl.Name {
		return false
	}
	for j := i + 1; j < len(h.tokens) && j-i <= maxHeader; j++ {
		switch h.tokens[j].Kind {
		case safehcl.Name, safehcl.String:
		default:
			return h.text(j) == "{"
		}
	}
	return false
}

// text returns the text of token i, or an empty string if there is none.
func (h *highlighter) text(i int) string {
	if i < 0 || i >= len(h.tokens) {
		return ""
	}
	return h.source[h.tokens[i].Start:h.tokens[i].End]
}
