// Package place finds the registry of a command, and opens it: a folder, a stack
// or a URL.
package place

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// The default registry, and the variables that name another one.
const (
	DefaultFolder    = "./larder-data"
	StoreVariable    = "LARDER_STORE"
	RegistryVariable = "LARDER_REGISTRY"
	ContextVariable  = "LARDER_CONTEXT"
)

// Place identifies the registry of a command. One of Dir, Stack and Host is
// set.
type Place struct {
	// Name is the value for --store or --registry: FOLDER, stack:NAME,
	// https://HOST.
	Name string
	// From is the flag, the variable or the context that names the registry. It
	// may be empty.
	From string
	// Dir is the folder of a registry on this machine.
	Dir string
	// Stack is the name of the stack of a deployed registry.
	Stack string
	// Host is the host of a registry that the command sends requests to, in the
	// form that people write.
	Host string
	// Context is the name of the context, if a context names the registry.
	Context string
	// Gone is the name of the current context if the file has no such context.
	Gone string
}

// String returns the name, and the flag, variable or context that it comes
// from.
func (p Place) String() string {
	if p.From == "" {
		return p.Name
	}
	return fmt.Sprintf("%s (%s)", p.Name, p.From)
}

// Fields returns the field of JSON objects that names the registry, or nil without one.
func (p Place) Fields() any {
	switch {
	case p.Name == "":
		return nil
	case p.Dir != "":
		p.Name = Folder(Absolute(p.Dir)).Name
	}
	return map[string]string{"registry": p.Name}
}

// ParseStore parses a store: FOLDER, dir:FOLDER or stack:NAME.
func ParseStore(s string) (Place, error) {
	kind, rest, found := strings.Cut(s, ":")
	switch {
	case s == "" || found && rest == "":
		return Place{}, registry.WithHint(arguments.Errorf("the store%s has no name", arguments.InError(s)), "%s", StoreForms)
	case IsURL(s):
		return Place{}, registry.WithHint(arguments.Errorf("the store%s is a URL", arguments.InError(s)),
			"Use --registry for the URL of a registry.")
	case kind == "stack":
		return Place{Name: s, Stack: rest}, nil
	case kind == "dir":
		s = rest
	case found && len(kind) > 1 && !strings.ContainsAny(kind, `./\~`): // C: is a drive on Windows
		err := arguments.Errorf("the store%s has an unknown kind", arguments.InError(s))
		if near, ok := suggest.Nearest(kind, []string{"stack", "dir"}); ok {
			return Place{}, registry.WithHint(err, "Did you mean %s:? %s", near, StoreForms)
		}
		return Place{}, registry.WithHint(err, "%s", StoreForms)
	}
	dir, err := expandHome(s)
	return Folder(dir), err
}

// Folder returns the registry in a folder of this machine.
func Folder(dir string) Place {
	p := Place{Name: dir, Dir: dir}
	if kind, _, found := strings.Cut(dir, ":"); found && len(kind) > 1 {
		p.Name = "dir:" + dir
	}
	return p
}

// Absolute returns the absolute path, or path itself if there is an error.
func Absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// FlagFor returns the flag that takes a word if it can only be a registry: a URL,
// stack:NAME, or a folder such as ./larder-data. It is empty for other words.
func FlagFor(word string) string {
	switch {
	case IsURL(word):
		return "registry"
	case strings.HasPrefix(word, "stack:"), strings.HasPrefix(word, "."), filepath.IsAbs(word):
		return "store"
	}
	return ""
}

// IsURL reports whether a word is a URL.
func IsURL(s string) bool { return strings.Contains(s, "://") }

// StoreForms describes how to name a store.
const StoreForms = "A store is a folder, such as " + DefaultFolder + ", or stack:NAME for a deployed registry."

// expandHome replaces ~ at the beginning of a path. Shells do not expand it
// after dir:.
func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", arguments.Errorf("cannot use the folder %s: %w", path, err)
	}
	return filepath.Join(home, rest), nil
}

// ParseRegistry parses the URL of a registry, https://HOST.
func ParseRegistry(s string) (Place, error) {
	host, err := registryHost(s)
	return Place{Name: "https://" + host, Host: host}, err
}

// registryHost returns the host in the URL of a registry, https://HOST, in the
// form that people write.
func registryHost(url string) (string, error) {
	bare := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/")
	host, err := registry.ParseHost(bare)
	if err == nil {
		return host.Display(), nil
	}
	_, port, _ := net.SplitHostPort(bare)
	_, notNumber := strconv.ParseUint(port, 10, 16)
	switch {
	case strings.HasPrefix(strings.ToLower(url), "http://"):
		err = errors.New("clients use only https")
	case errors.Is(notNumber, strconv.ErrRange):
		err = fmt.Errorf("a port is at most %d", math.MaxUint16)
	default:
		err = errors.New("it must be https://HOST[:PORT]")
	}
	return "", registry.WithHint(arguments.Errorf("cannot use the registry%s: %w", arguments.InError(url), err),
		"Examples are https://registry.example.com and https://127.0.0.1:8443.")
}
