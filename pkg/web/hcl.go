package web

import (
	"html/template"
	"regexp"
	"slices"
	"strings"
)

// hcl returns configuration that a page suggests as HTML with highlighted syntax.
func hcl(source string) template.HTML { return finished(hclHTML(plain(source))) }

// hclHTML returns HCL as HTML with highlighted syntax. The source need not be
// valid. Pages have no parser, because it would slow down their start. Package
// render has one, and highlights types and defaults at publish.
func hclHTML(source string) string {
	var out strings.Builder
	out.Grow(2 * len(source))
	written, first := 0, true // first means that only white space is before it in the line
	var before byte
	for at := 0; at < len(source); {
		class, size := hclToken(source[at:], first, before)
		if class != "" {
			out.WriteString(codeHTML(source[written:at]))
			written = at + size
			out.WriteString(`<span class="` + class + `">` + codeHTML(source[at:written]) + "</span>")
		}
		at += size
		before = source[at-1]
		first = before == '\n' || first && size == 1 && (before == ' ' || before == '\t')
	}
	out.WriteString(codeHTML(source[written:]))
	return out.String()
}

var (
	// header matches the first line of a block, and metaArgument an argument that
	// means the same in each block.
	header       = regexp.MustCompile(`^[A-Za-z_][\w-]*([ \t]+("[^"\n]*"|[A-Za-z_][\w-]*))*[ \t]*\{`)
	metaArgument = regexp.MustCompile(`^(count|depends_on|for_each|provider|providers|source|version)[ \t]*=`)
	word         = regexp.MustCompile(`^[A-Za-z_][\w-]*`)
	digits       = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?`)
	heredoc      = regexp.MustCompile(`^<<-?([A-Za-z_][\w-]*)\r?\n`)
)

// maxHeader bounds the first line of a block, in bytes.
const maxHeader = 256

// hclToken returns the class and the size of the first token of a source. first
// means that it is the first one of its line, and before is the byte before it.
func hclToken(source string, first bool, before byte) (class string, size int) {
	switch c := source[0]; {
	case c == '"':
		return "str", stringSize(source)
	case c == '#' || strings.HasPrefix(source, "//"):
		return "comment", lineSize(source)
	case strings.HasPrefix(source, "/*"):
		if end := strings.Index(source[2:], "*/"); end >= 0 {
			return "comment", 2 + end + len("*/")
		}
		return "comment", len(source) // once, so that hostile files take no longer
	case c == '<':
		if size := heredocSize(source); size > 0 {
			return "str", size
		}
	case '0' <= c && c <= '9':
		return "num", len(digits.FindString(source))
	case isLetter(c) || c == '_':
		name := word.FindString(source)
		start := source[:min(len(source), maxHeader)]
		switch {
		case first && (header.MatchString(start) || metaArgument.MatchString(start)):
			class = "key"
		case before != '.' && slices.Contains([]string{"false", "null", "true"}, name):
			class = "num"
		}
		return class, len(name)
	}
	return "", 1
}

func lineSize(source string) int {
	if end := strings.IndexByte(source, '\n'); end >= 0 {
		return end
	}
	return len(source)
}

// stringSize returns the size of a string with the strings that are in its
// templates. It ends with its line.
func stringSize(source string) int {
	var open []byte // the quotes and braces
	for i := 0; i < len(source); i++ {
		quoted := len(open) > 0 && open[len(open)-1] == '"'
		switch c := source[i]; {
		case c == '\n':
			return i
		case quoted && c == '\\':
			i++
		case quoted && (c == '$' || c == '%') && strings.HasPrefix(source[i+1:], "{"):
			i++
			open = append(open, '{')
		case quoted && c == '"', !quoted && c == '}':
			open = open[:len(open)-1]
		case !quoted && (c == '"' || c == '{'):
			open = append(open, c)
		}
		if len(open) == 0 {
			return i + 1
		}
	}
	return len(source)
}

// heredocSize returns the size of a heredoc, or 0 if the source does not begin
// with one. One without an end takes the rest of the source.
func heredocSize(source string) int {
	begin := heredoc.FindStringSubmatch(source)
	if begin == nil {
		return 0
	}
	for at := len(begin[0]); at < len(source); at++ {
		size := lineSize(source[at:])
		if strings.TrimSpace(source[at:at+size]) == begin[1] {
			return at + size
		}
		at += size
	}
	return len(source)
}
