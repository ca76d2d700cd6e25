// Package contexts reads and writes a user's file of contexts, which are names
// for registries. One of them is the current context. The file has no
// credentials.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/jsonfile"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// Context is a registry, given by its store or its URL.
type Context struct {
	// Store is the absolute path of a folder, or stack:NAME.
	Store string `json:"store,omitempty"`
	// Registry is https://HOST.
	Registry string `json:"registry,omitempty"`
}

// Target returns the field that is set.
func (c Context) Target() string {
	if c.Registry != "" {
		return c.Registry
	}
	return c.Store
}

// File is the content of the file. The zero value is that of a missing file.
type File struct {
	// Current is the name of the current context. It is empty if there is none.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// Names returns the names of all contexts, sorted.
func (f File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// ErrNoFolder means that the platform has no folder for configuration, for
// example because the user has no home folder.
var ErrNoFolder = errors.New("there is no configuration folder")

// Path returns the path of the file. It is larder/config.json in the platform's
// configuration folder, such as ~/.config or ~/Library/Application Support. If
// there is no such folder, it returns [ErrNoFolder].
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil && os.Getenv("XDG_CONFIG_HOME") != "" {
		return "", fmt.Errorf("cannot find the contexts: %w XDG_CONFIG_HOME: it is not an absolute path",
			registry.ErrInvalid)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the contexts: %w", ErrNoFolder)
	}
	return filepath.Join(dir, "larder", "config.json"), nil
}

// name matches the valid names of contexts.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckName returns [registry.ErrInvalid] if a name is not valid for a context.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%w context name %.100q: it must have up to 64 letters, digits and . _ -",
			registry.ErrInvalid, s)
	}
	return nil
}

// Read reads the file at a path. If there is none, it returns the zero File.
// The current context may be missing from the file. If the file is not valid,
// Read returns [registry.ErrInvalid] with the line and the column.
func Read(path string) (f File, err error) {
	err = readWith(path, func(file *jsonfile.File) (err error) {
		f, err = parse(file)
		return err
	})
	return f, err
}

// Find returns one context of the file at a path, or false if the file does not
// have it. It returns the errors of [Read], but ignores mistakes in other
// contexts.
func Find(path, name string) (c Context, found bool, err error) {
	err = readWith(path, func(file *jsonfile.File) error {
		all := file.Object.Find("contexts")
		for _, m := range all.Members {
			if found = m.Key == name && all.Offset != file.Object.Offset; !found {
				continue
			}
			if wrong := m.Value.Fill("contexts."+name, &c); wrong != nil {
				return file.Error(*wrong)
			}
			return check(file, name, c)
		}
		return nil
	})
	if err != nil {
		return Context{}, false, err
	}
	return c, found, nil
}

// readWith calls do with the file at a path, if there is one.
func readWith(path string, do func(*jsonfile.File) error) error {
	text, err := textfile.Read(path, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var file *jsonfile.File
	if err == nil {
		file, err = jsonfile.Parse(path, text)
	}
	if err == nil {
		err = do(file)
	}
	if err == nil {
		return nil
	}
	if _, placed := errors.AsType[*jsonfile.Error](err); placed {
		return fmt.Errorf("cannot read the contexts: %w", err)
	}
	return fmt.Errorf("cannot read the contexts in %s: %w", path, err)
}

func parse(file *jsonfile.File) (f File, err error) {
	if wrong := file.Object.Fill("", &f); wrong != nil {
		return File{}, file.Error(*wrong)
	}
	for _, name := range f.Names() {
		if err := check(file, name, f.Contexts[name]); err != nil {
			return File{}, err
		}
	}
	return f, nil
}

func check(file *jsonfile.File, name string, c Context) error {
	wrong := func(text string, at ...any) error {
		return file.Error(jsonfile.Fault{Offset: file.Object.Find(at...).Offset, Text: text})
	}
	switch err := CheckName(name); {
	case err != nil:
		return wrong(err.Error(), "contexts", name)
	case c.Store != "" && c.Registry != "":
		return wrong("context "+name+" has both a store and a registry", "contexts", name)
	case c.Target() == "":
		return wrong("context "+name+" has neither a store nor a registry", "contexts", name)
	case strings.ContainsAny(c.Registry, "@?#"):
		return wrong("the registry of context "+name+" is not of the form https://HOST", "contexts", name, "registry")
	}
	return nil
}

// Write writes the file at a path atomically, and makes its folder.
func (f File) Write(path string) error {
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = textfile.Replace(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot write the contexts to %s: %w", path, err)
	}
	return nil
}
