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

// withoutGenerated cuts what terraform-docs wrote of the configuration. Pages have
// it from the configuration.
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
			out.WriteString(withoutSections(source[begin:m[0]], table))
			begin, end = -1, m[1]
		}
	}
	out.WriteString(source[end:])
	rest := out.String()
	if marked.MatchString(rest) {
		rest = withoutSections(rest, markedTable)
	}
	if rest != source {
		rest = lastHeading.ReplaceAllString(rest, "\n")
	}
	return rest
}

// lastHeading matches a heading without a text at the end.
var lastHeading = regexp.MustCompile(`(?:^|\n)#{1,6}[ \t][^\n]*\s*$`)

// marked matches the anchor that terraform-docs writes at an input, or at
// something else. Many authors have removed the comments around its text.
var marked = regexp.MustCompile(`<a name="(?:requirement|provider|module|input|output)_`)

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

// The forms of what terraform-docs writes below these headings.
var (
	// table matches the heading of a table.
	table = regexp.MustCompile(`(?i)^\|[ \t]*name[ \t]*\|[ \t]*(?:version|source|type|description)[ \t]*\|`)
	// markedTable matches such a table with an anchor, or with the documentation of
	// a resource. The others can be of people.
	markedTable = regexp.MustCompile(table.String() + `(?s:.*)(?:<a name="(?:requirement|provider|module|input|output)_|` +
		`\]\(https://registry\.(?:terraform\.io|opentofu\.org)/providers/)`)
	// sentence matches a sentence in place of a table.
	sentence = regexp.MustCompile(`^(?:The following [A-Za-z ]+(?:\([a-z ]+\))?:|No [a-z ]+\.)\s*$`)
	// field matches the beginning of a field of one input, output or module.
	field = regexp.MustCompile(`^(Description|Type|Default|Source|Version):(.*)`)
	// comments matches comments of HTML and nothing else.
	comments = regexp.MustCompile(`^(?:\s*<!--[^>]*-->)+\s*$`)
)

// withoutSections cuts what terraform-docs wrote of the configuration, with the form
// of its tables. A heading stays if people have added something below it. The
// templates of terraform-docs can do that.
func withoutSections(source string, form *regexp.Regexp) string {
	var out strings.Builder
	blocks := split(source)
	for len(blocks) > 0 {
		level, title := headingOf(blocks[0])
		if level == 0 || !slices.Contains(sections, strings.ToLower(title)) {
			out.WriteString(blocks[0])
			blocks = blocks[1:]
			continue
		}
		end := 1 + slices.IndexFunc(blocks[1:], func(block string) bool {
			l, _ := headingOf(block)
			return l > 0 && l <= level
		})
		if end == 0 {
			end = len(blocks)
		}
		if text := ofPeople(blocks[1:end], form); text != "" {
			out.WriteString(blocks[0] + text)
		}
		blocks = blocks[end:]
	}
	return out.String()
}

// ofPeople returns the blocks that terraform-docs did not write.
func ofPeople(blocks []string, form *regexp.Regexp) string {
	var out strings.Builder
	for len(blocks) > 0 {
		if n := written(blocks, form); n > 0 {
			blocks = blocks[n:]
			continue
		}
		out.WriteString(blocks[0])
		blocks = blocks[1:]
	}
	return out.String()
}

// written returns the number of blocks that belong to one piece by terraform-docs,
// or 0.
func written(blocks []string, form *regexp.Regexp) int {
	first := blocks[0]
	level, _ := headingOf(first)
	switch {
	case form.MatchString(first), comments.MatchString(first), strings.TrimSpace(first) == "":
		return 1
	case sentence.MatchString(first):
		n := 1
		for n < len(blocks) && strings.HasPrefix(blocks[n], "- ") && (n == 1 || marked.MatchString(blocks[n])) {
			n++
		}
		return n
	case level > 0 && len(blocks) > 1 && field.MatchString(blocks[1]):
		return 1 + fields(blocks[1:])
	}
	return 0
}

// fields returns the number of blocks that have the fields of an input, an output
// or a module. A description can have many blocks, and the others have a line or
// a block of code.
func fields(blocks []string) int {
	described := false
	for i := 0; i < len(blocks); i++ {
		found := field.FindStringSubmatch(blocks[i])
		level, _ := headingOf(blocks[i])
		switch {
		case level > 0 || found == nil && !described:
			return i
		case found == nil:
			continue
		}
		described = found[1] == "Description"
		if strings.TrimSpace(found[2]) == "" && i+1 < len(blocks) && fence.MatchString(blocks[i+1]) {
			i++
		}
	}
	return len(blocks)
}

// split returns the blocks of a text: headings, comments, tables of terraform-docs,
// and others between empty lines. Each has the empty lines after it. A block of
// code is not divided.
func split(source string) []string {
	var blocks []string
	begin, at, code := 0, 0, ""
	ended, inTable := false, false // the next line begins another block
	for line := range strings.Lines(source) {
		mark := fence.FindStringSubmatch(line)
		level, _ := headingOf(line)
		isEmpty := strings.TrimSpace(line) == ""
		ended = ended || inTable && !strings.HasPrefix(line, "|")
		if code == "" && at > begin && !isEmpty && (ended || level > 0 || table.MatchString(line)) {
			blocks, begin, ended = append(blocks, source[begin:at]), at, false
		}
		inTable = code == "" && (inTable && !ended || table.MatchString(line))
		switch {
		case code != "" && mark != nil && strings.HasPrefix(mark[1], code):
			code = ""
		case code == "" && mark != nil:
			code = mark[1]
		case code == "":
			ended = isEmpty || level > 0 || comments.MatchString(line)
		}
		at += len(line)
	}
	if at > begin {
		blocks = append(blocks, source[begin:])
	}
	return blocks
}

// headingOf returns the level and the text of a heading, or 0.
func headingOf(block string) (level int, title string) {
	line, _, _ := strings.Cut(block, "\n")
	found := atx.FindStringSubmatch(line)
	if found == nil {
		return 0, ""
	}
	return len(found[1]), found[2]
}
