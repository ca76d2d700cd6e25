package arguments

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

// UnknownCommand returns the error for an unknown subcommand, with suggestions.
// It returns nil if there are no arguments.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := Errorf("unknown command %q", cmd.CommandPath()+" "+args[0])
	near := nearCommands(cmd, args[0])
	if len(near) == 0 {
		return registry.WithHint(err, "Run `%s --help` to list the commands.", cmd.CommandPath())
	}
	for i, path := range near {
		near[i] = "`" + path + "`"
	}
	return registry.WithHint(err, "Did you mean %s?", OneOf(near))
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
	Walk(cmd.Root(), func(one *cobra.Command) {
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

// FlagError returns the error for a wrong flag or value. For an unknown flag,
// the hint suggests another. args are the arguments of the program.
func FlagError(args []string, cmd *cobra.Command, err error) error {
	// In `larder lsit --store x`, report the unknown command and not the flag.
	if _, rest, _ := cmd.Root().Find(args); cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return UnknownCommand(cmd, rest)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return registry.WithHint(Errorf("--%s needs a value", e.GetFlag().Name), "%s.", aboutFlag(e.GetFlag()))
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := e.GetFlag()
		if flag.Value.Type() == "bool" {
			return registry.WithHint(Errorf("--%s: invalid value%s", flag.Name, InError(e.GetValue())),
				"Use --%s without a value, or with =true or =false.", flag.Name)
		}
		if flag.Value.Type() == "int" {
			return registry.WithHint(
				Errorf("--%s: invalid value%s: it must be a whole number", flag.Name, InError(e.GetValue())),
				"%s.", aboutFlag(flag))
		}
		return registry.WithHint(Errorf("--%s: invalid value%s: %w", flag.Name, InError(e.GetValue()), e.Unwrap()),
			"%s.", aboutFlag(flag))
	}
	e, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return Wrong(err)
	}
	if e.GetSpecifiedShortnames() != "" {
		return registry.WithHint(Errorf("unknown flag -%s", e.GetSpecifiedName()),
			"Run `%s --help` to list the flags.", cmd.CommandPath())
	}
	name := e.GetSpecifiedName()
	return registry.WithHint(Errorf("unknown flag --%.100s", name), "%s", nearFlag(cmd, name))
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
	for i, a := range Parse(cmd.Use) {
		if strings.EqualFold(a.Name, name) {
			return fmt.Sprintf("%s is the %s argument and not a flag.", a.Name, ordinals[i])
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
	Walk(cmd.Root(), func(other *cobra.Command) {
		if other.HasParent() && (!other.IsAvailableCommand() || IsGroup(other)) {
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
		return fmt.Sprintf("Other commands have --%s, such as %s. %s", name, OneOf(have[:min(2, len(have))]), list)
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
