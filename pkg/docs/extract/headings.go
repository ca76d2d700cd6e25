package extract

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/larder-registry/larder/pkg/content/safehcl"
)

// maxHeading is the length of the longest heading in characters, and maxWords that of
// one without decoration in words.
const (
	maxHeading = 80
	maxWords   = 5
)

// decoration has the characters around the text of a heading.
const decoration = " \t#/*-=~_+|"

// unlikely are what no heading has: licenses, files, addresses, and settings of
// tools.
var unlikely = []string{
	"copyright", "(c)", "license", "spdx-", ".tf", "://", "todo", "fixme", "endregion", "tflint-", ":ignore", ":skip", "vim:",
}

// code matches a reference, such as module.vpc.id.
var code = regexp.MustCompile(`[a-z_]\.[a-z_]`)

// headings returns the heading above each block of a file, by the first byte of
// the block. A heading is a comment of its own between two blocks. It counts for
// all blocks up to the next heading. Files in HCL's JSON syntax have none.
func headings(file *hcl.File) map[int]string {
	found := make(map[int]string)
	end, heading := 0, ""
	for _, b := range safehcl.Blocks(file) {
		between := string(file.Bytes[end:b.Start.Byte])
		if end > 0 { // what follows a block in its last line is about the block
			_, between, _ = strings.Cut(between, "\n")
		}
		if last := lastHeading(between); last != "" {
			heading = last
		}
		if heading != "" {
			found[b.Start.Byte] = heading
		}
		end = b.End.Byte
	}
	return found
}

// lastHeading returns the last heading in the text between two blocks.
func lastHeading(text string) (heading string) {
	var comment []string
	inside := false // of a comment between /* and */
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !inside && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "/*") {
			if title := headingOf(comment, line == ""); title != "" {
				heading = title
			}
			comment = nil
			continue
		}
		comment = append(comment, line)
		inside = (inside || strings.HasPrefix(line, "/*")) && !strings.Contains(line, "*/")
	}
	if title := headingOf(comment, false); title != "" {
		heading = title
	}
	return heading
}

// headingOf returns the heading in the lines of a comment, or an empty string. With
// decoration, the comment can have more lines, and it can be directly above a block.
// It returns nothing that looks like code or a license.
func headingOf(comment []string, isApart bool) string {
	title, texts, decorated := "", 0, false
	for _, line := range comment {
		text := strings.Trim(line, decoration)
		if text != "" {
			texts++
			decorated = decorated || strings.HasPrefix(line, "###") || strings.HasSuffix(line, "##") ||
				strings.HasSuffix(line, "--") || strings.HasSuffix(line, "==")
		} else {
			decorated = decorated || len(line) > 3
		}
		if title == "" {
			title = strings.TrimSuffix(strings.TrimPrefix(text, "region "), ":")
		}
	}
	lower := strings.ToLower(title)
	switch {
	case !decorated && (texts != 1 || !isApart || strings.HasSuffix(title, ".") || len(strings.Fields(title)) > maxWords),
		utf8.RuneCountInString(title) > maxHeading, strings.ContainsAny(title, "={}\"\\"), strings.HasPrefix(title, "!"),
		code.MatchString(title),
		!strings.ContainsFunc(title, unicode.IsLetter),
		slices.ContainsFunc(unlikely, func(part string) bool { return strings.Contains(lower, part) }):
		return ""
	}
	return title
}
