package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// exitCodesTopic and environmentTopic are pages of `larder help`.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What exit codes mean",
		Long: `Exit codes:

  0  It is done, also if the same content was published before.
  1  Something failed or is not permitted. Nothing is half done, and running the
     command again is safe. For doctor: something is wrong. For verify: a fault
     remains. For withdraw: the version is withdrawn, but objects of it remain,
     or the answer was no.
  2  The command line is wrong, which includes the values of flags.
  3  The input is refused: an address, a version, a module, a provider, or a
     file that a flag names.
  4  The version exists already with other content, or is withdrawn.
  5  It does not exist.
  6  doctor --stack found nothing wrong, but could not check everything.

With --json the code is in the field exit_code, beside error, hint and code. The
last is a stable name of the error, such as not_found.`,
	}
}

func environmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Variables that larder reads",
		Long: `Variables that larder reads:

  LARDER_STORE            the store, if no flag names a registry
  LARDER_REGISTRY         the URL of the registry, if no flag names one
  LARDER_CONTEXT          the context, if no flag names a registry
  LARDER_TOKEN            the credential with which doctor examines a registry
  LARDER_ID_TOKEN         the identity token of a CI job
  LARDER_SIGN_PASSPHRASE  the passphrase of the key of --sign-key
  LARDER_S3_PATH_STYLE    true puts the bucket's name into the path of S3's
                          URLs, for an emulator
  NO_COLOR                no colors on a terminal
  SSL_CERT_FILE           on Linux, a file with the authorities to trust

Only one of LARDER_STORE, LARDER_REGISTRY and LARDER_CONTEXT can be set.

The credentials for registries are those of OpenTofu and Terraform: TF_TOKEN_…,
what ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and credentials blocks. AWS
credentials and the region are those of the AWS command line.`,
	}
}

// accessTopic describes the file of `larder serve --access`.
func accessTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "access",
		Short: "Who may read and publish",
		Long: `Who may read and publish:

Holders of tokens may do what the scopes of their tokens allow: see
` + "`larder token create --help`" + `. The file of ` + "`larder serve --access FILE`" + ` adds
others. It is JSON, and also the setting "access" of a stack. This is all of it,
with comments that the file must not have:

` + accessExample + `
public and issuers can be missing, and login too. In patterns * is any one
segment between slashes, and ** any number of them.`,
	}
}

// accessExample is a file of access settings, with comments.
const accessExample = `  {
    // What anyone may read without a credential, by patterns over
    // modules/NAMESPACE/NAME/SYSTEM, providers/NAMESPACE/TYPE and
    // mirror/HOST/NAMESPACE/TYPE. A pattern covers what is below it too.
    "public": ["modules/acme/hello"],

    // OpenID Connect issuers whose tokens are credentials.
    "issuers": [
      {
        // The issuer's URL, exactly as it is in its tokens.
        "issuer": "https://login.example.com",
        // A token must be for one of these.
        "audiences": ["https://registry.example.com"],
        // The claim that names the caller in the log. Without it, sub does.
        "name": "email",
        // A token has the scopes of all rules whose claims all match.
        "rules": [
          { "claims": { "groups": "platform" }, "scopes": ["read:**"] }
        ]
      },
      {
        // Jobs of GitHub Actions. Name the claims that are yours: the issuer
        // vouches for everyone's jobs.
        "issuer": "https://token.actions.githubusercontent.com",
        "audiences": ["https://registry.example.com"],
        "rules": [
          {
            "claims": {
              "repository_owner_id": "1234567",
              "repository": "acme/*",
              "ref": "refs/heads/**"
            },
            "scopes": ["read:modules/acme/*"]
          }
        ]
      }
    ],

    // How people get a token by "tofu login" and "terraform login": one of the
    // issuers above, and a public client there.
    "login": {
      "issuer": "https://login.example.com",
      "client": "larder-cli",
      // Parameters that the issuer needs to give a token for an audience.
      "authorize": { "audience": "https://registry.example.com" }
    }
  }
`

func (c *cli) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Print the help of a command, or about a topic",
		Example: `  larder help publish module
  larder help exit-codes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, word := range args {
				sub := subcommand(about, word)
				if sub == nil && !about.HasSubCommands() {
					return usagef("unexpected argument%s", inError(word))
				}
				if sub == nil {
					return unknownCommand(about, []string{word})
				}
				about = sub
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			about := cmd.Root()
			for _, word := range args {
				if about = subcommand(about, word); about == nil {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
			}
			var found []cobra.Completion
			for _, sub := range about.Commands() {
				if !sub.Hidden {
					found = append(found, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// subcommand returns the command below another that a word names, or nil.
func subcommand(cmd *cobra.Command, word string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == word {
			return sub
		}
	}
	return nil
}

// checkHelp lets --help behind an unknown command say so, where cobra prints the
// help of the commands that there are. It also words the flags that cobra adds.
func (c *cli) checkHelp(root *cobra.Command) {
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	walk(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().Lookup("help").Usage = "print this help"
	})
	printHelp := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			c.helpError = unknownCommand(cmd, words)
			return
		}
		printHelp(cmd, args)
	})
}

// usageTemplate is cobra's with flags wrapped to the terminal.
const usageTemplate = `Usage:
  {{usageLine .}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if not .AllChildCommandsHaveGroup}}

{{if .Groups}}Other commands:{{else}}Commands:{{end}}{{range $cmds}}{{if and (eq .GroupID "") .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{wrappedFlags .LocalFlags | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{wrappedFlags .InheritedFlags | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Topics of ` + "`larder help`" + `:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name 12}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

` + "`{{.CommandPath}} COMMAND --help`" + ` says more about a command.{{end}}
`

func init() {
	cobra.EnableCommandSorting = false // commands are in a useful order
	cobra.AddTemplateFunc("wrappedFlags", wrappedFlags)
	cobra.AddTemplateFunc("usageLine", usageLine)
}

// usageLine returns how a command is written.
func usageLine(cmd *cobra.Command) string {
	if cmd.HasSubCommands() {
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}

// helpWidth is the number of columns that help has where there is no terminal.
const helpWidth = 80

func wrappedFlags(flags *pflag.FlagSet) string {
	width := helpWidth
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		width = min(w, 100)
	}
	return flags.FlagUsagesWrapped(width)
}
