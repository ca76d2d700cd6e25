package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/backup"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
)

func backupCommand(c *cli.Program) *cobra.Command {
	keep := 0
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up a registry on this machine",

		Annotations: map[string]string{arguments.CreatesPath: "yes"},
		Long: `Write the registry in a folder to a file. The registry can be served and changed
meanwhile: the backup is its state at the start of the command.

The file has the database, all archives, and the registry's secrets: the key of
its certificate authority, and the key that signs download URLs. Only you can
read it. Store it where only operators can read it.

If FILE is a folder, the command chooses a name with the time. It never replaces
a file. The file appears when it is complete and checked. If the command ends
early, there is none.

With --keep N, the command then removes older backups of this registry from the
folder, and leaves the N newest. It removes only files that it named itself. If
the backup fails, it removes nothing.

The command fails if an archive is missing or damaged. ` + "`larder restore`" + ` makes a
registry from the file. AWS has its own backups: see docs/restore-aws.md.`,
		Example: `  larder backup larder.tar
  larder backup /var/backups/larder --keep 14 --store /var/lib/larder`,
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			p, err := c.FindStore()
			if err != nil {
				return nil, err
			}
			if p.Dir == "" {
				return nil, registry.WithHint(arguments.Errorf("cannot back up %s: it is not a folder of this machine", p),
					"See docs/restore-aws.md for the backups of AWS.")
			}
			path := args[0]
			info, err := os.Stat(path)
			isFolder := err == nil && info.IsDir()
			if err := checkKeep(keep, path, isFolder); err != nil {
				return nil, err
			}
			if isFolder {
				path = filepath.Join(path, backup.Name(time.Now()))
			}
			c.PrintRegistry()
			data, err := local.Open(ctx, p.Dir)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, data.Close()) }()
			w := backup.Writer{Data: data, Release: version()}
			stop := func() {}
			if !c.JSON && !c.Quiet {
				shown := c.NewProgress()
				w.Progress, stop = shown, shown.Stop
			}
			m, err := w.Write(ctx, path)
			stop()
			if err != nil {
				return nil, err
			}
			_ = local.LastBackup.Record(p.Dir, m.Taken) // the backup is complete without it
			v := backupView{File: path, Backup: newBackedUp(m), Removed: []string{}}
			if keep > 0 {
				var removed []string
				removed, err = backup.Rotate(path, m.Registry, keep)
				v.Removed = append(v.Removed, removed...)
				if err != nil && !errors.Is(err, registry.ErrNotFound) {
					err = registry.WithHint(err, "The new backup %s is complete.", path)
				}
			}
			return v, err
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().IntVar(&keep, "keep", 0, "then remove the older backups in the folder, except the `N` newest")
	return cmd
}

// checkKeep checks the flag --keep. Its default, 0, removes nothing.
func checkKeep(keep int, path string, isFolder bool) error {
	switch {
	case keep < 0:
		return arguments.Errorf("--keep must not be negative")
	case keep > 0 && !isFolder:
		return registry.WithHint(arguments.Errorf("cannot use --keep: %s is not a folder", path),
			"Make the folder %s first. If it is on a disk of its own, mount that disk.", path)
	}
	return nil
}

// backedUp describes what is in a backup.
type backedUp struct {
	// Registry is the ID of the registry.
	Registry string `json:"registry"`
	// Taken is the time of the state in the backup.
	Taken time.Time `json:"taken"`
	// Release is the version of larder that wrote it.
	Release string `json:"release"`
	// Objects is the number of archives and other objects.
	Objects int `json:"objects"`
	// Bytes is the size of all files in the backup.
	Bytes int64 `json:"bytes"`
}

func newBackedUp(m backup.Manifest) backedUp {
	return backedUp{m.Registry, m.Taken, m.Release, m.Objects(), m.Bytes()}
}

func (b backedUp) size() string {
	return english.Plural(b.Objects, "object", "") + " and " + humanize.IBytes(uint64(b.Bytes))
}

// backupView is the result of a backup.
type backupView struct {
	File   string   `json:"file"`
	Backup backedUp `json:"backup"`
	// Removed are the names of older backups that --keep removed.
	Removed []string `json:"removed"`
}

func (v backupView) Text(p output.Page) {
	p.Println("Backed up %s to %s, and checked it.", v.Backup.size(), v.File)
	if len(v.Removed) > 0 {
		p.Println("Removed %s: %s.", english.Plural(len(v.Removed), "older backup", ""), strings.Join(v.Removed, ", "))
	}
	p.Println("The file has secrets of the registry. Only you can read it.")
}

func (v backupView) Quiet(p output.Page) { p.Printf("%s\n", v.File) }
