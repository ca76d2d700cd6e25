package copying_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// calling is a module of which each file has one module block: a source and,
// after a space, a version.
type calling map[string]string

// publish publishes a version of the module, or a copy of a source.
func (c calling) publish(t *testing.T, s copying.Store, address, version string, source ...string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"main.tf": "# " + address + " " + version + "\n"}
	for name, call := range c {
		source, constraint, _ := strings.Cut(call, " ")
		if !strings.HasPrefix(source, "var.") {
			source = `"` + source + `"`
		}
		if constraint != "" && !strings.HasPrefix(constraint, "var.") {
			constraint = `"` + constraint + `"`
		}
		text := "module \"" + strings.TrimSuffix(path.Base(name), ".tf") + "\" {\n  source = " + source + "\n"
		if constraint != "" {
			text += "  version = " + constraint + "\n"
		}
		files[name] = text + "}\n"
	}
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := rules.Module{Dir: dir, Address: module(t, address), Version: number(t, version)}
	if len(source) > 0 {
		m.CopiedFrom = &registry.CopiedFrom{Source: source[0]}
	}
	if _, err := s.Publisher.Module(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// notFollowed returns what a copy did not follow, as lines.
func notFollowed(r copying.Report) (all []string) {
	for _, one := range r.NotFollowed {
		all = append(all, one.String())
	}
	return all
}

// withKMS returns a registry that has versions of acme/kms/aws.
func withKMS(t *testing.T) copying.Store {
	t.Helper()
	s, kms := newStore(t, "dev.example.com"), module(t, "acme/kms/aws")
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0", "3.0.0-rc.1", "2.0.0"} {
		calling{}.publish(t, s, "acme/kms/aws", v)
	}
	withdraw(t, s, kms, "1.3.0")
	deprecate(t, s.Catalog.Modules, kms, "1.2.0", "broken", true)
	deprecate(t, s.Catalog.Modules, kms, "1.1.0", "use 2.0.0", false)
	return s
}

// undocumented is a registry that is not a Larder. The files of its modules have
// their module blocks.
type undocumented struct{ copying.Store }

func (undocumented) Documentation(context.Context, registry.Module, registry.Version) (docs.Documentation, error) {
	return docs.Documentation{}, registry.ErrNotFound
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	const host = "dev.example.com/"
	for name, c := range map[string]struct {
		calls       calling // of acme/eks/aws 1.0.0
		others      map[string]calling
		hosts       []registry.Host
		want        []string
		notFollowed []string
		notes       []string
	}{
		"none": {},
		"the highest version that matches": {
			calls: calling{"a.tf": host + "acme/kms/aws ~> v1.0"},
			want:  []string{"acme/kms/aws 1.1.0 copied, deprecated: use 2.0.0"},
		},
		"no constraint": {calls: calling{"a.tf": host + "acme/kms/aws"}, want: []string{"acme/kms/aws 2.0.0 copied"}},
		"a pre-release": {calls: calling{"a.tf": host + "acme/kms/aws 3.0.0-rc.1"}, want: []string{"acme/kms/aws 3.0.0-rc.1 copied"}},
		"another spelling": {
			calls: calling{"a.tf": "DEV.Example.com:443/acme/kms/aws//modules/x 2.0.0"}, want: []string{"acme/kms/aws 2.0.0 copied"},
		},
		"in a folder": {
			calls: calling{"a.tf": "./modules/x", "modules/x/a.tf": host + "acme/kms/aws >= 1.0, < 1.1", "modules/x/b.tf": "../y",
				"modules/y/a.tf": "../../", "examples/z/a.tf": host + "acme/missing/aws"},
			want: []string{"acme/kms/aws 1.0.0 copied"},
		},
		"a cycle and a diamond": {
			calls: calling{"a.tf": host + "acme/a/aws", "b.tf": host + "acme/b/aws"},
			others: map[string]calling{
				"acme/a/aws": {"a.tf": host + "acme/kms/aws 1.0.0", "b.tf": host + "acme/eks/aws"},
				"acme/b/aws": {"a.tf": host + "acme/kms/aws < 1.1", "b.tf": host + "acme/a/aws", "c.tf": host + "acme/kms/aws 2.0.0"},
			},
			want: []string{
				"acme/a/aws 1.0.0 copied", "acme/b/aws 1.0.0 copied", "acme/kms/aws 2.0.0 copied", "acme/kms/aws 1.0.0 copied",
			},
		},
		"not in the origin": {
			calls: calling{"a.tf": host + "acme/missing/aws 1.0.0", "b.tf": host + "acme/kms/aws ~> 3.0",
				"c.tf": host + "acme/kms/aws 1.3.0", "modules/x/a.tf": host + "acme/kms/aws 1.2.0"},
			notFollowed: []string{
				"acme/eks/aws 1.0.0 calls dev.example.com/acme/missing/aws 1.0.0: dev.example.com has no such module",
				"acme/eks/aws 1.0.0 calls dev.example.com/acme/kms/aws ~> 3.0: dev.example.com has no such version",
				"acme/eks/aws 1.0.0 calls dev.example.com/acme/kms/aws 1.3.0: dev.example.com has no such version",
				"acme/eks/aws//modules/x 1.0.0 calls dev.example.com/acme/kms/aws 1.2.0: dev.example.com has no such version",
			},
		},
		"not an address": {
			calls: calling{"a.tf": "git::https://ci:hunter2@example.com/kms.git?ref=v1", "b.tf": "var.source 1.0.0",
				"c.tf": "github.com/acme/kms", "d.tf": "./modules/x/y", "modules/x/y/a.tf": host + "acme/kms/aws"},
			notFollowed: []string{
				"acme/eks/aws 1.0.0 calls git::https://example.com/kms.git?ref=v1: it is not an address in a registry",
				"acme/eks/aws 1.0.0 calls var.source 1.0.0: it is not an address in a registry",
				"acme/eks/aws 1.0.0 calls github.com/acme/kms: it is not an address in a registry",
				"acme/eks/aws 1.0.0 calls ./modules/x/y: only folders directly below modules/ are read",
			},
		},
		"another namespace": {
			calls: calling{"a.tf": host + "acme2/kms/aws"},
			notFollowed: []string{
				"acme/eks/aws 1.0.0 calls dev.example.com/acme2/kms/aws: its namespace is not that of a module to copy",
			},
		},
		"constraints": {
			calls: calling{"a.tf": host + "acme/kms/aws latest", "b.tf": host + "acme/kms/aws var.kms"},
			notFollowed: []string{
				"acme/eks/aws 1.0.0 calls dev.example.com/acme/kms/aws latest: invalid version constraint \"latest\": missing comma after \"\"",
				"acme/eks/aws 1.0.0 calls dev.example.com/acme/kms/aws var.kms: invalid version constraint \"var.kms\": " +
					`invalid specification "v": a "v" prefix should not be used when specifying versions`,
			},
		},
		"another host": {
			calls: calling{"a.tf": "acme/kms/aws 2.0.0", "b.tf": "registry.terraform.io/acme/kms/aws 1.0.0",
				"c.tf": "Gäste.example.com/acme/kms/aws"},
			notFollowed: []string{
				"acme/eks/aws 1.0.0 calls acme/kms/aws 2.0.0: clients install it from their default registry",
				"acme/eks/aws 1.0.0 calls registry.terraform.io/acme/kms/aws 1.0.0: clients install it from registry.terraform.io",
				"acme/eks/aws 1.0.0 calls Gäste.example.com/acme/kms/aws: clients install it from gäste.example.com",
			},
		},
		"a host whose modules the origin has": {
			calls: calling{"a.tf": "acme/kms/aws 2.0.0", "b.tf": "registry.terraform.io/acme/kms/aws 1.0.0",
				"c.tf": "registry.opentofu.org/acme/kms/aws 1.1.0"},
			hosts: []registry.Host{"registry.terraform.io"},
			want:  []string{"acme/kms/aws 2.0.0 copied", "acme/kms/aws 1.0.0 copied"},
			notFollowed: []string{
				"acme/eks/aws 1.0.0 calls registry.opentofu.org/acme/kms/aws 1.1.0: clients install it from registry.opentofu.org",
			},
			notes: []string{"clients still install dependencies from registry.terraform.io, their default registry, " +
				"unless a `host` block of their configuration leads to prod.example.com"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := withKMS(t), newStore(t, "prod.example.com")
			c.calls.publish(t, from, "acme/eks/aws", "1.0.0")
			for address, calls := range c.others {
				calls.publish(t, from, address, "1.0.0")
			}
			eks := whole(module(t, "acme/eks/aws"))
			copier := copying.Copier{
				Origin: from, Target: copying.StoreTarget{Store: to}, Dependencies: true, DependencyHosts: c.hosts,
			}
			before := trail(t, from) + trail(t, to)
			for _, dry := range []bool{true, false} {
				copier.DryRun, copier.Origin = dry, from
				if dry {
					copier.Origin = undocumented{from}
				}
				report, err := copier.Copy(t.Context(), eks)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for i, one := range shown(report) {
					if report.Results[i].CalledBy != "" {
						got = append(got, one)
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("the dependencies (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.notFollowed, notFollowed(report)); diff != "" {
					t.Errorf("not followed (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.notes, report.Notes); c.notes != nil && diff != "" {
					t.Errorf("the notes (-want +got):\n%s", diff)
				}
				if dry && before != trail(t, from)+trail(t, to) {
					t.Error("the dry run changes the trails")
				}
			}
			again, err := copier.Copy(t.Context(), eks)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range again.Results {
				if one.Status != copying.Unchanged {
					t.Errorf("the second copy of %s %s: %s", one.Address, one.Version, one.Status)
				}
			}
			if diff := cmp.Diff(len(c.want)+1, len(again.Results)); diff != "" {
				t.Errorf("the results of the second copy (-want +got):\n%s", diff)
			}
		})
	}
}

// brokenFor is a registry that cannot list the versions of a module, or fetch it.
type brokenFor struct {
	undocumented
	list, fetch string
}

var errBroken = fmt.Errorf("%w: the origin is broken", registry.ErrUnavailable)

func (b brokenFor) Versions(ctx context.Context, a registry.Address) (copying.Listing, error) {
	if a.String() == b.list {
		return copying.Listing{}, errBroken
	}
	return b.Store.Versions(ctx, a)
}

func (b brokenFor) Module(
	ctx context.Context, m registry.Module, v copying.Version, dir string,
) (rules.Module, error) {
	if m.String() == b.fetch {
		return rules.Module{}, errBroken
	}
	return b.Store.Module(ctx, m, v, dir)
}

// If the origin cannot list a dependency, it fails. If a dry run cannot fetch a
// module, that fails, because its blocks are unknown.
func TestDependenciesOfBrokenOrigin(t *testing.T) {
	t.Parallel()
	from := withKMS(t)
	calling{"a.tf": "dev.example.com/acme/kms/aws 1.0.0", "b.tf": "dev.example.com/acme/kms/aws"}.publish(t, from, "acme/eks/aws", "1.0.0")
	for name, c := range map[string]struct {
		origin brokenFor
		want   []string
		err    error
	}{
		"list": {
			origin: brokenFor{undocumented{from}, "acme/kms/aws", ""},
			want:   []string{"acme/eks/aws 1.0.0 copied", "acme/kms/aws  failed: cannot copy acme/kms/aws: " + errBroken.Error()},
			err:    errBroken,
		},
		"fetch": {
			origin: brokenFor{undocumented{from}, "", "acme/eks/aws"},
			want:   []string{"acme/eks/aws 1.0.0 failed: its module blocks cannot be read: " + errBroken.Error()},
			err:    errBroken,
		},
	} {
		copier := copying.Copier{
			Origin: c.origin, Target: copying.StoreTarget{Store: newStore(t, "prod.example.com")}, Dependencies: true, DryRun: true,
		}
		report, err := copier.Copy(t.Context(), whole(module(t, "acme/eks/aws")))
		if !errors.Is(err, c.err) {
			t.Errorf("%s: the error is %v, want %v", name, err, c.err)
		}
		if diff := cmp.Diff(c.want, shown(report)); diff != "" {
			t.Errorf("%s: the report (-want +got):\n%s", name, diff)
		}
		if got := notFollowed(report); got != nil {
			t.Errorf("%s: not followed: %q", name, got)
		}
	}
}

// An origin must not add versions to the target's own modules, unless they are named.
func TestDependenciesOfOwnModules(t *testing.T) {
	t.Parallel()
	from, to := withKMS(t), newStore(t, "prod.example.com")
	calling{"a.tf": "dev.example.com/acme/kms/aws"}.publish(t, from, "acme/eks/aws", "1.0.0")
	calling{}.publish(t, to, "acme/kms/aws", "0.1.0")
	calling{}.publish(t, to, "acme/kms/aws", "0.2.0", "dev.example.com/acme/kms/aws")
	c := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}, Dependencies: true}
	eks := copying.Wanted{Address: module(t, "acme/eks/aws"), As: module(t, "acme/eks/aws")}
	one := number(t, "1.0.0")
	kms := copying.Wanted{Address: module(t, "acme/kms/aws"), As: module(t, "acme/kms/aws"), Exact: &one}
	for name, test := range map[string]struct {
		wanted      []copying.Wanted
		copied      bool
		notFollowed []string
	}{
		"not named": {[]copying.Wanted{eks}, false, []string{"acme/eks/aws 1.0.0 calls dev.example.com/acme/kms/aws: " +
			"prod.example.com has versions of it that are not from dev.example.com. To copy it, name it"}},
		"named": {[]copying.Wanted{eks, kms}, true, nil},
	} {
		report, err := c.Copy(t.Context(), test.wanted)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.notFollowed, notFollowed(report)); diff != "" {
			t.Errorf("%s: not followed (-want +got):\n%s", name, diff)
		}
		copied := slices.ContainsFunc(report.Results, func(r copying.Result) bool { return r.Version == "2.0.0" })
		if copied != test.copied {
			t.Errorf("%s: the dependency is copied: %t, want %t", name, copied, test.copied)
		}
	}
}

// A dependency can fail, and have another name. Several versions share what was
// not followed.
func TestDependenciesOfSeveral(t *testing.T) {
	t.Parallel()
	from, to := withKMS(t), newStore(t, "prod.example.com")
	kms, net := module(t, "acme/kms/aws"), module(t, "acme/net/aws")
	calls := calling{
		"a.tf": "dev.example.com/acme/kms/aws 1.0.0", "b.tf": "dev.example.com/acme/kms/aws 1.1.0", "c.tf": "github.com/acme/x",
	}
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		calls.publish(t, from, "acme/net/aws", v)
	}
	calling{"a.tf": "acme/other/aws"}.publish(t, to, "acme/kms/aws", "1.0.0", "dev.example.com/acme/kms/aws")
	c := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}, Dependencies: true}
	report, err := c.Copy(t.Context(), whole(net))
	if !errors.Is(err, registry.ErrExists) {
		t.Errorf("the error is %v", err)
	}
	if diff := cmp.Diff([]string{
		"acme/kms/aws 1.1.0 copied, deprecated: use 2.0.0",
		"acme/kms/aws 1.0.0 failed: already exists in prod.example.com with other content. A published version cannot change. " +
			"Find out which of the two registries has the right one.",
		"acme/net/aws 1.2.0 copied", "acme/net/aws 1.1.0 copied", "acme/net/aws 1.0.0 copied",
	}, shown(report)); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("acme/net/aws 1.2.0", report.Results[0].CalledBy); diff != "" {
		t.Errorf("the caller (-want +got):\n%s", diff)
	}
	want := []string{"acme/net/aws 1.2.0 and 2 more call github.com/acme/x: it is not an address in a registry"}
	if diff := cmp.Diff(want, notFollowed(report)); diff != "" {
		t.Errorf("not followed (-want +got):\n%s", diff)
	}
	// A dependency gets the name of a wanted address, and never that of another one.
	to = newStore(t, "prod.example.com")
	c.Target = copying.StoreTarget{Store: to}
	report, err = c.Copy(t.Context(), []copying.Wanted{{Address: net, As: kms}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"acme/net/aws 1.2.0 and 2 more call dev.example.com/acme/kms/aws 1.0.0: acme/net/aws is copied to this address",
		"acme/net/aws 1.2.0 and 2 more call dev.example.com/acme/kms/aws 1.1.0: acme/net/aws is copied to this address",
		want[0],
	}, notFollowed(report)); diff != "" {
		t.Errorf("not followed (-want +got):\n%s", diff)
	}
	v := number(t, "2.0.0")
	report, err = c.Copy(t.Context(), []copying.Wanted{
		{Address: net, As: net, Constraint: "1.0.0"}, {Address: kms, As: module(t, "security/kms/aws"), Exact: &v},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"security/kms/aws 2.0.0 copied", "security/kms/aws 1.1.0 copied, deprecated: use 2.0.0", "security/kms/aws 1.0.0 copied",
		"acme/net/aws 1.0.0 copied",
	}, shown(report)); diff != "" {
		t.Errorf("the report with another name (-want +got):\n%s", diff)
	}
}

// endless is a registry of modules that each call a thousand others.
type endless struct{ copying.Store }

func (endless) Versions(context.Context, registry.Address) (copying.Listing, error) {
	return copying.Listing{Versions: []copying.Version{{Number: registry.Version{Major: 1}}}}, nil
}

func (endless) Documentation(_ context.Context, m registry.Module, _ registry.Version) (d docs.Documentation, _ error) {
	for i := range 1000 {
		source := fmt.Sprintf("dev.example.com/acme/%s%d/aws", m.Name, i)
		d.Root.Dependencies = append(d.Root.Dependencies, docs.Dependency{Source: source})
	}
	return d, nil
}

func TestDependenciesAreBounded(t *testing.T) {
	t.Parallel()
	from := endless{newStore(t, "dev.example.com")}
	c := copying.Copier{
		Origin: from, Target: copying.StoreTarget{Store: newStore(t, "prod.example.com")}, Dependencies: true, DryRun: true,
	}
	report, err := c.Copy(t.Context(), whole(module(t, "acme/eks/aws")))
	if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "more than 1000 dependencies") {
		t.Errorf("the error is %v", err)
	}
	count := make(map[copying.Status]int)
	for _, one := range report.Results {
		count[one.Status]++
	}
	if diff := cmp.Diff(map[copying.Status]int{copying.Copied: 1001, copying.Failed: 1}, count); diff != "" {
		t.Errorf("the results (-want +got):\n%s", diff)
	}
}
