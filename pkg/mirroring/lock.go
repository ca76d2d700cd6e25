package mirroring

import (
	"context"
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

// MaxText bounds a lock file and a list of what to mirror, in bytes.
const MaxText = 4 << 20

var longNumber = regexp.MustCompile("[0-9]{19}")

// ParseLock reads a .terraform.lock.hcl. Its name is for messages. Errors are registry.ErrInvalid.
//
// Source: https://opentofu.org/docs/language/files/dependency-lock/.
func ParseLock(name string, text []byte) ([]Locked, error) {
	body, err := parseHCL(name, text)
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("%w lock file: %w", registry.ErrInvalid, problems)
	}
	var locked []Locked
	for _, p := range lock.Providers {
		address, err := registry.ParseMirrorProvider(p.Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		v, err := registry.ParseVersion(p.Version)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, address, err)
		}
		if slices.ContainsFunc(locked, func(l Locked) bool { return l.Address == address }) {
			return nil, fmt.Errorf("%w lock file: %s names %s twice", registry.ErrInvalid, name, address)
		}
		locked = append(locked, Locked{name, address, v, p.Hashes})
	}
	return locked, nil
}

// parseHCL reads a text of HCL's native syntax, whose library takes time and memory for what is nested without end.
func parseHCL(name string, text []byte) (hcl.Body, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w file: %s has more than %d bytes", registry.ErrInvalid, name, MaxText)
	}
	if depth(text) > maxDepth {
		return nil, fmt.Errorf("%w file: %s is nested more than %d levels deep", registry.ErrInvalid, name, maxDepth)
	}
	f, problems := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if problems.HasErrors() {
		return nil, fmt.Errorf("%w file: %w", registry.ErrInvalid, problems)
	}
	return f.Body, nil
}

const maxDepth = 100

// depth is how deep brackets are nested at most, or more where some are in strings.
func depth(text []byte) int {
	at, deepest := 0, 0
	for _, b := range text {
		switch b {
		case '(', '[', '{':
			at++
			deepest = max(deepest, at)
		case ')', ']', '}':
			at = max(at-1, 0)
		}
	}
	return deepest
}

// Lock mirrors exactly what lock files name, for platforms, from the origins. A package that a lock file would not let
// clients install is refused, and with it the version.
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
	for _, v := range order {
		added, err := m.Add(ctx, Wanted{
			Address: v.MirrorProvider, exact: &v.Version, Platforms: platforms,
			AllowUnsigned: allowUnsigned, locked: byVersion[v],
		})
		results = append(results, added...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
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
