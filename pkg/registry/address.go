package registry

import (
	"fmt"
	"strings"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// The forms of addresses, for errors.
const (
	moduleForm   = "a module is NAMESPACE/NAME/SYSTEM"
	providerForm = "a provider is NAMESPACE/TYPE"
	anyForm      = moduleForm + ", a provider NAMESPACE/TYPE, and a mirrored provider HOSTNAME/NAMESPACE/TYPE, " +
		"or mirror/HOSTNAME/NAMESPACE/TYPE if the hostname has no dot"
	mirrorModuleForm = "a mirrored module is HOSTNAME/NAMESPACE/NAME/SYSTEM, such as " +
		"registry.opentofu.org/terraform-aws-modules/vpc/aws"
	mirrorForm = "a mirrored provider is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/random"
)

// part is one part of an address. rule is how the part must be, and ok reports
// whether it is.
type part struct {
	name, text, rule string
	ok               bool
}

const (
	nameRule         = "be 1 to 64 letters, digits, - and _, with a letter or a digit at both ends"
	systemRule       = "be 1 to 64 lower-case letters and digits"
	providerPartRule = "be lower-case letters, digits and single hyphens, with a letter or a digit at both ends"
)

// invalidAddress returns the error for an address that does not have a form. If
// a part is wrong, the error names the first wrong part. If the text is
// recognizable as something else, the error has a hint.
func invalidAddress(s, form string, parts ...part) error {
	reason := form
	hint := otherThanAddress(s)
	for _, p := range parts {
		if p.ok || hint != "" {
			continue
		}
		reason = fmt.Sprintf("its %s %q must %s", p.name, p.text, p.rule)
		if p.text == "" {
			reason = fmt.Sprintf("its %s is empty: %s", p.name, form)
		}
		break
	}
	err := fmt.Errorf("%w address %.100q: %s", ErrInvalid, s, reason)
	if hint == "" {
		return err
	}
	return WithHint(err, "%s", hint)
}

// otherThanAddress returns a hint if a text that was given as an address is
// something else, and "" otherwise.
func otherThanAddress(s string) string {
	if before, version, found := strings.Cut(s, "@"); found {
		if _, err := ParseTag(version); err == nil && errs.IsPlain(before) {
			return fmt.Sprintf("Pass the version as a separate argument: %s %s.", before, version)
		}
	}
	if isPath(s) {
		return "This is a path. Check the order of the arguments."
	}
	if _, err := ParseTag(s); err == nil {
		return "This is a version. Check the order of the arguments."
	}
	return ""
}

// isPath reports whether a text can only be the path of a file or a folder.
func isPath(s string) bool {
	for _, before := range []string{".", "..", "~"} {
		if s == before || strings.HasPrefix(s, before+"/") {
			return true
		}
	}
	return strings.HasPrefix(s, "/") && strings.Trim(s, "/") != "" || strings.Contains(s, `\`)
}

func moduleParts(s string) []part {
	words := strings.Split(s, "/")
	is := func(format, word string) bool {
		_, err := regaddr.ParseModuleSource(fmt.Sprintf(format, word))
		return err == nil
	}
	return []part{
		{"namespace", words[0], nameRule, is("%s/a/a", words[0])},
		{"name", words[1], nameRule, is("a/%s/a", words[1])},
		{"system", words[2], systemRule, is("a/a/%s", words[2])},
	}
}

func providerParts(namespace, kind string) []part {
	parts := []part{
		{"namespace", namespace, providerPartRule, isProviderPart(namespace)},
		{"type", kind, providerPartRule, isProviderPart(kind)},
	}
	for _, before := range []string{"terraform-", "opentofu-"} {
		if strings.HasPrefix(kind, before) {
			parts = append(parts, part{"type", kind, "not begin with " + before + ", which clients reject", false})
		}
	}
	return parts
}

func isProviderPart(s string) bool {
	as, err := regaddr.ParseProviderPart(s)
	return err == nil && errs.IsPlain(as)
}

func mirrorParts(hostname, rest string) []part {
	namespace, kind, _ := strings.Cut(rest, "/")
	_, err := ParseHost(hostname)
	return append([]part{hostnamePart(hostname, err == nil)}, providerParts(namespace, kind)...)
}

func hostnamePart(hostname string, ok bool) part {
	return part{"hostname", hostname, "be a DNS name such as registry.opentofu.org", ok}
}
