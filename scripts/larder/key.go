package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
	"github.com/larder-registry/larder/pkg/suggest"
	"github.com/larder-registry/larder/pkg/terminal"
)

func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Add, list and remove keys that sign providers",
		Long: `Add, list and remove the OpenPGP public keys that sign a namespace's providers.

Clients install a provider if one of its namespace's keys has signed it. A
namespace may have several keys: add a new one before you sign with it, and keep
the old one for the versions that it has signed.`,
		Example: `  larder key add acme key.asc
  larder key list acme
  larder key remove acme 51852D87348FFC4C`,
	}
	cmd.AddCommand(c.keyAddCommand(), c.keyListCommand(), c.keyRemoveCommand())
	return cmd
}

// maxKeyFile bounds a file with a key, in bytes.
const maxKeyFile = 256 << 10

// checkNamespace returns registry.ErrInvalid if no provider can be in a namespace.
func checkNamespace(s string) error {
	if _, err := registry.ParseProvider(s + "/x"); err != nil {
		return fmt.Errorf("%w namespace %q: it is small letters, digits and hyphens", registry.ErrInvalid, s)
	}
	return nil
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			err = failed.Err
		}
		return nil, usagef("cannot read %s: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w file %s: it has more than %d bytes", registry.ErrInvalid, path, limit)
	}
	return data, err
}

// addedKeyView is what became of a key.
type addedKeyView struct {
	// Status is added or replaced.
	Status    string `json:"status"`
	Namespace string `json:"namespace"`
	registry.SigningKey
	// Warnings say which clients cannot use the key.
	Warnings []string `json:"warnings,omitempty"`
}

func (v addedKeyView) text(p page) {
	what := map[string]string{"added": "Added", "replaced": "Replaced"}[v.Status]
	p.printf("%s\n", p.Wrap(fmt.Sprintf("%s key %s of %s, %s, expires %s, in namespace %s",
		what, v.ID, v.Owner, v.Algorithm, expiry(v.ExpiresAt), v.Namespace)))
	for _, warning := range v.Warnings {
		p.printf("  %s: %s\n", p.Paint("warning", terminal.Yellow), p.beside(len("  warning: "), warning))
	}
}

func (v addedKeyView) quiet(p page) { p.printf("%s\n", v.ID) }

func (c *cli) keyAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAMESPACE FILE",
		Short: "Add a public key to a namespace",
		Long: `Add a public key to a namespace, from a file that ` + "`gpg --armor --export KEY`" + `
writes.

A key that the namespace has already is replaced, such as one whose owner has
extended its validity. Private keys are refused, and so are keys that are
revoked, expired or cannot sign. A warning is printed if Terraform 1.5 and older
cannot verify the key's signatures, such as those of Ed25519.`,
		Example: `  gpg --armor --export releases@example.com > key.asc
  larder key add acme key.asc`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			if err := checkNamespace(args[0]); err != nil {
				return nil, err
			}
			armored, err := readFile(args[1], maxKeyFile)
			if err != nil {
				return nil, err
			}
			now := time.Now().UTC().Truncate(time.Second)
			key, err := signing.ParseKey(armored, now)
			if err != nil {
				return nil, fmt.Errorf("cannot add the key in %s: %w", args[1], err)
			}
			key.AddedAt = now
			return c.onStore(ctx, func(s *store) (view, error) { return shown(addSigningKey(ctx, s, args[0], key)) })
		}),
	}
	c.storeFlags(cmd)
	return cmd
}

func addSigningKey(
	ctx context.Context, s *store, namespace string, key registry.SigningKey,
) (v addedKeyView, err error) {
	by, err := s.by(ctx)
	if err != nil {
		return v, err
	}
	key.AddedBy = by.String()
	added, err := s.catalog.AddSigningKey(ctx, namespace, key)
	if err != nil {
		return v, err
	}
	v = addedKeyView{Status: "added", Namespace: namespace, SigningKey: key}
	if !added {
		v.Status = "replaced"
	}
	if !signing.FitsOldClients(key) {
		v.Warnings = []string{"Terraform 1.5 and older cannot verify signatures by this key; " +
			"a key of RSA 4096 works with all clients"}
	}
	return v, nil
}

// expiry is the day of a time, or never.
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
	// Signed are the versions that it has signed, as NAMESPACE/TYPE VERSION.
	Signed []string `json:"signed"`
}

func (v keysView) text(p page) {
	if len(v.Keys) == 0 {
		p.printf("Namespace %s has no keys.\n", v.namespace)
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
		{Title: "ID"}, stateColumn, {Title: "ALGORITHM", Optional: true}, {Title: "EXPIRES"}, {Title: "SIGNED"},
		{Title: "ADDED", Optional: true}, {Title: "OWNER", Min: 16},
	}, rows)
}

func (v keysView) quiet(p page) {
	for _, k := range v.Keys {
		p.printf("%s\n", k.ID)
	}
}

func (c *cli) keyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list NAMESPACE",
		Short: "List the keys of a namespace",
		Long: `List the keys of a namespace, with how many versions each has signed.

The state of a key is valid, expires soon (within 14 days), or expired. With
--quiet it prints only ids.`,
		Example: `  larder key list acme`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			if err := checkNamespace(args[0]); err != nil {
				return nil, err
			}
			return c.onStore(ctx, func(s *store) (view, error) { return shown(listKeys(ctx, s, args[0])) })
		}),
	}
	c.storeFlags(cmd)
	return cmd
}

func listKeys(ctx context.Context, s *store, namespace string) (v keysView, err error) {
	keys, err := s.catalog.SigningKeys(ctx, namespace)
	if err != nil {
		return v, err
	}
	signed, err := s.catalog.Signed(ctx, namespace)
	if err != nil {
		return v, err
	}
	v = keysView{make([]listedKey, len(keys)), namespace}
	now := time.Now()
	for i, k := range keys {
		v.Keys[i] = listedKey{k, expiryState(k.ExpiresAt, now), append([]string{}, signed[k.ID]...)}
	}
	return v, nil
}

// removedKeyView is a key that was removed.
type removedKeyView struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	// Broken are the versions that cannot be installed any more, as NAMESPACE/TYPE
	// VERSION.
	Broken []string `json:"broken"`
}

func (v removedKeyView) text(p page) {
	p.printf("Removed key %s from namespace %s\n", v.ID, v.Namespace)
	for _, b := range v.Broken {
		p.printf("  %s cannot be installed any more\n", b)
	}
}

func (c *cli) keyRemoveCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove NAMESPACE ID",
		Short: "Remove a key from a namespace",
		Long: `Remove a key from a namespace. Clients can no longer install the versions that
the key has signed. If there are any, the command needs --force.`,
		Example: `  larder key remove acme 51852D87348FFC4C`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			if err := checkNamespace(args[0]); err != nil {
				return nil, err
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				return shown(removeKey(ctx, s, args[0], strings.ToUpper(args[1]), force))
			})
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "remove it even if versions that it has signed cannot be installed then")
	return cmd
}

// keyInUseError is the refusal to remove a key that has signed versions.
type keyInUseError struct {
	id     string
	signed []string
}

func (e *keyInUseError) Error() string {
	return fmt.Sprintf("cannot remove key %s: these versions could not be installed any more: %s",
		e.id, strings.Join(e.signed, ", "))
}

func (*keyInUseError) Unwrap() error { return registry.ErrInvalid }

const removeByForce = "`--force` removes the key nevertheless."

func removeKey(ctx context.Context, s *store, namespace, id string, force bool) (v removedKeyView, err error) {
	keys, err := s.catalog.SigningKeys(ctx, namespace)
	if err == nil && !slices.ContainsFunc(keys, func(k registry.SigningKey) bool { return k.ID == id }) {
		err = fmt.Errorf("cannot remove key %s of namespace %s: %w", id, namespace, registry.ErrNotFound)
		ids := make([]string, len(keys))
		for i, k := range keys {
			ids[i] = k.ID
		}
		if near, ok := suggest.Nearest(id, ids); ok {
			return v, registry.WithHint(err, "Did you mean %s?", near)
		}
		return v, registry.WithHint(err, "`larder key list %s` lists its keys.", namespace)
	}
	signed, err := s.catalog.Signed(ctx, namespace)
	if errors.Is(err, registry.ErrCorrupt) {
		if !force {
			err = fmt.Errorf("cannot remove key %s: what it has signed is not known: %w", id, err)
			return v, registry.WithHint(err,
				"Run `larder verify` to see what is damaged and how to repair it. %s", removeByForce)
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
	by, err := s.by(ctx)
	if err != nil {
		return v, err
	}
	if err := s.catalog.RemoveSigningKey(ctx, namespace, id, by.String()); err != nil {
		return v, fmt.Errorf("cannot remove the key: %w", err)
	}
	return v, nil
}
