package web

import (
	"html/template"
	"regexp"
	"strings"
)

// Package render writes the HTML of READMEs in one form, so that these
// expressions find what they should.
var (
	// folderLinks matches links to folders, which have no destination yet.
	folderLinks = regexp.MustCompile(`<a data-folder="((?:modules|examples)/[A-Za-z0-9._-]+)"`)
	// scrolling makes tables scroll by themselves, also by keyboard.
	scrolling = strings.NewReplacer(
		"<table>", `<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>`, "</table>", "</table></div>",
	)
)

// readme returns a part of a README as finished HTML. Links to folders of the
// version lead to their pages.
func (m *moduleVersion) readme(part string) template.HTML {
	return finished(strings.TrimSpace(scrolling.Replace(m.link(part))))
}

// link returns HTML in which links to folders lead to their pages. Links to
// folders that the version lacks become text.
func (m *moduleVersion) link(text string) string {
	return folderLinks.ReplaceAllStringFunc(text, func(match string) string {
		path := folderLinks.FindStringSubmatch(match)[1]
		page := m.pathOfFolder(path)
		if _, err := m.folder(path); err != nil || page == "" {
			return "<a"
		}
		return `<a href="` + template.HTMLEscapeString(page) + `"`
	})
}
