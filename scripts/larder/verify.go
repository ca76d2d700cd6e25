package main

import (
	"errors"
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
		Short: "Read the whole registry, and report everything that does not hold",
		Long: `Read the whole registry, and report everything that does not hold: versions that have lost their records, versions without their
objects and objects without a version, sizes, SHA-256 sums, hashes and contents of what is stored, signatures that clients do not
take, listings and entries of the catalogue that are not what the versions make of them, and an audit trail that does not agree with
what is stored. Publishing can go on meanwhile.

With --repair it rebuilds listings, entries of the catalogue and namespaces. It deletes nothing, changes no object, no version and
no key, makes up no entry of the audit trail, and leaves alone what may be the last that knows of a version. What it leaves is for
you to mend, and it says how.

It exits with 0 where all holds, or does after the repair, and with 1 where a fault remains. Notes are no faults: an object that
no version has may be of a publish that is under way. After a restore nothing is, and --at-rest has such an object a fault.`,
		Example: `  larder verify
  larder verify --at-rest --store stack:larder
  larder verify --quick
  larder verify --repair --json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			v.Catalog, v.Objects = data.catalog, data.objects
			if acceptLoss {
				by, err := data.by(cmd.Context())
				if err != nil {
					return err
				}
				v.AcceptLossBy = by.String()
			}
			stop := func() {}
			if !c.json {
				progress := newProgress(c)
				v.Progress, stop = progress, progress.stop
			}
			report, err := v.Run(cmd.Context())
			stop()
			if err != nil {
				return err
			}
			return c.printFindings(report)
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().BoolVar(&v.Repair, "repair", false, "rebuild listings, entries of the catalogue and namespaces; no object, version or key is changed")
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false, "record in the audit trail which entries it has lost, so that they are no faults any more")
	cmd.Flags().BoolVar(&v.AtRest, "at-rest", false, "nothing is being published: an object that no version has is a fault, however young it is")
	cmd.Flags().BoolVar(&v.Quick, "quick", false, "do not read packages and archives: see that they are there, with their sizes")
	return cmd
}

// printFindings prints what was found, and fails where a fault remains.
func (c *cli) printFindings(r verify.Report) error {
	var failure error
	if n := r.Faults(); n > 0 {
		failure = fmt.Errorf("the registry does not hold: %s", english.Plural(n, "fault", ""))
	}
	if c.json {
		if err := c.printJSON(struct {
			// OK says that no fault remains.
			OK bool `json:"ok"`
			verify.Report
		}{failure == nil, r}); err != nil || failure == nil {
			return err
		}
		return told{failure}
	}
	var remedies []string
	notes, repaired := 0, 0
	for _, f := range r.Findings {
		state := ""
		switch {
		case f.Repaired:
			repaired++
			state = "repaired: "
		case f.Note:
			notes++
			state = "note: "
		default:
			if remedy := fmt.Sprintf("%s: %s", f.Kind, f.Do); !slices.Contains(remedies, remedy) {
				remedies = append(remedies, remedy)
			}
		}
		where := strings.TrimSpace(f.Path + " " + f.Version)
		if f.Object != "" {
			where += ": " + f.Object
		}
		c.printf("%s%s: %s: %s\n", state, f.Kind, printable.Escape(where), printable.Escape(f.Detail))
	}
	if len(remedies) > 0 {
		c.printf("\nWhat to do:\n")
		for _, remedy := range remedies {
			c.printf("  %s\n", printable.Escape(remedy))
		}
	}
	if len(r.Findings) > 0 {
		c.printf("\n")
	}
	c.printf("Verified %s, %s, %s: %s, %s, %s read.\n",
		english.Plural(r.Modules, "module", ""), english.Plural(r.Providers, "provider", ""),
		english.Plural(r.Mirrored, "mirrored provider", ""), english.Plural(r.Versions, "version", ""),
		english.Plural(r.Objects, "object", ""), humanize.IBytes(uint64(r.Bytes)))
	c.printf("%s, %d repaired, %s.\n",
		english.Plural(r.Faults(), "fault", ""), repaired, english.Plural(notes, "note", ""))
	return failure
}
