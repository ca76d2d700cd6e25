package place

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/client/contexts"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// remote has the flags for requests to a registry's own endpoint.
type remote struct {
	audience   string
	CIIdentity bool
}

// FindAny returns the registry of a command that can use a store or the
// registry's own endpoint.
func (f *Finder) FindAny() (Place, error) {
	p, err := f.Find()
	if err != nil || p.Host != "" || f.Remote == (remote{}) {
		return p, err
	}
	flag := "--audience"
	if f.Remote.CIIdentity {
		flag = "--ci-identity"
	}
	return Place{}, registry.WithHint(arguments.Errorf("%s needs the URL of a registry, but %s is a store", flag, p),
		"Name the registry with --registry https://HOST, or remove %s.", flag)
}

// Finder finds and opens the registry of a command.
type Finder struct {
	output.Printer

	// Flags are those of the running command.
	Flags *pflag.FlagSet
	// Now returns the time.
	Now func() time.Time
	// Agent is the User-Agent of requests.
	Agent string

	PlaceFlags placeFlags
	Remote     remote
	// About is the registry that the command reads or writes. It is empty until
	// the command has found out which one that is.
	About Place
}

// placeFlags has the flags that name a registry.
type placeFlags struct {
	Store    string
	Registry string
	Context  string
}

// StoreFlags adds the flags of a command that needs a registry's store.
func (f *Finder) StoreFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.PlaceFlags.Store, "store", "",
		"the registry's store: a `FOLDER` or stack:NAME (default "+DefaultFolder+")")
	cmd.Flags().StringVar(&f.PlaceFlags.Context, "context", "", "use the context `NAME` instead of the current one")
	cmd.Flags().StringVar(&f.PlaceFlags.Registry, "registry", "", "")
	_ = cmd.Flags().MarkHidden("registry") // for an error that explains that the command needs a store
}

// RegistryFlags adds the flags of a command that can use a registry's URL too.
func (f *Finder) RegistryFlags(cmd *cobra.Command) {
	f.StoreFlags(cmd)
	flag := cmd.Flags().Lookup("registry")
	flag.Hidden = false
	flag.Usage = "use the registry at this `URL`, https://HOST[:PORT], with the clients' credentials"
	cmd.Flags().StringVar(&f.Remote.audience, "audience", "",
		"`AUDIENCE` of the CI job's identity token (default https://HOST of the registry)")
	cmd.Flags().BoolVar(&f.Remote.CIIdentity, "ci-identity", false,
		"use the CI job's identity even if there is another credential for the registry")
}

// Find returns the registry of the command and stores it in f.About. Flags
// take precedence over environment variables, and these over the current
// context. The default is the folder ./larder-data.
func (f *Finder) Find() (Place, error) {
	p, err := f.Named()
	if err == nil {
		f.About = p
	}
	return p, err
}

// RepeatedFlags returns the flags of the command that name the registry. Each
// begins with a space, so that they can end a command that a hint suggests.
func (f *Finder) RepeatedFlags() string {
	var all strings.Builder
	for _, flag := range []struct{ name, value string }{
		{"store", f.PlaceFlags.Store}, {"registry", f.PlaceFlags.Registry}, {"context", f.PlaceFlags.Context},
		{"audience", f.Remote.audience},
	} {
		if f.Flags.Changed(flag.name) {
			all.WriteString(" --" + flag.name + " " + arguments.Quoted(flag.value))
		}
	}
	if f.Flags.Changed("ci-identity") {
		all.WriteString(" --ci-identity")
	}
	return all.String()
}

// candidate is a flag or variable that can name a registry.
type candidate struct {
	from, value string
	parse       func(string) (Place, error)
}

// Named is like [Finder.Find], but does not store the registry.
func (f *Finder) Named() (Place, error) {
	flags := f.given([]candidate{
		{"--store", f.PlaceFlags.Store, ParseStore},
		{"--registry", f.PlaceFlags.Registry, ParseRegistry},
		{"--context", f.PlaceFlags.Context, f.contextNamed},
	}, func(i candidate) bool { return f.Flags != nil && f.Flags.Changed(strings.TrimPrefix(i.from, "--")) })
	environment := f.given([]candidate{
		{StoreVariable, os.Getenv(StoreVariable), ParseStore},
		{RegistryVariable, os.Getenv(RegistryVariable), ParseRegistry},
		{ContextVariable, os.Getenv(ContextVariable), f.contextNamed},
	}, func(i candidate) bool { return i.value != "" })
	for _, level := range [][]candidate{flags, environment} {
		switch len(level) {
		case 0:
			continue
		case 1:
			p, err := level[0].parse(level[0].value)
			if err != nil && level[0].from == "--store" && IsURL(level[0].value) && f.NeedsStore() {
				err = registry.WithHint(arguments.Errorf("this command needs the registry's store and not its URL"), "%s", f.storeHint())
			}
			if err != nil {
				return Place{}, fmt.Errorf("%s: %w", level[0].from, err)
			}
			if p.From == "" {
				p.From = level[0].from
			} else if level[0].from == ContextVariable {
				p.From += ", " + ContextVariable
			}
			return p, nil
		}
		return Place{}, registry.WithHint(
			arguments.Errorf("%s and %s both name a registry", level[0].from, level[1].from), "Use only one of them.")
	}
	file, err := ReadContexts()
	if err != nil {
		return Place{}, err
	}
	if _, ok := file.Contexts[file.Current]; ok {
		return OfContext(file, file.Current)
	}
	p, err := ParseStore(DefaultFolder)
	p.From, p.Gone = "default", file.Current
	if p.Gone != "" {
		p.From += ", because the current context " + p.Gone + " does not exist"
	}
	return p, err
}

// NeedsStore reports whether the command cannot use a registry's URL.
func (f *Finder) NeedsStore() bool { return NeedsStore(f.Flags) }

// NeedsStore reports whether a command with these flags cannot use a registry's URL.
func NeedsStore(flags *pflag.FlagSet) bool {
	flag := flags.Lookup("registry")
	return flag == nil || flag.Hidden
}

// given returns the candidates that have a value.
func (f *Finder) given(all []candidate, is func(candidate) bool) []candidate {
	return slices.DeleteFunc(all, func(i candidate) bool { return !is(i) })
}

// contextNamed returns the registry of a context. Mistakes in other contexts do
// not matter.
func (f *Finder) contextNamed(name string) (Place, error) {
	if path, err := contexts.Path(); err == nil {
		found, ok, err := contexts.Find(path, name)
		if err != nil {
			return Place{}, HintContexts(path, err)
		}
		if ok {
			return OfContext(contexts.File{Contexts: map[string]contexts.Context{name: found}}, name)
		}
	}
	file, err := ReadContexts()
	if err != nil {
		return Place{}, err
	}
	return OfContext(file, name)
}

// FindStore is like [Finder.Find], for a command that needs the registry's store.
func (f *Finder) FindStore() (Place, error) {
	p, err := f.Find()
	if err != nil || p.Host == "" {
		return p, err
	}
	f.About = Place{}
	err = arguments.Errorf("this command needs the registry's store, but %s gives its URL, %s", p.From, p.Name)
	return Place{}, registry.WithHint(err, "%s", f.storeHint())
}

// storeHint suggests a store to use instead of a registry's URL.
func (f *Finder) storeHint() string {
	file, err := ReadContexts()
	if err == nil {
		for _, name := range file.Names() {
			if file.Contexts[name].Store != "" {
				return fmt.Sprintf("Name a store, for example --context %s (%s) or --store stack:NAME.",
					name, file.Contexts[name].Store)
			}
		}
	}
	return "Name its store with --store, for example --store stack:larder or --store " + DefaultFolder + "."
}
