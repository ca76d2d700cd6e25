package main

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
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
		ValidArgsFunction: firstOf(shellNames),
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

// firstOf completes the first argument with the words in all.
func firstOf(all []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (words, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArguments adds completions to all commands and flags. The name of an
// argument in the usage line determines its completions.
func completeArguments(c *cli.Program, root *cobra.Command) {
	completing := len(c.Args) > 0 && strings.HasPrefix(c.Args[0], cobra.ShellCompRequestCmd)
	arguments.Walk(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if completing { // backquotes mark the value's name in help, but a shell shows them
				flag.Usage = strings.ReplaceAll(flag.Usage, "`", "")
			}
		})
		if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
				return completeArgument(c, cmd, args, word)
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if _, done := cmd.GetFlagCompletionFunc(flag.Name); !done && flag.Value.Type() != "bool" {
				_ = cmd.RegisterFlagCompletionFunc(flag.Name, flagCompletion(c, flag.Name)) // the flag is there
			}
		})
	})
}

func flagCompletion(c *cli.Program, name string) cobra.CompletionFunc {
	switch name {
	case "context":
		return func(cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
			return completeContexts(c, cmd, args, word)
		}
	case "registry":
		return func(cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
			return completeURLs(c, cmd, args, word)
		}
	case "store":
		return func(cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
			return completeStores(c, cmd, args, word)
		}
	case "platform":
		return completePlatforms
	case "access", "cert", "key", "sign-key":
		return func(*cobra.Command, []string, string) (words, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		}
	case "expires":
		return cobra.FixedCompletions(words{"30d", "90d", "365d", "never"}, cobra.ShellCompDirectiveNoFileComp)
	case "tag":
		return completeTags
	case "scope":
		return completeStored(c, (*lookup).scopes)
	case "module":
		return completeStored(c, (*lookup).modules)
	case "provider":
		return completeStored(c, (*lookup).providers)
	case "mirror":
		return completeStored(c, (*lookup).mirrored)
	}
	return cobra.NoFileCompletions
}

func completeContexts(c *cli.Program, _ *cobra.Command, _ []string, _ string) (found words, _ cobra.ShellCompDirective) {
	file, err := c.ReadContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range file.Names() {
		found = append(found, cobra.CompletionWithDesc(name, file.Contexts[name].Target()))
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeTags completes the tags of the repository that contains the working
// directory.
func completeTags(cmd *cobra.Command, _ []string, _ string) (words, cobra.ShellCompDirective) {
	repository, err := monorepo.Open(cmd.Context(), ".")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	tags, _ := repository.Tags(cmd.Context()) // without tags, there are no completions
	return tags, cobra.ShellCompDirectiveNoFileComp
}

func completeURLs(c *cli.Program, _ *cobra.Command, _ []string, _ string) (found words, _ cobra.ShellCompDirective) {
	if file, err := c.ReadContexts(); err == nil {
		for _, name := range file.Names() {
			if url := file.Contexts[name].Registry; url != "" {
				found = append(found, url)
			}
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeStores completes folders, and the stacks of contexts.
func completeStores(c *cli.Program, _ *cobra.Command, _ []string, word string) (found words, _ cobra.ShellCompDirective) {
	if file, err := c.ReadContexts(); err == nil {
		for _, name := range file.Names() {
			if store := file.Contexts[name].Store; strings.HasPrefix(store, "stack:") && !slices.Contains(found, store) {
				found = append(found, store)
			}
		}
	}
	if len(found) == 0 {
		found = words{"stack:"}
	}
	prefix, path := "", word
	if rest, ok := strings.CutPrefix(word, "dir:"); ok {
		prefix, path = "dir:", rest
	}
	parent, _ := filepath.Split(path)
	dir, err := place.ExpandHome(cmp.Or(parent, "."))
	if err != nil {
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	entries, _ := os.ReadDir(dir) // an unreadable folder has no completions
	for _, entry := range entries {
		if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && info.IsDir() {
			found = append(found, prefix+parent+entry.Name())
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// knownPlatforms are the platforms that most providers support.
var knownPlatforms = []string{
	"linux_amd64", "linux_arm64", "linux_arm", "linux_386", "darwin_arm64", "darwin_amd64",
	"windows_amd64", "windows_arm64", "windows_386", "freebsd_amd64", "freebsd_arm", "freebsd_386",
}

// completePlatforms completes a platform, or the last platform if the flag takes a
// list.
func completePlatforms(cmd *cobra.Command, _ []string, word string) (found words, _ cobra.ShellCompDirective) {
	before := ""
	if flag := cmd.Flags().Lookup("platform"); flag != nil && flag.Value.Type() == "stringSlice" {
		if comma := strings.LastIndex(word, ","); comma >= 0 {
			before = word[:comma+1]
		} else {
			found = append(found, "all")
		}
	}
	for _, platform := range knownPlatforms {
		if !slices.Contains(strings.Split(before, ","), platform) {
			found = append(found, before+platform)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeArgument completes an argument by its name in the usage line.
func completeArgument(c *cli.Program, cmd *cobra.Command, args []string, word string) (words, cobra.ShellCompDirective) {
	wanted := arguments.Parse(cmd.Use)
	at := len(args)
	if last := len(wanted) - 1; at > last && last >= 0 && wanted[last].Repeated {
		at = last
	}
	if at >= len(wanted) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	with := func(find func(*lookup) words) (words, cobra.ShellCompDirective) {
		return completeStored(c, find)(cmd, args, word)
	}
	switch name := wanted[at].Name; {
	case name == "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case name == "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	case name == "NAME" && cmd.Parent().Name() == "context" && cmd.Name() != "add":
		return completeContexts(c, cmd, args, word)
	case name == "NAME|ID":
		return with((*lookup).tokens)
	case name == "ID":
		return with(func(l *lookup) words { return l.keys(args[0]) })
	case name == "VERSION" && cmd.Parent().Name() == "publish":
		return with(func(l *lookup) words { return l.nextVersions(args[at-1]) })
	case name == "VERSION" && cmd.Name() == "admit":
		return with(func(l *lookup) words { return l.versionsToAdmit(args[at-1]) })
	case name == "KEY":
		return with(func(l *lookup) words { return l.keysToTrust(args[at-1]) })
	case name == "VERSION":
		for at > 1 && wanted[at-1].Name == "VERSION" {
			at--
		}
		return with(func(l *lookup) words { return l.versions(args[at-1]) })
	case name == "NAMESPACE":
		return with((*lookup).namespaces)
	case name == "NAMESPACE/NAME/SYSTEM":
		return with((*lookup).modules)
	case name == "NAMESPACE/TYPE":
		return with((*lookup).providers)
	case name == "HOSTNAME/NAMESPACE/TYPE":
		return with((*lookup).mirrored)
	case name == "ADDRESS" && (cmd.Name() == "deprecate" || cmd.Name() == "show"): // not for mirrored providers
		return with(func(l *lookup) words { return slices.Concat(l.modules(), l.providers()) })
	case strings.HasPrefix(name, "NAMESPACE|"):
		return with(func(l *lookup) words { return slices.Concat(l.listed(), l.addresses()) })
	case name == "ADDRESS":
		return with((*lookup).addresses)
	case name == "URL":
		return completeURLs(c, cmd, args, word)
	case name == "STORE|URL":
		return completeStores(c, cmd, args, word)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completionTimeout is the maximum time for finding completions.
const completionTimeout = 2 * time.Second

// completeStored completes with the words that find returns for a registry: its
// store, or its URL if the command can use one. It prints no errors and creates
// nothing.
func completeStored(c *cli.Program, find func(*lookup) words) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) (words, cobra.ShellCompDirective) {
		c.Flags = cmd.Flags()
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found, err := complete(ctx, c, find)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// complete returns the words that find returns for the command's registry.
func complete(ctx context.Context, c *cli.Program, find func(*lookup) words) (found words, err error) {
	if p, err := c.Find(); err == nil && p.Host != "" && !c.NeedsStore() {
		err := c.OnHost(p.Host, func(credentials *client.Client) error {
			credentials.Wait = time.Millisecond
			remote, err := metadataclient.Open(ctx, credentials, p.Host)
			if err == nil {
				found = find(&lookup{ctx: ctx, remote: remote})
			}
			return err
		})
		return found, err
	}
	s, err := openToComplete(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // nothing was written
	return find(&lookup{ctx: ctx, Store: s, now: c.Now}), nil
}

// openToComplete opens the store without output. Unlike other commands it does not
// open a folder without a marker, because that would write the marker.
func openToComplete(ctx context.Context, c *cli.Program) (*place.Store, error) {
	p, err := c.FindStore()
	switch {
	case err != nil:
		return nil, err
	case p.Stack != "":
		return place.OpenStack(ctx, p.Stack)
	}
	if !local.IsMarked(p.Dir) {
		return nil, &local.NoRegistryError{Dir: p.Dir}
	}
	return place.OpenFolder(ctx, p.Dir, local.Open)
}

// lookup finds completions in a registry. It skips unreadable entries.
type lookup struct {
	ctx context.Context //nolint:containedctx // of one completion
	// store is nil if the registry is named by its URL. Then remote is set.
	*place.Store
	remote *metadataclient.Client
	now    func() time.Time // returns the time at which statuses are those of versions
}

// maxRemote bounds the completions from a registry's own endpoint.
const maxRemote = 500

// described returns the addresses of summaries with their descriptions.
func described(all iter.Seq2[registry.Summary, error]) (found words) {
	for s, err := range all {
		if err != nil {
			break
		}
		about := cmp.Or(s.Deprecated, s.Description)
		if about == "" && !s.Unlisted {
			about = s.Latest.String()
		}
		found = append(found, cobra.CompletionWithDesc(s.Address, about))
	}
	return found
}

func (l *lookup) modules() words {
	if l.remote != nil {
		all, _, _ := l.remote.Modules(l.ctx, metadataclient.Query{Limit: maxRemote})
		return described(each(output.Mapped(all, moduleSummary)))
	}
	return described(l.Catalog.Modules.Summaries(l.ctx, ""))
}

func (l *lookup) providers() words {
	if l.remote != nil {
		all, _, _ := l.remote.Providers(l.ctx, metadataclient.Query{Limit: maxRemote})
		return described(each(output.Mapped(all, providerSummary)))
	}
	return described(l.Catalog.Providers.Summaries(l.ctx, ""))
}

func (l *lookup) mirrored() words {
	if l.remote != nil {
		all, _ := l.remote.Mirrored(l.ctx)
		return described(each(output.Mapped(all, mirroredSummary)))
	}
	return described(l.Catalog.Mirror.Summaries(l.ctx, ""))
}

// each returns a sequence of elements without errors.
func each[E any](all []E) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (l *lookup) addresses() words { return slices.Concat(l.modules(), l.providers(), l.mirrored()) }

func (l *lookup) namespaces() words {
	if l.remote != nil {
		return l.listed()
	}
	names, _ := l.Catalog.Namespaces(l.ctx)
	return names
}

// listed returns the namespaces that contain modules or providers.
func (l *lookup) listed() (names words) {
	for _, address := range slices.Concat(l.modules(), l.providers()) {
		namespace, _, _ := strings.Cut(address, "/")
		names = append(names, namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// scopes returns scopes for tokens: one for everything, and some for each
// namespace.
func (l *lookup) scopes() words {
	found := words{"read:**"}
	for _, namespace := range l.namespaces() {
		for _, kind := range []string{"modules", "providers"} {
			found = append(found, "read:"+kind+"/"+namespace+"/**", "publish:"+kind+"/"+namespace+"/**")
		}
	}
	return found
}

func (l *lookup) tokens() (found words) {
	if l.remote != nil {
		return nil
	}
	tokens, damaged, _ := l.Catalog.Tokens(l.ctx)
	for _, t := range tokens {
		found = append(found, cobra.CompletionWithDesc(t.Name, strings.Join(t.Scopes, " ")))
	}
	for _, d := range damaged {
		found = append(found, cobra.CompletionWithDesc(d.Name, "damaged"))
	}
	return found
}

func (l *lookup) keys(namespace string) (found words) {
	if l.remote != nil {
		return nil
	}
	keys, _ := l.Catalog.SigningKeys(l.ctx, namespace)
	for _, k := range keys {
		found = append(found, cobra.CompletionWithDesc(k.ID, k.Owner))
	}
	return found
}

// versions returns the versions of an address, the latest first, without withdrawn
// ones.
func (l *lookup) versions(address string) (found words) {
	a, err := registry.ParseAddress(address)
	if err != nil {
		return nil
	}
	add := func(v registry.Version, state string) {
		found = append(found, cobra.CompletionWithDesc(v.String(), state))
	}
	if l.remote != nil {
		all, _ := l.remote.Listing(l.ctx, a)
		return output.Mapped(all, func(one metadataclient.Listed) string { return one.Version.String() })
	}
	switch a := a.(type) {
	case registry.Module:
		all, _ := l.Catalog.Modules.All(l.ctx, a)
		for _, v := range all {
			if v.Withdrawn == nil {
				name, _ := output.State(v.Deprecated, v.Hidden)
				add(v.Version, name)
			}
		}
	case registry.Provider:
		all, _ := l.Catalog.Providers.All(l.ctx, a)
		for _, v := range all {
			if v.Withdrawn == nil {
				name, _ := output.State(v.Deprecated, false)
				add(v.Version, name)
			}
		}
	case registry.MirrorProvider:
		all, _ := l.Catalog.Mirror.All(l.ctx, a)
		for _, v := range all {
			if v.Withdrawn == nil {
				add(v.Version, "")
			}
		}
	}
	return found
}

func (l *lookup) summaries(namespace string) iter.Seq2[registry.Summary, error] {
	if l.remote != nil {
		all, _, _ := l.remote.Modules(l.ctx, metadataclient.Query{Namespace: namespace})
		return each(output.Mapped(all, moduleSummary))
	}
	return l.Catalog.Modules.Summaries(l.ctx, namespace)
}

func (l *lookup) nextVersions(address string) words {
	m, err := registry.ParseModule(address)
	if err != nil {
		return nil
	}
	for s, err := range l.summaries(m.Namespace) {
		if err != nil {
			break
		}
		if s.Address == m.String() && !s.Unlisted {
			return following(s.Latest)
		}
	}
	return nil
}

func following(latest registry.Version) words {
	release := func(major, minor, patch uint64, what string) cobra.Completion {
		return cobra.CompletionWithDesc(registry.Version{Major: major, Minor: minor, Patch: patch}.String(), what)
	}
	if latest.Prerelease != "" {
		return words{cobra.CompletionWithDesc(registry.NextRelease(latest).String(), "the release")}
	}
	return words{
		release(latest.Major, latest.Minor, latest.Patch+1, "fixes"),
		release(latest.Major, latest.Minor+1, 0, "new features"),
		release(latest.Major+1, 0, 0, "breaking changes"),
	}
}

// statuses returns the states of the versions of a mirrored provider.
func (l *lookup) statuses(address string) []admission.Status {
	a, err := registry.ParseMirrorProvider(address)
	if err != nil || l.remote != nil {
		return nil
	}
	v, _ := listMirrorProvider(l.ctx, l.Catalog, a, l.now())
	return v.statuses
}

func (l *lookup) versionsToAdmit(address string) (found words) {
	for _, s := range l.statuses(address) {
		if s.State == admission.TooNew {
			found = append(found, cobra.CompletionWithDesc(s.Version.String(), "from "+output.FormatFrom(s.AvailableAt)))
		}
	}
	return found
}

// keysToTrust returns the keys because of which versions of a provider are
// refused.
func (l *lookup) keysToTrust(address string) (found words) {
	versions := make(map[string][]string)
	var keys []string
	for _, s := range l.statuses(address) {
		if s.State != admission.Refused {
			continue
		}
		key := cmp.Or(s.Key.ID, filling.Unsigned)
		if versions[key] == nil {
			keys = append(keys, key)
		}
		versions[key] = append(versions[key], s.Version.String())
	}
	for _, key := range keys {
		found = append(found, cobra.CompletionWithDesc(key, strings.Join(versions[key], ", ")))
	}
	return found
}
