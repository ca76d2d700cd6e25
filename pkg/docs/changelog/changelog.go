// Package changelog finds the part of a module's changelog that lies between
// two versions. It reads the headings of common tools, such as these:
//
//	## [4.2.0](https://example.com/compare/v4.1.0...v4.2.0) (2026-01-02)
//	# v4.2.0
//	### 4.2.0 / 2026-01-02
package changelog

import (
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/registry"
)

// MaxSize is the largest size of a part, in bytes.
const MaxSize = 16 << 10

// Part is a part of a changelog.
type Part struct {
	// File is the path of the changelog in the later version, and Line the line
	// where the part begins.
	File string `json:"file"`
	Line int    `json:"line"`
	// Text is Markdown as the author wrote it, without control characters. It
	// is untrusted.
	Text string `json:"text"`
	// Cut reports whether the text ends early, because it is too long.
	Cut bool `json:"cut,omitempty"`
}

// Plain returns the text without the addresses of links, which tools write
// behind each change, and with single empty lines.
func (p Part) Plain() string {
	return empty.ReplaceAllString(linked.ReplaceAllString(p.Text, "$1"), "\n\n")
}

var (
	linked = regexp.MustCompile(`\[([^\[\]\n]*)\]\(https?://[^()\s]*\)`)
	empty  = regexp.MustCompile(`\n(?:[ \t]*\n){2,}`)
)

// names are the names of changelogs in lower case, the best first.
var names = []string{"changelog.md", "changelog", "changelog.txt", "changelog.markdown", "history.md", "changes.md"}

// Find returns the path of the changelog among the files of a version. It is
// empty if there is none.
func Find(files []docs.SourceFile) (found string) {
	best := len(names)
	for _, f := range files {
		rank := slices.Index(names, strings.ToLower(f.Path))
		if rank >= 0 && rank < best && f.Kind == docs.FileText {
			best, found = rank, f.Path
		}
	}
	return found
}

// Read finds the changelog among the files of the later version, and returns
// its part between two versions. The text is empty if there is none. read
// returns the content of a file.
func Read(
	files []docs.SourceFile, from, to registry.Version, read func(path string) ([]byte, error),
) (Part, error) {
	name := Find(files)
	if name == "" {
		return Part{}, nil
	}
	text, err := read(name)
	if err != nil {
		return Part{}, err
	}
	p, found := Between(string(text), from, to)
	if !found {
		return Part{}, nil
	}
	p.File = name
	return p, nil
}

// Between returns the sections of the versions after from, up to and with to,
// in the order of the text. It returns false if there are none.
func Between(text string, from, to registry.Version) (p Part, found bool) {
	var out strings.Builder
	included := false
	// level is that of the last heading of a version. A deeper heading with a
	// version can be of a change, such as one for the release of a provider.
	level, fence := 0, ""
	lines := strings.Split(highlight.Visible(text), "\n")
	for i, line := range lines {
		marks := fenceOf(line)
		switch {
		case fence != "":
			if strings.HasPrefix(marks, fence) {
				fence = ""
			}
		case marks != "":
			fence = marks
		default:
			if h, ok := headingAt(lines, i); ok {
				version, named := versionOf(h.title)
				switch {
				case named && (level == 0 || h.level <= level || h.level == level+1 && isAlone(h.title)):
					included, level = isBetween(version, from, to), h.level
				case h.level < level || unreleased.MatchString(h.title):
					included, level = false, 0
				}
			}
		}
		if !included {
			continue
		}
		if p.Line == 0 {
			p.Line = i + 1
		}
		if out.Len()+len(line)+1 > MaxSize {
			p.Cut = true
			if out.Len() == 0 {
				out.WriteString(strings.ToValidUTF8(line[:MaxSize-1], ""))
			}
			break
		}
		out.WriteString(line + "\n")
	}
	p.Text = strings.TrimSpace(links.ReplaceAllString(out.String(), ""))
	return p, p.Text != ""
}

func isBetween(version, from, to registry.Version) bool {
	return registry.CompareVersions(version, from) > 0 && registry.CompareVersions(version, to) <= 0
}

// heading is a heading of Markdown.
type heading struct {
	level int
	title string
}

// headingAt returns the heading that begins in a line. It can be underlined.
func headingAt(lines []string, i int) (heading, bool) {
	title := strings.TrimLeft(lines[i], "#")
	level := len(lines[i]) - len(title)
	switch {
	case level > 0:
		return heading{level, strings.TrimSpace(title)}, level <= 6 && (title == "" || title[0] == ' ' || title[0] == '\t')
	case i+1 == len(lines) || strings.TrimSpace(title) == "":
		return heading{}, false
	}
	switch line := strings.TrimRight(lines[i+1], " \t"); {
	case len(line) < 3:
		return heading{}, false
	case strings.Trim(line, "=") == "":
		return heading{1, strings.TrimSpace(title)}, true
	case strings.Trim(line, "-") == "":
		return heading{2, strings.TrimSpace(title)}, true
	}
	return heading{}, false
}

// fenceOf returns the marks with which a line begins or ends a block of code.
// It is empty if it does neither.
func fenceOf(line string) string {
	line = strings.TrimLeft(line, " \t")
	for _, mark := range []string{"`", "~"} {
		if rest := strings.TrimLeft(line, mark); len(line)-len(rest) >= 3 && !strings.Contains(rest, mark) {
			return line[:len(line)-len(rest)]
		}
	}
	return ""
}

var (
	// versioned is a heading that begins with a version, except for marks and
	// words of tools.
	versioned = regexp.MustCompile("(?i)^(?:version|release)?[\\s:*_`<\\[(]*v?" +
		`(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?(?:-[0-9a-z][0-9a-z.-]*)?(?:\+[0-9a-z.-]+)?)(?:[\s:*_>\])/,(` + "`" + `—–-]|$)`)
	// dated is what can follow the version in a heading that has nothing else.
	dated      = regexp.MustCompile(`(?i)^[^\pL]*(?:(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[^\pL]*)?$`)
	unreleased = regexp.MustCompile(`(?i)^\[?(?:unreleased|upcoming|next)\b`)
	// links are the definitions of links at the end of a text.
	links = regexp.MustCompile(`(?:\n\[[^\]\n]+\]: [^\n]*|\n[ \t]*)+\s*$`)
)

// versionOf returns the version with which the title of a section begins.
func versionOf(title string) (v registry.Version, ok bool) {
	found := versioned.FindStringSubmatch(title)
	if found == nil {
		return v, false
	}
	v, err := registry.ParseVersion(found[1])
	return v, err == nil
}

// isAlone reports whether a title has only a version, which can have a link and
// a date.
func isAlone(title string) bool {
	title = linked.ReplaceAllString(title, "$1")
	return dated.MatchString(strings.TrimPrefix(title, versioned.FindString(title)))
}
