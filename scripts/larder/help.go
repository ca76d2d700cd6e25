package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// exitCodesTopic returns the topic `larder help exit-codes`.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Meaning of the exit codes",
		Long: `Exit codes:

  0  The command succeeded. Publishing the same content again succeeds too.
  1  The command failed, or you have no permission. Nothing is half done, and
     you can safely run the command again. For doctor: something is wrong. For
     verify: a fault remains. For withdraw: you answered no, or the version is
     withdrawn but some of its objects could not be deleted.
  2  The command line is wrong, for example the value of a flag.
  3  The input is invalid: an address, a version, a module, a provider, or a
     file that a flag names.
  4  The version already exists with other content, or is withdrawn.
  5  Something that the command line names does not exist.
  6  doctor --stack found nothing wrong, but could not check everything.
  7  diff found breaking changes.
  8  A version must not be mirrored: the mirror policy does not allow it, it is
     too new, or the key that signed it is not trusted.

With --json, the field exit_code has the exit code. The field code has a stable
name of the error, such as not_found.`,
	}
}

// environmentTopic returns the topic `larder help environment`.
func environmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Environment variables that larder reads",
		Long: `Environment variables that larder reads:

  LARDER_STORE            the registry's store, if no flag names a registry
  LARDER_REGISTRY         the registry's URL, if no flag names a registry
  LARDER_CONTEXT          the context, if no flag names a registry
  LARDER_TOKEN            the token for the registry's URL. It is sent only to
                          the registry that --registry or the context names,
                          or that doctor examines
  LARDER_ID_TOKEN         the identity token of a CI job
  LARDER_SIGN_PASSPHRASE  the passphrase of the key in --sign-key
  LARDER_S3_PATH_STYLE    true to use path-style S3 URLs, as emulators need
  NO_COLOR                turns off colors on a terminal
  SSL_CERT_FILE           on Linux, a file with the certificate authorities to
                          trust

You can set only one of LARDER_STORE, LARDER_REGISTRY and LARDER_CONTEXT.

Larder uses the registry credentials of OpenTofu and Terraform: TF_TOKEN_…
variables, tokens that ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and
credentials blocks. It uses the AWS credentials and the region of the AWS
command line.`,
	}
}

// accessTopic describes the file of `larder serve --access`.
func accessTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "access",
		Short: "Access settings: who can read and publish",
		Long: `Access settings:

The scopes of a token define what its holder can read and publish. See
` + "`larder token create --help`" + `. The file in ` + "`larder serve --access FILE`" + ` gives
access to others. The setting "access" of a stack has the same format. This
example has the fields that most registries need. The file is JSON, so leave
out the comments:

` + accessExample + `
You can leave out public, issuers and login. In a pattern, * matches one segment
between slashes, and ** matches any number of segments.`,
	}
}

// accessExample is an access settings file with comments.
const accessExample = `  {
    // Patterns for what anyone can read without a credential. They match
    // modules/NAMESPACE/NAME/SYSTEM and providers/NAMESPACE/TYPE. For the
    // mirror it is mirror-modules/HOST/NAMESPACE/NAME/SYSTEM and
    // mirror/HOST/NAMESPACE/TYPE. A pattern also covers everything below it.
    "public": ["modules/acme/hello"],

    // OpenID Connect issuers whose tokens the registry accepts.
    "issuers": [
      {
        // The issuer's URL, exactly as in the iss claim of its tokens.
        "issuer": "https://login.example.com",
        // The aud claim of a token must have one of these values.
        "audiences": ["https://registry.example.com"],
        // The claim that names the caller in the log. The default is sub.
        "name": "email",
        // A token gets the scopes of each rule whose claims all match.
        "rules": [
          { "claims": { "groups": "platform" }, "scopes": ["read:**"] }
        ]
      },
      {
        // GitHub Actions jobs. This issuer signs tokens for everyone's jobs:
        // restrict the claims to yours.
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

    // How people sign in with "tofu login" and "terraform login": one of the
    // issuers above, and a public client of that issuer.
    "login": {
      "issuer": "https://login.example.com",
      "client": "larder-cli",
      // Parameters that the issuer needs to issue a token for an audience.
      "authorize": { "audience": "https://registry.example.com" },
      // How people log in to the web pages: a client of the issuer whose
      // redirect is https://HOST/login/callback. Without it they use a token.
      // If the client has a secret, set secretFile to the path of a file with
      // it. For a stack, set secretParameter to the name of an SSM parameter.
      "web": { "client": "larder-web" }
    }
  }
`

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Print help about a command or a topic",
		Example: `  larder help publish module
  larder help exit-codes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, word := range args {
				sub := subcommand(about, word)
				if sub == nil && !about.HasSubCommands() {
					return arguments.Errorf("unexpected argument%s", arguments.InError(word))
				}
				if sub == nil {
					return arguments.UnknownCommand(about, []string{word})
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

// subcommand returns the subcommand with a name, or nil.
func subcommand(cmd *cobra.Command, word string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == word {
			return sub
		}
	}
	return nil
}

// describeFlags sets the usage texts of cobra's own flags.
func describeFlags(root *cobra.Command) {
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	arguments.Walk(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().Lookup("help").Usage = "print this help"
	})
}

// checkHelp calls report with the error for an unknown command before --help,
// instead of printing help. By default cobra prints the help of the parent command.
func checkHelp(root *cobra.Command, report func(error)) {
	printHelp := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			report(arguments.UnknownCommand(cmd, words))
			return
		}
		printHelp(cmd, args)
	})
}

// usageTemplate is cobra's template, with flags wrapped to the terminal's
// width.
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

Run ` + "`{{.CommandPath}} COMMAND --help`" + ` for help about a command.{{end}}
`

func init() {
	cobra.EnableCommandSorting = false // keep the order in which commands are added
	cobra.AddTemplateFunc("wrappedFlags", wrappedFlags)
	cobra.AddTemplateFunc("usageLine", usageLine)
}

func usageLine(cmd *cobra.Command) string {
	switch {
	case arguments.IsGroup(cmd):
		return cmd.CommandPath() + " COMMAND"
	case cmd.HasSubCommands():
		return cmd.CommandPath() + " [COMMAND] [flags]"
	}
	return cmd.UseLine()
}

// helpWidth is the width of help without a terminal, in columns.
const helpWidth = 80

func wrappedFlags(flags *pflag.FlagSet) string {
	width := helpWidth
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		width = min(w, 100)
	}
	return flags.FlagUsagesWrapped(width)
}
