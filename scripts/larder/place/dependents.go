package place

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/output"
)

const (
	// maxDependents bounds the dependents that a command reads.
	maxDependents = 100
	// maxNamed is how many of them a text names.
	maxNamed = 5
	// dependentsTimeout bounds the time that a command waits for them.
	dependentsTimeout = 5 * time.Second
)

// Dependents are the modules that call a module or require a provider.
type Dependents struct {
	Total int `json:"total"`
	// Modules are the first 100 of them.
	Modules []protocol.Dependent `json:"modules"`
}

// Dependents returns the dependents of an address. It returns nil if there are none, or
// if they cannot be read, because no command needs them.
func (r *Reader) Dependents(ctx context.Context, a registry.Address) *Dependents {
	ctx, cancel := context.WithTimeout(ctx, dependentsTimeout)
	defer cancel()
	found, err := r.Client.Dependents(ctx, a, maxDependents)
	if err != nil || found.Meta.Total == 0 {
		return nil
	}
	return &Dependents{found.Meta.Total, found.Dependents}
}

// String names some of the dependents with their constraints. Those that have stopped
// using the address are named with the last version that did.
func (d *Dependents) String() string {
	if d == nil {
		return ""
	}
	named := output.Mapped(d.Modules[:min(len(d.Modules), maxNamed)], func(m protocol.Dependent) string {
		text := m.Address
		if !m.Latest {
			text += " " + m.Version.String()
		}
		if !slices.Contains(m.Constraints, "") {
			text += " (" + strings.Join(m.Constraints, " and ") + ")"
		}
		return text
	})
	if more := d.Total - len(named); more > 0 {
		return strings.Join(named, ", ") + " and " + english.Plural(more, "other", "")
	}
	return english.OxfordWordSeries(named, "and")
}

// Note describes the dependents of an address for a command that changes it. If v is not
// nil, it counts those that allow that version. It is empty without dependents.
func (d *Dependents) Note(a registry.Address, v *registry.Version) string {
	if d == nil {
		return ""
	}
	if m, isMirrored := a.(registry.MirrorAddress); isMirrored {
		a = m.AtOrigin()
	}
	_, isModule := a.(registry.Module)
	verb := "require"
	if isModule {
		verb = "call"
	}
	text := fmt.Sprintf("%s %s it: %s.", english.Plural(d.Total, "module", ""), verb, d)
	if d.Total == 1 {
		text = fmt.Sprintf("1 module %ss it: %s.", verb, d)
	}
	if v == nil || len(d.Modules) < d.Total {
		return text
	}
	allow := 0
	for _, m := range d.Modules {
		accepts := func(constraint string) bool {
			set, err := registry.ParseConstraint(registry.ModuleConstraint(constraint))
			return err != nil || set.Has(*v)
		}
		refuses := func(constraint string) bool { return !accepts(constraint) }
		// Each module block has a version of its own, but all share that of a provider.
		if isModule && slices.ContainsFunc(m.Constraints, accepts) || !slices.ContainsFunc(m.Constraints, refuses) {
			allow++
		}
	}
	return fmt.Sprintf("%s The constraints of %d allow %s.", text, allow, v)
}
