package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Add, list and remove the keys that sign a namespace's providers",
		Long: `Add, list and remove the OpenPGP public keys that sign a namespace's providers.

Clients install a provider if one of its namespace's keys has signed it. A namespace may have several, so that a new key can
be added before it is used, and what the old one has signed stays as it is.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.keyAddCommand(), c.keyListCommand(), c.keyRemoveCommand())
	return cmd
}

// maxKeyFile bounds a file with a key, in bytes.
const maxKeyFile = 256 << 10

// checkNamespace says whether a word is a namespace that a provider can have.
func checkNamespace(s string) error {
	if _, err := registry.ParseProvider(s + "/x"); err != nil {
		return fmt.Errorf("%w namespace %q: it is small letters, digits and hyphens", registry.ErrInvalid, s)
	}
	return nil
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w file %s: it has more than %d bytes", registry.ErrInvalid, path, limit)
	}
	return data, err
}

func (c *cli) keyAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAMESPACE FILE",
		Short: "Add a public key to a namespace",
		Long: `Add a public key to a namespace, from a file as "gpg --armor --export KEY" writes it.

A key that is there already is replaced, as by one whose owner has prolonged it. Refused are private keys, and keys that are
revoked, expired or cannot sign. There is a warning if Terraform 1.5 and older cannot verify signatures by a
key, such as one of Ed25519.`,
		Example: `  gpg --armor --export releases@example.com > key.asc
  larder key add acme key.asc`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkNamespace(args[0]); err != nil {
				return err
			}
			armored, err := readFile(args[1], maxKeyFile)
			if err != nil {
				return err
			}
			now := time.Now().UTC().Truncate(time.Second)
			key, err := signing.ParseKey(armored, now)
			if err != nil {
				return fmt.Errorf("%s: %w", args[1], err)
			}
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			by, err := data.by(cmd.Context())
			if err != nil {
				return err
			}
			key.AddedAt, key.AddedBy = now, by.String()
			added, err := data.catalog.AddSigningKey(cmd.Context(), args[0], key)
			if err != nil {
				return err
			}
			var warnings []string
			if !signing.FitsOldClients(key) {
				warnings = append(warnings, "Terraform 1.5 and older cannot verify signatures by this key; "+
					"a key of RSA 4096 works with all clients")
			}
			if c.json {
				return c.printJSON(struct {
					registry.SigningKey
					Warnings []string `json:"warnings,omitempty"`
				}{key, warnings})
			}
			what := "Added"
			if !added {
				what = "Replaced"
			}
			c.printf("%s key %s of %s, %s, expires %s, in namespace %s\n", what, key.ID, key.Owner, key.Algorithm, expiry(key.ExpiresAt), args[0])
			for _, warning := range warnings {
				c.printf("  warning: %s\n", warning)
			}
			return nil
		},
	}
	c.storeFlag(cmd)
	return cmd
}

func expiry(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("2006-01-02")
}

func (c *cli) keyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list NAMESPACE",
		Short:   "List the keys of a namespace",
		Example: `  larder key list acme`,
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkNamespace(args[0]); err != nil {
				return err
			}
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			keys, err := data.catalog.SigningKeys(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			signed, err := data.catalog.Signed(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printKeys(args[0], keys, signed)
		},
	}
	c.storeFlag(cmd)
	return cmd
}

func (c *cli) printKeys(namespace string, keys []registry.SigningKey, signed map[string][]string) error {
	type listed struct {
		registry.SigningKey
		Signed []string `json:"signed"`
	}
	list := make([]listed, len(keys))
	for i, k := range keys {
		list[i] = listed{k, append([]string{}, signed[k.ID]...)}
	}
	switch {
	case c.json:
		return c.printJSON(struct {
			Keys []listed `json:"keys"`
		}{list})
	case len(list) == 0:
		c.printf("Namespace %s has no keys.\n", namespace)
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tALGORITHM\tEXPIRES\tSIGNED\tADDED\tOWNER")
	for _, k := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Algorithm, expiry(k.ExpiresAt), english.Plural(len(k.Signed), "version", "versions"), k.AddedAt.Format("2006-01-02"), k.Owner)
	}
	return table.Flush()
}

func (c *cli) keyRemoveCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove NAMESPACE ID",
		Short: "Remove a key from a namespace",
		Long: `Remove a key from a namespace. What it has signed cannot be installed any more, so that this needs --force where there is
such a version.`,
		Example: `  larder key remove acme 51852D87348FFC4C`,
		Args:    usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkNamespace(args[0]); err != nil {
				return err
			}
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			return c.removeKey(cmd.Context(), data, args[0], strings.ToUpper(args[1]), force)
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "remove it although it has signed versions, which cannot be installed then")
	return cmd
}

func (c *cli) removeKey(ctx context.Context, data *store, namespace, id string, force bool) error {
	signed, err := data.catalog.Signed(ctx, namespace)
	if errors.Is(err, registry.ErrCorrupt) {
		if !force {
			return fmt.Errorf("what key %s has signed cannot be told, --force removes it all the same: %w", id, err)
		}
		err = nil
	}
	if err != nil {
		return err
	}
	broken := append([]string{}, signed[id]...)
	if len(broken) > 0 && !force {
		return fmt.Errorf("%w removal: key %s has signed what could not be installed any more: %s; --force removes it all the same", registry.ErrInvalid, id, strings.Join(broken, ", "))
	}
	by, err := data.by(ctx)
	if err != nil {
		return err
	}
	if err := data.catalog.RemoveSigningKey(ctx, namespace, id, by.String()); err != nil {
		return fmt.Errorf("key %s: %w", id, err)
	}
	if c.json {
		return c.printJSON(struct {
			ID     string   `json:"id"`
			Broken []string `json:"broken"`
		}{id, broken})
	}
	c.printf("Removed key %s from namespace %s\n", id, namespace)
	for _, b := range broken {
		c.printf("  %s cannot be installed any more\n", b)
	}
	return nil
}
