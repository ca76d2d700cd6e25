package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

const (
	defaultData     = "./larder-data"
	storeFromEnv    = "LARDER_STORE"
	registryFromEnv = "LARDER_REGISTRY"
	contextFromEnv  = "LARDER_CONTEXT"
)

// place identifies the registry of a command. One of dir, stack and host is
// set.
type place struct {
	// name is the value for --store or --registry: FOLDER, stack:NAME,
	// https://HOST.
	name string
	// from is the flag, the variable or the context that names the registry. It
	// may be empty.
	from string
	// dir is the folder of a registry on this machine.
	dir string
	// stack is the name of the stack of a deployed registry.
	stack string
	// host is the host of a registry that the command sends requests to, in the
	// form that people write.
	host string
	// context is the name of the context, if a context names the registry.
	context string
	// gone is the name of the current context if the file has no such context.
	gone string
}

// String returns the name, and the flag, variable or context that it comes
// from.
func (p place) String() string {
	if p.from == "" {
		return p.name
	}
	return fmt.Sprintf("%s (%s)", p.name, p.from)
}

// fields returns the field of JSON objects that names the registry, or nil without one.
func (p place) fields() any {
	switch {
	case p.name == "":
		return nil
	case p.dir != "":
		p.name = folder(absolute(p.dir)).name
	}
	return map[string]string{"registry": p.name}
}

// placeFlags has the flags that name a registry.
type placeFlags struct {
	store    string
	registry string
	context  string
}

func (f *finder) storeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.placeFlags.store, "store", "",
		"the registry's store: a `FOLDER` or stack:NAME (default "+defaultData+")")
	cmd.Flags().StringVar(&f.placeFlags.context, "context", "", "use the context `NAME` instead of the current one")
	cmd.Flags().StringVar(&f.placeFlags.registry, "registry", "", "")
	_ = cmd.Flags().MarkHidden("registry") // for an error that explains that the command needs a store
}

func (f *finder) registryFlags(cmd *cobra.Command) {
	f.storeFlags(cmd)
	flag := cmd.Flags().Lookup("registry")
	flag.Hidden = false
	flag.Usage = "use the registry at this `URL`, https://HOST[:PORT], with the clients' credentials"
	cmd.Flags().StringVar(&f.remote.audience, "audience", "",
		"`AUDIENCE` of the CI job's identity token (default https://HOST of the registry)")
	cmd.Flags().BoolVar(&f.remote.ciIdentity, "ci-identity", false,
		"use the CI job's identity even if there is another credential for the registry")
}

// place returns the registry of the command and stores it in f.about. Flags
// take precedence over environment variables, and these over the current
// context. The default is the folder ./larder-data.
func (f *finder) place() (place, error) {
	p, err := f.findPlace()
	if err == nil {
		f.about = p
	}
	return p, err
}

// repeatedFlags returns the flags of the command that name the registry. Each
// begins with a space, so that they can end a command that a hint suggests.
func (f *finder) repeatedFlags() string {
	var all strings.Builder
	for _, flag := range []struct{ name, value string }{
		{"store", f.placeFlags.store}, {"registry", f.placeFlags.registry}, {"context", f.placeFlags.context},
		{"audience", f.remote.audience},
	} {
		if f.flags.Changed(flag.name) {
			all.WriteString(" --" + flag.name + " " + quoted(flag.value))
		}
	}
	if f.flags.Changed("ci-identity") {
		all.WriteString(" --ci-identity")
	}
	return all.String()
}

// candidate is a flag or variable that can name a registry.
type candidate struct {
	from, value string
	parse       func(string) (place, error)
}

func (f *finder) findPlace() (place, error) {
	flags := f.given([]candidate{
		{"--store", f.placeFlags.store, parseStore},
		{"--registry", f.placeFlags.registry, parseRegistry},
		{"--context", f.placeFlags.context, f.contextNamed},
	}, func(i candidate) bool { return f.flags != nil && f.flags.Changed(strings.TrimPrefix(i.from, "--")) })
	environment := f.given([]candidate{
		{storeFromEnv, os.Getenv(storeFromEnv), parseStore},
		{registryFromEnv, os.Getenv(registryFromEnv), parseRegistry},
		{contextFromEnv, os.Getenv(contextFromEnv), f.contextNamed},
	}, func(i candidate) bool { return i.value != "" })
	for _, level := range [][]candidate{flags, environment} {
		switch len(level) {
		case 0:
			continue
		case 1:
			p, err := level[0].parse(level[0].value)
			if err != nil && level[0].from == "--store" && isURL(level[0].value) && f.needsStore() {
				err = registry.WithHint(usagef("this command needs the registry's store and not its URL"), "%s", f.storeHint())
			}
			if err != nil {
				return place{}, fmt.Errorf("%s: %w", level[0].from, err)
			}
			if p.from == "" {
				p.from = level[0].from
			} else if level[0].from == contextFromEnv {
				p.from += ", " + contextFromEnv
			}
			return p, nil
		}
		return place{}, registry.WithHint(
			usagef("%s and %s both name a registry", level[0].from, level[1].from), "Use only one of them.")
	}
	file, err := f.readContexts()
	if err != nil {
		return place{}, err
	}
	if _, ok := file.Contexts[file.Current]; ok {
		return contextNamed(file, file.Current)
	}
	p, err := parseStore(defaultData)
	p.from, p.gone = "default", file.Current
	if p.gone != "" {
		p.from += ", because the current context " + p.gone + " does not exist"
	}
	return p, err
}

// needsStore reports whether the command cannot use a registry's URL.
func (f *finder) needsStore() bool {
	flag := f.flags.Lookup("registry")
	return flag == nil || flag.Hidden
}

// given returns the candidates that have a value.
func (f *finder) given(all []candidate, is func(candidate) bool) []candidate {
	return slices.DeleteFunc(all, func(i candidate) bool { return !is(i) })
}

// contextNamed returns the registry of a context. Mistakes in other contexts do
// not matter.
func (f *finder) contextNamed(name string) (place, error) {
	if path, err := contexts.Path(); err == nil {
		found, ok, err := contexts.Find(path, name)
		if err != nil {
			return place{}, hintContexts(path, err)
		}
		if ok {
			return contextNamed(contexts.File{Contexts: map[string]contexts.Context{name: found}}, name)
		}
	}
	file, err := f.readContexts()
	if err != nil {
		return place{}, err
	}
	return contextNamed(file, name)
}

func contextNamed(file contexts.File, name string) (place, error) {
	found, ok := file.Contexts[name]
	if !ok {
		return place{}, noContext(file, name)
	}
	parse := parseStore
	if found.Registry != "" {
		parse = parseRegistry
	}
	p, err := parse(found.Target())
	if err != nil {
		return place{}, fmt.Errorf("context %s: %w", name, err)
	}
	p.from, p.context = "context "+name, name
	return p, nil
}

// noContext returns the error for a context that file does not have.
func noContext(file contexts.File, name string) error {
	err := usagef("there is no context%s", inError(name))
	names := file.Names()
	switch near, ok := suggest.Nearest(name, names); {
	case ok:
		return registry.WithHint(err, "Did you mean %s?", near)
	case len(names) == 1:
		return registry.WithHint(err, "The only context is %s.", names[0])
	case len(names) > 1:
		return registry.WithHint(err, "The contexts are %s.", strings.Join(names, ", "))
	case contexts.CheckName(name) != nil:
		return registry.WithHint(err, "Add one with `larder context add NAME STORE|URL`.")
	}
	return registry.WithHint(err, "Add it with `larder context add %s STORE|URL`.", name)
}

func (f *finder) storePlace() (place, error) {
	p, err := f.place()
	if err != nil || p.host == "" {
		return p, err
	}
	f.about = place{}
	err = usagef("this command needs the registry's store, but %s gives its URL, %s", p.from, p.name)
	return place{}, registry.WithHint(err, "%s", f.storeHint())
}

// storeHint suggests a store to use instead of a registry's URL.
func (f *finder) storeHint() string {
	file, err := f.readContexts()
	if err == nil {
		for _, name := range file.Names() {
			if file.Contexts[name].Store != "" {
				return fmt.Sprintf("Name a store, for example --context %s (%s) or --store stack:NAME.",
					name, file.Contexts[name].Store)
			}
		}
	}
	return "Name its store with --store, for example --store stack:larder or --store " + defaultData + "."
}

// parseStore parses a store: FOLDER, dir:FOLDER or stack:NAME.
func parseStore(s string) (place, error) {
	kind, rest, found := strings.Cut(s, ":")
	switch {
	case s == "" || found && rest == "":
		return place{}, registry.WithHint(usagef("the store%s has no name", inError(s)), "%s", storeForms)
	case isURL(s):
		return place{}, registry.WithHint(usagef("the store%s is a URL", inError(s)),
			"Use --registry for the URL of a registry.")
	case kind == "stack":
		return place{name: s, stack: rest}, nil
	case kind == "dir":
		s = rest
	case found && len(kind) > 1 && !strings.ContainsAny(kind, `./\~`): // C: is a drive on Windows
		err := usagef("the store%s has an unknown kind", inError(s))
		if near, ok := suggest.Nearest(kind, []string{"stack", "dir"}); ok {
			return place{}, registry.WithHint(err, "Did you mean %s:? %s", near, storeForms)
		}
		return place{}, registry.WithHint(err, "%s", storeForms)
	}
	dir, err := expandHome(s)
	return folder(dir), err
}

// folder returns the registry in a folder of this machine.
func folder(dir string) place {
	p := place{name: dir, dir: dir}
	if kind, _, found := strings.Cut(dir, ":"); found && len(kind) > 1 {
		p.name = "dir:" + dir
	}
	return p
}

// absolute returns the absolute path, or path itself if there is an error.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

func isURL(s string) bool { return strings.Contains(s, "://") }

const storeForms = "A store is a folder, such as " + defaultData + ", or stack:NAME for a deployed registry."

// expandHome replaces ~ at the beginning of a path. Shells do not expand it
// after dir:.
func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usagef("cannot use the folder %s: %w", path, err)
	}
	return filepath.Join(home, rest), nil
}

// parseRegistry parses the URL of a registry, https://HOST.
func parseRegistry(s string) (place, error) {
	host, err := registryHost(s)
	return place{name: "https://" + host, host: host}, err
}

// registryHost returns the host in the URL of a registry, https://HOST, in the
// form that people write.
func registryHost(url string) (string, error) {
	bare := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/")
	host, err := client.ParseHost(bare)
	if err == nil && !strings.ContainsAny(bare, "/?#@") {
		return host, nil
	}
	if strings.HasPrefix(strings.ToLower(url), "http://") {
		err = errors.New("clients use only https")
	} else {
		err = errors.New("it must be https://HOST[:PORT]")
	}
	return "", registry.WithHint(usagef("cannot use the registry%s: %w", inError(url), err),
		"Examples are https://registry.example.com and https://127.0.0.1:8443.")
}
