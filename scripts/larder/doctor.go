package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/registry"
)

const tokenFromEnv = "LARDER_TOKEN" //nolint:gosec // the name of a variable

// printedError is a failure that a command has printed already.
type printedError struct{ error }

func (e printedError) Unwrap() error { return e.error }

func (c *cli) doctorCommand() *cobra.Command {
	var module, provider, mirror, platform, stack string
	var fromStdin bool
	d := doctor.Doctor{Agent: "larder/" + version()}
	cmd := &cobra.Command{
		Use:   "doctor (URL | --stack NAME)",
		Short: "Find out why clients cannot use a registry",
		Long: `Examine a registry as a client uses it, step by step: how clients are configured, the connection and its certificate, clocks, discovery, logging
in, the credential, a module to the last byte of its archive, a provider to its verified signature and hashes, a mirrored provider. Of
each step it tells what was tried, what was seen, and what to do. What is not named is left out. It changes nothing.

The credential is the one that the clients have for the registry: TF_TOKEN_… in the environment, what ` + "`tofu login`" + ` or
` + "`terraform login`" + ` has stored, a credentials block. To examine another one, put it in ` + tokenFromEnv + ` or hand it in by --token-stdin: the
arguments of a command are read by everyone on the machine.

It works with any registry. It exits with 1 where something is wrong, and with 0 where there are at most warnings.

With --stack it examines a deployed registry from inside its AWS account instead:
the table and the bucket, the functions with their code and settings, the alarms
and their subscribers, and the certificate of the domain. It uses the AWS
credentials and the region that the AWS command line would use. The policy
OperatorPolicyArn of the stack's outputs is enough. What the credentials may not
read is "unknown". It exits with 6 if nothing is wrong and something is unknown.`,
		Example: `  larder doctor https://registry.example.com
  larder doctor https://registry.example.com --module acme/vpc/aws --provider acme/inventory
  larder doctor https://127.0.0.1:8443 --mirror registry.opentofu.org/hashicorp/random --json
  larder doctor https://registry.example.com --module acme/vpc/aws --token-stdin <token.txt
  larder doctor --stack larder`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cmd.Flags().Changed("stack") {
				if err := onlyStack(cmd, args); err != nil {
					return err
				}
				return c.examineStack(cmd.Context(), stack)
			}
			if len(args) == 0 {
				return usageError{errors.New("name the registry's URL, or a stack with --stack")}
			}
			if d.Host, err = registryHost(args[0]); err != nil {
				return err
			}
			if d.Module, err = optional(module, registry.ParseModule); err != nil {
				return err
			}
			if d.Provider, err = optional(provider, registry.ParseProvider); err != nil {
				return err
			}
			if d.Mirror, err = optional(mirror, registry.ParseMirrorProvider); err != nil {
				return err
			}
			if p, err := optional(platform, registry.ParsePlatform); err != nil {
				return err
			} else if p != nil {
				d.Platform = *p
			}
			d.Config, d.Unread = clientConfiguration()
			d.Authorities = os.Getenv("SSL_CERT_FILE")
			if d.Token, d.TokenFrom = strings.TrimSpace(os.Getenv(tokenFromEnv)), "in "+tokenFromEnv; fromStdin {
				if d.Token, err = readToken(cmd.InOrStdin()); err != nil {
					return err
				}
				d.TokenFrom = "from standard input"
			}
			if strings.ContainsFunc(d.Token, unicode.IsControl) {
				return usageError{fmt.Errorf("the token %s has a line break or another control character in it", d.TokenFrom)}
			}
			if !c.json {
				d.Found = c.printStep
			}
			report, err := d.Examine(cmd.Context())
			if err != nil {
				return err
			}
			return c.printReport(report)
		},
	}
	cmd.Flags().StringVar(&module, "module", "", "a module to follow to its last byte: NAMESPACE/NAME/SYSTEM")
	cmd.Flags().StringVar(&provider, "provider", "", "a provider to follow to its verified signature: NAMESPACE/TYPE")
	cmd.Flags().StringVar(&mirror, "mirror", "", "a mirrored provider to follow to its hashes: HOSTNAME/NAMESPACE/TYPE")
	cmd.Flags().StringVar(&d.MirrorURL, "mirror-url", "", "where the mirror is (default as a network_mirror of the clients' configuration has it, or https://HOST/v1/mirror/); it is asked with the credential of its own host")
	cmd.Flags().StringVar(&platform, "platform", "", "whose packages to look at, as OS_ARCH (default this machine's)")
	cmd.Flags().StringVar(&stack, "stack", "", "examine a deployed stack by its name, with AWS credentials")
	cmd.Flags().BoolVar(&fromStdin, "token-stdin", false, "read the credential from standard input, in place of the clients' own or that of "+tokenFromEnv)
	return cmd
}

// optional parses what may be left out.
func optional[T any](text string, parse func(string) (T, error)) (*T, error) {
	if text == "" {
		return nil, nil
	}
	parsed, err := parse(text)
	return &parsed, err
}

// readToken reads a credential, which is one line.
func readToken(from io.Reader) (string, error) {
	const most = 16 << 10
	line, err := bufio.NewReader(io.LimitReader(from, most+1)).ReadString('\n')
	token := strings.TrimSpace(line)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", err
	case token == "" || len(line) > most:
		return "", usageError{errors.New("there is no token on standard input: it is one line")}
	}
	return token, nil
}

// onlyStack refuses what does not apply to a stack.
func onlyStack(cmd *cobra.Command, args []string) error {
	if stack, _ := cmd.Flags().GetString("stack"); stack == "" {
		return usageError{errors.New("--stack needs the name of a stack")}
	}
	if len(args) > 0 {
		return usageError{fmt.Errorf("--stack examines a stack, and %s is a URL: give one of the two", args[0])}
	}
	var other error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "stack" && f.Name != "json" {
			other = usageError{fmt.Errorf("--%s is for a registry's URL, and not for --stack", f.Name)}
		}
	})
	return other
}

// printReport prints what was found, but for the steps if they are printed already, and fails where something is wrong.
func (c *cli) printReport(report doctor.Report) error {
	wrong := report.Count(doctor.Wrong)
	var failure error
	if wrong > 0 {
		failure = fmt.Errorf("%s: %s wrong", report.Host, english.Plural(wrong, "thing is", "things are"))
	}
	if c.json {
		if err := c.printJSON(struct {
			doctor.Report
			OK bool `json:"ok"`
		}{report, wrong == 0}); err != nil || failure == nil {
			return err
		}
		return printedError{failure}
	}
	if report.Configuration != "" {
		c.printf("\nWhat the configuration of the clients lacks:\n\n")
		for line := range strings.Lines(report.Configuration) {
			c.printf("%s", strings.TrimRight("  "+line, " \n")+"\n")
		}
	}
	if failure == nil {
		warnings := english.Plural(report.Count(doctor.Warning), "warning", "")
		c.printf("\nNothing is wrong with %s, as far as it was looked at; %s.\n", report.Host, warnings)
	}
	return failure
}

// printStep prints one as it is found.
func (c *cli) printStep(step doctor.Step) {
	c.printf("%-8s %s: %s\n", step.Outcome, step.Name, step.Seen)
	// Of what went well the request says nothing new.
	if step.Tried != "" && step.Outcome != doctor.OK && step.Outcome != doctor.Skipped {
		c.printf("         tried: %s\n", step.Tried)
	}
	if step.Do != "" {
		c.printf("         to do: %s\n", step.Do)
	}
}
