package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/policyfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func policyCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Decide what may be mirrored, and when",
		Long: `Show, set and check the mirror policy. It decides which providers and modules
may be mirrored, and when. It is a file such as

  deny "registry.opentofu.org/hashicorp/consul" {
    reason = "We do not use it."
  }
  allow "registry.opentofu.org/hashicorp/*" {
    min_age      = "7d"                  # m, h, d or w
    unknown_age  = "wait"                # or "admit", the default
    platforms    = ["linux_amd64", "darwin_arm64"]
    max_size     = "600MiB"              # of one package
    signing_keys = ["34365D9472D7468F"]  # IDs or fingerprints
    pull         = "closed"              # or "open"; the default is neither
  }
  allow "providers.example.com/*/*" {
    upstream = "https://registry.example.com"
    networks = ["10.0.0.0/8"]            # besides public addresses
  }
  allow "registry.opentofu.org/terraform-aws-modules/*/*" {    # modules
    pull   = "closed"
    forges = ["gitlab://git.example.com"]    # besides the public ones
  }
  allow "*/*/*" {
    min_age     = "14d"
    unknown_age = "wait"
  }
  budget {
    packages_per_day = 500
    size_per_day     = "20GiB"
  }

A pattern is HOSTNAME/NAMESPACE/TYPE for providers, or
HOSTNAME/NAMESPACE/NAME/SYSTEM for modules. Each part can be *. The first rule
that matches an address applies. What no rule matches is denied. All attributes
are optional. Without a policy, operators may mirror everything.

A rule for modules has no platforms, no signing_keys and no pull = "open". Its
forges are hosts from whose repositories the mirror gets archives without git:
github://, gitlab://, bitbucket:// or forgejo:// and the host.

Some origins give no publication times, or not for all versions. A minimum age
only applies to versions without a time with unknown_age = "wait". Without it,
they are admitted at once.

With pull, the mirror fetches a version when a client needs it. If pull is
"closed", clients get the version when it is copied and verified. If pull is
"open", they get it from the origin until then. The budget limits what clients
make the mirror copy in a day. Its default is 500 packages and 20GiB.

The origin is upstream, or else the host in the provider's address. It may only
have public addresses, and those in networks.

The policy decides what gets into the mirror. Mirrored versions stay there, and
clients get them, whatever the policy becomes.`,
		Example: `  larder mirror policy show
  larder mirror policy check policy.hcl registry.opentofu.org/hashicorp/aws
  larder mirror policy set policy.hcl`,
	}
	cmd.AddCommand(policyShowCommand(c), policySetCommand(c), policyCheckCommand(c))
	return cmd
}

func policyShowCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the mirror policy",
		Long: `Show the mirror policy as it was set. Standard output has only the policy, and
nothing if there is none. The command prints to standard error who has set it.`,
		Example: `  larder mirror policy show
  larder mirror policy show --store stack:larder > policy.hcl`,
		RunE: c.Run(func(ctx context.Context, _ []string) (output.View, error) {
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				policy, err := s.Catalog.MirrorPolicy(ctx)
				if err != nil {
					return nil, err
				}
				printSetBy(c, policy)
				return PolicyView{policy}, nil
			})
		}),
	}
	c.StoreFlags(cmd)
	return cmd
}

// printSetBy prints who set the policy, and when. The policy can be nil.
func printSetBy(c *cli.Program, policy *registry.MirrorPolicy) {
	if c.Quiet || c.JSON {
		return
	}
	out := terminal.New(c.Stderr)
	if policy == nil {
		fmt.Fprintln(out, out.Wrap("No mirror policy is set, so operators may mirror every provider. "+
			"Set one with `larder mirror policy set FILE`."))
		return
	}
	fmt.Fprintln(out, out.Wrap(fmt.Sprintf("Set %s by %s", output.FormatTime(policy.SetAt), printable.Escape(policy.SetBy))))
}

// PolicyView is the mirror policy.
type PolicyView struct {
	// Policy is missing if none is set.
	Policy *registry.MirrorPolicy `json:"policy,omitempty"`
}

// Text implements [output.View].
func (v PolicyView) Text(p output.Page) {
	if v.Policy != nil {
		p.Printf("%s", v.Policy.Text)
	}
}

// Quiet prints what a script needs.
func (v PolicyView) Quiet(p output.Page) { v.Text(p) }

func policySetCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set FILE",
		Short: "Set the mirror policy",
		Long: `Set the mirror policy from a file, or from standard input if FILE is -. It
applies from the next command that mirrors something. ` + "`larder audit`" + ` shows who
set it. The mirror then tries again what failed for clients, also if the policy
is the same as before.

The command lists mirrored providers that the policy does not allow. They stay
mirrored. To remove a version, use ` + "`larder withdraw`" + `. To allow every provider
again, set the policy allow "*/*/*" {}.`,
		Example: `  larder mirror policy set policy.hcl
  larder mirror policy set policy.hcl --store stack:larder`,
	}
	cmd.RunE = c.Run(func(ctx context.Context, args []string) (output.View, error) {
		policy, err := readPolicy(ctx, cmd.InOrStdin(), args[0])
		if err != nil {
			return nil, err
		}
		return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
			policy.SetAt = c.Now().UTC().Truncate(time.Second)
			return output.As(setPolicy(ctx, s, policy))
		})
	})
	c.StoreFlags(cmd)
	return cmd
}

// readPolicy reads a policy file, or standard input if the name is "-".
func readPolicy(ctx context.Context, stdin io.Reader, name string) (policy registry.MirrorPolicy, err error) {
	var text []byte
	if name == "-" {
		name = "standard input"
		if text, err = io.ReadAll(io.LimitReader(stdin, policyfile.MaxText+1)); err != nil {
			return policy, fmt.Errorf("cannot read standard input: %w", err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return policy, registry.WithHint(
				fmt.Errorf("cannot read the mirror policy: %w input: standard input is empty", registry.ErrInvalid),
				"Without a policy, operators may mirror every provider. To set that, write `allow \"*/*/*\" {}`.")
		}
	} else if text, err = arguments.ReadFile(name, policyfile.MaxText); err != nil {
		return policy, err
	}
	return policyfile.Parse(ctx, name, text)
}

// SetPolicyView is the result of setting the mirror policy.
type SetPolicyView struct {
	// Status is set or unchanged.
	Status string `json:"status"`
	// Rules is the number of rules.
	Rules int `json:"rules"`
	// Budget limits what clients can make the mirror fetch in a day of UTC. It is
	// missing if no rule lets them fetch something.
	Budget *registry.PullBudget `json:"budget,omitempty"`
	// SHA256 is the digest of the text. The audit trail has it too.
	SHA256 string `json:"sha256"`
	// Denied lists the mirrored providers and modules that the policy does not allow.
	// They stay mirrored.
	Denied []string `json:"denied"`
	// Notes are remarks about rules.
	Notes []string `json:"notes,omitempty"`
}

// setPolicy stores a policy with a text, rules and a time.
func setPolicy(ctx context.Context, s *place.Store, policy registry.MirrorPolicy) (v SetPolicyView, err error) {
	by, err := s.By(ctx)
	if err != nil {
		return v, err
	}
	policy.SetBy = by.String()
	sum := sha256.Sum256([]byte(policy.Text))
	v = SetPolicyView{
		Status: "unchanged", Rules: len(policy.Rules), Budget: budgetOf(policy), SHA256: hex.EncodeToString(sum[:]),
		Denied: []string{}, Notes: policyNotes(policy),
	}
	changed, err := s.Catalog.SetMirrorPolicy(ctx, policy, fmt.Sprintf("sha256:%s, %s", v.SHA256, countRules(v.Rules)))
	if err != nil {
		return v, err
	}
	if changed {
		v.Status = "set"
	}
	all, err := place.Collect(s.Catalog.Mirror.Summaries(ctx, ""))
	if err != nil {
		return v, fmt.Errorf("the policy is %s, but the mirrored versions could not be compared with it: %w", v.Status, err)
	}
	for _, summary := range all {
		address, err := registry.ParseMirrorAddress(summary.Address)
		if err != nil {
			return v, err
		}
		if _, err := admission.RuleOf(&policy, address); err != nil {
			v.Denied = append(v.Denied, summary.Address)
		}
	}
	return v, nil
}

// policyNotes returns remarks about rules that are valid, and may not be meant.
func policyNotes(policy registry.MirrorPolicy) (notes []string) {
	for i, rule := range policy.Rules {
		add := func(format string, args ...any) {
			notes = append(notes, fmt.Sprintf("line %d ", rule.Line)+fmt.Sprintf(format, args...))
		}
		if rule.MinAge > 0 && !rule.WaitUnknown && !strings.Contains(textOf(policy, i), "unknown_age") {
			add("has min_age without unknown_age: versions without a publication time are admitted at once. " +
				"To let them wait, add unknown_age = \"wait\".")
		}
		if rule.Pull == "" {
			continue
		}
		if len(rule.Platforms) == 0 && strings.Count(rule.Pattern, "/") == 2 {
			add("has pull without platforms: every platform of a version is copied. " +
				"To copy fewer, add platforms, such as platforms = [\"linux_amd64\"].")
		}
		if strings.HasPrefix(rule.Pattern, "*/") {
			add("has pull for every hostname: clients can make the mirror fetch from every public host. " +
				"To prevent that, write a pattern for each origin.")
		}
	}
	return notes
}

func textOf(policy registry.MirrorPolicy, rule int) string {
	lines := strings.Split(policy.Text, "\n")
	end := len(lines)
	if rule+1 < len(policy.Rules) {
		end = policy.Rules[rule+1].Line
	}
	return strings.Join(lines[min(max(policy.Rules[rule].Line-1, 0), end):end], "\n")
}

// budgetOf returns the budget of a policy, with the default for what it does not
// set. It returns nil if clients cannot make the mirror fetch anything.
func budgetOf(policy registry.MirrorPolicy) *registry.PullBudget {
	if !slices.ContainsFunc(policy.Rules, func(rule registry.MirrorRule) bool { return rule.Pull != "" }) {
		return nil
	}
	budget := policy.Budget.OrDefault()
	return &budget
}

// printBudget prints a budget, which can be nil.
func printBudget(p output.Page, budget *registry.PullBudget) {
	if budget != nil {
		p.Println("Clients can make the mirror fetch up to %s and %s each day",
			english.Plural(budget.Packages, "package", ""), shortSize(budget.Bytes))
	}
}

func countRules(n int) string { return english.Plural(n, "rule", "") }

// Text implements [output.View].
func (v SetPolicyView) Text(p output.Page) {
	if v.Status == "unchanged" {
		p.Println("Unchanged: the mirror policy has the same text, with %s", countRules(v.Rules))
		if v.Budget != nil {
			p.Println("The mirror tries again what failed for clients")
		}
	} else {
		p.Println("Set the mirror policy, with %s", countRules(v.Rules))
	}
	printBudget(p, v.Budget)
	for _, address := range v.Denied {
		p.Println("  %s: the policy does not allow %s. Its mirrored versions stay.",
			p.Paint("note", terminal.Yellow), address)
	}
	p.Notes(v.Notes)
}

func policyCheckCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE [ADDRESS…]",
		Short: "Check a policy file, and what it decides",
		Long: `Check a policy file, or standard input if FILE is -. For each provider or module
that you name, the command prints whether the policy allows it, by which line,
and what the line requires. It needs no registry.

The exit code is 3 if the file is invalid, and 8 if the policy denies one of
them.`,
		Example: `  larder mirror policy check policy.hcl
  larder mirror policy check policy.hcl registry.opentofu.org/hashicorp/aws
  larder mirror policy show | larder mirror policy check - \
    registry.opentofu.org/hashicorp/aws`,
	}
	cmd.RunE = c.Run(func(ctx context.Context, args []string) (output.View, error) {
		var addresses []registry.MirrorAddress
		for _, arg := range args[1:] {
			address, err := registry.ParseMirrorAddress(arg)
			if err != nil {
				return nil, err
			}
			addresses = append(addresses, address)
		}
		policy, err := readPolicy(ctx, cmd.InOrStdin(), args[0])
		if err != nil {
			return nil, err
		}
		return checkPolicy(policy, addresses)
	})
	return cmd
}

// CheckedPolicyView is a valid policy, and what it decides about providers and modules.
type CheckedPolicyView struct {
	// Rules is the number of rules.
	Rules int `json:"rules"`
	// Budget limits what clients can make the mirror fetch in a day of UTC. It is
	// missing if no rule lets them fetch something.
	Budget *registry.PullBudget `json:"budget,omitempty"`
	// Providers are the named providers and modules.
	Providers []checkedProvider `json:"providers"`
	// Notes are remarks about rules.
	Notes []string `json:"notes,omitempty"`
}

// checkedProvider is what a policy decides about a provider or a module.
type checkedProvider struct {
	Address string `json:"address"`
	Allowed bool   `json:"allowed"`
	// Rule is the rule that applies. It is missing if no rule matches the address,
	// which is then denied.
	Rule *registry.MirrorRule `json:"rule,omitempty"`
}

// checkPolicy returns what a policy decides about providers. If it denies one,
// checkPolicy also returns [registry.ErrNotAdmitted].
func checkPolicy(policy registry.MirrorPolicy, addresses []registry.MirrorAddress) (CheckedPolicyView, error) {
	v := CheckedPolicyView{
		Rules: len(policy.Rules), Budget: budgetOf(policy), Providers: []checkedProvider{}, Notes: policyNotes(policy),
	}
	var denied []string
	for _, address := range addresses {
		rule, err := admission.RuleOf(&policy, address)
		one := checkedProvider{Address: address.String(), Allowed: err == nil}
		if rule.Line > 0 {
			one.Rule = &rule
		}
		if err != nil {
			denied = append(denied, one.Address)
		}
		v.Providers = append(v.Providers, one)
	}
	switch len(denied) {
	case 0:
		return v, nil
	case 1:
		return v, fmt.Errorf("cannot allow %s: %w: the policy denies it", denied[0], registry.ErrNotAdmitted)
	}
	return v, fmt.Errorf("cannot allow %d of %s: %w: the policy denies them", len(denied),
		english.Plural(len(addresses), "address", "addresses"), registry.ErrNotAdmitted)
}

// Text implements [output.View].
func (v CheckedPolicyView) Text(p output.Page) {
	if len(v.Providers) == 0 {
		p.Println("The policy is valid, with %s", countRules(v.Rules))
		printBudget(p, v.Budget)
	}
	for _, one := range v.Providers {
		state, color := "allowed", terminal.Green
		if !one.Allowed {
			state, color = "denied", terminal.Red
		}
		p.Printf("%s %s\n", p.Paint(fmt.Sprintf("%-*s", output.StateWidth, state), color), p.WrapAt(output.StateWidth+1, one.decision()))
		if one.Allowed {
			p.Printf("%*s %s\n", output.StateWidth, "", p.WrapAt(output.StateWidth+1, requirements(*one.Rule)))
		}
	}
	p.Notes(v.Notes)
}

func (c checkedProvider) decision() string {
	if c.Rule == nil {
		return c.Address + ": no rule allows it"
	}
	text := fmt.Sprintf("%s by line %d, %s", c.Address, c.Rule.Line, c.Rule.Pattern)
	if c.Rule.Reason != "" {
		text += ": " + c.Rule.Reason
	}
	return text
}

// requirements returns what a rule requires of a version.
func requirements(rule registry.MirrorRule) string {
	var parts []string
	switch {
	case rule.MinAge > 0 && rule.WaitUnknown:
		parts = append(parts, "minimum age "+shortAge(rule.MinAge)+", from first sight if the age is unknown")
	case rule.MinAge > 0:
		parts = append(parts, "minimum age "+shortAge(rule.MinAge)+", none if the age is unknown")
	default:
		parts = append(parts, "no minimum age")
	}
	if len(rule.Platforms) > 0 {
		names := make([]string, len(rule.Platforms))
		for i, platform := range rule.Platforms {
			names[i] = platform.String()
		}
		parts = append(parts, "only "+strings.Join(names, ", "))
	}
	if rule.MaxSize > 0 {
		parts = append(parts, "packages up to "+shortSize(rule.MaxSize))
	}
	if len(rule.Forges) > 0 {
		parts = append(parts, "forges "+arguments.OneOf(slices.Sorted(maps.Keys(rule.Forges))))
	}
	if len(rule.SigningKeys) > 0 {
		parts = append(parts, "signed by "+arguments.OneOf(rule.SigningKeys))
	}
	switch rule.Pull {
	case registry.PullOpen:
		parts = append(parts, "fetched when a client needs it; the client gets it from the origin until it is copied (pull open)")
	case registry.PullClosed:
		parts = append(parts, "fetched when a client needs it; the client waits for the copy (pull closed)")
	}
	if rule.Upstream != "" {
		parts = append(parts, "upstream "+rule.Upstream)
	}
	if len(rule.Networks) > 0 {
		names := make([]string, len(rule.Networks))
		for i, network := range rule.Networks {
			names[i] = network.String()
		}
		parts = append(parts, "networks "+strings.Join(names, ", "))
	}
	return strings.Join(parts, "; ")
}

// shortAge returns a number of seconds as in a policy.
func shortAge(seconds int64) string {
	n, unit := admission.SplitAge(seconds)
	return fmt.Sprintf("%d%c", n, unit[0])
}

// shortSize returns a number of bytes as in a policy, in the largest unit that
// divides it.
func shortSize(n int64) string {
	n >>= 10
	for _, unit := range []string{"KiB", "MiB"} {
		if n%1024 != 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		n >>= 10
	}
	return fmt.Sprintf("%dGiB", n)
}
