package arguments

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	"publish": {"push", "upload", "release"}, "list": {"ls", "versions", "modules", "providers"},
	"search": {"find"}, "show": {"info", "describe", "inspect", "view"}, "diff": {"compare"}, "check": {"validate", "lint"},
	"withdraw": {"delete", "yank", "unpublish", "remove", "rm"}, "context": {"config", "profile", "login"},
	"doctor": {"diagnose", "test", "status"}, "serve": {"server", "start", "run"}, "usage": {"downloads", "stats"},
	"audit": {"log", "history"}, "create": {"add", "new"}, "revoke": {"remove", "delete", "rm"}, "add": {"create", "new", "import"},
	"use": {"switch", "select"}, "admit": {"approve", "allow"}, "trust": {"accept"}, "set": {"add", "apply", "edit"},
}

// nearCommands returns the paths of the commands that a mistyped word may mean. This is
// a subcommand with a similar name, or one of otherWords. Otherwise these are commands
// elsewhere with exactly this name, and subcommands that begin with it.
func nearCommands(cmd *cobra.Command, word string) (found []string) {
	var prefixed []string
	names := make(map[string]string) // to the names of subcommands
	for _, sub := range cmd.Commands() {
		if sub.Hidden {
			continue
		}
		for _, other := range otherWords[sub.Name()] {
			names[other] = cmp.Or(names[other], sub.Name())
		}
		names[sub.Name()] = sub.Name()
		if word != "" && strings.HasPrefix(sub.Name(), strings.ToLower(word)) {
			prefixed = append(prefixed, sub.CommandPath())
		}
	}
	own := slices.DeleteFunc(slices.Collect(maps.Keys(names)), func(name string) bool { return names[name] != name })
	if near, ok := suggest.Nearest(word, own); ok {
		return []string{cmd.CommandPath() + " " + near}
	}
	if other := names[strings.ToLower(word)]; other != "" {
		return []string{cmd.CommandPath() + " " + other}
	}
	Walk(cmd.Root(), func(one *cobra.Command) {
		if one.Name() == word && one.IsAvailableCommand() {
			found = append(found, one.CommandPath())
		}
	})
	return append(found[:min(3, len(found))], prefixed...)
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
	"expires": {"expiry", "ttl", "lifetime", "valid", "duration"}, "listen": {"port", "addr", "address", "bind"},
	"message": {"reason", "why", "text"}, "reason": {"message", "why", "text"}, "name": {"token", "label", "user", "for"},
	"store": {"dir", "folder", "path", "data-dir", "root"}, "registry": {"url", "endpoint"},
	"scope": {"permission", "permissions", "allow"}, "yes": {"force", "confirm", "assume-yes"}, "description": {"desc", "summary"},
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
	for i, a := range parse(cmd.Use) {
		if strings.EqualFold(a.Name, name) {
			return fmt.Sprintf("%s is the %s argument and not a flag.", a.Name, []string{"first", "second", "third", "fourth"}[i])
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
	var have []string
	Walk(cmd.Root(), func(other *cobra.Command) {
		runs := !other.HasParent() || other.IsAvailableCommand() && !IsGroup(other)
		if runs && slices.Contains(flagNames(other), name) {
			have = append(have, "`"+other.CommandPath()+"`")
		}
	})
	list := fmt.Sprintf("Run `%s --help` to list the flags.", cmd.CommandPath())
	switch {
	case len(have) == 1:
		return fmt.Sprintf("Only %s has --%s. %s", have[0], name, list)
	case len(have) > 0:
		return fmt.Sprintf("Other commands have --%s, such as %s. %s", name, OneOf(have[:min(2, len(have))]), list)
	}
	return list
}

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
