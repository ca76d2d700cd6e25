package render

import (
	"regexp"
	"slices"
	"strings"
)

// generated matches the comments around text that terraform-docs and similar
// tools wrote.
var generated = regexp.MustCompile(`(?im)^[ \t]*(?:<!--+|\[//\]: # \()[ \t]*` +
	`(?:(BEGIN|BEGINNING OF)|END|END OF)[ _]` +
	`(?:TF_DOCS|TFDOC|TERRAFORM_DOCS|AUTOMATED_TF_DOCS_BLOCK|[A-Z-]+ DOCS HOOK)[ \t]*(?:--+>|\))[ \t]*$`)

// withoutGenerated cuts the sections that terraform-docs wrote. Pages have them
// from the configuration.
func withoutGenerated(source string) string {
	var out strings.Builder
	begin, end := -1, 0
	for _, m := range generated.FindAllStringSubmatchIndex(source, -1) {
		isBegin := m[2] >= 0
		switch {
		case isBegin && begin < 0:
			out.WriteString(source[end:m[0]])
			begin, end = m[1], m[0]
		case !isBegin && begin >= 0:
			out.WriteString(withoutSections(source[begin:m[0]]))
			begin, end = -1, m[1]
		}
	}
	out.WriteString(source[end:])
	return out.String()
}

var (
	// atx matches the marks and the text of a heading.
	atx = regexp.MustCompile(`^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$`)
	// fence matches the begin or the end of a block of code.
	fence = regexp.MustCompile("^ {0,3}(```+|~~~+)")
)

// sections are the headings of the sections that terraform-docs writes.
var sections = []string{
	"data sources", "files", "inputs", "modules", "optional inputs", "outputs", "providers", "required inputs",
	"requirements", "resources", "variables",
}

// withoutSections cuts the sections that only describe configuration. The
// templates of terraform-docs can add other text, such as a whole README.
func withoutSections(source string) string {
	var out strings.Builder
	cut, code := 0, "" // the level of the section to cut, and the fence of the block of code
	for line := range strings.Lines(source) {
		mark := fence.FindStringSubmatch(line)
		switch {
		case code != "":
			if mark != nil && strings.HasPrefix(mark[1], code) {
				code = ""
			}
		case mark != nil:
			code = mark[1]
		default:
			cut = sectionToCut(line, cut)
		}
		if cut == 0 {
			out.WriteString(line)
		}
	}
	return out.String()
}

// sectionToCut returns the level of the section to cut from a line on, or 0.
// cut is the level before that line.
func sectionToCut(line string, cut int) int {
	heading := atx.FindStringSubmatch(strings.TrimRight(line, "\n"))
	if heading == nil {
		return cut
	}
	level := len(heading[1])
	if cut > 0 && level > cut {
		return cut
	}
	if slices.Contains(sections, strings.ToLower(heading[2])) {
		return level
	}
	return 0
}
