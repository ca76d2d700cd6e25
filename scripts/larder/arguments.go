package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// argument is an argument of a command, as in its usage line.
type argument struct {
	name     string
	optional bool
	repeated bool
}

// argumentsOf parses the arguments of a usage line, such as
//
//	add HOSTNAME/NAMESPACE/TYPE
//	usage [ADDRESS [VERSION]]
//	export DIR [ADDRESS…]
//	revoke NAME|ID
//	create --name NAME
func argumentsOf(use string) []argument {
	var found []argument
	depth, flag := 0, false
	for _, word := range strings.Fields(use)[1:] {
		depth += strings.Count(word, "[")
		optional := depth > 0
		depth -= strings.Count(word, "]")
		word = strings.Trim(word, "[]")
		if strings.HasPrefix(word, "--") || flag { // a flag, followed by its value
			flag = !flag
			continue
		}
		name, repeated := strings.CutSuffix(word, "…")
		found = append(found, argument{name, optional, repeated})
	}
	return found
}

// checkArguments sets the argument check of every command that has none. The
// check uses the usage line. For a command with subcommands, it suggests a
// subcommand.
func checkArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		checkArguments(sub)
	}
	switch {
	case cmd.Args != nil:
	case isGroup(cmd):
		cmd.Args = unknownCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	default:
		cmd.Args = namedArguments
	}
}

// runsAlone is the annotation of a command that has subcommands, but also does
// something without one.
const runsAlone = "runs-alone"

// isGroup reports whether a command does nothing without a subcommand.
func isGroup(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && cmd.Annotations[runsAlone] == ""
}

func canBe(name, word string) bool {
	var err error
	switch name {
	case "VERSION":
		_, err = registry.ParseTag(word)
	case "ADDRESS":
		_, err = registry.ParseAddress(word)
	case "NAMESPACE/NAME/SYSTEM":
		_, err = registry.ParseModule(word)
	case "NAMESPACE/TYPE":
		_, err = registry.ParseProvider(word)
	}
	return err == nil
}

// inOrder returns the arguments in the order that the command expects. It
// returns false if no order fits.
func inOrder(wanted []argument, args []string) ([]string, bool) {
	if len(args) == 0 {
		return nil, true
	}
	for i, word := range args {
		if !canBe(wanted[0].name, word) {
			continue
		}
		if rest, ok := inOrder(wanted[1:], slices.Delete(slices.Clone(args), i, i+1)); ok {
			return append([]string{word}, rest...), true
		}
	}
	return nil, false
}

// checkOrder returns an error with a suggestion if the arguments fit the
// command in another order.
func checkOrder(cmd *cobra.Command, wanted []argument, args []string) error {
	ordered, ok := inOrder(wanted, args)
	secret := slices.ContainsFunc(args, func(word string) bool { return inError(word) == "" })
	if !ok || secret || slices.Equal(ordered, args) {
		return nil
	}
	names := make([]string, len(args))
	for i := range args {
		names[i] = wanted[i].name
	}
	return registry.WithHint(usagef("the arguments are not in the order %s", strings.Join(names, " ")),
		"Did you mean `%s`?", completed(cmd, "", ordered))
}

// flagForArgument has the flag to suggest if a command that takes no arguments
// gets one.
var flagForArgument = map[string]string{
	"larder token create": "name",
	"larder serve":        "store",
	"larder init":         "store",
	"larder verify":       "store",
}

func namedArguments(cmd *cobra.Command, args []string) error {
	wanted := argumentsOf(cmd.Use)
	for i, a := range wanted {
		if i >= len(args) && !a.optional {
			return usagef("%s is missing", a.name)
		}
		if i < len(args) && args[i] == "" {
			return usagef("%s is empty", a.name)
		}
	}
	last := len(wanted) - 1
	if len(args) > len(wanted) && (last < 0 || !wanted[last].repeated) {
		word := args[len(wanted)]
		err := usagef("unexpected argument%s", inError(word))
		if flag := flagForArgument[cmd.CommandPath()]; flag != "" && !cmd.Flags().Changed(flag) && inError(word) != "" {
			return registry.WithHint(err, "Did you mean `--%s %s`?", flag, quoted(word))
		}
		return err
	}
	if len(args) > len(wanted) {
		return nil // the last one is repeated
	}
	return checkOrder(cmd, wanted, args)
}

// inError quotes a word for an error text, with a space before it. It returns
// an empty string if the word may contain a password.
func inError(word string) string {
	if strings.ContainsAny(word, "@?#") {
		return ""
	}
	return fmt.Sprintf(" %.200q", word)
}

// unknownCommand returns the error for an unknown subcommand, with suggestions.
// It returns nil if there are no arguments.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("unknown command %q", cmd.CommandPath()+" "+args[0])
	near := nearCommands(cmd, args[0])
	if len(near) == 0 {
		return registry.WithHint(err, "Run `%s --help` to list the commands.", cmd.CommandPath())
	}
	for i, path := range near {
		near[i] = "`" + path + "`"
	}
	return registry.WithHint(err, "Did you mean %s?", oneOf(near))
}

// oneOf joins words with commas and "or".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// otherWords has the names that other programs use for the same commands.
var otherWords = map[string][]string{
	"larder publish":             {"push", "upload", "release"},
	"larder list":                {"ls", "versions", "modules", "providers"},
	"larder search":              {"find", "grep"},
	"larder show":                {"info", "describe", "inspect", "view", "docs"},
	"larder diff":                {"compare", "changes"},
	"larder check":               {"validate", "lint"},
	"larder deprecate":           {"hide"},
	"larder withdraw":            {"delete", "yank", "unpublish", "remove", "rm"},
	"larder context":             {"config", "profile", "use", "switch", "login"},
	"larder doctor":              {"diagnose", "test", "ping", "status"},
	"larder serve":               {"server", "start", "run", "up"},
	"larder init":                {"new", "make", "create"},
	"larder usage":               {"downloads", "stats"},
	"larder audit":               {"log", "history"},
	"larder verify":              {"fsck", "repair"},
	"larder token create":        {"add", "new", "make"},
	"larder token revoke":        {"remove", "delete", "rm"},
	"larder token list":          {"ls", "show"},
	"larder key add":             {"create", "import"},
	"larder key list":            {"ls", "show"},
	"larder key remove":          {"revoke", "delete", "rm"},
	"larder context add":         {"create", "new", "set"},
	"larder context list":        {"ls", "show", "current"},
	"larder context use":         {"switch", "select"},
	"larder context remove":      {"delete", "rm"},
	"larder mirror add":          {"create", "provider"},
	"larder mirror admit":        {"approve", "allow"},
	"larder mirror trust":        {"accept"},
	"larder mirror policy show":  {"get", "print", "list"},
	"larder mirror policy set":   {"add", "apply", "create", "edit"},
	"larder mirror policy check": {"test", "validate", "explain"},
}

// nearCommands returns the paths of the commands that a mistyped word may mean.
// It prefers a subcommand with a similar name. Next are the entries of
// otherWords, commands elsewhere with exactly this name, and subcommands with
// this prefix.
func nearCommands(cmd *cobra.Command, word string) []string {
	var names, prefixed []string
	var other string
	for _, sub := range cmd.Commands() {
		if sub.Hidden {
			continue
		}
		names = append(names, sub.Name())
		if word != "" && strings.HasPrefix(sub.Name(), strings.ToLower(word)) {
			prefixed = append(prefixed, sub.CommandPath())
		}
		if slices.Contains(otherWords[sub.CommandPath()], strings.ToLower(word)) {
			other = sub.CommandPath()
		}
	}
	if near, ok := suggest.Nearest(word, names); ok {
		return []string{cmd.CommandPath() + " " + near}
	}
	var elsewhere []string
	walk(cmd.Root(), func(one *cobra.Command) {
		if one.Name() == word && one.IsAvailableCommand() {
			elsewhere = append(elsewhere, one.CommandPath())
		}
	})
	switch {
	case other != "" && cmd.HasParent():
		return []string{other}
	case len(elsewhere) > 0:
		slices.SortStableFunc(elsewhere, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
		return elsewhere[:min(3, len(elsewhere))]
	case other != "":
		return []string{other}
	}
	return prefixed
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

// flagError returns the error for a wrong flag or value. For an unknown flag,
// the hint suggests another. args are the arguments of the program.
func flagError(args []string, cmd *cobra.Command, err error) error {
	// In `larder lsit --store x`, report the unknown command and not the flag.
	if _, rest, _ := cmd.Root().Find(args); cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return unknownCommand(cmd, rest)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return registry.WithHint(usagef("--%s needs a value", e.GetFlag().Name), "%s.", aboutFlag(e.GetFlag()))
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := e.GetFlag()
		if flag.Value.Type() == "bool" {
			return registry.WithHint(usagef("--%s: invalid value%s", flag.Name, inError(e.GetValue())),
				"Use --%s without a value, or with =true or =false.", flag.Name)
		}
		if flag.Value.Type() == "int" {
			return registry.WithHint(
				usagef("--%s: invalid value%s: it must be a whole number", flag.Name, inError(e.GetValue())),
				"%s.", aboutFlag(flag))
		}
		return registry.WithHint(usagef("--%s: invalid value%s: %w", flag.Name, inError(e.GetValue()), e.Unwrap()),
			"%s.", aboutFlag(flag))
	}
	e, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return asUsage(err)
	}
	if e.GetSpecifiedShortnames() != "" {
		return registry.WithHint(usagef("unknown flag -%s", e.GetSpecifiedName()),
			"Run `%s --help` to list the flags.", cmd.CommandPath())
	}
	name := e.GetSpecifiedName()
	return registry.WithHint(usagef("unknown flag --%.100s", name), "%s", nearFlag(cmd, name))
}

// otherFlags has the names that other programs use for the same flags.
var otherFlags = map[string][]string{
	"access":      {"permissions"},
	"description": {"desc", "summary"},
	"expires":     {"expiry", "ttl", "lifetime", "valid", "duration"},
	"listen":      {"port", "addr", "address", "bind"},
	"message":     {"reason", "why", "text"},
	"name":        {"token", "label", "user", "for"},
	"reason":      {"message", "why", "text"},
	"registry":    {"url", "endpoint"},
	"scope":       {"permission", "permissions", "allow"},
	"store":       {"dir", "folder", "path", "data-dir", "root"},
	"yes":         {"force", "confirm", "assume-yes"},
}

func aboutFlag(flag *pflag.Flag) string {
	name, usage := pflag.UnquoteUsage(flag)
	if name != strings.ToUpper(name) { // it is the type, because the usage names no value
		name = "VALUE"
	}
	return "--" + flag.Name + " " + name + ": " + usage
}

// nearFlag returns the hint for an unknown flag: a similar flag of the command,
// or other commands with the flag.
func nearFlag(cmd *cobra.Command, name string) string {
	own := flagNames(cmd)
	for i, a := range argumentsOf(cmd.Use) {
		if strings.EqualFold(a.name, name) {
			return fmt.Sprintf("%s is the %s argument and not a flag.", a.name, ordinals[i])
		}
	}
	for _, flag := range own {
		if slices.Contains(otherFlags[flag], name) {
			return fmt.Sprintf("Did you mean --%s?", flag)
		}
	}
	if near, ok := suggest.Nearest(name, own); ok {
		return fmt.Sprintf("Did you mean --%s?", near)
	}
	var others, have []string
	walk(cmd.Root(), func(other *cobra.Command) {
		if other.HasParent() && (!other.IsAvailableCommand() || isGroup(other)) {
			return
		}
		names := flagNames(other)
		others = append(others, names...)
		if slices.Contains(names, name) {
			have = append(have, "`"+other.CommandPath()+"`")
		}
	})
	list := fmt.Sprintf("Run `%s --help` to list the flags.", cmd.CommandPath())
	switch near, ok := suggest.Nearest(name, others); {
	case len(have) == 1:
		return fmt.Sprintf("Only %s has --%s. %s", have[0], name, list)
	case len(have) > 0:
		return fmt.Sprintf("Other commands have --%s, such as %s. %s", name, oneOf(have[:min(2, len(have))]), list)
	case ok:
		return fmt.Sprintf("Other commands have --%s, but this one does not. %s", near, list)
	}
	return list
}

// ordinals number the arguments of a command. No command has more.
var ordinals = []string{"first", "second", "third", "fourth"}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.InitDefaultHelpFlag()
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
		flags.VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				names = append(names, flag.Name)
			}
		})
	}
	return names
}
