// Package arguments defines what the arguments and flags of commands mean. It
// checks them by the usage lines, and suggests what a person may have meant.
package arguments

import (
	"strings"

	"github.com/spf13/cobra"
)

// argument is an argument of a command, as in its usage line.
type argument struct {
	Name     string
	Optional bool
	Repeated bool
}

// parse parses the arguments of a usage line, such as
//
//	add HOSTNAME/NAMESPACE/TYPE
//	usage [ADDRESS [VERSION]]
//	export DIR [ADDRESS…]
//	revoke NAME|ID
//	create --name NAME
func parse(use string) []argument {
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

// At returns the name of the argument with an index in a usage line. It is empty if
// the command takes no such argument.
func At(use string, index int) string {
	wanted := parse(use)
	if last := len(wanted) - 1; index > last && last >= 0 && wanted[last].Repeated {
		index = last
	}
	if index >= len(wanted) {
		return ""
	}
	return wanted[index].Name
}

// RunsAlone is the annotation of a command that has subcommands, but also does
// something without one.
const RunsAlone = "runs-alone"

// IsGroup reports whether a command does nothing without a subcommand.
func IsGroup(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && cmd.Annotations[RunsAlone] == ""
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
