package filling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// Locked is a provider in a lock file.
type Locked struct {
	// File is the name of the lock file.
	File    string
	Address registry.MirrorAddress
	Version registry.Version
	// Hashes are the accepted hashes of packages. If empty, any package is
	// accepted.
	Hashes []string
}

// MaxText is the maximum size of a lock file and of a list, in bytes. It is
// enough for some hundred providers with hashes for all platforms.
const MaxText = 512 << 10

// ParseLock parses a .terraform.lock.hcl. Messages contain its name. It returns
// the addresses of excluded providers, whose hostname has a port, because no
// client uses a mirror for them. It returns [registry.ErrInvalid] for an
// invalid file.
//
// Source: https://opentofu.org/docs/language/files/dependency-lock/.
func ParseLock(ctx context.Context, name string, text []byte) (locked []Locked, excluded []string, err error) {
	body, err := parseHCL(ctx, name, text)
	if err != nil && !strings.HasSuffix(name, ".lock.hcl") {
		err = registry.WithHint(err, "Name a .terraform.lock.hcl.")
	}
	if err != nil {
		return nil, nil, err
	}
	// Ignore what later releases of the clients add.
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
		return nil, nil, registry.WithHint(
			fmt.Errorf("%w lock file: %s contains no providers", registry.ErrInvalid, name),
			"Name a .terraform.lock.hcl.")
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
			return nil, nil, fmt.Errorf("%w lock file: %s contains %s twice", registry.ErrInvalid, name, address)
		}
		locked = append(locked, Locked{name, address, v, p.Hashes})
	}
	return locked, excluded, nil
}

// parseHCL parses a file with only literal values. It returns
// [registry.ErrInvalid] for an invalid file, or the error of ctx.
func parseHCL(ctx context.Context, name string, text []byte) (hcl.Body, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w file: %s has more than %d bytes", registry.ErrInvalid, name, MaxText)
	}
	text, err := textfile.Decode(name, text)
	if err != nil {
		return nil, err
	}
	file, err := (&safehcl.Parser{LiteralsOnly: true}).Parse(ctx, name, text)
	if problem, ok := errors.AsType[*safehcl.Error](err); ok {
		err := fmt.Errorf("%w file: %w", registry.ErrInvalid, problem)
		if problem.Hint != "" {
			err = registry.WithHint(err, "%s", problem.Hint)
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return file.Body, nil
}

// Lock mirrors the locked versions for platforms from their origins. It rejects
// a version if clients could not install one of its packages because of a lock
// file. It also rejects a version that the policy of the mirror does not allow.
// It continues with the others.
func (m *Mirror) Lock(ctx context.Context, locked []Locked, platforms []registry.Platform,
	allowUnsigned bool) ([]Result, error) {
	type version struct {
		registry.MirrorAddress
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
	policies, err := m.policies(ctx)
	if err != nil {
		return nil, err
	}
	var results []Result
	var failed []error
	for _, v := range order {
		added, err := m.mirrorEach(ctx, policies, Wanted{
			Address: v.MirrorAddress, exact: &v.Version, Platforms: platforms,
			AllowUnsigned: allowUnsigned, locked: byVersion[v],
		})
		results = append(results, added...)
		failed = append(failed, err)
	}
	return results, errors.Join(failed...)
}

// precheck applies satisfy before a package is downloaded. It uses the zh hash
// for each lock file without h1 hashes.
func precheck(locked []Locked, o offer) error {
	for _, l := range locked {
		if !slices.ContainsFunc(l.Hashes, func(h string) bool { return strings.HasPrefix(h, "h1:") }) {
			if err := satisfy([]Locked{l}, o.platform, "zh:"+o.SHA256); err != nil {
				return err
			}
		}
	}
	return nil
}

// satisfy checks that each lock file accepts a package with these hashes. It
// returns [registry.ErrInvalid] if one does not.
func satisfy(locked []Locked, platform registry.Platform, hashes ...string) error {
	for _, l := range locked {
		if len(l.Hashes) > 0 && !slices.ContainsFunc(hashes, func(h string) bool { return slices.Contains(l.Hashes, h) }) {
			err := fmt.Errorf("%w package: %s has none of its hashes, so clients would reject it for %s (the package has %s)",
				registry.ErrInvalid, l.File, platform, strings.Join(hashes, " and "))
			return registry.WithHint(err, "If the platform is not locked yet, run `tofu providers lock -platform=%s` "+
				"(or the same with `terraform`), and mirror again.", platform)
		}
	}
	return nil
}
