package main

import (
	"bufio"
	"context"
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
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

const tokenFromEnv = "LARDER_TOKEN" //nolint:gosec // the name of a variable

// examination are the flags of doctor.
type examination struct {
	module, provider, mirror, mirrorURL, platform string
	stack                                         string
	fromStdin                                     bool
}

func (c *cli) doctorCommand() *cobra.Command {
	var e examination
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Find out why clients cannot use a registry",
		Long: `Examine a registry as a client uses it, step by step: the configuration of the
clients, the connection and its certificate, clocks, discovery, login, the
credential, a module to the last byte of its archive, a provider to its verified
signature and hashes, and a mirrored provider. For each step that is not ok it
prints what was tried, what was found, and what to do. It changes nothing.

Without URL it examines the registry that --registry, LARDER_REGISTRY or the
current context names, or else the one in ` + defaultData + `. If that is a
folder, it examines the host by which the folder was served last. It works with
any registry. Modules and providers are examined if a flag names them.

The credential is the one that clients have for the registry: TF_TOKEN_… in the
environment, what ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, or a credentials
block. To use another one, set ` + tokenFromEnv + ` or use --token-stdin. Everyone on
the machine can read the arguments of a command.

It exits with 1 if something is wrong, and with 0 if there are at most warnings.
With --quiet it prints only what is not ok.

With --stack it examines a deployed registry from inside its AWS account: the
table and the bucket, the functions with their code and settings, the alarms and
their subscribers, and the certificate of the domain. It uses the AWS
credentials and the region that the AWS command line would use. The policy
OperatorPolicyArn of the stack's outputs is enough. What the credentials may not
read is "unknown". It exits with 6 if nothing is wrong and something is unknown.`,
		Example: `  larder doctor https://registry.example.com
  larder doctor https://registry.example.com --module acme/vpc/aws \
    --provider acme/inventory
  larder doctor https://127.0.0.1:8443 --json \
    --mirror registry.opentofu.org/hashicorp/random
  larder doctor https://registry.example.com --token-stdin <token.txt
  larder doctor --stack larder`,
	}
	cmd.RunE = c.run(func(ctx context.Context, args []string) (view, error) {
		if cmd.Flags().Changed("stack") {
			if err := onlyStack(cmd, args); err != nil {
				return nil, err
			}
			return c.examineStack(ctx, e.stack)
		}
		p, err := c.examinedPlace(args)
		if err != nil {
			return nil, err
		}
		d, err := e.doctor(p.host, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		c.about = p
		d.Found = c.examining(p.String()).found
		report, err := d.Examine(ctx)
		if err != nil {
			return nil, err
		}
		return examinedRegistry(report)
	})
	cmd.Flags().StringVar(&e.module, "module", "",
		"follow the module at `ADDRESS` to its last byte: NAMESPACE/NAME/SYSTEM")
	cmd.Flags().StringVar(&e.provider, "provider", "",
		"follow the provider at `ADDRESS` to its verified signature: NAMESPACE/TYPE")
	cmd.Flags().StringVar(&e.mirror, "mirror", "",
		"follow the mirrored provider at `ADDRESS` to its hashes: HOSTNAME/NAMESPACE/TYPE")
	cmd.Flags().StringVar(&e.mirrorURL, "mirror-url", "",
		"`URL` of the mirror, which gets the credential of its own host "+
			"(default the network_mirror of the clients' configuration, or https://HOST/v1/mirror/)")
	cmd.Flags().StringVar(&e.platform, "platform", "",
		"examine packages for `PLATFORM`: OS_ARCH (default this machine's)")
	cmd.Flags().StringVar(&e.stack, "stack", "", "examine the deployed registry of the stack `NAME`, with AWS credentials")
	cmd.Flags().BoolVar(&e.fromStdin, "token-stdin", false, "read the credential from standard input")
	cmd.Flags().StringVar(&c.where.registry, "registry", "", "the `URL` of the registry, as the argument would name it")
	cmd.Flags().StringVar(&c.where.context, "context", "", "use the context `NAME` in place of the current one")
	return cmd
}

// examinedPlace returns the registry to examine: by its URL, or by what names one
// to all commands.
func (c *cli) examinedPlace(args []string) (place, error) {
	if len(args) > 0 {
		for flag, value := range map[string]string{"registry": c.where.registry, "context": c.where.context} {
			if value != "" {
				return place{}, registry.WithHint(
					usagef("the URL%s and --%s both name a registry", inError(args[0]), flag), "Give one of them.")
			}
		}
		return parseRegistry(args[0])
	}
	p, err := c.findPlace()
	if err != nil || p.host != "" {
		return p, err
	}
	if p.stack != "" {
		return place{}, registry.WithHint(usagef("URL is missing, and %s has none", p),
			"`larder doctor --stack %s` examines the stack from inside its AWS account. "+
				"To examine it as clients use it, give its URL.", quoted(p.stack))
	}
	if host := local.Host(p.dir); host != "" {
		served, err := parseRegistry("https://" + host)
		served.from = "where " + p.String() + " was served last"
		return served, err
	}
	missing := usagef("URL is missing")
	if p.gone == "" && p.from != "default" {
		missing = usagef("URL is missing, and %s was never served", p)
	}
	if file, err := c.readContexts(); err == nil {
		for _, name := range file.Names() {
			if url := file.Contexts[name].Registry; url != "" {
				return place{}, registry.WithHint(missing, "Give the URL of the registry, or use --context %s (%s).", name, url)
			}
		}
	}
	return place{}, registry.WithHint(missing,
		"Give the URL of the registry, such as https://registry.example.com, or the name of a stack with --stack.")
}

// doctor returns one for the registry of a host.
func (e examination) doctor(host string, stdin io.Reader) (d doctor.Doctor, err error) {
	d = doctor.Doctor{Agent: "larder/" + version(), Host: host, MirrorURL: e.mirrorURL}
	if d.Module, err = optional("--module", e.module, registry.ParseModule); err != nil {
		return d, err
	}
	if d.Provider, err = optional("--provider", e.provider, registry.ParseProvider); err != nil {
		return d, err
	}
	if d.Mirror, err = optional("--mirror", e.mirror, registry.ParseMirrorProvider); err != nil {
		return d, err
	}
	if p, err := optional("--platform", e.platform, registry.ParsePlatform); err != nil {
		return d, err
	} else if p != nil {
		d.Platform = *p
	}
	d.Config, d.Unread = clientConfiguration()
	d.Authorities = os.Getenv("SSL_CERT_FILE")
	if d.Token, d.TokenFrom = strings.TrimSpace(os.Getenv(tokenFromEnv)), "in "+tokenFromEnv; e.fromStdin {
		if d.Token, err = readToken(stdin); err != nil {
			return d, err
		}
		d.TokenFrom = "from standard input"
	}
	if strings.ContainsFunc(d.Token, unicode.IsControl) {
		return d, usagef("the token %s has a line break or another control character in it", d.TokenFrom)
	}
	return d, nil
}

// optional parses the value of a flag that may be left out.
func optional[T any](flag, text string, parse func(string) (T, error)) (*T, error) {
	if text == "" {
		return nil, nil
	}
	parsed, err := parse(text)
	if err != nil {
		return nil, usagef("%s: %w", flag, err)
	}
	return &parsed, nil
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
		return "", usagef("there is no token on standard input: it is one line")
	}
	return token, nil
}

// onlyStack refuses what does not apply to a stack.
func onlyStack(cmd *cobra.Command, args []string) error {
	if stack, _ := cmd.Flags().GetString("stack"); stack == "" {
		return usagef("--stack needs the name of a stack")
	}
	if len(args) > 0 {
		return registry.WithHint(usagef("--stack and %s both name what to examine", args[0]), "Give one of them.")
	}
	var other error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "stack" && cmd.InheritedFlags().Lookup(f.Name) == nil {
			other = usagef("--%s is for the URL of a registry, and not for --stack", f.Name)
		}
	})
	return other
}

// examinedSteps prints the steps of an examination as they are found, because a whole
// examination can take a minute.
type examinedSteps struct {
	page
	problems bool // only steps that are a problem
	silent   bool
}

// examining returns what prints the steps, and prints what is examined.
func (c *cli) examining(what string) examinedSteps {
	s := examinedSteps{page: c.page(), problems: c.quiet, silent: c.json}
	if !c.json && !c.quiet {
		s.printf("Examining %s\n\n", what)
	}
	return s
}

func (s examinedSteps) found(step doctor.Step) {
	fine := step.Outcome == doctor.OK || step.Outcome == doctor.Skipped
	if s.silent || s.problems && fine {
		return
	}
	s.item(string(step.Outcome), step.Name+": "+step.Result)
	// Of what went well the request says nothing new.
	if step.Request != "" && !fine {
		s.detail("tried", step.Request)
	}
	if step.Fix != "" {
		s.detail("to do", step.Fix)
	}
}

func (s examinedSteps) detail(label, text string) {
	indent := strings.Repeat(" ", stateWidth+1)
	s.printf("%s%s: %s\n", indent, label, s.beside(len(indent)+len(label)+2, text))
}

// examinedView is what was found about a registry.
type examinedView struct {
	doctor.Report
	// OK says that nothing is wrong.
	OK bool `json:"ok"`
}

// examinedRegistry returns what was found, with an error if something is wrong.
func examinedRegistry(report doctor.Report) (view, error) {
	wrong := report.Count(doctor.Wrong)
	if wrong > 0 {
		return examinedView{report, false},
			fmt.Errorf("%s: %s wrong", report.Host, english.Plural(wrong, "thing is", "things are"))
	}
	return examinedView{report, true}, nil
}

// text prints what follows the steps, which are printed already.
func (v examinedView) text(p page) {
	if v.Configuration != "" {
		p.printf("\nAdd this to the configuration of the clients:\n\n")
		for line := range strings.Lines(v.Configuration) {
			p.printf("%s\n", strings.TrimRight("  "+line, " \n"))
		}
	}
	if v.OK {
		p.printf("\n%s\n", p.Wrap(fmt.Sprintf("Nothing is wrong with %s, as far as it was examined; %s.",
			v.Host, english.Plural(v.Count(doctor.Warning), "warning", ""))))
	}
}
