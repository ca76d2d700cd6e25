package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func keyCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Manage the keys that sign providers",
		Long: `Add, list and remove the OpenPGP public keys that sign a namespace's providers.

Clients install a provider only if one of its namespace's keys has signed it. A
namespace can have several keys. Add a new key before you sign with it, and keep
the old key for the versions that it has signed.`,
		Example: `  larder key add acme key.asc
  larder key list acme
  larder key remove acme 51852D87348FFC4C`,
	}
	cmd.AddCommand(keyAddCommand(c), keyListCommand(c), keyRemoveCommand(c))
	return cmd
}

// addedKeyView is the result of adding a key.
type addedKeyView struct {
	// Status is added or replaced.
	Status    string `json:"status"`
	Namespace string `json:"namespace"`
	registry.SigningKey
	// Warnings describe which clients cannot use the key.
	Warnings []string `json:"warnings,omitempty"`
}

func (v addedKeyView) Text(p output.Page) {
	what := map[string]string{"added": "Added", "replaced": "Replaced"}[v.Status]
	p.Printf("%s\n", p.Wrap(fmt.Sprintf("%s key %s of %s, %s, expires %s, in namespace %s",
		what, v.ID, v.Owner, v.Algorithm, expiry(v.ExpiresAt), v.Namespace)))
	for _, warning := range v.Warnings {
		p.Printf("  %s: %s\n", p.Paint("warning", terminal.Yellow), p.WrapAt(len("  warning: "), warning))
	}
}

func (v addedKeyView) Quiet(p output.Page) { p.Printf("%s\n", v.ID) }

func keyAddCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAMESPACE FILE",
		Short: "Add a public key to a namespace",
		Long: `Add a public key to a namespace, from a file that ` + "`gpg --armor --export KEY`" + `
writes.

If the namespace already has the key, the command replaces it, for example to
extend its validity. It rejects private keys, and keys that are revoked or
cannot sign. A key that has expired verifies the versions that it signed, as
clients do, but no new ones. The command prints a warning for it. It also prints
one if Terraform 1.5 and older cannot verify the
key's signatures, for example for an Ed25519 key.`,
		Example: `  gpg --armor --export releases@example.com > key.asc
  larder key add acme key.asc`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			if err := arguments.CheckNamespace(args[0]); err != nil {
				return nil, err
			}
			armored, err := arguments.ReadFile(args[1], arguments.MaxKeyFile)
			if err != nil {
				return nil, err
			}
			now := time.Now().UTC().Truncate(time.Second)
			key, err := signing.ReadKey(armored, now)
			if err != nil {
				return nil, fmt.Errorf("cannot add the key in %s: %w", args[1], err)
			}
			key.AddedAt = now
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return output.As(addSigningKey(ctx, s, args[0], key)) })
		}),
	}
	c.StoreFlags(cmd)
	return cmd
}

func addSigningKey(
	ctx context.Context, s *place.Store, namespace string, key registry.SigningKey,
) (v addedKeyView, err error) {
	by, err := s.By(ctx)
	if err != nil {
		return v, err
	}
	key.AddedBy = by.String()
	added, err := s.Catalog.AddSigningKey(ctx, namespace, key)
	if err != nil {
		return v, err
	}
	v = addedKeyView{Status: "added", Namespace: namespace, SigningKey: key}
	if !added {
		v.Status = "replaced"
	}
	if !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(key.AddedAt) {
		v.Warnings = append(v.Warnings, "the key has expired: it verifies versions that it has signed, but no new ones")
	}
	if !signing.FitsOldClients(key) {
		v.Warnings = append(v.Warnings, "Terraform 1.5 and older cannot verify signatures by this key; "+
			"an RSA 4096 key works with all clients")
	}
	return v, nil
}

// expiry returns the date of a time, or never if it is zero.
func expiry(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format(time.DateOnly)
}

// keysView lists the keys of a namespace.
type keysView struct {
	Keys []listedKey `json:"keys"`

	namespace string
}

type listedKey struct {
	registry.SigningKey
	// State is valid, expires soon (within 14 days) or expired.
	State string `json:"state"`
	// Signed lists the versions that the key has signed, as NAMESPACE/TYPE
	// VERSION.
	Signed []string `json:"signed"`
}

func (v keysView) Text(p output.Page) {
	if len(v.Keys) == 0 {
		p.Printf("Namespace %s has no keys.\n", v.namespace)
		return
	}
	rows := make([][]string, len(v.Keys))
	for i, k := range v.Keys {
		rows[i] = []string{
			k.ID, k.State, k.Algorithm, expiry(k.ExpiresAt), english.Plural(len(k.Signed), "version", "versions"),
			k.AddedAt.Format(time.DateOnly), k.Owner,
		}
	}
	p.Table([]terminal.Column{
		{Title: "ID"}, output.StateColumn, {Title: "ALGORITHM", Optional: true}, {Title: "EXPIRES"}, {Title: "SIGNED"},
		{Title: "ADDED", Optional: true}, {Title: "OWNER", Min: 16},
	}, rows)
}

func (v keysView) Quiet(p output.Page) {
	for _, k := range v.Keys {
		p.Printf("%s\n", k.ID)
	}
}

func keyListCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list NAMESPACE",
		Short: "List the keys of a namespace",
		Long: `List the keys of a namespace, with how many versions each has signed.

The state of a key is valid, expires soon (within 14 days), or expired. With
--quiet it prints only ids.`,
		Example: `  larder key list acme`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			if err := arguments.CheckNamespace(args[0]); err != nil {
				return nil, err
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return output.As(listKeys(ctx, s, args[0])) })
		}),
	}
	c.StoreFlags(cmd)
	return cmd
}

// listKeys lists the keys of a namespace with the versions that they have
// signed.
func listKeys(ctx context.Context, s *place.Store, namespace string) (v keysView, err error) {
	keys, err := s.Catalog.SigningKeys(ctx, namespace)
	if err != nil {
		return v, err
	}
	signed, err := s.Catalog.Signed(ctx, namespace)
	if err != nil {
		return v, err
	}
	v = keysView{make([]listedKey, len(keys)), namespace}
	now := time.Now()
	for i, k := range keys {
		v.Keys[i] = listedKey{k, output.ExpiryState(k.ExpiresAt, now), append([]string{}, signed[k.ID]...)}
	}
	return v, nil
}

// removedKeyView is a key that was removed.
type removedKeyView struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	// Broken lists the versions that clients can no longer install, as
	// NAMESPACE/TYPE VERSION.
	Broken []string `json:"broken"`
}

func (v removedKeyView) Text(p output.Page) {
	p.Printf("Removed key %s from namespace %s\n", v.ID, v.Namespace)
	for _, b := range v.Broken {
		p.Printf("  clients can no longer install %s\n", b)
	}
}

func keyRemoveCommand(c *cli.Program) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove NAMESPACE ID",
		Short: "Remove a key from a namespace",
		Long: `Remove a key from a namespace. Clients can no longer install the versions that
the key has signed. If the key has signed any version, use --force.`,
		Example: `  larder key remove acme 51852D87348FFC4C`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			if err := arguments.CheckNamespace(args[0]); err != nil {
				return nil, err
			}
			return c.OnStoreToRemove(ctx, func(s *place.Store) (output.View, error) {
				return output.As(removeKey(ctx, s, args[0], strings.ToUpper(args[1]), force))
			})
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false,
		"remove the key even if clients can then no longer install versions that it has signed")
	return cmd
}

// keyInUseError is the error for removing a key that has signed versions,
// without --force.
type keyInUseError struct {
	id     string
	signed []string
}

func (e *keyInUseError) Error() string {
	return fmt.Sprintf("cannot remove key %s: clients could no longer install these versions: %s",
		e.id, strings.Join(e.signed, ", "))
}

func (*keyInUseError) Unwrap() error { return registry.ErrInvalid }

const removeByForce = "Use `--force` to remove the key nevertheless."

func removeKey(ctx context.Context, s *place.Store, namespace, id string, force bool) (v removedKeyView, err error) {
	keys, err := s.Catalog.SigningKeys(ctx, namespace)
	if err == nil && !slices.ContainsFunc(keys, func(k registry.SigningKey) bool { return k.ID == id }) {
		err = fmt.Errorf("cannot remove key %s of namespace %s: %w", id, namespace, registry.ErrNotFound)
		ids := make([]string, len(keys))
		for i, k := range keys {
			ids[i] = k.ID
		}
		if near, ok := suggest.Nearest(id, ids); ok {
			return v, registry.WithHint(err, "Did you mean %s?", near)
		}
		return v, registry.WithHint(err, "Run `larder key list %s` to list its keys.", namespace)
	}
	signed, err := s.Catalog.Signed(ctx, namespace)
	if errors.Is(err, registry.ErrCorrupt) {
		if !force {
			err = fmt.Errorf("cannot remove key %s: cannot read which versions it has signed: %w", id, err)
			return v, registry.WithHint(err,
				"Run `larder verify` to list the damage and how to repair it. %s", removeByForce)
		}
		err = nil
	}
	if err != nil {
		return v, err
	}
	v = removedKeyView{id, namespace, append([]string{}, signed[id]...)}
	if len(v.Broken) > 0 && !force {
		return v, registry.WithHint(&keyInUseError{id, v.Broken}, removeByForce)
	}
	by, err := s.By(ctx)
	if err != nil {
		return v, err
	}
	if err := s.Catalog.RemoveSigningKey(ctx, namespace, id, by.String()); err != nil {
		return v, fmt.Errorf("cannot remove the key: %w", err)
	}
	return v, nil
}
