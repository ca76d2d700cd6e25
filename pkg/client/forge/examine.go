package forge

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

const (
	// maxAttributes bounds a file .gitattributes, in bytes.
	maxAttributes = 64 << 10
	// maxNamed bounds the names in one note.
	maxNamed = 3
	// maxPointer bounds a pointer of Git LFS, in bytes.
	maxPointer = 1 << 10
)

// Examine examines the files of a commit, from the archive of a forge or from a
// checkout of Git. dir has all of them and the empty folders, without a folder
// around them. The module is in folder, or in the root if that is empty.
//
// Clients clone the repository, and then run `git submodule update --init
// --recursive`. Examine returns registry.ErrInvalid if they would get a module
// with more folders. It returns notes if they can get other files. In an archive, it
// cannot notice what a file .gitattributes excludes if that file excludes itself.
//
// It follows no links. The caller bounds the number of files.
func Examine(dir, folder string, isArchive bool) (notes []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	e := examination{
		files: root.FS(), module: strings.Trim(folder, "/"), isArchive: isArchive,
		ignored:     attribute{names: map[string]bool{"export-ignore": true}},
		substituted: attribute{names: map[string]bool{"export-subst": true}},
	}
	err = fs.WalkDir(e.files, ".", e.visit)
	e.leave("")
	if err != nil {
		return nil, err
	}
	if e.within.named != nil {
		return nil, registry.WithHint(fmt.Errorf("%w commit: %s is a submodule, whose files are not in the commit",
			registry.ErrInvalid, e.within.named[0]),
			"Clone the repository with its submodules, and publish the module as one of your own.")
	}
	if info, err := fs.Lstat(e.files, path.Clean(e.module)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w location of the module: there is no folder %s in the commit",
			registry.ErrInvalid, printable.Mark(e.module, 200))
	}
	for _, found := range []struct {
		text  string
		names list
	}{
		{"it lacks submodules outside the module's folder: ", e.outside},
		{"the forge's archive lacks files that .gitattributes excludes with export-ignore: ", e.ignored.patterns},
		{"the forge's archive has other contents of files with export-subst in .gitattributes: ", e.substituted.patterns},
		{"these files are pointers of Git LFS, without their content: ", e.pointers},
	} {
		if found.names.named != nil {
			notes = append(notes, found.text+found.names.String())
		}
	}
	return notes, nil
}

// list is a list of names, of which the first are stored.
type list struct {
	named []string
	more  int
}

func (l *list) add(name string) {
	if len(l.named) == maxNamed {
		l.more++
		return
	}
	l.named = append(l.named, printable.Mark(name, 200))
}

func (l *list) String() string {
	text := strings.Join(l.named, ", ")
	if l.more > 0 {
		text += fmt.Sprintf(" and %d more", l.more)
	}
	return text
}

type examination struct {
	files     fs.FS
	module    string // the module's folder
	isArchive bool   // and not a checkout
	last      string // the folder that was visited last, if nothing in it was visited

	within, outside, pointers list
	ignored, substituted      attribute
}

// attribute is an attribute of Git that changes archives.
type attribute struct {
	names    map[string]bool // its own, and those of macros that set it
	patterns list
}

// visit examines a file or a folder.
func (e *examination) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil || name == "." {
		return err
	}
	e.leave(name)
	switch {
	case entry.IsDir():
		e.last = name
		return nil
	case !entry.Type().IsRegular():
		return nil
	case e.isArchive && path.Base(name) == ".gitattributes":
		return e.attributes(name)
	case !isIn(name, e.module):
		return nil
	}
	info, err := entry.Info()
	if err != nil || info.Size() > maxPointer {
		return err
	}
	content, err := fs.ReadFile(e.files, name)
	if strings.HasPrefix(string(content), "version https://git-lfs.github.com/spec/v1") {
		e.pointers.add(name)
	}
	return err
}

// leave notes a submodule if the last folder is empty, which the next name
// shows. A commit has an empty folder only for a submodule, also if
// the file .gitmodules is excluded.
func (e *examination) leave(next string) {
	switch {
	case e.last == "" || strings.HasPrefix(next, e.last+"/"):
	case isIn(e.last, e.module) || isIn(e.module, e.last):
		e.within.add(e.last)
	default:
		e.outside.add(e.last)
	}
	e.last = ""
}

// isIn reports whether a path is a folder or in it.
func isIn(name, folder string) bool {
	return folder == "" || name == folder || strings.HasPrefix(name, folder+"/")
}

// attributes notes the patterns in a file .gitattributes that can match files
// of the module.
//
// Source: https://git-scm.com/docs/gitattributes.
func (e *examination) attributes(name string) error {
	file, err := e.files.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxAttributes))
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		end := strings.IndexAny(line, " \t")
		if strings.HasPrefix(line, `"`) {
			end = strings.LastIndexByte(line, '"') + 1
		}
		if end <= 0 || line[0] == '#' {
			continue
		}
		pattern := strings.Trim(line[:end], `"`)
		macro, isMacro := strings.CutPrefix(pattern, "[attr]")
		for _, a := range []*attribute{&e.ignored, &e.substituted} {
			isSet := slices.ContainsFunc(strings.Fields(line[end:]), func(name string) bool { return a.names[name] })
			switch {
			case !isSet:
			case isMacro && name == ".gitattributes": // Git ignores macros in other folders
				a.names[macro] = true
			case !isMacro && e.mayMatch(path.Dir(name), pattern):
				a.patterns.add(pattern)
			}
		}
	}
	return err
}

// mayMatch reports whether a pattern in the attributes of a folder can match
// files of the module.
func (e *examination) mayMatch(folder, pattern string) bool {
	// A pattern with a slash before its end is relative to the folder.
	if plain := strings.TrimSuffix(pattern, "/"); strings.Contains(plain, "/") {
		if wild := strings.IndexAny(plain, `*?[\`); wild >= 0 {
			plain = plain[:strings.LastIndexByte(plain[:wild], '/')+1]
		}
		folder = path.Join(folder, plain)
	}
	folder = strings.Trim(path.Clean("/"+folder), "/")
	return isIn(folder, e.module) || isIn(e.module, folder)
}
