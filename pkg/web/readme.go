package web

import (
	"html/template"
	"regexp"
	"strings"
)

// Package render writes the HTML of READMEs in one form, so that these
// expressions find what they should.
var (
	// incomplete matches attributes of links and images without a destination.
	incomplete = regexp.MustCompile(` data-(folder|file|image)="([^"]*)"`)
	// scrolling makes tables scroll by themselves, also by keyboard.
	scrolling = strings.NewReplacer(
		"<table>", `<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>`, "</table>", "</table></div>",
	)
)

// readme returns a part of a README as finished HTML, with the paths of folders
// and files of the version. Without one, a link becomes text, and an image its
// alternative text.
func (m *moduleVersion) readme(part string) template.HTML {
	part = incomplete.ReplaceAllStringFunc(part, func(match string) string {
		found := incomplete.FindStringSubmatch(match)
		name, anchor, _ := strings.Cut(found[2], "#")
		target, attribute := "", "href"
		switch kind := found[1]; {
		case kind == "folder" && name == ".":
			target = m.root()
		case kind == "folder":
			if _, err := m.folder(name); err == nil {
				target = m.pathOfFolder(name)
			}
		case m.record().FilesZip == nil:
		case strings.HasSuffix(name, "/"):
			target = m.root() + "/" + filesKind
		case kind == "file":
			target = m.pathOfFile(name)
		default:
			target, attribute = rawPath(m.pathOfFile(name)), "src"
		}
		if target == "" {
			return ""
		}
		if anchor != "" {
			target += "#" + anchor
		}
		return " " + attribute + `="` + template.HTMLEscapeString(target) + `"`
	})
	return finished(strings.TrimSpace(scrolling.Replace(part)))
}
