package highlight

import (
	"regexp"
	"slices"
	"strings"
)

func writeHCL(out *strings.Builder, source string) {
	out.Grow(2 * len(source))
	written, first := 0, true // first means that only white space is before it in the line
	var before byte
	for at := 0; at < len(source); {
		class, size := hclToken(source[at:], first, before)
		if class != "" {
			out.WriteString(Plain(source[written:at]))
			written = at + size
			out.WriteString("<span class=" + class + ">" + Plain(source[at:written]) + "</span>")
		}
		at += size
		before = source[at-1]
		first = before == '\n' || first && size == 1 && (before == ' ' || before == '\t')
	}
	out.WriteString(Plain(source[written:]))
}

// The words with a class of their own, besides those of a block.
var (
	typeWords = []string{"any", "bool", "list", "map", "number", "object", "optional", "set", "string", "tuple"}
	values    = []string{"false", "null", "true"}
	forWords  = []string{"for", "if", "in"}
	// metaArguments mean the same in each block.
	metaArguments = []string{"count", "depends_on", "for_each", "provider", "providers", "source", "version"}
)

var (
	// header matches the first line of a block.
	header  = regexp.MustCompile(`^[A-Za-z_][\w-]*([ \t]+("[^"\n]*"|[A-Za-z_][\w-]*))*[ \t]*\{`)
	digits  = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?`)
	heredoc = regexp.MustCompile(`^<<-?([A-Za-z_][\w-]*)\r?\n`)
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
		name := source[:wordSize(source)]
		named := isArgument(source[len(name):])
		switch {
		case first && !named && isHeader(source), first && named && slices.Contains(metaArguments, name):
			class = "key"
		case before == '.' || named:
		case slices.Contains(values, name):
			class = "num"
		case slices.Contains(forWords, name):
			class = "key"
		case slices.Contains(typeWords, name) && !strings.HasPrefix(source[len(name):], ":"):
			class = "ty"
		}
		return class, len(name)
	}
	return "", 1
}

// isHeader reports whether a source begins with the first line of a block.
func isHeader(source string) bool {
	source = source[:min(len(source), maxHeader)]
	line := source[:lineSize(source)]
	return strings.Contains(line, "{") && header.MatchString(line)
}

func wordSize(source string) int {
	for i := range len(source) {
		if c := source[i]; !isLetter(c) && (c < '0' || c > '9') && c != '_' && c != '-' {
			return i
		}
	}
	return len(source)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isArgument reports whether an argument begins before a source.
func isArgument(source string) bool {
	rest, found := strings.CutPrefix(strings.TrimLeft(source, " \t"), "=")
	return found && !strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, ">")
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
		case quoted && (strings.HasPrefix(source[i:], "$${") || strings.HasPrefix(source[i:], "%%{")):
			i += 2
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
