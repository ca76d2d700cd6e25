package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func verifyCommand(c *cli.Program) *cobra.Command {
	var v verify.Verifier
	var acceptLoss bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the whole registry for damage",
		Long: `Check the whole registry for damage. The command reports

  - versions without a record, versions without objects, and objects without a
    version
  - wrong sizes, SHA-256 sums, hashes and contents
  - signatures that clients reject
  - listings and catalog entries that differ from the versions
  - documentation that is missing or damaged
  - an audit trail that differs from the stored versions, keys and tokens

Others can publish while the command runs.

With --repair it rebuilds listings, catalog entries and namespaces, and makes
documentation again from the archives. It deletes nothing, changes no archive,
version number or key, and invents no audit entry. It does not touch an item
that may be the only one to name a version. For each remaining fault it prints
how to fix it.

With --accept-loss it records the missing entries of the audit trail under your
name. From then on it reports them as notes. Use this flag only if no backup has
the entries. If more entries are lost later, they are faults.

The exit code is 0 if no fault remains, and 1 otherwise. Notes are not faults.
An object without a version is a note, because it may be part of a publish that
has not finished. With --at-rest, for example after a restore, it is a fault.
With --quiet the command prints only faults.`,
		Example: `  larder verify
  larder verify --at-rest --store stack:larder
  larder verify --quick
  larder verify --repair --json`,
		RunE: c.Run(func(ctx context.Context, _ []string) (output.View, error) {
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				v.Catalog, v.Objects, v.IsFolder = s.Catalog, s.Objects, s.Dir != ""
				if v.Repair {
					d, err := documenter(ctx, s)
					if err != nil {
						return nil, err
					}
					v.Document = func(ctx context.Context, a registry.Address, n registry.Version) error {
						_, err := d.Rebuild(ctx, a, n)
						return err
					}
				}
				if acceptLoss {
					by, err := s.By(ctx)
					if err != nil {
						return nil, err
					}
					v.AcceptLossBy = by.String()
				}
				stop := func() {}
				if !c.JSON && !c.Quiet {
					progress := c.NewProgress()
					v.Progress, stop = progress, progress.Stop
				}
				report, err := v.Run(ctx)
				stop()
				if err != nil {
					return nil, err
				}
				if s.Dir != "" && !v.Quick && report.Faults() == 0 {
					_ = local.LastVerify.Record(s.Dir, s.Now()) // the check is complete without it
				}
				return newVerifyView(report)
			})
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().BoolVar(&v.Repair, "repair", false,
		"rebuild listings, catalog entries, namespaces and documentation; change no archive or key")
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false,
		"record the missing entries of the audit trail, and report them as notes from then on")
	cmd.Flags().BoolVar(&v.AtRest, "at-rest", false,
		"nobody is publishing: report an object without a version as a fault, even if it is new")
	cmd.Flags().BoolVar(&v.Quick, "quick", false,
		"do not read archives: check only that they exist and have the right size")
	return cmd
}

// verifyView is the report about a registry.
type verifyView struct {
	// OK is true if no fault remains.
	OK bool `json:"ok"`
	verify.Report
}

// newVerifyView returns the report, and an error if a fault remains.
func newVerifyView(r verify.Report) (output.View, error) {
	faults := r.Faults()
	if faults == 0 {
		return verifyView{true, r}, nil
	}
	return verifyView{false, r}, fmt.Errorf("%s found", english.Plural(faults, "fault", ""))
}

func findingState(f verify.Finding) string {
	switch {
	case f.Repaired:
		return "repaired"
	case f.Note:
		return "note"
	}
	return "fault"
}

func printFinding(p output.Page, f verify.Finding) {
	where := strings.TrimSpace(f.Path + " " + f.Version)
	if f.Object != "" {
		where += ": " + f.Object
	}
	p.Item(findingState(f), printable.Escape(fmt.Sprintf("%s: %s: %s", f.Kind, where, f.Detail)))
}

func (v verifyView) Text(p output.Page) {
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
		p.Printf("\n")
	}
	p.Printf("%s\n", p.Wrap(fmt.Sprintf("Checked %s, %s and %s, with %s and %s. Read %s.",
		english.Plural(v.Modules, "module", ""), english.Plural(v.Providers, "provider", ""),
		english.Plural(v.Mirrored, "mirrored provider or module", "mirrored providers and modules"), english.Plural(v.Versions, "version", ""),
		english.Plural(v.Objects, "object", ""), humanize.IBytes(uint64(v.Bytes)))))
	p.Printf("%s, %d repaired, %s.\n",
		english.Plural(count["fault"], "fault", ""), count["repaired"], english.Plural(count["note"], "note", ""))
	if len(remedies) > 0 {
		p.Printf("\nTo fix the faults:\n")
		for _, remedy := range remedies {
			p.Printf("  %s\n", p.WrapAt(2, printable.Escape(remedy)))
		}
	}
}

// Quiet prints only faults.
func (v verifyView) Quiet(p output.Page) {
	for _, f := range v.Findings {
		if findingState(f) == "fault" {
			printFinding(p, f)
		}
	}
}
