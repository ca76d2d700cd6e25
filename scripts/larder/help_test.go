package main

import (
	"bytes"
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
)

// helpOf returns the output of --help.
func helpOf(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.Help(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Every page of help fits 80 columns.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	arguments.Walk(newRoot((&cli.Program{})), func(cmd *cobra.Command) {
		for line := range strings.Lines(helpOf(t, cmd)) {
			if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	})
}

// Every command has a short help and examples, and every flag has a usage text.
func TestHelpIsComplete(t *testing.T) {
	t.Parallel()
	arguments.Walk(newRoot((&cli.Program{})), func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short help is %q", cmd.CommandPath(), cmd.Short)
		}
		if !arguments.IsGroup(cmd) && !cmd.IsAdditionalHelpTopicCommand() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Usage == "" && !flag.Hidden {
				t.Errorf("%s --%s: the help is missing", cmd.CommandPath(), flag.Name)
			}
			if name, _ := pflag.UnquoteUsage(flag); !flag.Hidden && name != strings.ToUpper(name) {
				t.Errorf("%s --%s: its value is called %s", cmd.CommandPath(), flag.Name, name)
			}
		})
	})
}

// Without its comments, the example of `larder help access` is valid and the
// same as in docs/access.md.
func TestAccessTopic(t *testing.T) {
	t.Parallel()
	read := func(text string) access.Settings {
		t.Helper()
		settings, err := access.ParseSettings([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return settings
	}
	page, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	example := regexp.MustCompile(`(?m)^ *//.*\n`).ReplaceAllString(accessExample, "")
	if diff := gocmp.Diff(read(block), read(example)); diff != "" {
		t.Errorf("the example of the topic differs from docs/access.md (-page +topic):\n%s", diff)
	}
	if !strings.Contains(subcommand(newRoot((&cli.Program{})), "access").Long, accessExample) {
		t.Error("the topic has no example")
	}
}

// The end of docs/cli.md is generated from the help of the commands.
func TestCommandsPage(t *testing.T) {
	t.Parallel()
	const (
		path   = "../../docs/cli.md"
		marker = "<!-- The rest is written by: go test ./scripts/larder -run TestCommandsPage -update -->\n"
	)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(got), marker)
	if !found {
		t.Fatalf("%s has no line %s", path, marker)
	}
	want := head + marker + commandsPage(newRoot((&cli.Program{})))
	golden.Equal(t, path, []byte(want))
}

// commandsPage returns the help of all commands as Markdown. Its commands have
// placeholders, or name files that only the reader has. The tests of the
// documentation run every block that is marked sh, so these are marked shell.
func commandsPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n## Commands\n")
	for _, group := range root.Groups() {
		b.WriteString("\n| " + strings.TrimSuffix(group.Title, ":") + " | |\n| --- | --- |\n")
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				arguments.Walk(cmd, func(cmd *cobra.Command) {
					if !arguments.IsGroup(cmd) {
						b.WriteString("| [`" + cmd.CommandPath() + "`](#" + anchor(cmd) + ") | " + cmd.Short + " |\n")
					}
				})
			}
		}
	}
	arguments.Walk(root, func(cmd *cobra.Command) {
		if cmd == root || cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
			return
		}
		b.WriteString("\n### " + cmd.CommandPath() + "\n\n" + markdown(cmp.Or(cmd.Long, cmd.Short+".")))
		if cmd.HasSubCommands() {
			b.WriteString("\n")
			for _, sub := range cmd.Commands() {
				b.WriteString("- [`" + sub.CommandPath() + "`](#" + anchor(sub) + "): " + sub.Short + "\n")
			}
		}
		if arguments.IsGroup(cmd) {
			return
		}
		b.WriteString("\n" + fenced("shell", usageLine(cmd)))
		cmd.Flags().Lookup("help").Hidden = true
		if flags := strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(helpWidth), "\n"); flags != "" {
			b.WriteString("\n" + fenced("text", flags))
		}
		b.WriteString("\nFor example:\n\n" + fenced("shell", regexp.MustCompile(`(?m)^  `).ReplaceAllString(cmd.Example, "")))
	})
	for _, topic := range []struct{ title, name string }{
		{"Exit codes", "exit-codes"}, {"Environment variables", "environment"}, {"Access settings", "access"},
	} {
		_, body, _ := strings.Cut(subcommand(root, topic.name).Long, "\n\n") // without its title
		b.WriteString("\n## " + topic.title + "\n\n" + markdown(body))
	}
	flags := strings.TrimRight(root.PersistentFlags().FlagUsagesWrapped(helpWidth), "\n")
	b.WriteString("\n## Flags of every command\n\n" + fenced("text", flags))
	return b.String()
}

func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func fenced(language, text string) string { return "```" + language + "\n" + text + "\n```\n" }

// markdown converts help to Markdown. Indented lines become code blocks.
func markdown(help string) string {
	var b strings.Builder
	lines := strings.Split(help, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "  ") {
			b.WriteString(escapeMarkdown(lines[i]) + "\n")
			continue
		}
		end := i
		for j := i; j < len(lines) && (strings.HasPrefix(lines[j], "  ") || lines[j] == ""); j++ {
			if lines[j] != "" {
				end = j
			}
		}
		if i > 0 && lines[i-1] != "" {
			b.WriteString("\n")
		}
		b.WriteString("```text\n")
		for ; i <= end; i++ {
			b.WriteString(strings.TrimPrefix(lines[i], "  ") + "\n")
		}
		b.WriteString("```\n")
		if i < len(lines) && lines[i] != "" {
			b.WriteString("\n")
		}
		i--
	}
	return b.String()
}

// escapeMarkdown escapes Markdown characters outside of `backquotes`.
func escapeMarkdown(line string) string {
	parts := strings.Split(line, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("*", `\*`, "<", `\<`, "[", `\[`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}
