package filling

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// maxNested bounds the nested modules of a run, and the module blocks of one version.
var maxNested = 1000

// follower mirrors the modules that mirrored ones call.
type follower struct {
	m        *Mirror
	policies *admission.Policies
	// upstreams are those that an operator has named for modules, by hostname. That of a
	// provider can have the path of another protocol.
	upstreams map[string]string
	results   []Result
	failed    []error
	// done has the followed calls, as ADDRESS CONSTRAINT.
	done map[string]bool
}

// follow mirrors the registry modules that the modules of results call, and those
// that these call, each in the newest version that the constraint allows. It returns
// all results. Modules that the policy denies are passed to m.Skip. A module cannot make
// an operator overrule the policy for others.
func (m *Mirror) follow(ctx context.Context, policies *admission.Policies, wanted []Wanted, results []Result) (
	[]Result, error,
) {
	own := *m
	own.Overrule = ""
	f := follower{
		m: &own, policies: policies, upstreams: make(map[string]string), results: results, done: make(map[string]bool),
	}
	for _, w := range wanted {
		if w.Address.IsModule() && w.Upstream != "" {
			f.upstreams[w.Address.Hostname] = w.Upstream
		}
	}
	for i := 0; i < len(f.results) && ctx.Err() == nil; i++ {
		if f.results[i].Status == "" { // not a module, or skipped
			continue
		}
		blocks, err := m.calls(ctx, &f.results[i])
		if err != nil {
			f.failed = append(f.failed, fmt.Errorf("cannot follow the modules that %s %s calls: %w",
				f.results[i].Address, f.results[i].Version, err))
		}
		for _, block := range blocks {
			f.followBlock(ctx, i, block)
		}
	}
	return f.results, errors.Join(f.failed...)
}

// calls returns the module blocks of a mirrored version whose source is not a path. The
// documentation has those of its root, and of the folders in modules/ and examples/.
// Clients never install examples with a module.
func (m *Mirror) calls(ctx context.Context, result *Result) (all []docs.Dependency, err error) {
	if m.DryRun && result.Status != Unchanged {
		result.Notes = append(result.Notes, "a dry run does not find the modules that it calls")
		return nil, nil
	}
	if result.module == nil || result.module.Docs == nil {
		result.Notes = append(result.Notes, "it has no documentation, so the modules that it calls are unknown")
		return nil, nil
	}
	d, err := stored.Read(ctx, m.Objects, *result.module.Docs)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(d.Notes, concernsCalls); i >= 0 {
		result.Notes = append(result.Notes, "some of the modules that it calls may be unknown: "+d.Notes[i])
	}
	folders := append([]docs.Folder{d.Root}, d.Submodules...)
	isDocumented := func(dir string) bool {
		return slices.ContainsFunc(folders, func(f docs.Folder) bool { return path.Clean(f.Path) == dir })
	}
	isUnread := false
	var elsewhere []string
	for _, f := range folders {
		for _, block := range f.Dependencies {
			if strings.HasPrefix(block.Source, "./") || strings.HasPrefix(block.Source, "../") {
				isUnread = isUnread || !isDocumented(path.Join(f.Path, block.Source))
				continue
			}
			all = append(all, block)
			_, isRegistry, _ := nestedAddress(result.Address.Hostname, block.Source)
			if !isRegistry && !slices.Contains(elsewhere, block.Source) {
				elsewhere = append(elsewhere, block.Source)
			}
		}
	}
	if len(elsewhere) > 0 {
		result.Notes = append(result.Notes, printable.Line("clients fetch modules that it calls from elsewhere, "+
			"and not from the mirror: "+strings.Join(elsewhere, ", "), errs.MaxNote))
	}
	if isUnread {
		result.Notes = append(result.Notes, "modules that it calls in folders not directly below modules/ are not followed")
	}
	if len(all) > maxNested {
		return nil, fmt.Errorf("%w module: it has more than %d module blocks", registry.ErrInvalid, maxNested)
	}
	return all, nil
}

// concernsCalls reports whether a note of documentation can mean that module blocks
// are missing. Those about the other blocks of a folder, and about READMEs, cannot.
func concernsCalls(note string) bool {
	isPart := strings.HasPrefix(note, "In ") && !strings.Contains(note, " of module ")
	return !isPart && !strings.HasPrefix(note, "The documentation does not include the file ")
}

// followBlock mirrors what clients install for a module block of a version. The
// version is that of a result.
func (f *follower) followBlock(ctx context.Context, at int, block docs.Dependency) {
	caller := f.results[at].Address
	calledBy := fmt.Sprintf("%s %s calls it", caller, f.results[at].Version)
	address, isRegistry, err := nestedAddress(caller.Hostname, block.Source)
	if !isRegistry {
		return // clients fetch it from elsewhere
	}
	w := Wanted{Address: address, Constraint: registry.ModuleConstraint(block.Version), lenient: true}
	w.Upstream = f.upstreams[address.Hostname]
	shown := block.Source
	if err == nil {
		shown = address.String()
	}
	key := shown + " " + w.Constraint
	if f.done[key] {
		return
	}
	f.done[key] = true
	if len(f.done) > maxNested {
		if len(f.done) == maxNested+1 {
			f.failed = append(f.failed, registry.WithHint(fmt.Errorf("%w mirroring: the modules call more than %d others",
				registry.ErrInvalid, maxNested), "Mirror fewer modules at once."))
		}
		return
	}
	policy, failed := f.policies.Get(ctx)
	if failed != nil {
		f.failed = append(f.failed, failed)
		return
	}
	if err == nil {
		_, err = admission.RuleOf(policy, address)
	}
	if err != nil {
		if f.m.Skip != nil {
			f.m.Skip(shown, admission.Reason(err)+" ("+calledBy+")")
		}
		return
	}
	added, err := f.m.mirror(ctx, policy, w)
	f.results = mergeResults(f.results, added)
	if err != nil {
		f.failed = append(f.failed, fmt.Errorf("%w (%s)", err, calledBy))
	}
}

// publicHosts are the hosts of sources that name none, by client.
var publicHosts = []string{"registry.opentofu.org", "registry.terraform.io"}

// nestedAddress returns the address of a module that a module of a host calls.
// isRegistry reports whether the source is that of a registry. A source without a host
// is one of the public registry that the client uses. That is the host of the caller,
// if it is a public registry, and otherwise that of OpenTofu.
func nestedAddress(host, source string) (a registry.MirrorAddress, isRegistry bool, err error) {
	parsed, err := regaddr.ParseModuleSource(source)
	if err != nil {
		return a, false, nil //nolint:nilerr // such as that of a Git repository
	}
	at := string(parsed.Package.Host)
	if before, _, _ := strings.Cut(source, "//"); strings.Count(before, "/") == 2 {
		at = publicHosts[max(slices.Index(publicHosts, host), 0)]
	}
	a, err = addressOf(at, parsed.Package)
	return a, true, err
}

// addressOf returns the address of a module of a registry, at a host.
func addressOf(host string, p regaddr.ModulePackage) (registry.MirrorAddress, error) {
	return registry.ParseMirrorModule(strings.Join([]string{host, p.Namespace, p.Name, p.TargetSystem}, "/"))
}
