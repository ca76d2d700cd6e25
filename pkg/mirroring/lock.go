package mirroring

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/larder-registry/larder/pkg/registry"
)

// Locked is a provider as a lock file names it.
type Locked struct {
	// File is the lock file's name.
	File    string
	Address registry.MirrorProvider
	Version registry.Version
	// Hashes are what a package must have one of; none of them is any package.
	Hashes []string
}

// Named is the part of a provider's address that leaves it out: a hostname, or HOSTNAME/NAMESPACE, or all of it.
func (l Locked) Named(part string) bool {
	return l.Address.String() == part || strings.HasPrefix(l.Address.String(), strings.TrimSuffix(part, "/")+"/")
}

// MaxText bounds a lock file and a list of what to mirror, in bytes: some hundred providers with the hashes of all platforms.
const MaxText = 512 << 10

var longNumber = regexp.MustCompile("[0-9]{19}")

// ParseLock reads a .terraform.lock.hcl. Its name is for messages. Providers whose hostname has a port, which no client asks a
// mirror for, are left out, and their addresses returned. Errors are registry.ErrInvalid.
//
// Source: https://opentofu.org/docs/language/files/dependency-lock/.
func ParseLock(name string, text []byte) (locked []Locked, leftOut []string, err error) {
	body, err := parseHCL(name, text)
	if err != nil {
		return nil, nil, err
	}
	// What later releases of the clients add is no business of ours.
	var lock struct {
		Providers []struct {
			Address string   `hcl:"address,label"`
			Version string   `hcl:"version"`
			Hashes  []string `hcl:"hashes,optional"`
			Rest    hcl.Body `hcl:",remain"`
		} `hcl:"provider,block"`
		Rest hcl.Body `hcl:",remain"`
	}
	if problems := gohcl.DecodeBody(body, nil, &lock); problems.HasErrors() {
		return nil, nil, fmt.Errorf("%w lock file: %w", registry.ErrInvalid, problems)
	}
	if len(lock.Providers) == 0 {
		return nil, nil, fmt.Errorf("%w lock file: %s names no providers: is it a .terraform.lock.hcl?", registry.ErrInvalid, name)
	}
	for _, p := range lock.Providers {
		if host, _, _ := strings.Cut(p.Address, "/"); strings.Contains(host, ":") {
			leftOut = append(leftOut, p.Address)
			continue
		}
		address, err := registry.ParseMirrorProvider(p.Address)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		v, err := registry.ParseVersion(p.Version)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %s: %w", name, address, err)
		}
		if slices.ContainsFunc(locked, func(l Locked) bool { return l.Address == address }) {
			return nil, nil, fmt.Errorf("%w lock file: %s names %s twice", registry.ErrInvalid, name, address)
		}
		locked = append(locked, Locked{name, address, v, p.Hashes})
	}
	return locked, leftOut, nil
}

// plain are the tokens of what is parsed here: blocks, attributes, and values that are texts, numbers, words and lists.
var plain = []hclsyntax.TokenType{
	hclsyntax.TokenIdent, hclsyntax.TokenEqual, hclsyntax.TokenComma, hclsyntax.TokenNewline, hclsyntax.TokenComment, hclsyntax.TokenEOF,
	hclsyntax.TokenOBrace, hclsyntax.TokenCBrace, hclsyntax.TokenOBrack, hclsyntax.TokenCBrack,
	hclsyntax.TokenOQuote, hclsyntax.TokenCQuote, hclsyntax.TokenQuotedLit, hclsyntax.TokenNumberLit,
}

const maxDepth = 100

// plainNumber has few digits and no exponent: the library would write all of them out.
var plainNumber = regexp.MustCompile(`^(\.?[0-9]){1,18}$`)

// beforeList are the tokens that a list comes after. Behind all others its bracket begins an index, and many of these take the
// library a time that grows with the square of their number.
var beforeList = []hclsyntax.TokenType{hclsyntax.TokenEqual, hclsyntax.TokenComma, hclsyntax.TokenOBrack}

// parseHCL reads a text of HCL's native syntax without expressions: some of these have the library use up the stack, or
// compute for minutes.
func parseHCL(name string, text []byte) (hcl.Body, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w file: %s has more than %d bytes", registry.ErrInvalid, name, MaxText)
	}
	tokens, problems := hclsyntax.LexConfig(text, name, hcl.InitialPos)
	if problems.HasErrors() {
		return nil, fmt.Errorf("%w file: %w", registry.ErrInvalid, problems)
	}
	depth, before := 0, hclsyntax.TokenNil
	for _, t := range tokens {
		ok := slices.Contains(plain, t.Type)
		switch t.Type {
		case hclsyntax.TokenOBrack:
			depth++
			ok = slices.Contains(beforeList, before)
		case hclsyntax.TokenOBrace:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack:
			depth--
		case hclsyntax.TokenNumberLit:
			ok = plainNumber.Match(t.Bytes)
		}
		if !ok || depth > maxDepth {
			return nil, fmt.Errorf("%w file: %s: there are blocks, texts, plain numbers and lists in such a file, and nothing else", registry.ErrInvalid, t.Range)
		}
		// Within brackets an index may come after these as well.
		if t.Type != hclsyntax.TokenNewline && t.Type != hclsyntax.TokenComment {
			before = t.Type
		}
	}
	f, problems := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if problems.HasErrors() {
		return nil, fmt.Errorf("%w file: %w", registry.ErrInvalid, problems)
	}
	return f.Body, nil
}

// Lock mirrors exactly what lock files name, for platforms, from the origins. A package that a lock file would not let
// clients install is refused, and with it the version; the others are mirrored nonetheless.
func (m *Mirror) Lock(ctx context.Context, locked []Locked, platforms []registry.Platform, allowUnsigned bool) ([]Result, error) {
	type version struct {
		registry.MirrorProvider
		registry.Version
	}
	byVersion := make(map[version][]Locked)
	var order []version
	for _, l := range locked {
		v := version{l.Address, l.Version}
		if byVersion[v] == nil {
			order = append(order, v)
		}
		byVersion[v] = append(byVersion[v], l)
	}
	var results []Result
	var failed []error
	for _, v := range order {
		added, err := m.Add(ctx, Wanted{
			Address: v.MirrorProvider, exact: &v.Version, Platforms: platforms,
			AllowUnsigned: allowUnsigned, locked: byVersion[v],
		})
		results = append(results, added...)
		failed = append(failed, err)
	}
	return results, errors.Join(failed...)
}

// foreseeable says what can be said of satisfy before a package is there: where a lock file has no h1, its zh decides.
func foreseeable(locked []Locked, o offer) error {
	for _, l := range locked {
		if !slices.ContainsFunc(l.Hashes, func(h string) bool { return strings.HasPrefix(h, "h1:") }) {
			if err := satisfy([]Locked{l}, o.platform, "zh:"+o.SHA256); err != nil {
				return err
			}
		}
	}
	return nil
}

// satisfy says whether each lock file lets clients install a package of these hashes.
func satisfy(locked []Locked, platform registry.Platform, hashes ...string) error {
	for _, l := range locked {
		if len(l.Hashes) > 0 && !slices.ContainsFunc(hashes, func(h string) bool { return slices.Contains(l.Hashes, h) }) {
			return fmt.Errorf("%w package: %s has none of its hashes, so that clients would refuse it for %s: if that platform was never locked, run `tofu providers lock -platform=%s` or Terraform's, and mirror then (the package has %s)",
				registry.ErrInvalid, l.File, platform, platform, strings.Join(hashes, " and "))
		}
	}
	return nil
}
