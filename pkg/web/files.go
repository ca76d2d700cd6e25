package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// filesKind begins the part of a version with its files.
const filesKind = "files"

// The limits of paths and of files on a page.
const (
	maxFilePath  = 512 // bytes; the version's path has room beside it
	maxFileLines = 10_000
)

// filesPage is the model of the list of the files of a version, and of one file.
type filesPage struct {
	Head  head
	Files []folderLink
	Notes []string
	// File is the path of the file that the page shows, and Raw the path of its
	// content. Raw is empty if it is not stored.
	File, Raw string
	// IsImage means that the page shows the content as an image.
	IsImage bool
	// Code is a text with a link for each line, and Text the text itself. Cut is
	// the number of lines that are not in Code.
	Code template.HTML
	Text string
	Cut  int
}

// restOf returns what follows the version in the path of the page of a part. The
// name of a file can have characters that no path may have.
func restOf(part string) string {
	name, isFile := strings.CutPrefix(part, filesKind+"/")
	plain := errs.IsPlain(name) && len(name) <= maxFilePath && "/"+name == path.Clean("/"+name)
	switch {
	case part == "":
		return ""
	case isFile && !plain:
		return "/" + filesKind + "?path=" + url.QueryEscape(name)
	}
	return "/" + part
}

// pathOfFile returns the path of the page of a file.
func (m *moduleVersion) pathOfFile(name string) string { return m.root() + restOf(filesKind+"/"+name) }

// placeOf returns a link to a line of a file. It has no URL if the files are not
// stored.
func (m *moduleVersion) placeOf(p docs.Place) link {
	if m.record().FilesZip == nil || p.File == "" {
		return link{}
	}
	if m.placed.Text != p.File { // most blocks are in the file of the one before
		m.placed = link{p.File, m.pathOfFile(p.File)}
	}
	line := strconv.Itoa(p.Line)
	return link{path.Base(p.File) + ":" + line, m.placed.URL + "#L" + line}
}

// from returns the link relative to the page of a visit, if that is shorter.
func (l link) from(v *visit) link {
	folder := v.URL.Path[:strings.LastIndexByte(v.URL.Path, '/')+1]
	l.URL = strings.TrimPrefix(l.URL, folder)
	return l
}

// readFiles reads the files of a version. It returns nil if they are not stored
// or damaged, and logs the damage.
func (h *handler) readFiles(ctx context.Context, m *moduleVersion) (*docs.Files, error) {
	file := m.record().FilesZip
	if file == nil {
		return nil, nil //nolint:nilnil // documented above
	}
	files, err := h.files.Read(ctx, *file)
	if errors.Is(err, stored.ErrDamaged) {
		logDamage(ctx, fmt.Errorf("files of %s: %w", m.title, err))
		return nil, nil //nolint:nilnil // documented above
	}
	return files, err
}

// filesPage returns the list of the files of a version, or one of them. With the
// query raw, it returns the content of the file.
func (h *handler) filesPage(v *visit, m *moduleVersion, part string) (page, error) {
	files, err := h.readFiles(v.Context(), m)
	if err != nil {
		return page{}, err
	}
	name, isFile := strings.CutPrefix(part, filesKind+"/")
	p := page{template: "files", title: m.titleOf(part), canonical: m.pathOf(m.Number)}
	if !isFile {
		p.model = m.listFiles(files)
		return p, nil
	}
	if v.URL.Query().Has("raw") {
		f, data, err := stored.File(files, name)
		p.respond = func(w http.ResponseWriter) {
			w.Header().Add("Vary", "Cookie")
			httpapi.WriteFile(w, f.MediaType(), data)
		}
		return p, err
	}
	p.model, err = m.showFile(v, files, name)
	p.markdown = m.root() + "/" + filesKind + ".md?path=" + url.QueryEscape(name)
	return p, err
}

func (m *moduleVersion) listFiles(files *docs.Files) filesPage {
	if files == nil {
		return filesPage{Head: m.top, Notes: []string{"The files of this version are not stored."}}
	}
	all := slices.Clone(files.Files)
	depth := func(f docs.SourceFile) int { return min(strings.Count(f.Path, "/"), 1) }
	slices.SortStableFunc(all, func(a, b docs.SourceFile) int { return depth(a) - depth(b) }) // main.tf before .github/
	return filesPage{Head: m.top, Files: m.linksTo(all), Notes: files.Notes}
}

// linksTo returns links to the pages of files.
func (m *moduleVersion) linksTo(files []docs.SourceFile) []folderLink {
	links := make([]folderLink, len(files))
	for i, f := range files {
		links[i] = folderLink{f.Path, m.pathOfFile(f.Path), summaryOf(f)}
	}
	return links
}

func summaryOf(f docs.SourceFile) string {
	if f.Kind == docs.FileText {
		return plural(f.Lines, "line") + ", " + size(f.Size)
	}
	return size(f.Size)
}

// showFile returns the page of a file. The error is registry.ErrNotFound if the
// version has no such file.
func (m *moduleVersion) showFile(v *visit, files *docs.Files, name string) (filesPage, error) {
	p := filesPage{Head: m.top, File: name}
	f, data, err := stored.File(files, name)
	if errors.Is(err, registry.ErrNotFound) && files != nil {
		i := slices.IndexFunc(files.Files, func(f docs.SourceFile) bool { return f.Path == name })
		if i >= 0 {
			f, err = files.Files[i], nil
		}
	}
	if err != nil {
		return p, err
	}
	p.Head.Facts = append(p.Head.Facts, field{Label: "Size", Value: link{Text: summaryOf(f)}})
	switch f.Kind {
	case docs.FileOther:
		p.Notes = []string{"Only the name and the size of this file are stored."}
		return p, nil
	case docs.FileImage:
		p.IsImage = true
	}
	p.Raw = rawPath(m.pathOfFile(name))
	if f.Kind != docs.FileText {
		return p, nil
	}
	p.Text = strings.ToValidUTF8(string(data), "\uFFFD")
	if isMarkdown(v.Request) {
		return p, nil
	}
	lines := splitLines(codeOf(name, p.Text))
	p.Cut = max(len(lines)-maxFileLines, 0)
	p.Code = numberedLines(lines[:len(lines)-p.Cut])
	return p, nil
}

// rawPath returns the path of the content of a file from that of its page.
func rawPath(path string) string {
	if strings.Contains(path, "?") {
		return path + "&raw"
	}
	return path + "?raw"
}

// numberedLines returns lines of code with a link for each. The style sheet writes the
// numbers, so nobody copies them with the code.
func numberedLines(lines []string) template.HTML {
	var out strings.Builder
	for i, line := range lines {
		n := strconv.Itoa(i + 1)
		out.WriteString("<span id=L" + n + "><a tabindex=-1 href=#L" + n + ` aria-label="Line ` + n + `"></a>` + line + "\n</span>")
	}
	return finished(out.String())
}

// codeOf returns a text of a module as HTML.
func codeOf(name, text string) string {
	return highlight.Code(strings.TrimPrefix(path.Ext(name), "."), strings.TrimSuffix(text, "\n"))
}
