package copying

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// maxDependencies bounds the dependencies of a copy, and the module blocks of one
// version.
const maxDependencies = 1000

// NotFollowed is a module block of copied modules whose module was not copied.
type NotFollowed struct {
	// Caller is the address of the module with the block. It ends in //FOLDER if
	// the block is in a folder.
	Caller string `json:"caller"`
	// Versions are the versions of the caller.
	Versions []string `json:"versions"`
	// Source is the source of the block. It is missing if the blocks of the caller
	// cannot be read.
	Source string `json:"source,omitempty"`
	// Constraint is the version constraint of the block, if it has one.
	Constraint string `json:"constraint,omitempty"`
	// Reason is why the block was not followed.
	Reason string `json:"reason"`
}

// String returns the block and the reason in one line.
func (n NotFollowed) String() string {
	text, verb := n.Caller+" "+n.Versions[0], " calls "
	if more := len(n.Versions) - 1; more > 0 {
		text, verb = fmt.Sprintf("%s and %d more", text, more), " call "
	}
	if n.Source != "" {
		text += verb + strings.TrimSpace(n.Source+" "+n.Constraint)
	}
	return text + ": " + n.Reason
}

// call is a module block with a source outside of its module.
type call struct {
	docs.Dependency
	// folder has the block. It is empty for the root.
	folder string
}

// isLocal reports whether the source is a path.
func (c call) isLocal() bool {
	return strings.HasPrefix(c.Source, "./") || strings.HasPrefix(c.Source, "../")
}

// calls returns the module blocks of a version. It leaves out those that call a
// folder whose blocks are in the result too.
func (c *Copier) calls(ctx context.Context, j *job) (all []call, err error) {
	m, isModule := j.Address.(registry.Module)
	as, _ := j.As.(registry.Module)
	if !isModule {
		return nil, nil
	}
	d, err := c.Target.Documentation(ctx, as, j.number)
	if err != nil {
		d, err = c.Origin.Documentation(ctx, m, j.number)
	}
	if err != nil {
		d, err = c.document(ctx, m, j)
	}
	if err != nil {
		return nil, err
	}
	if len(d.Notes) > 0 {
		j.incomplete = d.Notes[0]
	}
	folders := append([]docs.Folder{d.Root}, d.Submodules...)
	for _, f := range folders {
		for _, dependency := range f.Dependencies {
			found := call{Dependency: dependency, folder: f.Path}
			isTarget := func(f docs.Folder) bool { return path.Clean(f.Path) == path.Join(found.folder, found.Source) }
			if !found.isLocal() || !slices.ContainsFunc(folders, isTarget) {
				all = append(all, found)
			}
		}
	}
	if len(all) > maxDependencies {
		return nil, fmt.Errorf("%w module: it has more than %d module blocks", registry.ErrInvalid, maxDependencies)
	}
	return all, nil
}

// document fetches a version and returns its documentation. It publishes nothing.
func (c *Copier) document(ctx context.Context, m registry.Module, j *job) (d docs.Documentation, err error) {
	dir, err := temporary.Folder("larder-copy-*")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fetched, err := c.Origin.Module(ctx, m, j.origin, dir)
	if err != nil {
		return d, err
	}
	fetched.Address, fetched.Version, fetched.CopiedFrom = m, j.number, &registry.CopiedFrom{}
	prepared, err := rules.Preparer{Progress: c.Progress}.Module(ctx, fetched)
	if err != nil {
		return d, err
	}
	defer prepared.Close()
	if prepared.Docs == nil {
		return d, fmt.Errorf("%w module: %s", registry.ErrInvalid, strings.Join(prepared.Notes, " "))
	}
	in, err := prepared.Docs.Open()
	if err != nil {
		return d, err
	}
	return docs.Decode(in)
}

// follower copies what copied modules call.
type follower struct {
	*Copier
	wanted []Wanted
	jobs   []*job // all of them
	// chosen has why a module with a constraint is not followed, or "", by PATH
	// CONSTRAINT.
	chosen      map[string]string
	others      map[string]string // the results of ofOthers by PATH
	hosts       map[string]bool   // to which the followed blocks lead
	skipped     map[string]int    // the indexes in notFollowed, by the texts of a block
	notFollowed []NotFollowed
}

// follow copies the modules that copied ones call, and those that they call. It
// adds what it could not follow to the report, and returns all jobs.
func (c *Copier) follow(ctx context.Context, wanted []Wanted, jobs []*job, report *Report) []*job {
	f := follower{
		Copier: c, wanted: wanted, jobs: jobs,
		chosen: make(map[string]string), others: make(map[string]string), hosts: make(map[string]bool), skipped: make(map[string]int),
	}
	for begin := 0; begin < len(f.jobs) && len(f.chosen) <= maxDependencies && ctx.Err() == nil; {
		end := len(f.jobs)
		for _, j := range f.jobs[begin:end] {
			const unread = "its module blocks cannot be read: "
			switch err := j.callsErr; {
			case errors.Is(err, registry.ErrInvalid):
				f.skip(j, call{}, unread+reason(err))
			case err != nil:
				j.Status, j.Err, j.Reason = Failed, fmt.Errorf("%s %s: %s%w", j.Address, j.Version, unread, err), unread+reason(err)
			case j.incomplete != "":
				f.skip(j, call{}, "some of its module blocks may be unknown: "+j.incomplete)
			}
			for _, block := range j.calls {
				if why := f.followBlock(ctx, j, block); why != "" {
					f.skip(j, block, why)
				}
			}
			j.calls = nil
		}
		c.run(ctx, f.jobs[end:])
		begin = end
	}
	report.NotFollowed = f.notFollowed
	if len(f.hosts) > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf(
			"clients still install dependencies from %s, unless a `host` block of their configuration leads to %s",
			strings.Join(slices.Sorted(maps.Keys(f.hosts)), ", "), c.Target.Name()))
	}
	return f.jobs
}

// skip adds a block to those that were not followed.
func (f *follower) skip(j *job, block call, why string) {
	n := NotFollowed{Caller: j.Address.String(), Source: block.Source, Constraint: block.Version, Reason: why}
	if block.folder != "" {
		n.Caller += "//" + block.folder
	}
	key := strings.Join([]string{n.Caller, n.Source, n.Constraint, n.Reason}, "\n")
	at, known := f.skipped[key]
	if !known {
		at, f.notFollowed = len(f.notFollowed), append(f.notFollowed, n)
		f.skipped[key] = at
	}
	if versions := &f.notFollowed[at].Versions; !slices.Contains(*versions, j.Version) {
		*versions = append(*versions, j.Version)
	}
}

// followBlock adds a job for the version that clients install for a block. It returns
// why the block cannot be followed, or "".
func (f *follower) followBlock(ctx context.Context, caller *job, block call) (why string) {
	if len(f.chosen) > maxDependencies {
		return "" // the copy has failed
	}
	if block.isLocal() {
		return "only folders directly below modules/ are read"
	}
	source, err := regaddr.ParseModuleSource(block.Source)
	if err != nil {
		return "it is not an address in a registry"
	}
	p := source.Package
	hosts, shown := []registry.Host{registry.Host(p.Host)}, p.Host.ForDisplay()
	if before, _, _ := strings.Cut(block.Source, "//"); strings.Count(before, "/") == 2 {
		hosts, shown = append(hosts, registry.Host(regaddr.TransitionalDefaultModuleRegistryHost)), "their default registry"
	}
	if !slices.ContainsFunc(hosts, f.hasModulesOf) {
		return "clients install it from " + shown
	}
	m := registry.Module{Namespace: p.Namespace, Name: p.Name, System: p.TargetSystem}
	constraint := registry.ModuleConstraint(block.Version)
	w := Wanted{Address: m, As: m, Constraint: cmp.Or(constraint, ">= 0.0.0")} // no pre-releases
	if _, err := registry.ParseConstraint(w.Constraint); err != nil {
		return err.Error() // its hint is for the author
	}
	for _, other := range f.wanted {
		if other.Address.Path() == m.Path() {
			w.As = other.As
		}
	}
	// The origin must not choose in which namespaces it gets versions.
	namespace := path.Dir(path.Dir(w.As.Path())) + "/"
	isNear, isNamed := false, false
	for _, other := range f.wanted {
		if other.As.Path() == w.As.Path() && other.Address.Path() != m.Path() {
			return fmt.Sprintf("%s is copied to this address", other.Address)
		}
		isNear = isNear || strings.HasPrefix(other.As.Path(), namespace)
		isNamed = isNamed || other.As.Path() == w.As.Path()
	}
	if !isNear {
		return "its namespace is not that of a module to copy"
	}
	if !isNamed {
		as, _ := w.As.(registry.Module)
		if why := f.ofOthers(ctx, as); why != "" {
			return why
		}
	}
	key := m.Path() + " " + w.Constraint
	if _, known := f.chosen[key]; !known {
		f.chosen[key] = f.add(ctx, w, caller.Address.String()+" "+caller.Version)
	}
	if f.chosen[key] == "" {
		f.hosts[shown] = true
	}
	return f.chosen[key]
}

// ofOthers returns why the origin must not choose versions of a module in the target, or
// "". It must not if the target has versions that are not from the origin.
func (f *follower) ofOthers(ctx context.Context, m registry.Module) (why string) {
	why, known := f.others[m.Path()]
	if known {
		return why
	}
	sources, err := f.Target.Sources(ctx, m)
	isOther := func(source string) bool { return !strings.HasPrefix(source, f.Origin.Name()+"/") }
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		why = "it is unknown whether " + f.Target.Name() + " has versions of its own: " + reason(err)
	case slices.ContainsFunc(sources, isOther):
		why = f.Target.Name() + " has versions of it that are not from " + f.Origin.Name() + ". To copy it, name it"
	}
	f.others[m.Path()] = why
	return why
}

// hasModulesOf reports whether the origin has the modules of a host.
func (f *follower) hasModulesOf(host registry.Host) bool {
	own, err := registry.ParseHost(f.Origin.Name()) // a store can have another name
	return err == nil && own == host || slices.Contains(f.DependencyHosts, host)
}

// add adds a job for the highest version that is listed and meets a constraint,
// unless there is one. It returns why there is no such version, or "". If there
// is another error, the job has failed.
func (f *follower) add(ctx context.Context, w Wanted, calledBy string) (why string) {
	added := &job{Result: Result{Address: w.Address, As: w.As}}
	var selected []*job
	err := registry.WithHint(fmt.Errorf("%w copy: there are more than %d dependencies", registry.ErrInvalid, maxDependencies),
		"Copy fewer versions at once.")
	if len(f.chosen) < maxDependencies {
		selected, _, err = f.choose(ctx, w)
		selected = slices.DeleteFunc(selected, func(j *job) bool { return j.origin.Hidden })
	}
	switch {
	case errors.Is(err, registry.ErrNotFound), err == nil && len(selected) == 0:
		if _, err := f.Origin.Versions(ctx, w.Address); errors.Is(err, registry.ErrNotFound) {
			return f.Origin.Name() + " has no such module"
		}
		return f.Origin.Name() + " has no such version"
	case err == nil:
		added = selected[0]
	}
	if err != nil {
		added.Status, added.Err, added.Reason = Failed, err, reason(err)
	}
	isSame := func(j *job) bool { return j.Address.Path() == w.Address.Path() && j.Version == added.Version }
	if added.CalledBy = calledBy; !slices.ContainsFunc(f.jobs, isSame) {
		f.jobs = append(f.jobs, added)
	}
	return ""
}
