// Package arguments defines what the arguments and flags of commands mean. It
// checks them by the usage lines, and suggests what a person may have meant.
package arguments

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/registry"
)

// Argument is an argument of a command, as in its usage line.
type Argument struct {
	Name     string
	Optional bool
	Repeated bool
}

// Parse parses the arguments of a usage line, such as
//
//	add HOSTNAME/NAMESPACE/TYPE
//	usage [ADDRESS [VERSION]]
//	export DIR [ADDRESS…]
//	revoke NAME|ID
//	create --name NAME
func Parse(use string) []Argument {
	var found []Argument
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
		found = append(found, Argument{name, optional, repeated})
	}
	return found
}

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

// RunsAlone is the annotation of a command that has subcommands, but also does
// something without one.
const RunsAlone = "runs-alone"

// IsGroup reports whether a command does nothing without a subcommand.
func IsGroup(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && cmd.Annotations[RunsAlone] == ""
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
func inOrder(wanted []Argument, args []string) ([]string, bool) {
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
func checkOrder(cmd *cobra.Command, wanted []Argument, args []string) error {
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
var flagForArgument = map[string]string{
	"larder token create": "name",
	"larder serve":        "store",
	"larder init":         "store",
	"larder verify":       "store",
}

// NamedArguments checks the arguments of a command by its usage line.
func NamedArguments(cmd *cobra.Command, args []string) error {
	wanted := Parse(cmd.Use)
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
		if flag := flagForArgument[cmd.CommandPath()]; flag != "" && !cmd.Flags().Changed(flag) && InError(word) != "" {
			return registry.WithHint(err, "Did you mean `--%s %s`?", flag, Quoted(word))
		}
		return err
	}
	if len(args) > len(wanted) {
		return nil // the last one is repeated
	}
	return checkOrder(cmd, wanted, args)
}

// OneOf joins words with commas and "or".
func OneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Walk calls visit for a command and all commands below it.
func Walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		Walk(sub, visit)
	}
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
