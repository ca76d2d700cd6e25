package web

import (
	"fmt"
	"html/template"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
)

// maxExample bounds the code on the page of an example, in bytes.
const maxExample = 64 << 10

// example is the code of an example.
type example struct {
	Files []codeFile
	// More are the files of the example that its page does not show.
	More []folderLink
	// Source is what replaces paths to the module. It is empty if nothing does.
	Source string
	// Elsewhere means that the code uses the module from another registry or from
	// its repository.
	Elsewhere bool
}

// codeFile is a file of an example. Text has the source of the module.
type codeFile struct {
	Name, Path, Text string
	HTML             template.HTML
}

// example returns the code of an example. Without stored files, that is empty.
func (h *handler) example(v *visit, m *moduleVersion, f docs.Folder) (*example, error) {
	files, err := h.readFiles(v.Context(), m)
	if err != nil || files == nil {
		return &example{}, err
	}
	var e example
	var more []docs.SourceFile
	room := int64(maxExample)
	for _, file := range files.Files {
		name, found := strings.CutPrefix(file.Path, f.Path+"/")
		isReadme := strings.EqualFold(name, "README.md") && f.Readme != ""
		switch {
		case !found || isReadme:
			continue
		case file.Kind != docs.FileText || strings.Contains(name, "/") || file.Size > room:
			more = append(more, file)
			continue
		}
		room -= file.Size
		_, data, err := stored.File(files, file.Path)
		if err != nil {
			return nil, err
		}
		text := strings.ToValidUTF8(string(data), "\uFFFD")
		if !m.record().Hidden { // or clients could not install it
			called := m.callable(f, file.Path, text)
			if called != text {
				e.Source, text = m.source, called
			}
		}
		e.Elsewhere = e.Elsewhere || m.isElsewhere(text)
		shown := codeFile{Name: name, Path: m.pathOfFile(file.Path), Text: text}
		if !isMarkdown(v.Request) {
			shown.HTML = finished(codeOf(name, text))
		}
		e.Files = append(e.Files, shown)
	}
	if i := slices.IndexFunc(e.Files, func(c codeFile) bool { return c.Name == "main.tf" }); i > 0 {
		first := e.Files[i]
		e.Files = slices.Insert(slices.Delete(e.Files, i, i+1), 0, first)
	}
	e.More = m.linksTo(more)
	return &e, nil
}

var (
	// sourceLine matches a local source in a line of its own.
	sourceLine = regexp.MustCompile(`^([ \t]*)source([ \t]*)=[ \t]*"(\.[^"\\]*)"`)
	// callLine matches a block that has only a local source, in one line.
	callLine = regexp.MustCompile(`^([ \t]*module[ \t]+"[^"]*"[ \t]*\{)[ \t]*source[ \t]*=[ \t]*"(\.[^"\\]*)"[ \t]*\}`)
)

// callable returns a file of an example with the address and the version of the
// module in place of paths to it. So it works outside of the module.
func (m *moduleVersion) callable(f docs.Folder, file, text string) string {
	calls := make(map[int]docs.Dependency) // by line
	for _, d := range f.Dependencies {
		if d.File == file && strings.HasPrefix(d.Source, ".") {
			calls[d.Line-1] = d
		}
	}
	lines := strings.Split(text, "\n")
	var call docs.Dependency // of which the source is still to come
	for i, line := range lines {
		if begun, found := calls[i]; found {
			call = begun
		}
		if call.Source == "" {
			continue
		}
		replaced := m.called(file, line, call.Source)
		if replaced != line || strings.HasPrefix(line, "}") {
			lines[i], call = replaced, docs.Dependency{}
		}
	}
	return strings.Join(lines, "\n")
}

// called returns a line of a module block with the address and the version in place
// of a local source. It returns the line itself if it has another source.
func (m *moduleVersion) called(file, line, source string) string {
	address, number := m.source, m.Number.String()
	switch target := relativePath(path.Dir(file), source); target {
	case ".":
	case "":
		return line
	default:
		address += "//" + target
	}
	if at := callLine.FindStringSubmatch(line); at != nil && at[2] == source {
		return fmt.Sprintf("%s\n  source  = %q\n  version = %q\n}%s", at[1], address, number, line[len(at[0]):])
	}
	at := sourceLine.FindStringSubmatch(line)
	if at == nil || at[3] != source {
		return line
	}
	space, rest := strings.Repeat(" ", max(len(at[2])-1, 1)), line[len(at[0]):]
	first := fmt.Sprintf("%ssource%s = %q", at[1], space, address)
	second := fmt.Sprintf("%sversion%s= %q", at[1], space, number)
	if strings.Contains(rest, "/*") { // the comment can continue in the next line
		first, second = second, first
		return first + "\n" + second + rest
	}
	return first + rest + "\n" + second
}
