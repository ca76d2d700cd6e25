package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/verify"
)

// errFaults says that a registry was read to its end, and that not all of it holds.
var errFaults = errors.New("the registry does not hold")

func (c *cli) verifyCommand() *cobra.Command {
	var v verify.Verifier
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read the whole registry, and report everything that does not hold",
		Long: `Read the whole registry, and report everything that does not hold: versions without their objects and objects without a version,
sizes, SHA-256 sums, hashes and contents of what is stored, signatures that no longer verify with the keys of the namespace, and
listings and entries of the catalogue that are not what the versions make of them. Publishing can go on meanwhile.

With --repair it rebuilds listings, entries of the catalogue and namespaces. It deletes and changes no object, no version and no
key: what else it finds stays for you to mend, and it says how.

It exits with 0 where all holds, or does after the repair, and with 1 where a fault remains. Notes are no faults: an object that
no version has may be of a publish that is under way.`,
		Example: `  larder verify
  larder verify --quick --store stack:larder
  larder verify --repair --json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			data, err := c.openStore(cmd.Context(), false)
			if err != nil {
				if dir, _, _ := parseStore(c.store); dir != "" && errors.Is(err, registry.ErrNotFound) {
					return fmt.Errorf("%w: say with --store where it is", err)
				}
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			progress := newProgress(c)
			v.Catalog, v.Objects, v.Progress = data.catalog, data.objects, progress
			report, err := v.Run(cmd.Context())
			progress.stop()
			if err != nil {
				return err
			}
			if err := c.printFindings(report); err != nil {
				return err
			}
			if n := report.Faults(); n > 0 {
				return fmt.Errorf("%w: %s", errFaults, plural(n, "fault"))
			}
			return nil
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().BoolVar(&v.Repair, "repair", false, "rebuild listings, entries of the catalogue and namespaces; no object, version or key is changed")
	cmd.Flags().BoolVar(&v.Quick, "quick", false, "do not read packages and archives: see that they are there, with their sizes")
	return cmd
}

func (c *cli) printFindings(r verify.Report) error {
	if c.json {
		return c.printJSON(struct {
			// Holds says that no fault remains.
			Holds bool `json:"holds"`
			verify.Report
		}{r.Faults() == 0, r})
	}
	remedies := make(map[verify.Kind]bool)
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
			remedies[f.Kind] = true
		}
		where := strings.TrimSpace(f.Path + " " + f.Version)
		if f.Object != "" {
			where += ": " + f.Object
		}
		c.printf("%s%s: %s: %s\n", state, f.Kind, where, f.Detail)
	}
	if len(remedies) > 0 {
		c.printf("\nWhat to do:\n")
		told := make(map[verify.Kind]bool)
		for _, f := range r.Findings {
			if remedies[f.Kind] && !told[f.Kind] {
				told[f.Kind] = true
				c.printf("  %s: %s\n", f.Kind, f.Kind.Remedy())
			}
		}
	}
	if len(r.Findings) > 0 {
		c.printf("\n")
	}
	c.printf("Verified %s, %s, %s: %s, %s, %s read.\n", plural(r.Modules, "module"), plural(r.Providers, "provider"),
		plural(r.Mirrored, "mirrored provider"), plural(r.Versions, "version"), plural(r.Objects, "object"), humanize.IBytes(uint64(r.Bytes)))
	c.printf("%s, %d repaired, %s.\n", plural(r.Faults(), "fault"), repaired, plural(notes, "note"))
	return nil
}

// plural counts things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
