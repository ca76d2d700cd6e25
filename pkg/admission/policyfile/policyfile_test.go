package policyfile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/larder-registry/larder/pkg/admission"
	"github.com/larder-registry/larder/pkg/admission/policyfile"
	"github.com/larder-registry/larder/pkg/registry"
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
}
allow "xn--mnchen-3ya.example.com/*/aws" {
  min_age     = "36h"
  unknown_age = "admit"
}
allow "*/acme/*" {}
allow "*/*/*" { min_age = "2w" }
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := policyfile.Parse(t.Context(), "test.hcl", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	want := []registry.MirrorRule{
		{Pattern: "registry.opentofu.org/hashicorp/consul", Line: 2, Deny: true, Reason: "We do not use it."},
		{Pattern: "registry.opentofu.org/hashicorp/nomad", Line: 5, Deny: true},
		{
			Pattern: "registry.opentofu.org/hashicorp/*", Line: 7, MinAge: 7 * 24 * 3600, WaitUnknown: true,
			Platforms: []registry.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}, MaxSize: 600 << 20,
			SigningKeys: []string{"34365D9472D7468F", "C874011F0AB405110D02105534365D9472D7468F"},
		},
		{Pattern: "xn--mnchen-3ya.example.com/*/aws", Line: 14, MinAge: 36 * 3600},
		{Pattern: "*/acme/*", Line: 18},
		{Pattern: "*/*/*", Line: 19, MinAge: 14 * 24 * 3600},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// mistakes has files with the problems that Parse reports, each followed by its
// hint in parentheses.
var mistakes = map[string]struct {
	text string
	want []string
}{
	"no rules": {"# nothing\n", []string{
		"p:1:1: the policy has no rules, so it would deny everything (To deny everything, write `deny \"*/*/*\" {}`.)",
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
	"invalid UTF-8": {"allow \"*/*/*\" {} # \xff\n", []string{"p: it is not valid UTF-8 (Save it in UTF-8.)"}},
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
		"p:2:1: the file can only have rules, and \"allow\" is an attribute (Write a rule as `allow \"registry.opentofu.org/hashicorp/*\" {}`.)",
	}},
	"a block in a rule": {"allow \"*/*/*\" {\n  age {}\n}\n", []string{
		"p:2:3: a rule has only attributes, and \"age\" is a block",
	}},
	"unknown attributes": {"allow \"*/*/a\" {\n  min_ag = \"7d\"\n  color = 1\n}\ndeny \"*/*/b\" {\n  reasons = \"x\"\n  color = 1\n}\n", []string{
		"p:2:3: allow has no attribute \"min_ag\" (Did you mean min_age?)",
		"p:3:3: allow has no attribute \"color\" (The attributes of allow are min_age, unknown_age, platforms, max_size, signing_keys.)",
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
	`min_age = ""`:             `min_age "" must be a whole number with the unit h, d or w, such as "7d"`,
	`min_age = "7"`:            `min_age "7" must be a whole number with the unit h, d or w, such as "7d" (For days, write "7d".)`,
	`min_age = "7 Days"`:       `min_age "7 Days" must be a whole number with the unit h, d or w, such as "7d" (Did you mean "7d"?)`,
	`min_age = "30m"`:          `min_age "30m" must be a whole number with the unit h, d or w, such as "7d"`,
	`min_age = "-7d"`:          `min_age "-7d" must be a whole number with the unit h, d or w, such as "7d"`,
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
	"":                                 `it must be HOSTNAME/NAMESPACE/TYPE, of which each part can be *`,
	"*":                                `it must be HOSTNAME/NAMESPACE/TYPE, of which each part can be *`,
	"hashicorp/aws":                    `it must be HOSTNAME/NAMESPACE/TYPE, of which each part can be * (Add the hostname, as in "registry.opentofu.org/hashicorp/random".)`,
	"a.example/b/c/d":                  `it must be HOSTNAME/NAMESPACE/TYPE, of which each part can be *`,
	"https://registry.opentofu.org":    `it must be HOSTNAME/NAMESPACE/TYPE, of which each part can be * (Write the hostname without a scheme, as in "registry.opentofu.org/hashicorp/random".)`,
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

// problems returns the problems of an error with their hints.
func problems(err error) (found []string) {
	all, ok := errors.AsType[*registry.ProblemsError](err)
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
	rules, err := policyfile.Parse(t.Context(), "p", []byte(text))
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("got %v and error %v, want ErrInvalid", rules, err)
	}
	if diff := cmp.Diff(want, problems(err)); diff != "" {
		t.Error(diff)
	}
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
	rules, err := policyfile.Parse(t.Context(), "p",
		[]byte("allow \"*/*/a\" {\n  unknown_age = \"waits\"\n  min_age = 7\n}\ndeny \"a\" { x = 1 }\nallow \"*/*/b\" {}\n"))
	if len(rules) > 0 {
		t.Errorf("got rules %v", rules)
	}
	want := "cannot read the mirror policy: 4 problems: p:2:17: unknown_age \"waits\" must be \"admit\" or \"wait\"; " +
		"p:3:13: min_age must be a text in quotes, such as \"7d\"; " +
		"p:5:6: invalid pattern \"a\": it must be HOSTNAME/NAMESPACE/TYPE, of which each part can be *; " +
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
	rules, err := policyfile.Parse(t.Context(), "p", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) != n {
		t.Errorf("got %d rules, want %d", len(rules), n)
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
	} {
		var text strings.Builder
		for n := 0; text.Len() < policyfile.MaxText-1000; n++ {
			fmt.Fprintf(&text, rule, n)
		}
		rules, err := policyfile.Parse(t.Context(), "p", []byte(text.String()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		stored, err := json.Marshal(registry.MirrorPolicy{Text: text.String(), Rules: rules})
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
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := policyfile.Parse(t.Context(), "p", []byte(text))
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			return
		}
		var again strings.Builder
		for i, rule := range rules {
			address := addressOf(t, rule.Pattern)
			// RuleOf also returns the rule that denies an address.
			if got, _ := admission.RuleOf(&registry.MirrorPolicy{Rules: rules}, address); !cmp.Equal(rule, got) {
				t.Errorf("rule %d: got the rule %v for %s, want %v", i, got, address, rule)
			}
			again.WriteString(written(rule))
		}
		same, err := policyfile.Parse(t.Context(), "p", []byte(again.String()))
		if err != nil {
			if again.Len() > policyfile.MaxText {
				return
			}
			t.Fatalf("%v\n%s", err, again.String())
		}
		for i := range min(len(rules), len(same)) {
			rules[i].Line, same[i].Line = 0, 0
		}
		if diff := cmp.Diff(rules, same); diff != "" {
			t.Error(diff)
		}
	})
}

// addressOf returns an address that a pattern matches. For wildcards, it has
// names that no other rule has.
func addressOf(t *testing.T, pattern string) registry.MirrorProvider {
	t.Helper()
	parts := strings.Split(pattern, "/")
	for i, name := range []string{"only-here.example.com", "only-here", "only-here"} {
		if parts[i] == "*" {
			parts[i] = name
		}
	}
	address, err := registry.ParseMirrorProvider(strings.Join(parts, "/"))
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
		fmt.Fprintf(&text, "  min_age = \"%dh\"\n  unknown_age = %q\n", rule.MinAge/3600, unknown)
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
	return text.String() + "}\n"
}
