package web

import (
	"cmp"
	"html"
	"html/template"
	"strings"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// codeLine is one line of code in a comparison.
type codeLine struct {
	// Sign is "+" for an added line, "-" for a removed one, and "…" for lines
	// without changes that are left out. Otherwise it is empty.
	Sign string
	HTML template.HTML
	// Text is the line without highlighted syntax, for Markdown.
	Text string
}

// Class returns the class of the line in the style sheet.
func (l codeLine) Class() string {
	return map[string]string{"+": "add", "-": "del", "…": "gap"}[l.Sign]
}

// splitLines splits HTML that package render made into lines. An element that
// crosses the end of a line is closed there and opened again in the next line.
func splitLines(code string) (lines []string) {
	var line strings.Builder
	var open []string
	for code != "" {
		end := strings.IndexAny(code, "<\n")
		if end < 0 {
			end = len(code)
		}
		line.WriteString(code[:end])
		code = code[end:]
		switch {
		case code == "":
		case code[0] == '\n':
			line.WriteString(strings.Repeat("</span>", len(open)))
			lines = append(lines, line.String())
			line.Reset()
			line.WriteString(strings.Join(open, ""))
			code = code[1:]
		default:
			tag, after, _ := strings.Cut(code, ">")
			code = after
			switch {
			case tag != "</span":
				open = append(open, tag+">")
				line.WriteString(tag + ">")
			case len(open) > 0:
				open = open[:len(open)-1]
				line.WriteString("</span>")
			}
		}
	}
	line.WriteString(strings.Repeat("</span>", len(open)))
	return append(lines, line.String())
}

// textOfHTML returns the text of HTML that package render made.
func textOfHTML(code string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(code, "<")
		out.WriteString(before)
		if !found {
			return html.UnescapeString(out.String())
		}
		_, code, _ = strings.Cut(rest, ">")
	}
}

func asLines(sign string, lines []string) []codeLine {
	all := make([]codeLine, len(lines))
	for i, line := range lines {
		all[i] = newCodeLine(sign, line)
	}
	return all
}

func newCodeLine(sign, line string) codeLine {
	return codeLine{sign, template.HTML(line), textOfHTML(line)} //nolint:gosec // package highlight made it
}

// maxCompared is the number of lines that are compared one by one. Longer code
// is shown as removed and added.
const maxCompared = 1000

// compareLines returns the lines of two versions of code, as HTML. Lines that
// differ only in white space are the same, unless nothing else differs.
func compareLines(before, after []string) []codeLine {
	if len(before) > maxCompared || len(after) > maxCompared {
		return append(asLines("-", before), asLines("+", after)...)
	}
	words := func(line string) string { return strings.Join(strings.Fields(textOfHTML(line)), " ") }
	lines := compareBy(before, after, words)
	for _, line := range lines {
		if line.Sign != "" {
			return withContext(lines)
		}
	}
	return withContext(compareBy(before, after, textOfHTML))
}

// compareBy compares lines by their keys, by their longest common subsequence.
func compareBy(before, after []string, key func(string) string) (lines []codeLine) {
	was, is := make([]string, len(before)), make([]string, len(after))
	for i, line := range before {
		was[i] = key(line)
	}
	for i, line := range after {
		is[i] = key(line)
	}
	// common[i][j] is the number of common lines from was[i] and is[j] on.
	common := make([][]int, len(was)+1)
	for i := range common {
		common[i] = make([]int, len(is)+1)
	}
	for i := len(was) - 1; i >= 0; i-- {
		for j := len(is) - 1; j >= 0; j-- {
			if was[i] == is[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(was) || j < len(is) {
		switch {
		case i < len(was) && j < len(is) && was[i] == is[j]:
			lines = append(lines, newCodeLine("", after[j]))
			i, j = i+1, j+1
		case j == len(is) || i < len(was) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, newCodeLine("-", before[i]))
			i++
		default:
			lines = append(lines, newCodeLine("+", after[j]))
			j++
		}
	}
	return lines
}

// contextLines is the number of unchanged lines that are shown before and after
// a changed line.
const contextLines = 3

// withContext replaces unchanged lines that are far from a changed one.
func withContext(lines []codeLine) (shown []codeLine) {
	near := make([]bool, len(lines))
	for i, line := range lines {
		if line.Sign == "" {
			continue
		}
		for k := max(0, i-contextLines); k <= min(len(lines)-1, i+contextLines); k++ {
			near[k] = true
		}
	}
	for i := 0; i < len(lines); {
		end := i
		for end < len(lines) && !near[end] {
			end++
		}
		if end-i < 2 { // one line is not longer than what would replace it
			end = i
		}
		if end > i {
			text := count(end-i) + " lines without changes"
			shown = append(shown, codeLine{Sign: "…", HTML: template.HTML(text), Text: text}) //nolint:gosec // a number
			i = end
			continue
		}
		shown = append(shown, lines[i])
		i++
	}
	return shown
}

func diff(lines []codeLine) string {
	text := make([]string, len(lines))
	longest := 2
	for i, line := range lines {
		text[i] = cmp.Or(line.Sign, " ") + " " + highlight.Visible(line.Text)
		longest = max(longest, longestRun(line.Text, '`'))
	}
	fence := strings.Repeat("`", longest+1)
	return "  " + fence + "diff\n  " + strings.Join(text, "\n  ") + "\n  " + fence
}

// longestRun returns the length of the longest sequence of one character.
func longestRun(text string, c rune) (longest int) {
	n := 0
	for _, r := range text {
		n++
		if r != c {
			n = 0
		}
		longest = max(longest, n)
	}
	return longest
}
