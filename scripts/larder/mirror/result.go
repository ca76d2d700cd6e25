package mirror

import (
	"cmp"
	"fmt"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// ResultView is the result of mirroring providers and modules.
type ResultView struct {
	// DryRun is true if the command mirrored nothing and only lists what it
	// would mirror.
	DryRun   bool              `json:"dry_run"`
	Versions []mirroredVersion `json:"versions"`
	// Skipped lists the providers that cannot be mirrored, and the modules that mirrored
	// ones call and that the policy denies.
	Skipped []skippedAddress `json:"skipped,omitempty"`
}

// skippedAddress is a provider or a module that was not mirrored, and why.
type skippedAddress struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
}

// mirroredVersion is the result for one version of a provider or a module.
type mirroredVersion struct {
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	// SigningKey is the ID of the key that has signed the version. It is
	// missing if no signature was verified.
	SigningKey string            `json:"signing_key,omitempty"`
	Packages   []mirroredPackage `json:"packages"`
	// Status is that of a module, and one of those of a package. It is missing for a
	// provider, and for a module that was skipped.
	Status string `json:"status,omitempty"`
	// Source is the repository or the archive from which a module came.
	Source string `json:"source,omitempty"`
	// Commit is missing for an archive that is not at a forge.
	Commit string `json:"commit,omitempty"`
	// Notes are remarks for users of the mirror.
	Notes []string `json:"notes,omitempty"`

	changed bool
	owner   string
}

// mirroredPackage is the result for the package of one platform.
type mirroredPackage struct {
	Platform string `json:"platform"`
	// Status is added, unchanged, verified or restored. It is verified if the
	// mirror had the package without a signature, and restored if the store had
	// lost the file.
	Status string `json:"status"`
}

func mirrored(results []filling.Result) []mirroredVersion {
	versions := []mirroredVersion{}
	for _, r := range results {
		v := mirroredVersion{
			Address: r.Address.String(), Version: r.Version, SigningKey: r.Signer, Packages: []mirroredPackage{},
			Status: r.Status, Source: r.Pin.Source, Commit: r.Pin.Commit,
			Notes: r.Notes, changed: r.Changed(), owner: cmp.Or(r.Owner, "which names no owner"),
		}
		for _, p := range r.Packages {
			v.Packages = append(v.Packages, mirroredPackage{p.Platform.String(), p.Status})
		}
		versions = append(versions, v)
	}
	return versions
}

// Text implements [output.View].
func (v ResultView) Text(p output.Page) {
	verb := "Mirrored"
	if v.DryRun {
		verb = "Would mirror"
	}
	if len(v.Versions)+len(v.Skipped) == 0 {
		p.Printf("There is nothing to mirror.\n")
	}
	for _, one := range v.Versions {
		one.Text(p, verb)
	}
	for _, s := range v.Skipped {
		p.Printf("%s\n", p.Wrap("Skipped "+printable.Escape(s.Address)+": "+s.Reason))
	}
}

func (v mirroredVersion) Text(p output.Page, verb string) {
	switch {
	case len(v.Packages) == 0 && v.Status == "": // a note has the reason
		verb = "Skipped"
	case !v.changed:
		verb = "Unchanged:"
	}
	p.Printf("%s\n", p.Wrap(fmt.Sprintf("%s %s %s", verb, v.Address, v.Version)))
	for _, pkg := range v.Packages {
		p.Printf("  %-16s %s\n", pkg.Platform, p.Paint(pkg.Status, output.PaintState(pkg.Status)))
	}
	if v.Status != "" {
		text := "  from " + printable.Escape(v.Source)
		if v.Status == filling.Restored {
			text = "  restored" + text[1:]
		}
		if v.Commit != "" {
			text += ", commit " + printable.Escape(v.Commit)
		}
		p.Printf("%s\n", p.Wrap(text))
	}
	if v.SigningKey != "" {
		p.Printf("%s\n", p.Wrap(fmt.Sprintf("  signed by %s, %s", v.SigningKey, printable.Escape(v.owner))))
	}
	for _, note := range v.Notes {
		p.Printf("%s\n", p.Wrap("  note: "+note))
	}
}
