package arguments

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/registry"
)

// Check sets the argument check of every command that has none. The
// check uses the usage line. For a command with subcommands, it suggests a
// subcommand.
func Check(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		Check(sub)
	}
	switch {
	case cmd.Args != nil:
	case IsGroup(cmd):
		cmd.Args = UnknownCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	default:
		cmd.Args = NamedArguments
	}
}

// isID matches the ID of a key.
var isID = regexp.MustCompile(`^[0-9A-F]{16}$`)

func canBe(name, word string) bool {
	var err error
	switch name {
	case "VERSION":
		_, err = registry.ParseTag(word)
	case "NAMESPACE":
		err = CheckNamespace(word)
	case "FILE":
		return exists(word)
	case "ID":
		return isID.MatchString(word)
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
		if !canBe(wanted[0].Name, word) {
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
	secret := slices.ContainsFunc(args, func(word string) bool { return InError(word) == "" })
	if !ok || secret || slices.Equal(ordered, args) {
		return nil
	}
	names := make([]string, len(args))
	for i := range args {
		names[i] = wanted[i].Name
	}
	return registry.WithHint(Errorf("the arguments are not in the order %s", strings.Join(names, " ")),
		"Did you mean `%s`?", Completed(cmd, "", ordered))
}

// flagForArgument has the flag to suggest if a command that takes no arguments
// gets one.
var flagForArgument = map[string]string{"create": "name", "serve": "store", "init": "store", "verify": "store"}

// NamedArguments checks the arguments of a command by its usage line.
func NamedArguments(cmd *cobra.Command, args []string) error {
	wanted := parse(cmd.Use)
	for i, a := range wanted {
		if i >= len(args) && !a.Optional {
			return Errorf("%s is missing", a.Name)
		}
		if i < len(args) && args[i] == "" {
			return Errorf("%s is empty", a.Name)
		}
	}
	last := len(wanted) - 1
	if len(args) > len(wanted) && (last < 0 || !wanted[last].Repeated) {
		word := args[len(wanted)]
		err := Errorf("unexpected argument%s", InError(word))
		if flag := flagForArgument[cmd.Name()]; flag != "" && !cmd.Flags().Changed(flag) && InError(word) != "" {
			return registry.WithHint(err, "Did you mean `--%s %s`?", flag, Quoted(word))
		}
		isOwn := canBe("NAMESPACE/NAME/SYSTEM", args[0]) || canBe("NAMESPACE/TYPE", args[0])
		if cmd.Name() == "list" && isOwn && canBe("VERSION", word) {
			show := strings.Replace(Completed(cmd, "", args), " list ", " show ", 1)
			return registry.WithHint(err, "Did you mean `%s`?", show)
		}
		return err
	}
	if len(args) > len(wanted) {
		return nil // the last one is repeated
	}
	return checkOrder(cmd, wanted, args)
}

// Completed returns the command line with word before args and with its flags.
// The word may be empty.
func Completed(cmd *cobra.Command, word string, args []string) string {
	words := strings.Fields(cmd.CommandPath() + " " + word)
	for _, a := range args {
		words = append(words, Quoted(a))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+f.Name)
			if f.Value.Type() != "bool" {
				words = append(words, Quoted(v))
			}
		}
	})
	return strings.Join(words, " ")
}
