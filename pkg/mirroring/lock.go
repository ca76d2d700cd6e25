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

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/safehcl"
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
func ParseLock(ctx context.Context, name string, text []byte) (locked []Locked, excluded []string, err error) {
	body, err := parseHCL(ctx, name, text)
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
			excluded = append(excluded, p.Address)
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
	return locked, excluded, nil
}

// parseHCL parses a file that has literal values alone. It returns
// registry.ErrInvalid, or the error of ctx.
func parseHCL(ctx context.Context, name string, text []byte) (hcl.Body, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w file: %s has more than %d bytes", registry.ErrInvalid, name, MaxText)
	}
	file, err := (&safehcl.Parser{LiteralsOnly: true}).Parse(ctx, name, text)
	if problem, ok := errors.AsType[*safehcl.Error](err); ok {
		return nil, fmt.Errorf("%w file: %w", registry.ErrInvalid, problem)
	}
	if err != nil {
		return nil, err
	}
	return file.Body, nil
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
			err := fmt.Errorf("%w package: %s has none of its hashes, so that clients would refuse it for %s (the package has %s)",
				registry.ErrInvalid, l.File, platform, strings.Join(hashes, " and "))
			return registry.WithHint(err, "If that platform was never locked, run `tofu providers lock -platform=%s` "+
				"or Terraform's, and mirror then.", platform)
		}
	}
	return nil
}
