package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/verify"
)

func (c *cli) verifyCommand() *cobra.Command {
	var v verify.Verifier
	var acceptLoss bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read the whole registry and report everything that is wrong",
		Long: `Read the whole registry and report everything that is wrong: versions without
records, versions without objects, and objects without a version; wrong sizes,
SHA-256 sums, hashes and contents; signatures that clients refuse; listings and
catalog entries that differ from the versions; and an audit trail that disagrees
with what is stored. Others can publish meanwhile.

With --repair it rebuilds listings, catalog entries and namespaces. It deletes
nothing, changes no object, version or key, and makes up no audit entry. It
keeps any item that may be the last to name a version. For each remaining fault
it prints what to do.

With --accept-loss it records under your name which entries the audit trail has
lost. They are a note from then on. Use it only if no backup has them. An entry
that is lost later is a fault.

It exits with 0 if no fault remains, and with 1 otherwise. Notes are not faults:
an object without a version may be part of a publish that is not finished. With
--at-rest, as after a restore, such an object is a fault. With --quiet it prints
only faults.`,
		Example: `  larder verify
  larder verify --at-rest --store stack:larder
  larder verify --quick
  larder verify --repair --json`,
		RunE: c.run(func(ctx context.Context, _ []string) (view, error) {
			return c.onStore(ctx, func(s *store) (view, error) {
				v.Catalog, v.Objects = s.catalog, s.objects
				if acceptLoss {
					by, err := s.by(ctx)
					if err != nil {
						return nil, err
					}
					v.AcceptLossBy = by.String()
				}
				stop := func() {}
				if !c.json && !c.quiet {
					progress := newProgress(c)
					v.Progress, stop = progress, progress.stop
				}
				report, err := v.Run(ctx)
				stop()
				if err != nil {
					return nil, err
				}
				return verified(report)
			})
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().BoolVar(&v.Repair, "repair", false,
		"rebuild listings, catalog entries and namespaces; no object, version or key is changed")
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false,
		"record in the audit trail which entries it has lost, so that they are no faults any more")
	cmd.Flags().BoolVar(&v.AtRest, "at-rest", false,
		"nobody is publishing: an object without a version is a fault, however new it is")
	cmd.Flags().BoolVar(&v.Quick, "quick", false,
		"do not read packages and archives: check only that they exist, and their sizes")
	return cmd
}

// verifyView is what is wrong with a registry.
type verifyView struct {
	// OK says that no fault remains.
	OK bool `json:"ok"`
	verify.Report
}

// verified returns what was found, with an error if a fault remains.
func verified(r verify.Report) (view, error) {
	faults := r.Faults()
	if faults == 0 {
		return verifyView{true, r}, nil
	}
	return verifyView{false, r}, fmt.Errorf("%s found", english.Plural(faults, "fault", ""))
}

// findingState returns fault, repaired or note.
func findingState(f verify.Finding) string {
	switch {
	case f.Repaired:
		return "repaired"
	case f.Note:
		return "note"
	}
	return "fault"
}

func printFinding(p page, f verify.Finding) {
	where := strings.TrimSpace(f.Path + " " + f.Version)
	if f.Object != "" {
		where += ": " + f.Object
	}
	p.item(findingState(f), printable.Escape(fmt.Sprintf("%s: %s: %s", f.Kind, where, f.Detail)))
}

func (v verifyView) text(p page) {
	var remedies []string
	count := map[string]int{}
	for _, f := range v.Findings {
		printFinding(p, f)
		state := findingState(f)
		count[state]++
		if remedy := fmt.Sprintf("%s: %s", f.Kind, f.Fix); state == "fault" && !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}
	if len(v.Findings) > 0 {
		p.printf("\n")
	}
	p.printf("%s\n", p.Wrap(fmt.Sprintf("Verified %s, %s, %s: %s, %s, %s read.",
		english.Plural(v.Modules, "module", ""), english.Plural(v.Providers, "provider", ""),
		english.Plural(v.Mirrored, "mirrored provider", ""), english.Plural(v.Versions, "version", ""),
		english.Plural(v.Objects, "object", ""), humanize.IBytes(uint64(v.Bytes)))))
	p.printf("%s, %d repaired, %s.\n",
		english.Plural(count["fault"], "fault", ""), count["repaired"], english.Plural(count["note"], "note", ""))
	if len(remedies) > 0 {
		p.printf("\nWhat to do:\n")
		for _, remedy := range remedies {
			p.printf("  %s\n", p.beside(2, printable.Escape(remedy)))
		}
	}
}

// quiet prints faults only.
func (v verifyView) quiet(p page) {
	for _, f := range v.Findings {
		if findingState(f) == "fault" {
			printFinding(p, f)
		}
	}
}
