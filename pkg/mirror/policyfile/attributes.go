package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// The names of attributes.
const (
	reasonName      = "reason"
	minAgeName      = "min_age"
	unknownAgeName  = "unknown_age"
	platformsName   = "platforms"
	maxSizeName     = "max_size"
	signingKeysName = "signing_keys"
	pullName        = "pull"
	upstreamName    = "upstream"
	networksName    = "networks"
	forgesName      = "forges"
)

// allowNames are the attributes of allow. The only attribute of deny is
// reasonName.
var allowNames = []string{
	minAgeName, unknownAgeName, platformsName, maxSizeName, signingKeysName, pullName, upstreamName, networksName,
	forgesName,
}

func (p *parser) attributes(b *hclsyntax.Block, rule *registry.MirrorRule) {
	for name, a := range b.Body.Attributes {
		isDeny := rule.Deny
		switch {
		case isDeny && name == reasonName:
			p.reason(a, rule)
		case isDeny && slices.Contains(allowNames, name):
			p.add(a.NameRange, "Use allow, or remove the attribute.", "deny has no %s, because it denies all versions", name)
		case isDeny:
			p.add(a.NameRange, didYouMean(name, []string{reasonName}, "The only attribute of deny is reason."),
				"deny has no attribute %q", name)
		case name == reasonName:
			p.add(a.NameRange, "Write it as a comment: # …", "only deny has a reason")
		default:
			p.ofAllow(a, rule)
		}
	}
	if a := b.Body.Attributes[unknownAgeName]; a != nil && !rule.Deny && b.Body.Attributes[minAgeName] == nil {
		p.add(a.NameRange, "Add min_age, such as min_age = \"7d\", or remove unknown_age.", "unknown_age needs min_age")
	}
	p.checkOrigin(b, *rule)
}

// ofAllow reads an attribute of allow, except for reason.
func (p *parser) ofAllow(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	ofModules := isModules(rule.Pattern)
	if ofModules && (a.Name == platformsName || a.Name == signingKeysName) {
		p.add(a.NameRange, "Remove it.", "a rule for modules has no %s", a.Name)
		return
	}
	if !ofModules && rule.Pattern != "" && a.Name == forgesName {
		p.add(a.NameRange, "Move it to a rule for modules, such as `allow \"registry.example.com/*/*/*\"`.",
			"a rule for providers has no forges")
		return
	}
	switch a.Name {
	case minAgeName:
		p.minAge(a, rule)
	case unknownAgeName:
		p.unknownAge(a, rule)
	case platformsName:
		p.platforms(a, rule)
	case maxSizeName:
		p.maxSize(a, rule)
	case signingKeysName:
		p.signingKeys(a, rule)
	case pullName:
		p.pull(a, rule)
	case upstreamName:
		p.upstream(a, rule)
	case networksName:
		p.networks(a, rule)
	case forgesName:
		p.forges(a, rule)
	default:
		p.add(a.NameRange, didYouMean(a.Name, allowNames, "The attributes of allow are "+strings.Join(allowNames, ", ")+"."),
			"allow has no attribute %q", a.Name)
	}
}

// maxReason is the maximum size of a reason in bytes.
const maxReason = 500

func (p *parser) reason(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	text, ok := p.text(a, `"We do not use it."`)
	switch {
	case !ok:
	case len(text) > maxReason || !printable.Is(text):
		p.add(a.Expr.Range(), "", "reason must be one printable line of at most %d bytes", maxReason)
	case strings.TrimSpace(text) == "":
		p.add(a.Expr.Range(), "Write one, or remove it.", "reason is empty")
	default:
		rule.Reason = text
	}
}

// ages are the units of ages in seconds.
var ages = map[string]int64{"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

// maxAge is the highest minimum age in seconds, ten years.
const maxAge = 10 * 365 * 24 * 3600

var (
	age = regexp.MustCompile(`^([0-9]+)([mhdw])$`)
	// nearAge matches what people write for an age. Its groups are the number,
	// and the first letter of the unit. It does not match months.
	nearAge = regexp.MustCompile(`^(?i) *([0-9]+) *([hdw][a-z]*|min[a-z]*) *$`)
	number  = regexp.MustCompile(`^[0-9]+$`)
)

func (p *parser) minAge(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	text, ok := p.text(a, `"7d"`)
	if !ok {
		return
	}
	at := a.Expr.Range()
	match := age.FindStringSubmatch(text)
	if match == nil {
		hint := ""
		if near := nearAge.FindStringSubmatch(text); near != nil {
			hint = fmt.Sprintf("Did you mean %q?", near[1]+strings.ToLower(near[2][:1]))
		} else if number.MatchString(text) {
			hint = fmt.Sprintf("For days, write %q.", text+"d")
		}
		p.add(at, hint, "min_age %.40q must be a whole number with the unit m, h, d or w, such as \"7d\"", text)
		return
	}
	n, err := strconv.ParseInt(match[1], 10, 32)
	switch {
	case err != nil || n > maxAge/ages[match[2]]:
		p.add(at, "To deny the versions altogether, use deny.", "min_age %.40q is more than ten years", text)
	case n == 0:
		p.add(at, "Remove it to allow new versions at once.", "min_age %.40q is zero", text)
	default:
		rule.MinAge = n * ages[match[2]]
	}
}

func (p *parser) unknownAge(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	const admit, wait = "admit", "wait"
	rule.WaitUnknown = p.choice(a, admit, wait) == wait
}

func (p *parser) pull(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	rule.Pull = registry.PullMode(p.choice(a, string(registry.PullOpen), string(registry.PullClosed)))
	if rule.Pull == registry.PullOpen && isModules(rule.Pattern) {
		p.add(a.Expr.Range(), "Write pull = \"closed\".",
			"pull of modules cannot be \"open\", because the mirror binds a module to its content before clients get it")
	}
}

// choice returns the text of an attribute, which must be one or the other. If it
// is not, choice adds a problem and returns an empty string.
func (p *parser) choice(a *hclsyntax.Attribute, one, other string) string {
	text, ok := p.text(a, strconv.Quote(other))
	if ok && text != one && text != other {
		p.add(a.Expr.Range(), didYouMean(text, []string{one, other}, ""),
			"%s %.40q must be %q or %q", a.Name, text, one, other)
		return ""
	}
	return text
}

func (p *parser) platforms(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	for _, e := range p.texts(a, `["linux_amd64"]`, "Remove it to allow all platforms.") {
		if e.text == "all" {
			p.add(e.at, "To allow all platforms, remove platforms.", "\"all\" is not a platform")
			continue
		}
		platform, err := registry.ParsePlatform(e.text)
		switch {
		case err != nil:
			p.add(e.at, "", "%v", err)
		case slices.Contains(rule.Platforms, platform):
			p.add(e.at, "Remove one of the two.", "the platform %s is twice in the list", platform)
		default:
			rule.Platforms = append(rule.Platforms, platform)
		}
	}
}

// sizes are the units of sizes in bytes.
var sizes = map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// largest is the highest maximum size in bytes. A larger package cannot be
// stored.
const largest = 5 << 30

var (
	size = regexp.MustCompile(`^([0-9]+)([KMG]iB)$`)
	// nearSize matches what people write for a size. Its groups are the number,
	// and the first letter of the unit.
	nearSize = regexp.MustCompile(`^ *([0-9]+) *([kKmMgG])i?[bB]? *$`)
)

func (p *parser) maxSize(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	rule.MaxSize = p.size(a, sizeBounds{
		example: "600MiB", largest: largest, ifLarger: "Remove it for no limit.", ifZero: "To allow no packages, use deny.",
	})
}

// sizeBounds describes the sizes that an attribute can have.
type sizeBounds struct {
	example string
	// largest is the largest size in bytes. It has whole GiB.
	largest int64
	// ifLarger and ifZero are hints.
	ifLarger, ifZero string
}

// size returns the size of an attribute in bytes. If the attribute has none in
// the bounds, size adds a problem and returns 0.
func (p *parser) size(a *hclsyntax.Attribute, bounds sizeBounds) int64 {
	text, ok := p.text(a, strconv.Quote(bounds.example))
	if !ok {
		return 0
	}
	at := a.Expr.Range()
	match := size.FindStringSubmatch(text)
	if match == nil {
		hint := ""
		if near := nearSize.FindStringSubmatch(text); near != nil {
			hint = fmt.Sprintf("Did you mean %q?", near[1]+strings.ToUpper(near[2])+"iB")
		}
		p.add(at, hint, "%s %.40q must be a whole number with the unit KiB, MiB or GiB, such as %q", a.Name, text,
			bounds.example)
		return 0
	}
	n, err := strconv.ParseInt(match[1], 10, 64)
	switch {
	case err != nil || n > bounds.largest/sizes[match[2]]:
		p.add(at, bounds.ifLarger, "%s %.40q is more than %dGiB", a.Name, text, bounds.largest>>30)
		return 0
	case n == 0:
		p.add(at, bounds.ifZero, "%s %.40q is zero", a.Name, text)
	}
	return n * sizes[match[2]]
}

var hexadecimal = regexp.MustCompile("^[0-9A-F]+$")

// The numbers of hexadecimal digits of a key ID, and of fingerprints of version
// 4 and of later ones.
var keyDigits = []int{16, 40, 64}

func (p *parser) signingKeys(a *hclsyntax.Attribute, rule *registry.MirrorRule) {
	const remove = "Remove it to trust the first key that signed."
	for _, e := range p.texts(a, `["34365D9472D7468F"]`, remove) {
		// GnuPG prints fingerprints with spaces.
		key := strings.ToUpper(strings.ReplaceAll(e.text, " ", ""))
		switch {
		case !hexadecimal.MatchString(key):
			hint := ""
			if strings.HasPrefix(key, "0X") {
				hint = "Write it without 0x."
			}
			p.add(e.at, hint, "invalid signing key %.100q: it must have only hexadecimal digits", e.text)
		case !slices.Contains(keyDigits, len(key)):
			p.add(e.at, "Write the fingerprint or the ID that `gpg --show-keys --keyid-format long FILE` prints.",
				"invalid signing key %.100q: it has %d digits, and must have 16, 40 or 64", e.text, len(key))
		case slices.Contains(rule.SigningKeys, key):
			p.add(e.at, "Remove one of the two.", "the signing key %s is twice in the list", key)
		default:
			rule.SigningKeys = append(rule.SigningKeys, key)
		}
	}
}

// text returns the text of an attribute. If its value is not a text, text adds
// a problem with an example of a value.
func (p *parser) text(a *hclsyntax.Attribute, example string) (text string, ok bool) {
	if text, ok = textOf(a.Expr); !ok {
		p.add(a.Expr.Range(), "", "%s must be a text in quotes, such as %s", a.Name, example)
	}
	return text, ok
}

// element is a text in a list.
type element struct {
	text string
	at   hcl.Range
}

// texts returns the texts of an attribute that is a list. For another value,
// and for each element that is not a text, it adds a problem with an example of
// a value. An empty list is a problem with a hint.
func (p *parser) texts(a *hclsyntax.Attribute, example, ifEmpty string) (found []element) {
	list, ok := a.Expr.(*hclsyntax.TupleConsExpr)
	if !ok {
		p.add(a.Expr.Range(), "", "%s must be a list of texts, such as %s", a.Name, example)
		return nil
	}
	if len(list.Exprs) == 0 {
		p.add(list.Range(), ifEmpty, "%s is empty", a.Name)
	}
	for _, e := range list.Exprs {
		if text, ok := textOf(e); ok {
			found = append(found, element{text, e.Range()})
		} else {
			p.add(e.Range(), "", "%s must be a list of texts, such as %s", a.Name, example)
		}
	}
	return found
}

// textOf returns the text of a literal, and false for another value.
func textOf(e hclsyntax.Expression) (string, bool) {
	value, problems := e.Value(nil)
	if problems.HasErrors() || value.Type() != cty.String || value.IsNull() || !value.IsKnown() {
		return "", false
	}
	return value.AsString(), true
}
