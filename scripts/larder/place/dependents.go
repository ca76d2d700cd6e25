package place

import (
	"cmp"
	"context"
	"errors"
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
	// maxConstraints is how many constraints of each it names.
	maxConstraints = 3
	// dependentsTimeout bounds the time that a command waits for them.
	dependentsTimeout = 5 * time.Second
)

// Dependents are the modules that call a module or require a provider.
type Dependents struct {
	Total int `json:"total"`
	// Modules are the first 100 of them.
	Modules []protocol.Dependent `json:"modules"`
	// NotSearched is the number of modules that use too much to be searched, or
	// that were not read in time.
	NotSearched int `json:"not_searched,omitempty"`
	// Error is why they could not be read.
	Error string `json:"error,omitempty"`
}

// Dependents returns the dependents of an address, or nil if there are none. No
// command needs them, so errors are in the result.
func (r *Reader) Dependents(ctx context.Context, a registry.Address) *Dependents {
	if _, isMirrored := a.(registry.MirrorAddress); r.Host.Host == unknownHost && !isMirrored {
		return &Dependents{Modules: []protocol.Dependent{}, Error: "the stack does not name the registry's host"}
	}
	ctx, cancel := context.WithTimeout(ctx, dependentsTimeout)
	defer cancel()
	found, err := r.Client.Dependents(ctx, a, maxDependents)
	switch {
	case errors.Is(err, registry.ErrNotFound), // a release without dependents, or an address that never existed
		errors.Is(err, registry.ErrForbidden): // who may publish need not read
		return nil
	case err != nil:
		return &Dependents{Modules: []protocol.Dependent{}, Error: err.Error()}
	}
	d := &Dependents{
		Total: found.Meta.Total, Modules: found.Dependents, NotSearched: found.Meta.NotIndexed + found.Meta.NotYetIndexed,
	}
	if d.Total+d.NotSearched == 0 {
		return nil
	}
	return d
}

// String names some of the dependents with their constraints. Those that have
// stopped using the address are named with the last version that did.
func (d *Dependents) String() string {
	switch {
	case d == nil:
		return ""
	case d.Error != "":
		return "unknown, because " + d.Error
	}
	text := d.named()
	if d.NotSearched == 0 {
		return text
	}
	if text != "" {
		text += "; "
	}
	return text + english.Plural(d.NotSearched, "module", "") + " not searched"
}

func (d *Dependents) named() string {
	named := output.Mapped(d.Modules[:min(len(d.Modules), maxNamed)], func(m protocol.Dependent) string {
		text := m.Address
		if !m.Latest {
			text += " " + m.Version.String()
		}
		constraints := output.Mapped(m.Constraints, func(c string) string { return cmp.Or(c, "any version") })
		if more := len(constraints) - maxConstraints; more > 0 {
			constraints = append(constraints[:maxConstraints:maxConstraints], english.Plural(more, "other", ""))
		}
		if len(constraints) > 1 || !slices.Contains(m.Constraints, "") {
			text += " (" + strings.Join(constraints, " and ") + ")"
		}
		return text
	})
	if more := d.Total - len(named); more > 0 {
		return strings.Join(named, ", ") + " and " + english.Plural(more, "other", "")
	}
	return english.OxfordWordSeries(named, "and")
}

// Note describes the dependents of an address for a command that changes it. If
// v is not nil, it counts those that allow that version. It is empty without
// dependents.
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
	var text string
	switch d.Total {
	case 0:
		return fmt.Sprintf("The modules that %s it: %s.", verb, d)
	case 1:
		text = fmt.Sprintf("1 module %ss it: %s.", verb, d)
	default:
		text = fmt.Sprintf("%d modules %s it: %s.", d.Total, verb, d)
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
		// Each module block has a version of its own, but all share that of a
		// provider.
		if isModule && slices.ContainsFunc(m.Constraints, accepts) || !slices.ContainsFunc(m.Constraints, refuses) {
			allow++
		}
	}
	return fmt.Sprintf("%s The constraints of %d allow %s.", text, allow, v)
}
