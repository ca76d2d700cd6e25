package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/examine/stackdoctor"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// examination has the flags of doctor.
type examination struct {
	module, provider, mirror, mirrorURL, platform string
	stack                                         string
	fromStdin                                     bool
}

func doctorCommand(c *cli.Program) *cobra.Command {
	var e examination
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Diagnose why clients cannot use a registry",
		Long: `Examine a registry step by step, in the same way as a client uses it. The steps
are the clients' configuration, the connection and its certificate, the clocks,
discovery, login, and the credential. With flags it also downloads a module, and
verifies the signature and the hashes of a provider, own or mirrored ones. For a
step that is not ok, it prints the request, the result and how to fix it. It
changes nothing, but like every client, it can make a mirror fetch the version
that it examines.

First it examines the host blocks and the tokens of other registries, without a
request. It finds a token that clients would send to the wrong registry, and a
block with a wrong URL. In the current folder it reads which modules and
providers the clients need from a host with such a block.

Without URL it examines the registry in --registry, LARDER_REGISTRY, the current
context or ` + place.DefaultFolder + `. For a folder, it examines the host of the last
` + "`larder serve`" + `. It works with any registry that has the same protocols.

It uses the credential that clients have for the registry: a TF_TOKEN_…
variable, a token that ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, or a
credentials block. It also tests what clients send to the registry because of a
host block. To use another credential, set ` + place.TokenVariable + ` or use --token-stdin.
There is no flag for the token, because everyone on the machine can read a
command's arguments.

The exit code is 1 if something is wrong, and 0 otherwise. Warnings do not
change the exit code. With --quiet the command prints only steps that are not
ok.

With --stack it examines a deployed registry from inside its AWS account. It
compares the functions' code and settings, the routes and the limits of requests
with the stack's template. It checks the table, the bucket, the alarms with
their subscribers, the certificate of the domain, and the account's limits. It
uses the AWS credentials and the region of the AWS command line. They need only
the policy in the stack's output OperatorPolicyArn. If they cannot read
something, its outcome is "unknown". The exit code is 6 if nothing is wrong and
something is unknown.`,
		Example: `  larder doctor https://registry.example.com
  larder doctor https://registry.example.com --module acme/vpc/aws \
    --provider acme/inventory
  larder doctor https://127.0.0.1:8443 --json \
    --mirror registry.opentofu.org/hashicorp/random
  larder doctor https://registry.example.com --token-stdin <token.txt
  larder doctor --stack larder`,
	}
	cmd.RunE = c.Run(func(ctx context.Context, args []string) (output.View, error) {
		if cmd.Flags().Changed("stack") {
			if err := onlyStack(cmd, args); err != nil {
				return nil, err
			}
			return examineStack(ctx, c, e.stack)
		}
		p, err := examinedPlace(c, args)
		if err != nil {
			return nil, err
		}
		d, err := e.doctor(p.Host, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		c.About = p
		d.Found = examining(c, p.String()).found
		report, err := d.Examine(ctx)
		if err != nil {
			return nil, err
		}
		return newExaminedView(report)
	})
	cmd.Flags().StringVar(&e.module, "module", "",
		"download the module at `ADDRESS`: NAMESPACE/NAME/SYSTEM")
	cmd.Flags().StringVar(&e.provider, "provider", "",
		"verify the provider at `ADDRESS`: NAMESPACE/TYPE")
	cmd.Flags().StringVar(&e.mirror, "mirror", "",
		"verify the mirrored provider or module at `ADDRESS`: HOSTNAME/NAMESPACE/TYPE or HOSTNAME/NAMESPACE/NAME/SYSTEM")
	cmd.Flags().StringVar(&e.mirrorURL, "mirror-url", "",
		"`URL` of the mirror, which gets only the credential for its own host "+
			"(default the network_mirror in the clients' configuration, or https://HOST/v1/mirror/)")
	cmd.Flags().StringVar(&e.platform, "platform", "",
		"verify the packages for `PLATFORM`: OS_ARCH (default this machine's)")
	cmd.Flags().StringVar(&e.stack, "stack", "", "examine the deployed registry of the stack `NAME` with AWS credentials")
	cmd.Flags().BoolVar(&e.fromStdin, "token-stdin", false, "read the credential from standard input")
	cmd.Flags().StringVar(&c.PlaceFlags.Registry, "registry", "", "the `URL` of the registry, like the argument URL")
	cmd.Flags().StringVar(&c.PlaceFlags.Context, "context", "", "use the context `NAME` instead of the current one")
	return cmd
}

// examinedPlace returns the registry to examine: the one in the URL argument,
// or the one that all commands use.
func examinedPlace(c *cli.Program, args []string) (place.Place, error) {
	if len(args) > 0 {
		for flag, value := range map[string]string{"registry": c.PlaceFlags.Registry, "context": c.PlaceFlags.Context} {
			if value != "" {
				return place.Place{}, registry.WithHint(
					arguments.Errorf("the URL%s and --%s both name a registry", arguments.InError(args[0]), flag), "Use only one of them.")
			}
		}
		return place.ParseRegistry(args[0])
	}
	p, err := c.Named()
	if err != nil || p.Host != "" {
		return p, err
	}
	if p.Stack != "" {
		return place.Place{}, registry.WithHint(arguments.Errorf("URL is missing, and %s has no URL", p),
			"To examine the stack from inside its AWS account, run `larder doctor --stack %s`. "+
				"To examine it as a client, give its URL.", arguments.Quoted(p.Stack))
	}
	if host := local.Host(p.Dir); host != "" {
		served, err := place.ParseRegistry("https://" + host)
		served.From = "the last address of " + p.String()
		return served, err
	}
	missing := arguments.Errorf("URL is missing")
	if p.Gone == "" && p.From != "default" {
		missing = arguments.Errorf("URL is missing, and %s was never served", p)
	}
	if file, err := place.ReadContexts(); err == nil {
		for _, name := range file.Names() {
			if url := file.Contexts[name].Registry; url != "" {
				return place.Place{}, registry.WithHint(missing, "Give the URL of the registry, or use --context %s (%s).", name, url)
			}
		}
	}
	return place.Place{}, registry.WithHint(missing,
		"Give the URL of the registry, such as https://registry.example.com, or the name of a stack with --stack.")
}

func (e examination) doctor(host string, stdin io.Reader) (d doctor.Doctor, err error) {
	d = doctor.Doctor{Agent: "larder/" + version(), Host: host, MirrorURL: e.mirrorURL, Folder: "."}
	if d.Module, err = optional("--module", e.module, registry.ParseModule); err != nil {
		return d, err
	}
	if d.Provider, err = optional("--provider", e.provider, registry.ParseProvider); err != nil {
		return d, err
	}
	if d.Mirror, err = optional("--mirror", e.mirror, registry.ParseMirrorAddress); err != nil {
		return d, err
	}
	if p, err := optional("--platform", e.platform, registry.ParsePlatform); err != nil {
		return d, err
	} else if p != nil {
		d.Platform = *p
	}
	d.Config, d.Unread = place.ClientConfiguration()
	d.Authorities = os.Getenv("SSL_CERT_FILE")
	if d.Token, d.TokenFrom = strings.TrimSpace(os.Getenv(place.TokenVariable)), "in "+place.TokenVariable; e.fromStdin {
		if d.Token, err = arguments.ReadToken(stdin); err != nil {
			return d, err
		}
		d.TokenFrom = "from standard input"
	}
	if strings.ContainsFunc(d.Token, unicode.IsControl) {
		return d, arguments.Errorf("the token %s has a line break or another control character in it", d.TokenFrom)
	}
	return d, nil
}

// optional parses the value of an optional flag. It returns nil if the value is
// empty.
func optional[T any](flag, text string, parse func(string) (T, error)) (*T, error) {
	if text == "" {
		return nil, nil
	}
	parsed, err := parse(text)
	if err != nil {
		return nil, arguments.Errorf("%s: %w", flag, err)
	}
	return &parsed, nil
}

// onlyStack returns an error for arguments and flags that do not apply to
// --stack.
func onlyStack(cmd *cobra.Command, args []string) error {
	if stack, _ := cmd.Flags().GetString("stack"); stack == "" {
		return arguments.Errorf("--stack needs the name of a stack")
	}
	if len(args) > 0 {
		return registry.WithHint(arguments.Errorf("--stack and %s both name a registry", args[0]), "Use only one of them.")
	}
	var other error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "stack" && cmd.InheritedFlags().Lookup(f.Name) == nil {
			other = arguments.Errorf("--%s cannot be combined with --stack", f.Name)
		}
	})
	return other
}

// examinedSteps prints each step of an examination when it ends, because a
// whole examination can take a minute.
type examinedSteps struct {
	output.Page
	problems bool // print only steps that are not ok
	silent   bool
}

// examining prints the name of the registry, and returns the printer of the
// steps.
func examining(c *cli.Program, what string) examinedSteps {
	s := examinedSteps{Page: c.Page(), problems: c.Quiet, silent: c.JSON}
	if !c.JSON && !c.Quiet {
		s.Printf("Examining %s\n\n", what)
	}
	return s
}

func (s examinedSteps) found(step doctor.Step) {
	fine := step.Outcome == doctor.OK || step.Outcome == doctor.Skipped
	if s.silent || s.problems && fine {
		return
	}
	s.Item(string(step.Outcome), step.Name+": "+step.Result)
	if step.Request != "" && !fine {
		s.detail("request", step.Request)
	}
	if step.Fix != "" {
		s.detail("fix", step.Fix)
	}
}

func (s examinedSteps) detail(label, text string) {
	indent := strings.Repeat(" ", output.StateWidth+1)
	s.Printf("%s%s: %s\n", indent, label, s.WrapAt(len(indent)+len(label)+2, text))
}

// examinedView is the report about a registry.
type examinedView struct {
	doctor.Report
	// OK is true if no step is wrong.
	OK bool `json:"ok"`
}

// newExaminedView returns the report, and an error if a step is wrong.
func newExaminedView(report doctor.Report) (output.View, error) {
	wrong := report.Count(doctor.Wrong)
	if wrong > 0 {
		return examinedView{report, false},
			fmt.Errorf("%s: %s wrong", report.Host, english.Plural(wrong, "thing is", "things are"))
	}
	return examinedView{report, true}, nil
}

// Text prints the configuration and the summary after the steps.
func (v examinedView) Text(p output.Page) {
	if v.Configuration != "" {
		p.Printf("\nAdd this to the configuration of the clients:\n\n")
		for line := range strings.Lines(v.Configuration) {
			p.Printf("%s\n", strings.TrimRight("  "+line, " \n"))
		}
	}
	if v.OK {
		p.Printf("\n%s\n", p.Wrap(fmt.Sprintf("Nothing is wrong with %s in these steps; %s.",
			v.Host, english.Plural(v.Count(doctor.Warning), "warning", ""))))
	}
}

// examineStack examines a deployed stack and prints each step when it ends.
func examineStack(ctx context.Context, c *cli.Program, name string) (output.View, error) {
	configuration, pathStyle, err := place.AWSConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	c.About = place.Place{Name: "stack:" + name, Stack: name}
	d := stackdoctor.Doctor{
		Stack:    name,
		Region:   configuration.Region,
		Services: stackdoctor.NewServices(configuration, pathStyle),
		Release:  version(),
		Fatal:    func(err error) bool { return place.CredentialsProblem(err) != "" },
		Found:    examining(c, "stack "+name+" in "+configuration.Region).found,
	}
	report, err := d.Examine(ctx)
	if err != nil {
		return nil, err
	}
	return newExaminedStackView(report)
}

// examinedStackView is the report about a deployed stack.
type examinedStackView struct {
	stackdoctor.Report
	// OK is true if no step is wrong or unknown.
	OK bool `json:"ok"`
}

// newExaminedStackView returns the report, and an error if a step is wrong or unknown.
// The error is an [failure.Unchecked] if no step is wrong.
func newExaminedStackView(report stackdoctor.Report) (output.View, error) {
	wrong, unknown := report.Count(doctor.Wrong), report.Count(doctor.Unknown)
	switch {
	case wrong > 0:
		return examinedStackView{report, false},
			fmt.Errorf("stack %s: %s wrong", report.Stack, english.Plural(wrong, "thing is", "things are"))
	case unknown > 0:
		return examinedStackView{report, false}, failure.Unchecked(
			fmt.Errorf("stack %s: nothing is wrong, but %s not be checked",
				report.Stack, english.Plural(unknown, "thing could", "things could")),
		)
	}
	return examinedStackView{report, true}, nil
}

// Text prints the summary after the steps.
func (v examinedStackView) Text(p output.Page) {
	if v.OK {
		p.Printf("\n%s\n", p.Wrap(fmt.Sprintf("Nothing is wrong with stack %s; %s.",
			v.Stack, english.Plural(v.Count(doctor.Warning), "warning", ""))))
	}
}
