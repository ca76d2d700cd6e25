package web

import (
	"context"
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
}

// codeFile is a file of an example. Text has the source of the module.
type codeFile struct {
	Name, Path, Text string
	HTML             template.HTML
}

// example returns the code of an example. Without stored files, that is empty.
func (h *handler) example(ctx context.Context, m *moduleVersion, f docs.Folder) (*example, error) {
	files, err := h.readFiles(ctx, m)
	if err != nil || files == nil {
		return &example{}, err
	}
	var e example
	var more []docs.SourceFile
	room := int64(maxExample)
	for _, file := range files.Files {
		name, found := strings.CutPrefix(file.Path, f.Path+"/")
		isReadme := name == "README.md" && f.Readme != ""
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
		if called := m.callable(f, file.Path, text); called != text && !m.record().Hidden {
			e.Source, text = m.source, called
		}
		e.Files = append(e.Files, codeFile{
			name, m.root() + restOf(filesKind+"/"+file.Path), text, finished(codeOf(name, text)),
		})
	}
	slices.SortStableFunc(e.Files, func(a, b codeFile) int {
		return map[string]int{"main.tf": -1}[a.Name] - map[string]int{"main.tf": -1}[b.Name]
	})
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
	lines := strings.Split(text, "\n")
	for _, d := range f.Dependencies {
		source := m.source
		target := relativePath(path.Dir(file), d.Source)
		if strings.HasPrefix(target, "modules/") {
			source += "//" + target
		} else if target != "." {
			continue
		}
		if d.File != file || !strings.HasPrefix(d.Source, ".") {
			continue
		}
		number := m.Number.String()
		for i := max(d.Line-1, 0); i < len(lines); i++ {
			line := lines[i]
			if at := callLine.FindStringSubmatch(line); at != nil && at[2] == d.Source {
				call := fmt.Sprintf("%s\n  source  = %q\n  version = %q\n}", at[1], source, number)
				lines[i] = call + line[len(at[0]):]
				break
			}
			if at := sourceLine.FindStringSubmatch(line); at != nil && at[3] == d.Source {
				space := strings.Repeat(" ", max(len(at[2])-1, 1))
				lines[i] = fmt.Sprintf("%ssource%s = %q%s\n%sversion%s= %q",
					at[1], space, source, line[len(at[0]):], at[1], space, number)
				break
			}
			if strings.HasPrefix(line, "}") {
				break
			}
		}
	}
	return strings.Join(lines, "\n")
}
