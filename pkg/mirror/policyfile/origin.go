package policyfile

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// checkOrigin adds a problem for an attribute that describes one origin in a
// rule for all of them.
func (p *parser) checkOrigin(b *hclsyntax.Block, rule registry.MirrorRule) {
	if rule.Deny || !strings.HasPrefix(rule.Pattern, wildcard) {
		return
	}
	const hint = "Write a rule for each origin, such as `allow \"registry.example.com/*/*\"`."
	if a := b.Body.Attributes[upstreamName]; a != nil {
		p.add(a.NameRange, hint, "upstream needs a pattern with a hostname")
	}
	// Otherwise clients could make the mirror connect to every host inside.
	if a := b.Body.Attributes[networksName]; a != nil && b.Body.Attributes[pullName] != nil {
		p.add(a.NameRange, hint, "networks with pull needs a pattern with a hostname")
	}
}

// upstream reads the URL of an origin. Problems do not quote it, because it may
// contain a password.
func (p *parser) upstream(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	const example = `"https://registry.example.com"`
	text, ok := p.text(a, example)
	if !ok {
		return
	}
	u, err := url.Parse(text)
	var hint string
	switch {
	case err != nil || u.Hostname() == "" || !printable.Is(text) || strings.ContainsAny(text, " \\"):
		hint = "Write it as " + example + ", or with the path of its provider registry protocol."
	case u.Scheme != "https":
		hint = "Origins need TLS. Write https://."
	case u.User != nil:
		hint = "Remove the user. The mirror sends no credentials to origins."
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		hint = "Remove the query and the fragment."
	case strings.HasPrefix(u.Host, "[") && strings.Trim(u.Path, "/") == "":
		hint = "Discovery needs a host name or an IPv4 address. Add the path, such as /v1/providers/."
	default:
		rule.Upstream = text
		return
	}
	p.add(a.Expr.Range(), hint, "upstream is not the URL of a registry")
}

// maxNetworks is the maximum number of networks of a rule.
const maxNetworks = 32

func (p *parser) networks(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	found := p.texts(a, `["10.0.0.0/8"]`, "Remove it to allow only public addresses.")
	if len(found) > maxNetworks {
		p.add(a.Expr.Range(), "Write one prefix for several networks.", "networks has %d prefixes, and can have at most %d",
			len(found), maxNetworks)
		return
	}
	for _, e := range found {
		prefix, reason, hint := parseNetwork(e.text)
		if reason != "" {
			p.add(e.at, hint, "invalid network %.60q: %s", e.text, reason)
			continue
		}
		if p.isRepeated(e, prefix, rule.Networks) {
			continue
		}
		rule.Networks = append(rule.Networks, prefix)
	}
}

// isRepeated reports whether a prefix has addresses of an earlier one. Then it
// adds a problem.
func (p *parser) isRepeated(e element, prefix netip.Prefix, earlier []netip.Prefix) bool {
	for _, other := range earlier {
		switch {
		case !other.Overlaps(prefix):
			continue
		case other == prefix:
			p.add(e.at, "Remove one of the two.", "the network %s is twice in the list", prefix)
		case other.Bits() < prefix.Bits():
			p.add(e.at, "Remove it.", "the network %s is part of %s, which is in the list too", prefix, other)
		default:
			p.add(e.at, fmt.Sprintf("Remove %s.", other), "the network %s contains %s, which is in the list too", prefix, other)
		}
		return true
	}
	return false
}

// forges reads the hosts of repositories that are not well-known.
func (p *parser) forges(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	const example = `["gitlab://git.example.com"]`
	var names []string
	for _, kind := range registry.Forges {
		names = append(names, string(kind))
	}
	for _, e := range p.texts(a, example, "Remove it to allow only the well-known forges.") {
		kind, host, _ := strings.Cut(e.text, "://")
		parsed, err := registry.ParseHost(host)
		switch {
		case kind == "gitea": // whose name is nearer to another forge
			p.add(e.at, "For Gitea, write forgejo://.", "invalid forge %.100q: Gitea counts as a Forgejo", e.text)
		case !slices.Contains(names, kind):
			p.add(e.at, didYouMean(kind, names, "Write it as "+example+"."), "invalid forge %.100q: it must begin with %s",
				e.text, strings.Join(names, "://, ")+"://")
		case err != nil:
			p.add(e.at, "Write it as "+example+".", "invalid forge %.100q: a host must follow", e.text)
		case rule.Forges[string(parsed)] != "":
			p.add(e.at, "Remove one of the two.", "the forge %s is twice in the list", parsed)
		default:
			if rule.Forges == nil {
				rule.Forges = make(map[string]registry.Forge)
			}
			rule.Forges[string(parsed)] = registry.Forge(kind)
		}
	}
}

// parseNetwork returns a prefix, or the reason why it is invalid and what to do
// about it.
func parseNetwork(text string) (prefix netip.Prefix, reason, hint string) {
	if ip, err := netip.ParseAddr(text); err == nil {
		ip = ip.WithZone("").Unmap()
		return prefix, "it has no length", fmt.Sprintf("For one address, write \"%s/%d\".", ip, ip.BitLen())
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, "it is not a prefix", `Write it as "10.0.0.0/8" or "fd00::/8".`
	}
	if ip := prefix.Addr(); ip.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(ip.Unmap(), prefix.Bits()-96)
	}
	if prefix = prefix.Masked(); prefix.String() != text {
		return prefix, fmt.Sprintf("it is another way to write %s", prefix), fmt.Sprintf("Write %q.", prefix)
	}
	switch ipclass.OfPrefix(prefix) {
	case ipclass.LinkLocal:
		return prefix, "clouds give out credentials at such addresses", "Remove it. The mirror never connects to them."
	case ipclass.Public:
		return prefix, "it has public addresses, which are always allowed", "Name only networks inside, such as 10.0.0.0/8."
	}
	return prefix, "", ""
}
