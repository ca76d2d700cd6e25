package policyfile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/policyfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

const policy = `# What we use.
deny "registry.opentofu.org/hashicorp/consul" {
  reason = "We do not use it."
}
deny "registry.opentofu.org/hashicorp/nomad" {}

allow "registry.opentofu.org/hashicorp/*" {
  min_age      = "7d"
  unknown_age  = "wait"
  platforms    = ["linux_amd64", "darwin_arm64"]
  max_size     = "600MiB"
  signing_keys = ["34365D9472D7468F", "c874 011f 0ab4 0511 0d02  1055 3436 5d94 72d7 468f"]
  pull         = "open"
}
allow "xn--mnchen-3ya.example.com/*/aws" {
  min_age     = "36h"
  unknown_age = "admit"
}
allow "*/acme/*" { min_age = "90m" }
budget {
  packages_per_day = 20
  size_per_day     = "10240GiB"
}
allow "providers.example.com/*/*" {
  pull     = "closed"
  upstream = "https://10.0.0.7:8443/v1/providers/"
  networks = ["10.0.0.7/32", "fd00::/8", "127.0.0.0/8"]
}
allow "*/*/*" {
  min_age  = "2w"
  networks = ["100.64.0.0/10"]
}
`

// comparePrefixes makes cmp compare prefixes, which have no exported fields.
var comparePrefixes = cmpopts.EquateComparable(netip.Prefix{})

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := policyfile.Parse(t.Context(), "test.hcl", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	rules := []registry.MirrorRule{
		{Pattern: "registry.opentofu.org/hashicorp/consul", Line: 2, Deny: true, Reason: "We do not use it."},
		{Pattern: "registry.opentofu.org/hashicorp/nomad", Line: 5, Deny: true},
		{
			Pattern: "registry.opentofu.org/hashicorp/*", Line: 7, MinAge: 7 * 24 * 3600, WaitUnknown: true,
			Platforms: []registry.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}, MaxSize: 600 << 20,
			SigningKeys: []string{"34365D9472D7468F", "C874011F0AB405110D02105534365D9472D7468F"},
			Pull:        registry.PullOpen,
		},
		{Pattern: "xn--mnchen-3ya.example.com/*/aws", Line: 15, MinAge: 36 * 3600},
		{Pattern: "*/acme/*", Line: 19, MinAge: 90 * 60},
		{
			Pattern: "providers.example.com/*/*", Line: 24, Pull: registry.PullClosed,
			Upstream: "https://10.0.0.7:8443/v1/providers/", Networks: prefixes("10.0.0.7/32", "fd00::/8", "127.0.0.0/8"),
		},
		{Pattern: "*/*/*", Line: 29, MinAge: 14 * 24 * 3600, Networks: prefixes("100.64.0.0/10")},
	}
	want := registry.MirrorPolicy{
		Text: policy, Rules: rules, Budget: registry.PullBudget{Packages: 20, Bytes: 10 << 40},
	}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Error(diff)
	}
}

// pulling is a rule that lets clients make the mirror fetch.
const pulling = "allow \"*/*/*\" { pull = \"open\" }\n"

// mistakes has files with the problems that Parse reports, each followed by its
// hint in parentheses.
var mistakes = map[string]struct {
	text string
	want []string
}{
	"no rules": {"# nothing\n", []string{
		"p:1:1: the policy has no rules, so it would deny everything (To deny everything, write `deny \"*/*/*\" {}`.)",
	}},
	"rules for modules": {`allow "a.example/b/c/d" {
  platforms    = ["linux_amd64"]
  signing_keys = ["34365D9472D7468F"]
  pull         = "open"
  forges       = ["gitlab://git.example.com", "gitlab://GIT.example.com", "svn://a.example", "git.example.com", "github://", "gitea://a.example"]
}
allow "a.example/b/c" {
  forges = ["gitlab://git.example.com"]
}
module "a.example/*/*/*" {}
`, []string{
		"p:2:3: a rule for modules has no platforms (Remove it.)",
		"p:3:3: a rule for modules has no signing_keys (Remove it.)",
		`p:4:18: pull of modules cannot be "open", because the mirror binds a module to its content before clients get it (Write pull = "closed".)`,
		"p:5:47: the forge git.example.com is twice in the list (Remove one of the two.)",
		`p:5:75: invalid forge "svn://a.example": it must begin with github://, gitlab://, bitbucket://, forgejo:// (Write it as ["gitlab://git.example.com"].)`,
		`p:5:94: invalid forge "git.example.com": it must begin with github://, gitlab://, bitbucket://, forgejo:// (Write it as ["gitlab://git.example.com"].)`,
		`p:5:113: invalid forge "github://": a host must follow (Write it as ["gitlab://git.example.com"].)`,
		`p:5:126: invalid forge "gitea://a.example": Gitea counts as a Forgejo (For Gitea, write forgejo://.)`,
		`p:8:3: a rule for providers has no forges (Move it to a rule for modules, such as ` + "`allow \"registry.example.com/*/*/*\"`.)",
		`p:10:1: there is no block "module" (Write allow or deny. A pattern with four parts, such as "registry.opentofu.org/terraform-aws-modules/*/*", is one of modules.)`,
	}},
	"a syntax error": {"allow \"*/*/*\" {\n", []string{
		"p:1:15: Unclosed configuration block: There is no closing brace for this block before the end of the file. This may be caused by incorrect brace nesting elsewhere in this file.",
	}},
	"no quotes": {"allow */*/* {}\n", []string{
		"p:1:8: the comment is not closed (Write the pattern in double quotes, such as `allow \"registry.opentofu.org/*/*\" {}`.)",
	}},
	"single quotes": {"deny '*/*/*' {}\n", []string{
		"p:1:8: the comment is not closed (Write the pattern in double quotes, such as `allow \"registry.opentofu.org/*/*\" {}`.)",
	}},
	"one line": {"allow \"*/*/*\" { min_age = \"7d\", unknown_age = \"wait\" }\n", []string{
		"p:1:31: Invalid single-argument block definition: Single-line block syntax can include only one argument definition. " +
			"To define multiple arguments, use the multi-line block syntax with one argument definition per line. " +
			"(Write the opening brace, each attribute and the closing brace on lines of their own.)",
	}},
	"an invisible character": {"# a\tb\r\n# ä \u202e }\nallow \"*/*/*\" {}\n", []string{
		"p:2:5: the file has the character U+202E, which is not visible (Remove it.)",
	}},
	"an escape sequence": {"allow \"*/*/*\" {} # \x1b[2J", []string{
		"p:1:20: the file has the character U+001B, which is not visible (Remove it.)",
	}},
	"a carriage return": {"allow \"*/*/*\" {} # a\rb\r\n", []string{
		"p:1:21: the file has the character U+000D, which is not visible (Remove it.)",
	}},
	"not a literal": {`allow "*/*/*" { min_age = "${7}d" }`, []string{
		"p:1:28: the file may only have blocks, quoted strings, plain numbers, lists and objects",
	}},
	"a duplicate attribute": {"allow \"*/*/*\" {\n  min_age = \"7d\"\n  min_age = \"8d\"\n}\n", []string{
		"p:3:3: Attribute redefined: The argument \"min_age\" was already set at p:2,3-10. Each argument may be set only once.",
	}},
	"an unknown block": {"allows \"*/*/*\" {}\nprovider \"*/*/*\" {}\n", []string{
		"p:1:1: there is no block \"allows\" (Did you mean allow?)",
		"p:2:1: there is no block \"provider\" (A rule begins with allow or deny.)",
	}},
	"attributes outside": {"min_age = \"7d\"\nallow = \"*/*/*\"\n", []string{
		"p:1:1: the attribute \"min_age\" is outside of a rule (Move it into a rule.)",
		"p:2:1: the file can only have rules and a budget, and \"allow\" is an attribute (Write a rule as `allow \"registry.opentofu.org/hashicorp/*\" {}`.)",
	}},
	"a budget outside": {"packages_per_day = 5\nbudget = 5\nallow \"*/*/*\" {}\n", []string{
		"p:1:1: the attribute \"packages_per_day\" is outside of a budget (Write the budget as `budget { packages_per_day = 500 }`.)",
		"p:2:1: the attribute \"budget\" is outside of a budget (Write the budget as `budget { packages_per_day = 500 }`.)",
	}},
	"a budget without pull": {"budget { packages_per_day = 5 }\nallow \"*/*/*\" {}\n", []string{
		"p:1:1: the budget has no effect, because no rule has pull (Add pull = \"open\" or pull = \"closed\" to a rule, or remove the budget.)",
	}},
	"a budget with a mistake in pull": {"budget { packages_per_day = 5 }\nallow \"*/*/*\" { pull = \"opened\" }\n", []string{
		"p:2:24: pull \"opened\" must be \"open\" or \"closed\" (Did you mean open?)",
	}},
	"two budgets": {pulling + "budget { packages_per_day = 5 }\nbudget { size_per_day = \"1GiB\" }\n", []string{
		"p:3:1: line 2 has a budget already (Merge the two.)",
	}},
	"an empty budget": {pulling + "budget {}\n", []string{
		"p:2:1: the budget is empty (Add packages_per_day = 500, or size_per_day = \"20GiB\", or both.)",
	}},
	"a budget with other content": {pulling + "budget \"*/*/*\" {\n  packages = 5\n  color = 1\n  size {}\n}\n", []string{
		"p:2:8: budget has no pattern, because it is for all rules together (Remove it.)",
		"p:3:3: budget has no attribute \"packages\" (The attributes of budget are packages_per_day, size_per_day.)",
		"p:4:3: budget has no attribute \"color\" (The attributes of budget are packages_per_day, size_per_day.)",
		"p:5:3: budget has only attributes, and \"size\" is a block",
	}},
	"an almost correct budget": {pulling + "budgets {}\nbudget { size_per_dya = \"1GiB\" }\n", []string{
		"p:2:1: there is no block \"budgets\" (Did you mean budget?)",
		"p:3:10: budget has no attribute \"size_per_dya\" (Did you mean size_per_day?)",
	}},
	"only a budget": {"budget { packages_per_day = 5 }\n", []string{
		"p:1:1: the budget has no effect, because no rule has pull (Add pull = \"open\" or pull = \"closed\" to a rule, or remove the budget.)",
	}},
	"pull of deny": {"deny \"*/*/a\" { pull = \"open\" }\n", []string{
		"p:1:16: deny has no pull, because it denies all versions (Use allow, or remove the attribute.)",
	}},
	"an upstream for every hostname": {"allow \"*/acme/*\" { upstream = \"https://registry.example.com\" }\n", []string{
		"p:1:20: upstream needs a pattern with a hostname (Write a rule for each origin, such as `allow \"registry.example.com/*/*\"`.)",
	}},
	"networks with pull for every hostname": {"allow \"*/acme/*\" {\n  networks = [\"10.0.0.0/8\"]\n  pull = \"open\"\n}\n", []string{
		"p:2:3: networks with pull needs a pattern with a hostname (Write a rule for each origin, such as `allow \"registry.example.com/*/*\"`.)",
	}},
	"too many networks": {"allow \"*/*/*\" { networks = [" + strings.Repeat("\"10.0.0.0/8\",", 33) + "] }\n", []string{
		"p:1:28: networks has 33 prefixes, and can have at most 32 (Write one prefix for several networks.)",
	}},
	"a block in a rule": {"allow \"*/*/*\" {\n  age {}\n}\n", []string{
		"p:2:3: a rule has only attributes, and \"age\" is a block",
	}},
	"unknown attributes": {"allow \"*/*/a\" {\n  min_ag = \"7d\"\n  color = 1\n}\ndeny \"*/*/b\" {\n  reasons = \"x\"\n  color = 1\n}\n", []string{
		"p:2:3: allow has no attribute \"min_ag\" (Did you mean min_age?)",
		"p:3:3: allow has no attribute \"color\" (The attributes of allow are min_age, unknown_age, platforms, max_size, signing_keys, pull, upstream, networks, forges.)",
		"p:6:3: deny has no attribute \"reasons\" (Did you mean reason?)",
		"p:7:3: deny has no attribute \"color\" (The only attribute of deny is reason.)",
	}},
	"attributes of the other type": {"allow \"*/*/a\" { reason = \"x\" }\ndeny \"*/*/b\" { min_age = \"7d\" }\n", []string{
		"p:1:17: only deny has a reason (Write it as a comment: # …)",
		"p:2:16: deny has no min_age, because it denies all versions (Use allow, or remove the attribute.)",
	}},
	"labels": {"allow {}\ndeny \"*/*/a\" \"*/*/b\" {}\n", []string{
		"p:1:7: allow has no pattern (For all providers, write `allow \"*/*/*\"`.)",
		"p:2:14: deny has one pattern, and \"*/*/b\" is another (Write another rule for it.)",
	}},
	"hidden rules": {
		`allow "*/acme/*" {}
deny "example.com/acme/a" {}
deny "example.com/other/a" {}
allow "example.com/*/*" {}
allow "example.com/*/*" {}
deny "example.com/*/a" {}
allow "*/*/*" {}
`, []string{
			"p:2:6: this rule has no effect: \"*/acme/*\" in line 1 matches all its addresses (The first rule that matches applies. Move this one before line 1, or remove it.)",
			"p:5:7: line 4 has a rule for \"example.com/*/*\" already (The first rule that matches applies. Remove one of the two, or merge them.)",
			"p:6:6: this rule has no effect: \"example.com/*/*\" in line 4 matches all its addresses (The first rule that matches applies. Move this one before line 4, or remove it.)",
		},
	},
	"a reason": {"deny \"*/*/a\" { reason = 1 }\ndeny \"*/*/b\" { reason = \" \" }\ndeny \"*/*/c\" { reason = \"a\\nb\" }\n", []string{
		"p:1:25: reason must be a text in quotes, such as \"We do not use it.\"",
		"p:2:25: reason is empty (Write one, or remove it.)",
		"p:3:25: reason must be one printable line of at most 500 bytes",
	}},
}

// attributes has values of attributes of allow, with the problem and the hint.
var attributes = map[string]string{
	`min_age = 7`:              `min_age must be a text in quotes, such as "7d"`,
	`min_age = null`:           `min_age must be a text in quotes, such as "7d"`,
	`min_age = week`:           `min_age must be a text in quotes, such as "7d"`,
	`min_age = ["7d"]`:         `min_age must be a text in quotes, such as "7d"`,
	`min_age = ""`:             `min_age "" must be a whole number with the unit m, h, d or w, such as "7d"`,
	`min_age = "7"`:            `min_age "7" must be a whole number with the unit m, h, d or w, such as "7d" (For days, write "7d".)`,
	`min_age = "7 Days"`:       `min_age "7 Days" must be a whole number with the unit m, h, d or w, such as "7d" (Did you mean "7d"?)`,
	`min_age = "30 min"`:       `min_age "30 min" must be a whole number with the unit m, h, d or w, such as "7d" (Did you mean "30m"?)`,
	`min_age = "5M"`:           `min_age "5M" must be a whole number with the unit m, h, d or w, such as "7d"`,
	`min_age = "1 month"`:      `min_age "1 month" must be a whole number with the unit m, h, d or w, such as "7d"`,
	`min_age = "0m"`:           `min_age "0m" is zero (Remove it to allow new versions at once.)`,
	`min_age = "-7d"`:          `min_age "-7d" must be a whole number with the unit m, h, d or w, such as "7d"`,
	`min_age = "0d"`:           `min_age "0d" is zero (Remove it to allow new versions at once.)`,
	`min_age = "3651d"`:        `min_age "3651d" is more than ten years (To deny the versions altogether, use deny.)`,
	`min_age = "99999999999h"`: `min_age "99999999999h" is more than ten years (To deny the versions altogether, use deny.)`,

	`platforms = "linux_amd64"`:   `platforms must be a list of texts, such as ["linux_amd64"]`,
	`platforms = [1]`:             `platforms must be a list of texts, such as ["linux_amd64"]`,
	`platforms = []`:              `platforms is empty (Remove it to allow all platforms.)`,
	`platforms = ["all"]`:         `"all" is not a platform (To allow all platforms, remove platforms.)`,
	`platforms = ["linux-amd64"]`: `invalid platform "linux-amd64": it must be OS_ARCH, such as linux_amd64`,
	`platforms = ["a_b", "a_b"]`:  `the platform a_b is twice in the list (Remove one of the two.)`,

	`max_size = 600`:           `max_size must be a text in quotes, such as "600MiB"`,
	`max_size = "600"`:         `max_size "600" must be a whole number with the unit KiB, MiB or GiB, such as "600MiB"`,
	`max_size = "600 mb"`:      `max_size "600 mb" must be a whole number with the unit KiB, MiB or GiB, such as "600MiB" (Did you mean "600MiB"?)`,
	`max_size = "0KiB"`:        `max_size "0KiB" is zero (To allow no packages, use deny.)`,
	`max_size = "6GiB"`:        `max_size "6GiB" is more than 5GiB (Remove it for no limit.)`,
	`max_size = "9999999999K"`: `max_size "9999999999K" must be a whole number with the unit KiB, MiB or GiB, such as "600MiB" (Did you mean "9999999999KiB"?)`,

	`max_size = "6000000000000KiB"`: `max_size "6000000000000KiB" is more than 5GiB (Remove it for no limit.)`,

	`pull = true`:   `pull must be a text in quotes, such as "closed"`,
	`pull = ""`:     `pull "" must be "open" or "closed"`,
	`pull = "Open"`: `pull "Open" must be "open" or "closed" (Did you mean open?)`,

	`networks = "10.0.0.0/8"`:                  `networks must be a list of texts, such as ["10.0.0.0/8"]`,
	`networks = []`:                            `networks is empty (Remove it to allow only public addresses.)`,
	`networks = ["10.1.0.0/8"]`:                `invalid network "10.1.0.0/8": it is another way to write 10.0.0.0/8 (Write "10.0.0.0/8".)`,
	`networks = ["FD00:0::/8"]`:                `invalid network "FD00:0::/8": it is another way to write fd00::/8 (Write "fd00::/8".)`,
	`networks = ["::ffff:10.0.0.0/104"]`:       `invalid network "::ffff:10.0.0.0/104": it is another way to write 10.0.0.0/8 (Write "10.0.0.0/8".)`,
	`networks = ["10.0.0.7"]`:                  `invalid network "10.0.0.7": it has no length (For one address, write "10.0.0.7/32".)`,
	`networks = ["fd00::7%eth0"]`:              `invalid network "fd00::7%eth0": it has no length (For one address, write "fd00::7/128".)`,
	`networks = ["10.0.0.0/33"]`:               `invalid network "10.0.0.0/33": it is not a prefix (Write it as "10.0.0.0/8" or "fd00::/8".)`,
	`networks = ["intranet"]`:                  `invalid network "intranet": it is not a prefix (Write it as "10.0.0.0/8" or "fd00::/8".)`,
	`networks = ["10.0.0.0/8", "10.0.0.0/8"]`:  `the network 10.0.0.0/8 is twice in the list (Remove one of the two.)`,
	`networks = ["10.0.0.0/8", "10.1.0.0/16"]`: `the network 10.1.0.0/16 is part of 10.0.0.0/8, which is in the list too (Remove it.)`,
	`networks = ["10.1.0.0/16", "10.0.0.0/8"]`: `the network 10.0.0.0/8 contains 10.1.0.0/16, which is in the list too (Remove 10.1.0.0/16.)`,
	`networks = ["169.254.169.254/32"]`:        `invalid network "169.254.169.254/32": clouds give out credentials at such addresses (Remove it. The mirror never connects to them.)`,
	`networks = ["fe80::/10"]`:                 `invalid network "fe80::/10": clouds give out credentials at such addresses (Remove it. The mirror never connects to them.)`,
	`networks = ["fd00:ec2::254/128"]`:         `invalid network "fd00:ec2::254/128": clouds give out credentials at such addresses (Remove it. The mirror never connects to them.)`,
	`networks = ["100.100.100.200/32"]`:        `invalid network "100.100.100.200/32": clouds give out credentials at such addresses (Remove it. The mirror never connects to them.)`,
	`networks = ["0.0.0.0/0"]`:                 `invalid network "0.0.0.0/0": it has public addresses, which are always allowed (Name only networks inside, such as 10.0.0.0/8.)`,
	`networks = ["::/0"]`:                      `invalid network "::/0": it has public addresses, which are always allowed (Name only networks inside, such as 10.0.0.0/8.)`,
	`networks = ["1.1.1.0/24"]`:                `invalid network "1.1.1.0/24": it has public addresses, which are always allowed (Name only networks inside, such as 10.0.0.0/8.)`,

	`signing_keys = []`:                     `signing_keys is empty (Remove it to trust the first key that signed.)`,
	`signing_keys = "34365D9472D7468F"`:     `signing_keys must be a list of texts, such as ["34365D9472D7468F"]`,
	`signing_keys = ["hashicorp"]`:          `invalid signing key "hashicorp": it must have only hexadecimal digits`,
	`signing_keys = ["0x34365D9472D7468F"]`: `invalid signing key "0x34365D9472D7468F": it must have only hexadecimal digits (Write it without 0x.)`,
	`signing_keys = ["72D7468F"]`: "invalid signing key \"72D7468F\": it has 8 digits, and must have 16, 40 or 64 " +
		"(Write the fingerprint or the ID that `gpg --show-keys --keyid-format long FILE` prints.)",
	`signing_keys = ["34365D9472D7468F", "3436 5d94 72d7 468f"]`: `the signing key 34365D9472D7468F is twice in the list (Remove one of the two.)`,
}

// patterns has invalid patterns, with the reason and the hint.
var patterns = map[string]string{
	"":                                 `it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be *`,
	"*":                                `it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be *`,
	"hashicorp/aws":                    `it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be * (Add the hostname, as in "registry.opentofu.org/hashicorp/random".)`,
	"a.example/b/c/d/e":                `it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be *`,
	"https://registry.opentofu.org":    `it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be * (Write the hostname without a scheme, as in "registry.opentofu.org/hashicorp/random".)`,
	"registry.opentofu.org/hashi*/aws": `its part "hashi*" must be a whole name, or only *`,
	"*/*/**":                           `its part "**" must be a whole name, or only *`,
	"registry.example.com:8443/a/*":    `no client can use a mirror for a hostname with a port`,
	"registry.opentofu.org./*/*":       `its hostname ends with a dot (Write the hostname without the dot at its end.)`,
	"terraform.io/builtin/*":           `clients do not download this provider from a registry`,
	"*/-/*":                            `its namespace "-" must be lower-case letters, digits and single hyphens, with a letter or a digit at both ends`,
	"*//aws":                           `its namespace is empty: a mirrored provider is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/random`,
	"*/a_b/aws":                        `its namespace "a_b" must be lower-case letters, digits and single hyphens, with a letter or a digit at both ends`,
	"Registry.OpenTofu.org/*/*":        `no client sends this spelling (Write "registry.opentofu.org/*/*".)`,
	"*/HashiCorp/aws":                  `no client sends this spelling (Write "*/hashicorp/aws".)`,
	"münchen.example.com/*/aws":        `no client sends this spelling (Write "xn--mnchen-3ya.example.com/*/aws".)`,
}

// budgets has attributes of a budget, with the problem and the hint.
var budgets = map[string]string{
	`packages_per_day = "500"`:      `packages_per_day must be a whole number, such as 500 (Remove the quotes.)`,
	`packages_per_day = "many"`:     `packages_per_day must be a whole number, such as 500`,
	`packages_per_day = null`:       `packages_per_day must be a whole number, such as 500`,
	`packages_per_day = 0.5`:        `packages_per_day must be a whole number, such as 500`,
	`packages_per_day = 0`:          `packages_per_day must be at least 1 (To let clients fetch nothing, remove pull from the rules.)`,
	`packages_per_day = 1000001`:    `packages_per_day is more than 1000000 (Write a lower one.)`,
	`packages_per_day = -1`:         `the file may only have blocks, quoted strings, plain numbers, lists and objects`,
	`packages_per_day = 9999999999`: `packages_per_day is more than 1000000 (Write a lower one.)`,
	`size_per_day = 20`:             `size_per_day must be a text in quotes, such as "20GiB"`,
	`size_per_day = "20"`:           `size_per_day "20" must be a whole number with the unit KiB, MiB or GiB, such as "20GiB"`,
	`size_per_day = "20 gb"`:        `size_per_day "20 gb" must be a whole number with the unit KiB, MiB or GiB, such as "20GiB" (Did you mean "20GiB"?)`,
	`size_per_day = "0GiB"`:         `size_per_day "0GiB" is zero (To let clients fetch nothing, remove pull from the rules.)`,
	`size_per_day = "10241GiB"`:     `size_per_day "10241GiB" is more than 10240GiB (Write a lower one.)`,
}

// asURL is the hint for an upstream that is not a URL.
const asURL = "Write it as \"https://registry.example.com\", or with the path of its provider registry protocol."

// upstreams has invalid upstreams, with the hint.
var upstreams = map[string]string{
	"":                                      asURL,
	"registry.example.com":                  asURL,
	"https://":                              asURL,
	"https://:8443/":                        asURL,
	"https://registry.example.com/a b":      asURL,
	"https://registry.example.com/\u202e":   asURL,
	"http://127.0.0.1:8080/v1/providers/":   "Origins need TLS. Write https://.",
	"https://u:secret@registry.example.com": "Remove the user. The mirror sends no credentials to origins.",
	"https://registry.example.com?t=secret": "Remove the query and the fragment.",
	"https://registry.example.com?":         "Remove the query and the fragment.",
	"https://registry.example.com#":         "Remove the query and the fragment.",
	"https://[fd00::7]:8443":                "Discovery needs a host name or an IPv4 address. Add the path, such as /v1/providers/.",
}

// problems returns the problems of an error with their hints.
func problems(err error) (found []string) {
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok {
		return nil
	}
	for _, p := range all.Problems {
		text := p.Error()
		if hint := registry.Hint(p); hint != "" {
			text += " (" + hint + ")"
		}
		found = append(found, text)
	}
	return found
}

// check parses a file and compares its problems.
func check(t *testing.T, text string, want ...string) {
	t.Helper()
	got, err := policyfile.Parse(t.Context(), "p", []byte(text))
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("got %v and error %v, want ErrInvalid", got, err)
	}
	if diff := cmp.Diff(want, problems(err)); diff != "" {
		t.Error(diff)
	}
}

// The stored text does not have the byte order mark that Windows adds.
func TestEncodings(t *testing.T) {
	t.Parallel()
	const text = "allow \"*/*/*\" {}\n"
	policy, err := policyfile.Parse(t.Context(), "p", []byte("\ufeff"+text))
	if err != nil || policy.Text != text {
		t.Errorf("the text is %q, %v", policy.Text, err)
	}
	_, err = policyfile.Parse(t.Context(), "p", []byte(text+"# \xff\n"))
	if !errors.Is(err, registry.ErrInvalid) || err.Error() != "cannot read p: line 2 is not UTF-8" {
		t.Errorf("another encoding: %v", err)
	}
	cut := ("\xFF\xFE" + strings.Repeat("#\x00", policyfile.MaxText/2))[:policyfile.MaxText+1]
	check(t, cut, "p: the file has more than 32 KiB "+
		"(Use patterns such as registry.opentofu.org/hashicorp/* for several providers.)")
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, test := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, test.text, test.want...)
		})
	}
}

func TestMistakesInAttributes(t *testing.T) {
	t.Parallel()
	for attribute, want := range attributes {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			text := "allow \"*/*/*\" { " + attribute + " }"
			column := 1 + strings.Index(text, "= ") + len("= ")
			// A mistake in a list is at the element, here at the last one.
			if _, isElement := strings.CutPrefix(text[column-1:], "["); isElement && !strings.Contains(want, "is empty") &&
				!strings.Contains(want, "in quotes") {
				column = 1 + max(strings.Index(text, "["), strings.LastIndex(text, ", ")+1) + 1
			}
			check(t, text, fmt.Sprintf("p:1:%d: %s", column, want))
		})
	}
}

func TestMistakesInBudgets(t *testing.T) {
	t.Parallel()
	for attribute, want := range budgets {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			text := pulling + "budget { " + attribute + " }"
			column := len("budget { ") + strings.Index(attribute, "= ") + len("= ") + 1
			check(t, text, fmt.Sprintf("p:2:%d: %s", column, want))
		})
	}
}

func TestMistakesInUpstreams(t *testing.T) {
	t.Parallel()
	for upstream, hint := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf("allow \"a.example.com/*/*\" { upstream = %q }", upstream)
			check(t, text, fmt.Sprintf("p:1:40: upstream is not the URL of a registry (%s)", hint))
		})
	}
}

func TestUpstreams(t *testing.T) {
	t.Parallel()
	for _, upstream := range []string{
		"https://registry.example.com", "https://registry.example.com/", "https://10.0.0.7:8443",
		"https://registry.example.com/v1/providers", "https://[fd00::7]:8443/v1/providers/",
	} {
		got, err := policyfile.Parse(t.Context(), "p",
			fmt.Appendf(nil, "allow \"a.example.com/*/*\" { upstream = %q }", upstream))
		if err != nil {
			t.Errorf("%s: %v", upstream, err)
			continue
		}
		if diff := cmp.Diff(upstream, got.Rules[0].Upstream); diff != "" {
			t.Error(diff)
		}
	}
}

func TestMistakesInPatterns(t *testing.T) {
	t.Parallel()
	for pattern, want := range patterns {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			check(t, fmt.Sprintf("deny %q {}", pattern), fmt.Sprintf("p:1:6: invalid pattern %q: %s", pattern, want))
		})
	}
}

// A policy with a mistake has no rules, and the mistakes in the rest of the
// file are reported too.
func TestSeveralMistakes(t *testing.T) {
	t.Parallel()
	got, err := policyfile.Parse(t.Context(), "p",
		[]byte("allow \"*/*/a\" {\n  unknown_age = \"waits\"\n  min_age = 7\n}\ndeny \"a\" { x = 1 }\nallow \"*/*/b\" {}\n"))
	if diff := cmp.Diff(registry.MirrorPolicy{}, got); diff != "" {
		t.Error(diff)
	}
	want := "cannot read the mirror policy: 4 problems: p:2:17: unknown_age \"waits\" must be \"admit\" or \"wait\"; " +
		"p:3:13: min_age must be a text in quotes, such as \"7d\"; " +
		"p:5:6: invalid pattern \"a\": it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be *; " +
		"p:5:12: deny has no attribute \"x\""
	if err == nil || err.Error() != want {
		t.Errorf("got error %v\nwant %s", err, want)
	}
}

func TestUnknownAgeNeedsMinAge(t *testing.T) {
	t.Parallel()
	check(t, "allow \"*/*/*\" { unknown_age = \"wait\" }",
		"p:1:17: unknown_age needs min_age (Add min_age, such as min_age = \"7d\", or remove unknown_age.)")
}

func TestLimits(t *testing.T) {
	t.Parallel()
	// A rule of every size fits, and the file may have rules up to the limit.
	var text strings.Builder
	n := 0
	for ; text.Len() < policyfile.MaxText-100; n++ {
		fmt.Fprintf(&text, "deny \"*/*/p%d\" {}\n", n)
	}
	got, err := policyfile.Parse(t.Context(), "p", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rules) != n {
		t.Errorf("got %d rules, want %d", len(got.Rules), n)
	}
	check(t, text.String()+strings.Repeat("#", 200), "p: the file has more than 32 KiB "+
		"(Use patterns such as registry.opentofu.org/hashicorp/* for several providers.)")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := policyfile.Parse(ctx, "p", []byte(policy)); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the one of the context", err)
	}
}

// The text and the rules fit into one item of a table, of at most 400 KiB.
func TestStoredSize(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]string{
		"reasons":   "deny \"*/*/p%d\" { reason = \"" + strings.Repeat("<", 490) + "\" }\n",
		"platforms": "allow \"*/*/p%d\" { platforms = [\"a_a\",\"a_b\",\"a_c\",\"a_d\",\"a_e\",\"a_f\",\"a_g\"] }\n",
		"rules":     "deny \"*/*/p%d\" {}\n",
		"networks":  "allow \"*/*/p%d\" { networks = [\"::/128\",\"::1/128\",\"fc00::/9\",\"fd80::/9\"] }\n",
		"upstreams": "allow \"a.aa/*/p%d\" { upstream = \"https://a/" + strings.Repeat("&", 490) + "\" }\n",
	} {
		var text strings.Builder
		for n := 0; text.Len() < policyfile.MaxText-1000; n++ {
			fmt.Fprintf(&text, rule, n)
		}
		parsed, err := policyfile.Parse(t.Context(), "p", []byte(text.String()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		stored, err := json.Marshal(parsed)
		if err != nil {
			t.Fatal(err)
		}
		if len(stored) > 398<<10 {
			t.Errorf("%s: got %d bytes", name, len(stored))
		}
	}
}

// FuzzParse tests that each rule of a valid policy applies to an address. It also
// tests that the rules are the same after writing and parsing them again.
func FuzzParse(f *testing.F) {
	f.Add(policy)
	for _, test := range mistakes {
		f.Add(test.text)
	}
	for attribute := range attributes {
		f.Add("allow \"*/*/*\" { " + attribute + " }")
	}
	for pattern := range patterns {
		f.Add(fmt.Sprintf("deny %q {}", pattern))
	}
	for attribute := range budgets {
		f.Add(pulling + "budget { " + attribute + " }")
	}
	for upstream := range upstreams {
		f.Add(fmt.Sprintf("allow \"a.example.com/*/*\" { upstream = %q }", upstream))
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := policyfile.Parse(t.Context(), "p", []byte(text))
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			return
		}
		var again strings.Builder
		for i, rule := range got.Rules {
			address := addressOf(t, rule.Pattern)
			// RuleOf also returns the rule that denies an address.
			if found, _ := admission.RuleOf(&got, address); !cmp.Equal(rule, found, comparePrefixes) {
				t.Errorf("rule %d: got the rule %v for %s, want %v", i, found, address, rule)
			}
			again.WriteString(written(rule))
		}
		again.WriteString(writtenBudget(got.Budget))
		same, err := policyfile.Parse(t.Context(), "p", []byte(again.String()))
		if err != nil {
			if again.Len() > policyfile.MaxText {
				return
			}
			t.Fatalf("%v\n%s", err, again.String())
		}
		got.Text, same.Text = "", ""
		for i := range min(len(got.Rules), len(same.Rules)) {
			got.Rules[i].Line, same.Rules[i].Line = 0, 0
		}
		if diff := cmp.Diff(got, same, comparePrefixes); diff != "" {
			t.Error(diff)
		}
	})
}

// addressOf returns an address that a pattern matches. For wildcards, it has
// names that no other rule has.
func addressOf(t *testing.T, pattern string) registry.MirrorAddress {
	t.Helper()
	parts := strings.Split(pattern, "/")
	names := []string{"only-here.example.com", "only-here", "only-here", "onlyhere"}
	for i := range parts {
		if parts[i] == "*" {
			parts[i] = names[i]
		}
	}
	address, err := registry.ParseMirrorAddress(strings.Join(parts, "/"))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// written returns a rule as a text.
func written(rule registry.MirrorRule) string {
	if rule.Deny {
		if rule.Reason == "" {
			return fmt.Sprintf("deny %q {}\n", rule.Pattern)
		}
		return fmt.Sprintf("deny %q {\n  reason = %s\n}\n", rule.Pattern, hclwrite.TokensForValue(cty.StringVal(rule.Reason)).Bytes())
	}
	var text strings.Builder
	fmt.Fprintf(&text, "allow %q {\n", rule.Pattern)
	if rule.MinAge > 0 {
		unknown := map[bool]string{false: "admit", true: "wait"}[rule.WaitUnknown]
		fmt.Fprintf(&text, "  min_age = \"%dm\"\n  unknown_age = %q\n", rule.MinAge/60, unknown)
	}
	if len(rule.Platforms) > 0 {
		fmt.Fprintf(&text, "  platforms = [")
		for _, p := range rule.Platforms {
			fmt.Fprintf(&text, "%q,", p)
		}
		fmt.Fprintf(&text, "]\n")
	}
	if rule.MaxSize > 0 {
		fmt.Fprintf(&text, "  max_size = \"%dKiB\"\n", rule.MaxSize>>10)
	}
	if len(rule.SigningKeys) > 0 {
		fmt.Fprintf(&text, "  signing_keys = [\"%s\"]\n", strings.Join(rule.SigningKeys, "\", \""))
	}
	if rule.Pull != "" {
		fmt.Fprintf(&text, "  pull = %q\n", rule.Pull)
	}
	if rule.Upstream != "" {
		fmt.Fprintf(&text, "  upstream = %s\n", hclwrite.TokensForValue(cty.StringVal(rule.Upstream)).Bytes())
	}
	if len(rule.Networks) > 0 {
		fmt.Fprintf(&text, "  networks = [")
		for _, n := range rule.Networks {
			fmt.Fprintf(&text, "%q,", n)
		}
		fmt.Fprintf(&text, "]\n")
	}
	if len(rule.Forges) > 0 {
		fmt.Fprintf(&text, "  forges = [")
		for _, host := range slices.Sorted(maps.Keys(rule.Forges)) {
			fmt.Fprintf(&text, "\"%s://%s\",", rule.Forges[host], host)
		}
		fmt.Fprintf(&text, "]\n")
	}
	return text.String() + "}\n"
}

// writtenBudget returns a budget as a text.
func writtenBudget(budget registry.PullBudget) string {
	var text strings.Builder
	if budget.Packages > 0 {
		fmt.Fprintf(&text, "  packages_per_day = %d\n", budget.Packages)
	}
	if budget.Bytes > 0 {
		fmt.Fprintf(&text, "  size_per_day = \"%dKiB\"\n", budget.Bytes>>10)
	}
	if text.Len() == 0 {
		return ""
	}
	return "budget {\n" + text.String() + "}\n"
}
