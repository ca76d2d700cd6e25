// Package contexts reads and writes the file in which a person keeps names for
// registries, and which of them is the current one. The file has no credentials.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/jsonfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// Context names a registry: by the store where it keeps its data, or by its URL.
type Context struct {
	// Store is a folder, by its absolute path, or stack:NAME.
	Store string `json:"store,omitempty"`
	// Registry is https://HOST.
	Registry string `json:"registry,omitempty"`
}

// Target is the one of the two that is set.
func (c Context) Target() string {
	if c.Registry != "" {
		return c.Registry
	}
	return c.Store
}

// File is the content of the file. Its zero value is that of a file which does
// not exist.
type File struct {
	// Current is the name of the context in use; empty if there is none.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// Names returns the names of all contexts in order.
func (f File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// ErrNoFolder means that the platform names no folder for configuration, as for a
// user without a home.
var ErrNoFolder = errors.New("there is no folder for configuration")

// Path returns where the file is: larder/config.json in the folder where the
// platform keeps configuration, such as ~/.config or ~/Library/Application Support.
// Without such a folder it returns ErrNoFolder.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil && os.Getenv("XDG_CONFIG_HOME") != "" {
		return "", fmt.Errorf("cannot find the contexts: %w XDG_CONFIG_HOME: it is not an absolute path", registry.ErrInvalid)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the contexts: %w", ErrNoFolder)
	}
	return filepath.Join(dir, "larder", "config.json"), nil
}

// name is what a context may be called.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckName returns registry.ErrInvalid if a context cannot have a name.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%w context name %.100q: it must be up to 64 letters, digits and . _ -", registry.ErrInvalid, s)
	}
	return nil
}

// Read reads the file at a path. If there is none, it returns the zero File. The
// current context may be one that the file does not have. A file that cannot be
// used is registry.ErrInvalid, and the error has the line and the column.
func Read(path string) (f File, err error) {
	err = readWith(path, func(file *jsonfile.File) (err error) {
		f, err = parse(file)
		return err
	})
	return f, err
}

// Find returns one context of the file at a path, and false if the file does not
// have it. Errors are those of [Read], but other contexts may have mistakes.
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

// readWith does something with the file at a path, if there is one.
func readWith(path string, do func(*jsonfile.File) error) error {
	text, err := read(path)
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

func read(path string) ([]byte, error) {
	file, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("%w file: it has more than %d bytes", registry.ErrInvalid, maxSize)
	}
	return text, err
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

// check checks one context of a file.
func check(file *jsonfile.File, name string, c Context) error {
	wrong := func(text string, at ...any) error {
		return file.Error(jsonfile.Fault{Offset: file.Object.Find(at...).Offset, Text: text})
	}
	switch err := CheckName(name); {
	case err != nil:
		return wrong(err.Error(), "contexts", name)
	case c.Store != "" && c.Registry != "":
		return wrong("context "+name+" has a store and a registry, and must have one of them", "contexts", name)
	case c.Target() == "":
		return wrong("context "+name+" has no store and no registry", "contexts", name)
	case strings.ContainsAny(c.Registry, "@?#"):
		return wrong("the registry of context "+name+" has more than https://HOST", "contexts", name, "registry")
	}
	return nil
}

// Write writes the file at a path, whole or not at all, and makes its folder.
func (f File) Write(path string) error {
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = replace(path, append(text, '\n'))
	}
	// The rest names a temporary file.
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	if failed, ok := errors.AsType[*os.LinkError](err); ok {
		err = failed.Err
	}
	if err != nil {
		return fmt.Errorf("cannot write the contexts to %s: %w", path, registry.DiskFull(err))
	}
	return nil
}

func replace(path string, text []byte) error {
	// A link stays one: the file that it leads to is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".config-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // does nothing once it is renamed
	_, err = temporary.Write(text)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
