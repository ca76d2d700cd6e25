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
		Short: "Read the whole registry and report everything that is wrong",
		Long: `Read the whole registry and report everything that is wrong: versions without records, versions without
objects, and objects without a version; wrong sizes, SHA-256 sums, hashes and contents; signatures that
clients refuse; listings and catalog entries that differ from the versions; and an audit trail that disagrees
with what is stored. Others can publish meanwhile.

With --repair it rebuilds listings, catalog entries and namespaces. It deletes nothing, changes no object,
version or key, and makes up no audit entry. It keeps any item that may be the last to name a version. For
each remaining fault it prints what to do.

With --accept-loss it records under your name which entries the audit trail has lost. They are a note from
then on. Use it only if no backup has them. An entry that is lost later is a fault.

It exits with 0 if no fault remains, and with 1 otherwise. Notes are not faults: an object without a version
may be part of a publish that is not finished. With --at-rest, as after a restore, such an object is a fault.`,
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

// printFindings prints the findings. It returns an error if a fault remains.
func (c *cli) printFindings(r verify.Report) error {
	var failure error
	if n := r.Faults(); n > 0 {
		failure = fmt.Errorf("%s found", english.Plural(n, "fault", ""))
	}
	if c.json {
		if err := c.printJSON(struct {
			// OK says that no fault remains.
			OK bool `json:"ok"`
			verify.Report
		}{failure == nil, r}); err != nil || failure == nil {
			return err
		}
		return printedError{failure}
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
