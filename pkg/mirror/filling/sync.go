package filling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/gohcl"
	regaddr "github.com/opentofu/registry-address/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// ParseList parses a list of what to mirror. Messages contain its name. It
// returns [registry.ErrInvalid] for an invalid list. An example of a list:
//
//	platforms = ["linux_amd64", "darwin_arm64"]
//
//	provider "registry.opentofu.org/hashicorp/random" {
//	  versions = ["~> 3.5", "3.1.0"]   # the newest match of each
//	}
//
//	provider "registry.example.com/acme/inventory" {
//	  versions       = [">= 1.0.0"]
//	  all            = true            # all matches
//	  platforms      = ["linux_arm64"] # instead of those above; ["all"] is every platform
//	  upstream       = "https://registry.internal.example.com"
//	  allow_unsigned = true
//	}
//
//	module "registry.opentofu.org/terraform-aws-modules/vpc/aws" {
//	  versions = ["~> 5.0"]            # all and upstream are as above
//	}
func ParseList(ctx context.Context, name string, text []byte) ([]Wanted, error) {
	body, err := parseHCL(ctx, name, text)
	if err != nil {
		return nil, err
	}
	var list struct {
		Platforms []string `hcl:"platforms,optional"`
		Providers []struct {
			Address       string    `hcl:"address,label"`
			Versions      cty.Value `hcl:"versions"`
			All           bool      `hcl:"all,optional"`
			Platforms     []string  `hcl:"platforms,optional"`
			Upstream      string    `hcl:"upstream,optional"`
			AllowUnsigned bool      `hcl:"allow_unsigned,optional"`
		} `hcl:"provider,block"`
		Modules []struct {
			Address  string    `hcl:"address,label"`
			Versions cty.Value `hcl:"versions"`
			All      bool      `hcl:"all,optional"`
			Upstream string    `hcl:"upstream,optional"`
		} `hcl:"module,block"`
	}
	if problems := gohcl.DecodeBody(body, nil, &list); problems.HasErrors() {
		return nil, registry.WithHint(fmt.Errorf("%w list: %w", registry.ErrInvalid, problems),
			"An entry looks like `provider \"registry.opentofu.org/hashicorp/random\" { versions = [\"~> 3.5\"] }`.")
	}
	var wanted []Wanted
	for _, p := range list.Providers {
		address, err := registry.ParseMirrorProvider(p.Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		names := p.Platforms
		if names == nil {
			names = list.Platforms
		}
		platforms, err := ParsePlatforms(names)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, address, err)
		}
		if wanted, err = appendWanted(wanted, name, p.Versions, Wanted{
			Address: address, All: p.All, Platforms: platforms, Upstream: p.Upstream, AllowUnsigned: p.AllowUnsigned,
		}); err != nil {
			return nil, err
		}
	}
	for _, module := range list.Modules {
		address, err := registry.ParseMirrorModule(module.Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if wanted, err = appendWanted(wanted, name, module.Versions, Wanted{
			Address: address, All: module.All, Upstream: module.Upstream,
		}); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// appendWanted appends w with each of the version constraints of its block.
func appendWanted(wanted []Wanted, name string, versions cty.Value, w Wanted) ([]Wanted, error) {
	constraints := texts(versions)
	if len(constraints) == 0 {
		return nil, registry.WithHint(
			fmt.Errorf("%w list: %s: %s has no versions in a list, each in quotes", registry.ErrInvalid, name, w.Address),
			"Add the versions, such as versions = [\"~> 1.0\"].")
	}
	for _, w.Constraint = range constraints {
		if _, err := registry.ParseConstraint(w.Constraint); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, w.Address, err)
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

// PortReason is why addresses whose hostname has a port are skipped.
const PortReason = "clients do not use mirrors for a hostname with a port"

// manifestFile is where clients write which modules of a configuration they have
// installed.
const manifestFile = ".terraform/modules/modules.json"

// ReadInstalled reads the registry modules that a client has installed for the
// configuration in a folder, nested ones too, each in its exact version. It passes the
// source of each that cannot be mirrored to skip, with the reason. It returns
// [registry.ErrNotFound] if the client has installed none.
func ReadInstalled(dir string, skip func(source, reason string)) (installed []Wanted, err error) {
	name := filepath.Join(dir, filepath.FromSlash(manifestFile))
	text, err := textfile.Read(name, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, registry.WithHint(registry.Errorf(registry.ErrNotFound, "there is no %s in %s", manifestFile, dir),
			"Run `tofu init` or `terraform init` there first, or name a list.")
	}
	if err != nil {
		return nil, err
	}
	var manifest struct {
		Modules []struct{ Source, Version string }
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, fmt.Errorf("%w file: %s: %w", registry.ErrInvalid, name, err)
	}
	for _, one := range manifest.Modules {
		source, _, _ := strings.Cut(one.Source, "//")
		parsed, err := regaddr.ParseModuleSource(source)
		if err != nil || one.Version == "" {
			continue // it is not from a registry
		}
		if parsed.Package.Host != "" && strings.Contains(string(parsed.Package.Host), ":") {
			skip(source, PortReason)
			continue
		}
		address, err := addressOf(string(parsed.Package.Host), parsed.Package)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		v, err := registry.ParseVersion(one.Version)
		if err != nil {
			skip(source, err.Error())
			continue
		}
		if !slices.ContainsFunc(installed, func(w Wanted) bool { return w.Address == address && w.exact.Same(v) }) {
			installed = append(installed, Wanted{Address: address, exact: &v})
		}
	}
	return installed, nil
}

// texts returns the texts of a list. It returns nil if another value is in it, because a
// number such as 1.10 would be another version, 1.1.
func texts(list cty.Value) (all []string) {
	if list.IsNull() || !list.CanIterateElements() {
		return nil
	}
	for _, v := range list.Elements() {
		if v.IsNull() || v.Type() != cty.String {
			return nil
		}
		all = append(all, v.AsString())
	}
	return all
}

// ParsePlatforms parses platforms. For the single word "all" it returns no
// platforms. It returns [registry.ErrInvalid] for invalid names.
func ParsePlatforms(names []string) ([]registry.Platform, error) {
	if len(names) == 1 && names[0] == "all" {
		return nil, nil
	}
	if len(names) == 0 {
		return nil, registry.WithHint(fmt.Errorf("%w platforms: no platform is given", registry.ErrInvalid),
			"Name at least one, such as linux_amd64, or \"all\".")
	}
	platforms := make([]registry.Platform, len(names))
	for i, name := range names {
		if name == "all" {
			return nil, fmt.Errorf("%w platforms: \"all\" cannot be combined with others", registry.ErrInvalid)
		}
		var err error
		if platforms[i], err = registry.ParsePlatform(strings.TrimSpace(name)); err != nil {
			return nil, err
		}
	}
	return platforms, nil
}

// Sync mirrors what is missing from the mirror according to a list. An error
// does not stop it from mirroring the other entries. It skips versions that are
// withdrawn or too new, and adds a note. It removes nothing, because lock files
// may need it. A change of the policy applies within a minute. It also mirrors the
// modules that modules call, as [Mirror.Add] does.
func (m *Mirror) Sync(ctx context.Context, list []Wanted) ([]Result, error) {
	policies, err := m.policies(ctx)
	if err != nil {
		return nil, err
	}
	var results []Result
	var failed []error
	for _, w := range list {
		w.lenient = true
		added, err := m.mirrorEach(ctx, policies, w)
		results = mergeResults(results, added)
		failed = append(failed, err)
	}
	results, err = m.follow(ctx, policies, list, results)
	return results, errors.Join(append(failed, err)...)
}

// mergeResults adds results to others. Two constraints may select the same version.
func mergeResults(results, added []Result) []Result {
	for _, r := range added {
		if at := slices.IndexFunc(results, func(o Result) bool {
			return o.Address == r.Address && o.Version == r.Version
		}); at >= 0 {
			results[at].merge(r)
		} else {
			results = append(results, r)
		}
	}
	return results
}

// merge adds a later result for the same version. The later status of an added
// package or module is unchanged, or added again in a dry run.
func (r *Result) merge(later Result) {
	if r.Status == "" || r.Status == Unchanged {
		r.Status, r.Pin, r.module = later.Status, later.Pin, later.module
	}
	for _, p := range later.Packages {
		at := slices.IndexFunc(r.Packages, func(o PackageResult) bool { return o.Platform == p.Platform })
		if at < 0 {
			r.Packages = append(r.Packages, p)
		} else if r.Packages[at].Status == Unchanged {
			r.Packages[at] = p
		}
	}
	slices.SortFunc(r.Packages, func(a, b PackageResult) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	if later.Signer != "" {
		r.Signer, r.Owner = later.Signer, later.Owner
	}
	for _, note := range later.Notes {
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
}
