package main

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// shells has the function that writes the completion script for each shell.
var shells = map[string]func(root *cobra.Command, script *bytes.Buffer) error{
	"bash": func(root *cobra.Command, script *bytes.Buffer) error { return root.GenBashCompletionV2(script, true) },
	"zsh":  func(root *cobra.Command, script *bytes.Buffer) error { return root.GenZshCompletion(script) },
	"fish": func(root *cobra.Command, script *bytes.Buffer) error { return root.GenFishCompletion(script, true) },
	"powershell": func(root *cobra.Command, script *bytes.Buffer) error {
		return root.GenPowerShellCompletionWithDesc(script)
	},
}

var shellNames = []string{"bash", "zsh", "fish", "powershell"}

// completionView is the completion script for a shell.
type completionView struct {
	Shell  string `json:"shell"`
	Script string `json:"script"`
}

func (v completionView) Text(p output.Page) { p.Printf("%s", v.Script) }

func (v completionView) Quiet(p output.Page) { v.Text(p) }

func completionCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long: `Print the completion script for a shell: bash, zsh, fish or powershell. With it,
the Tab key completes commands, flags, contexts, and the addresses and versions
of the registry that the command would use.

bash, with the package bash-completion:
  mkdir -p ~/.local/share/bash-completion/completions
  larder completion bash > ~/.local/share/bash-completion/completions/larder

zsh, with autoload -U compinit; compinit in ~/.zshrc:
  larder completion zsh > "${fpath[1]}/_larder"

fish:
  larder completion fish > ~/.config/fish/completions/larder.fish

PowerShell:
  larder completion powershell >> $PROFILE

Then open a new shell.`,
		Example: `  larder completion bash > ~/.local/share/bash-completion/completions/larder
  source <(larder completion bash)    # this shell only; needs bash-completion`,
		ValidArgs: shellNames,
	}
	cmd.RunE = c.Run(func(_ context.Context, args []string) (output.View, error) {
		write, ok := shells[args[0]]
		if !ok {
			return nil, registry.WithHint(arguments.Errorf("there is no completion script for the shell%s", arguments.InError(args[0])),
				"Use one of %s.", strings.Join(shellNames, ", "))
		}
		var script bytes.Buffer
		if err := write(cmd.Root(), &script); err != nil {
			return nil, err
		}
		return completionView{args[0], script.String()}, nil
	})
	return cmd
}

// words is a list of completions.
type words = []cobra.Completion

// completeArguments adds completions to all commands and flags. The name of an
// argument in the usage line, or of a flag, determines its completions.
func completeArguments(c *cli.Program, root *cobra.Command) {
	completing := len(c.Args) > 0 && strings.HasPrefix(c.Args[0], cobra.ShellCompRequestCmd)
	arguments.Walk(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if completing { // backquotes mark the value's name in help, but a shell shows them
				flag.Usage = strings.ReplaceAll(flag.Usage, "`", "")
			}
		})
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !cmd.HasSubCommands() {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
				return complete(c, cmd, arguments.At(cmd.Use, len(args)), args, word)
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() == "bool" {
				return
			}
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, // the flag is there
				func(cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
					return complete(c, cmd, "--"+flag.Name, args, word)
				})
		})
	})
}

// complete completes an argument or the value of a flag by its name.
func complete(
	c *cli.Program, cmd *cobra.Command, name string, args []string, word string,
) (words, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	switch name {
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case "FILE", "--access", "--cert", "--key", "--sign-key":
		return nil, cobra.ShellCompDirectiveDefault
	case "NAME", "--context":
		if cmd.Name() == "add" { // a new name
			return nil, none
		}
		return contextWords(func(place.Place) bool { return true }), none
	case "URL", "--registry":
		return contextWords(func(p place.Place) bool { return p.Host != "" }), none
	case "--store", "STORE|URL":
		if !strings.HasPrefix(word, "stack") {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return contextWords(func(p place.Place) bool { return p.Stack != "" }), none
	}
	find, ok := lookups[cmd.Name()+" "+name]
	if !ok {
		find = lookups[name]
	}
	if find == nil {
		return nil, none
	}
	return lookUp(c, cmd, func(l lookup) words { l.args = args; return find(l) }), none | cobra.ShellCompDirectiveKeepOrder
}

// contextWords returns the contexts of some registries: their names if all can be
// named, or else the registries themselves.
func contextWords(is func(place.Place) bool) (found words) {
	file, err := place.ReadContexts()
	if err != nil {
		return nil
	}
	for _, name := range file.Names() {
		p, err := place.OfContext(file, name)
		if err != nil || !is(p) {
			continue
		}
		word := cobra.CompletionWithDesc(name, p.Name)
		if !is(place.Place{}) {
			word = p.Name
		}
		if !slices.Contains(found, word) {
			found = append(found, word)
		}
	}
	return found
}

// completionTimeout is the maximum time for finding completions.
const completionTimeout = 2 * time.Second

// lookUp returns the words that find returns for a registry: its store, or its URL
// if the command can use one. It prints no errors and creates nothing.
func lookUp(c *cli.Program, cmd *cobra.Command, find func(lookup) words) (found words) {
	c.Flags, c.Quiet = cmd.Flags(), true
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	// To open a folder without a marker would write the marker.
	if p, err := c.Named(); err != nil || p.Dir != "" && !local.IsMarked(p.Dir) {
		return nil
	}
	// Errors leave no completions, and nothing is printed.
	if c.NeedsStore() {
		_, _ = c.OnStore(ctx, func(s *place.Store) (output.View, error) {
			found = find(lookup{ctx: ctx, Reader: s.Reader(), store: s})
			return completionView{}, nil
		})
	} else {
		_, _ = c.OnReader(ctx, func(r *place.Reader) (output.View, error) {
			found = find(lookup{ctx: ctx, Reader: r})
			return completionView{}, nil
		})
	}
	return found
}

// lookup finds completions in a registry. It skips what cannot be read.
type lookup struct {
	ctx context.Context //nolint:containedctx // of one completion
	*place.Reader
	// store is nil if the registry is named by its URL.
	store *place.Store
	// args are the arguments before the one to complete.
	args []string
}

// lookups has what completes an argument or flag, by its name, or by the names of the
// command and the argument.
var lookups = map[string]func(lookup) words{
	"NAMESPACE":             lookup.namespaces,
	"NAMESPACE/NAME/SYSTEM": lookup.modules, "--module": lookup.modules,
	"NAMESPACE/TYPE": lookup.providers, "--provider": lookup.providers,
	"HOSTNAME/NAMESPACE/TYPE": lookup.mirrored, "--mirror": lookup.mirrored,
	"ADDRESS":           func(l lookup) words { return slices.Concat(l.own(), l.mirrored()) },
	"NAMESPACE|ADDRESS": func(l lookup) words { return slices.Concat(l.namespaces(), l.own(), l.mirrored()) },
	"add ADDRESS":       lookup.mirrored,
	"admit ADDRESS":     lookup.mirrored,
	"export ADDRESS":    lookup.mirrored,
	"check ADDRESS":     lookup.mirrored,
	"show ADDRESS":      lookup.own,
	"deprecate ADDRESS": lookup.own,
	"VERSION":           func(l lookup) words { return l.versions("") },
	"show VERSION":      func(l lookup) words { return l.versions(protocol.StateHidden) },
	"diff VERSION":      func(l lookup) words { return l.versions(protocol.StateHidden) },
	"module VERSION":    nil, // a new one
	"admit VERSION":     nil, // one that is not mirrored
	"ID":                lookup.keys,
	"NAME|ID":           lookup.tokens,
}

// maxRemote bounds the completions from a registry's own endpoint.
const maxRemote = 500

func (l lookup) modules() words {
	all, _, _ := l.Modules(l.ctx, metadataclient.Query{Limit: maxRemote})
	return output.Mapped(all, func(m protocol.ModuleSummary) cobra.Completion {
		about := cmp.Or(reasonOf(m.Deprecation), m.Description, m.Version.String())
		return cobra.CompletionWithDesc(metadataclient.ModuleAddress(m), about)
	})
}

func (l lookup) providers() words {
	all, _, _ := l.Providers(l.ctx, metadataclient.Query{Limit: maxRemote})
	return output.Mapped(all, func(p protocol.ProviderSummary) cobra.Completion {
		about := cmp.Or(reasonOf(p.Deprecation), p.Description, p.Version.String())
		return cobra.CompletionWithDesc(metadataclient.ProviderAddress(p), about)
	})
}

// own returns modules and providers, but no mirrored providers.
func (l lookup) own() words { return slices.Concat(l.modules(), l.providers()) }

func (l lookup) mirrored() words {
	all, _ := l.Mirrored(l.ctx)
	return output.Mapped(all, func(m protocol.MirroredDetail) cobra.Completion {
		return cobra.CompletionWithDesc(metadataclient.MirroredAddress(m), m.Version.String())
	})
}

// namespaces returns the namespaces that contain modules or providers. A command that
// needs the store can use others too, such as one with a key only.
func (l lookup) namespaces() (names words) {
	if l.store != nil {
		names, _ = l.store.Catalog.Namespaces(l.ctx)
		return names
	}
	for _, address := range l.own() {
		namespace, _, _ := strings.Cut(address, "/")
		names = append(names, namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (l lookup) tokens() (found words) {
	tokens, damaged, _ := l.store.Catalog.Tokens(l.ctx)
	for _, t := range tokens {
		found = append(found, cobra.CompletionWithDesc(t.Name, strings.Join(t.Scopes, " ")))
	}
	for _, d := range damaged {
		found = append(found, cobra.CompletionWithDesc(d.Name, "damaged"))
	}
	return found
}

func (l lookup) keys() (found words) {
	keys, _ := l.store.Catalog.SigningKeys(l.ctx, l.args[0])
	for _, k := range keys {
		found = append(found, cobra.CompletionWithDesc(k.ID, k.Owner))
	}
	return found
}

// address returns the last argument that is an address.
func (l lookup) address() registry.Address {
	for _, word := range slices.Backward(l.args) {
		if a, err := registry.ParseAddress(word); err == nil {
			return a
		}
	}
	return nil
}

// versions returns the versions of an address, the latest first, without withdrawn
// ones, and without those in a state.
func (l lookup) versions(without string) (found words) {
	if a := l.address(); a != nil {
		all, _ := l.States(l.ctx, a)
		for _, v := range all {
			if v.Withdrawn == nil && v.State != protocol.StateMissing && (without == "" || v.State != without) {
				found = append(found, cobra.CompletionWithDesc(v.Version.String(), v.State))
			}
		}
	}
	return found
}
