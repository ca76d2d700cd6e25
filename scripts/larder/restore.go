package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/backup"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func restoreCommand(c *cli.Program) *cobra.Command {
	var previous string
	var databaseOnly bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a registry from a backup",
		Long: `Make a folder with the registry of a backup that ` + "`larder backup`" + ` wrote. The
folder must be new or empty, and can be a mount point. The command checks every
byte, and then the whole registry, as ` + "`larder verify --at-rest`" + ` does. If it
ends early, there is no new folder. An existing folder may then have parts of
the registry, which no command uses.

A backup does not have what happened after it. Versions that were withdrawn
since are back, and tokens that were revoked since are valid again. With
--previous, name the folder of the lost registry, if its database can still be
read. It may be in the folder itself. The command then prints a command for each
of them. Run these commands before you serve the registry.

With --database-only, it restores only the database into the folder of its
registry. Stop the server first. If there still is a database, the command moves
it to a new folder, and compares with it as with --previous.

The exit code is 1 if the restored registry has faults.`,
		Example: `  larder restore larder.tar
  larder restore larder.tar --store ./larder-data --previous ./larder-data.old
  larder restore larder.tar --database-only`,
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			p, err := c.FindStore()
			if err != nil {
				return nil, err
			}
			if p.Dir == "" {
				return nil, registry.WithHint(arguments.Errorf("cannot restore to %s: it is not a folder of this machine", p),
					"See docs/restore-aws.md for the backups of AWS.")
			}
			later, err := openPrevious(ctx, previous)
			if err != nil {
				return nil, err
			}
			defer func() {
				if later != nil {
					err = errors.Join(err, later.Close())
				}
			}()
			var reporter progress.Reporter
			stop := func() {}
			if !c.JSON && !c.Quiet {
				steps := c.NewProgress()
				reporter, stop = steps, sync.OnceFunc(steps.Stop)
			}
			defer stop()
			v := restoreView{
				Data: place.Absolute(p.Dir), Again: []again{}, MissingTokens: []string{}, compared: later != nil, databaseOnly: databaseOnly,
			}
			shown := false
			finish := func(ctx context.Context, m backup.Manifest, unpacked *local.Data, replaced string) error {
				v.Backup, v.Replaced = newBackedUp(m), replaced
				if err := v.finish(ctx, unpacked, later, reporter); err != nil {
					return err
				}
				stop()
				// The list is printed before any command can serve the registry. An
				// object of --json with faults also has the error below.
				if shown = v.OK || !c.JSON; shown {
					return c.Show(v, nil)
				}
				return nil
			}
			var m backup.Manifest
			if databaseOnly {
				m, _, err = backup.RestoreDatabase(ctx, args[0], p.Dir, finish, reporter)
			} else {
				m, err = backup.Restore(ctx, args[0], p.Dir, later, finish, reporter)
			}
			if err != nil {
				return nil, err
			}
			if !databaseOnly { // the folder is what the backup has
				_ = local.LastBackup.Record(p.Dir, m.Taken)
			}
			if v.OK {
				_ = local.LastVerify.Record(p.Dir, time.Now()) // the check is complete without it
			} else {
				err = registry.WithHint(fmt.Errorf("the registry is restored, and has %s", english.Plural(v.Verified.Faults(), "fault", "")),
					"Run `larder verify --at-rest`, and do what it prints for each fault.")
			}
			if shown {
				return nil, err
			}
			return v, err
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().BoolVar(&databaseOnly, "database-only", false,
		"restore only the database, into the folder of its registry")
	cmd.Flags().StringVar(&previous, "previous", "",
		"the `FOLDER` of the registry that the backup replaces, to list what must be withdrawn and revoked again")
	return cmd
}

// openPrevious opens the registry that a backup replaces. It returns nil for
// an empty folder name.
func openPrevious(ctx context.Context, dir string) (*local.Data, error) {
	if dir == "" {
		return nil, nil
	}
	data, err := local.Open(ctx, dir)
	if err != nil {
		err = registry.WithHint(fmt.Errorf("cannot use --previous: %w", err), "Restore without --previous if the database is lost.")
	}
	return data, err
}

// finish compares an unpacked registry with the one that it replaces, and
// verifies it. later is that registry, or nil.
func (v *restoreView) finish(
	ctx context.Context, unpacked, later *local.Data, reporter progress.Reporter,
) (err error) {
	var objects verify.Objects = unpacked.Objects
	if v.databaseOnly {
		folder, err := disk.Open(v.Data)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, folder.Close()) }()
		objects = folder
	}
	if later != nil {
		err = v.compare(ctx, unpacked.Catalog, later.Catalog, later.Dir)
	} else if v.Replaced != "" {
		v.compared = true
		if old, openErr := local.Open(ctx, v.Data); openErr == nil { // it may be damaged
			err = errors.Join(v.compare(ctx, unpacked.Catalog, old.Catalog, v.Replaced), old.Close())
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil: // a part of the lost registry cannot be read
		v.Complete = false
	}
	checked := verify.Verifier{Catalog: unpacked.Catalog, Objects: objects, IsFolder: true, AtRest: true, Progress: reporter}
	v.Verified, err = checked.Run(ctx)
	v.OK = err == nil && v.Verified.Faults() == 0
	return err
}

// restoreView is the result of a restore.
type restoreView struct {
	// OK is true if the restored registry has no fault.
	OK bool `json:"ok"`
	// Data is the folder of the registry.
	Data   string   `json:"data"`
	Backup backedUp `json:"backup"`
	// Replaced is the folder with the database that --database-only replaced. It
	// is missing if there was none.
	Replaced string `json:"replaced,omitempty"`
	// Again are changes after the backup that protect the registry and must be
	// made again. It is empty without --previous.
	Again []again `json:"again"`
	// Complete is true if Again has all such changes. It is false without
	// --previous, or if the lost registry has records or audit entries that are
	// damaged or missing.
	Complete bool `json:"complete"`
	// MissingTokens are the names of the valid tokens that were created after the
	// backup and that no command in Again replaces. It is empty without --previous.
	MissingTokens []string `json:"missing_tokens"`
	// OtherChanges is the number of other changes after the backup, such as
	// publishes. It is 0 without --previous.
	OtherChanges int `json:"other_changes"`
	// Verified is the result of the check of the restored registry.
	Verified verify.Report `json:"verified"`

	compared, databaseOnly bool
}

// again is a change that must be made again.
type again struct {
	At time.Time `json:"at"`
	// Action is the action in the audit trail: withdraw, revoke-token, rotate-token,
	// remove-key or set-policy.
	Action registry.AuditAction `json:"action"`
	// Subject is the path of a module or provider, a key, a token or the policy.
	Subject string `json:"subject"`
	// Version is the withdrawn version.
	Version *registry.Version `json:"version,omitempty"`
	// Reason is the reason of a withdrawal.
	Reason string `json:"reason,omitempty"`
	// Command makes the change again.
	Command string `json:"command"`
}

// compare finds the changes that later has and restored has not. dir is the
// folder of later from now on.
func (v *restoreView) compare(ctx context.Context, restored, later *catalog.Catalog, dir string) error {
	changes, complete, err := backup.Since(ctx, restored, later)
	if err != nil {
		return err
	}
	v.Complete = complete
	stored, damaged, err := restored.Tokens(ctx)
	if err != nil {
		return err
	}
	for _, u := range damaged {
		stored = append(stored, registry.Token{ID: u.Name})
	}
	for i, e := range changes {
		if e.Action == registry.AuditSetPolicy && !slices.ContainsFunc(changes[i+1:], setsPolicy) {
			v.Again = append(v.Again, again{At: e.At, Action: e.Action, Subject: e.Subject, Command: fmt.Sprintf(
				"%slarder mirror policy show --quiet --store %s | %[1]slarder mirror policy set - --store %[3]s",
				asOwner(), arguments.Quoted(dir), arguments.Quoted(v.Data))})
			continue
		}
		command, err := commandAgain(ctx, restored, stored, e)
		if err != nil {
			return err
		}
		if command == "" {
			v.OtherChanges++
			continue
		}
		command = asOwner() + command + " --store " + arguments.Quoted(v.Data)
		if slices.ContainsFunc(v.Again, func(a again) bool {
			return a.Command == command || a.Subject == e.Subject && a.Action == registry.AuditRotateToken
		}) {
			continue // such as a token that was replaced and then revoked
		}
		a := again{At: e.At, Action: e.Action, Subject: e.Subject, Version: e.Version, Command: command}
		if e.Action == registry.AuditWithdraw {
			a.Reason = e.Detail
		}
		v.Again = append(v.Again, a)
	}
	return v.addMissingTokens(ctx, stored, later)
}

// addMissingTokens adds the tokens that later has and the backup has not. A
// token that is rotated again has the name of its successor.
func (v *restoreView) addMissingTokens(ctx context.Context, stored []registry.Token, later *catalog.Catalog) error {
	tokens, _, err := later.Tokens(ctx)
	for _, t := range tokens {
		isThere := func(s registry.Token) bool {
			return s.ID == t.ID || s.Name == t.Name && slices.ContainsFunc(v.Again, func(a again) bool {
				return strings.Contains(a.Command, rotateAgain(s.ID))
			})
		}
		if !t.IsReplaced() && !slices.ContainsFunc(stored, isThere) {
			v.MissingTokens = append(v.MissingTokens, t.Name)
		}
	}
	return err
}

func setsPolicy(e registry.AuditEntry) bool { return e.Action == registry.AuditSetPolicy }

// commandAgain returns the command that makes a change again, or "" if nobody
// needs the change for protection. stored are the tokens of the backup.
func commandAgain(
	ctx context.Context, restored *catalog.Catalog, stored []registry.Token, e registry.AuditEntry,
) (string, error) {
	kind, rest, _ := strings.Cut(e.Subject, "/")
	switch {
	case e.Action == registry.AuditWithdraw && e.Version != nil:
		return withdrawAgain(ctx, restored, rest, e)
	case (e.Action == registry.AuditRevokeToken || e.Action == registry.AuditRotateToken) && kind == "tokens":
		i := slices.IndexFunc(stored, func(t registry.Token) bool { return t.ID == rest })
		switch {
		case i < 0:
			return "", nil
		case e.Action == registry.AuditRotateToken && len(stored[i].Scopes) > 0 && !stored[i].IsReplaced():
			return rotateAgain(rest), nil
		}
		return "larder token revoke " + arguments.Quoted(rest), nil
	case e.Action == registry.AuditRemoveKey && kind == "keys":
		namespace, id, _ := strings.Cut(rest, "/")
		return "larder key remove " + arguments.Quoted(namespace) + " " + arguments.Quoted(id), nil
	}
	return "", nil
}

// asOwner begins commands for the caller's shell if sudo runs only this command
// as another user, who owns the restored folder. Otherwise it returns "".
func asOwner() string {
	me := regularfile.Me()
	caller := os.Getenv("SUDO_UID")
	if caller == "" || caller == strconv.Itoa(me.UID) || me.Name == "" || !strings.Contains(os.Getenv("SUDO_COMMAND"), " restore ") {
		return ""
	}
	return "sudo -u " + arguments.Quoted(me.Name) + " "
}

// rotateAgain returns the command that replaces a token again. The overlap of the
// first time may have ended.
func rotateAgain(id string) string {
	return "larder token rotate " + arguments.Quoted(id) + " --overlap 0"
}

// withdrawAgain returns the command that withdraws a version again. If the
// version was published after the backup, the command reserves its number.
func withdrawAgain(
	ctx context.Context, restored *catalog.Catalog, address string, e registry.AuditEntry,
) (string, error) {
	a, err := registry.ParseAddress(address)
	if err != nil {
		return "", nil //nolint:nilerr // Larder does not write such entries
	}
	command := "larder withdraw " + arguments.Quoted(address) + " " + arguments.Quoted(e.Version.String())
	switch _, err := restored.Of(a).Withdrawal(ctx, *e.Version); {
	case errors.Is(err, registry.ErrNotFound):
		command += " --missing"
	case err != nil:
		return "", err
	}
	return command + " --yes --reason " + arguments.Quoted(cmp.Or(e.Detail, "withdrawn before the restore")), nil
}

func (v restoreView) Text(p output.Page) {
	switch at := output.FormatTime(v.Backup.Taken); {
	case v.Replaced != "":
		p.Println("Restored the database in %s, from a backup of %s. The one before is in %s, until you delete it.",
			v.Data, at, v.Replaced)
	case v.databaseOnly:
		p.Println("Restored the database in %s, from a backup of %s.", v.Data, at)
	default:
		p.Println("Restored %s to %s, from a backup of %s.", v.Backup.size(), v.Data, at)
	}
	for _, f := range v.Verified.Findings {
		printFinding(p, f)
	}
	switch {
	case !v.compared:
		p.Println("\nVersions that were withdrawn after that time are back, and tokens that were revoked are valid again. " +
			"Withdraw and revoke them again before you serve the registry. " +
			"With the folder of the lost registry, --previous lists them.")
		return
	case len(v.Again) == 0 && v.Complete:
		p.Println("\nNothing was withdrawn or revoked after that time.")
	case len(v.Again) > 0:
		p.Println("\nRun these commands before you serve the registry:\n")
		for _, a := range v.Again {
			p.Printf("  %s\n", a.Command)
		}
	}
	if !v.Complete {
		p.Println("\nThere may be more: the lost registry has damaged or missing records or audit entries, or it is older " +
			"than the backup. Compare the versions, tokens and keys of both before you serve the registry.")
	}
	if len(v.MissingTokens) > 0 {
		p.Println("\nThe backup lacks these tokens, so the registry rejects them: %s. "+
			"Create others with `%slarder token create --store %s`.",
			strings.Join(v.MissingTokens, ", "), asOwner(), arguments.Quoted(v.Data))
	}
	if v.OtherChanges > 0 {
		p.Println("\nThe backup lacks %s, such as publishes. `larder audit` on the lost registry lists them.",
			english.Plural(v.OtherChanges, "other change", ""))
	}
}
