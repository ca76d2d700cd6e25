package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func tokenCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list, rotate and revoke tokens",
		Long: `Create, list, rotate and revoke tokens. Clients use them to read from the
registry, and publishers use them to publish through it.

The command prints a token only when it creates it. The registry stores only its
SHA-256 sum. It rejects a revoked token within a minute.`,
		Example: `  larder token create --name ci --scope 'read:modules/acme/*'
  larder token list
  larder token rotate ci
  larder token revoke ci`,
	}
	cmd.AddCommand(tokenCreateCommand(c), tokenListCommand(c), tokenRotateCommand(c), tokenRevokeCommand(c))
	return cmd
}

// tokenName matches the name of a token: one word, so that it is readable in a
// log.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@/+-]{0,63}$`)

func tokenCreateCommand(c *cli.Program) *cobra.Command {
	var name, expires, host string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create --name NAME --scope SCOPE",
		Short: "Create a token",
		Long: `Create a token. The command prints it once, with the configuration for OpenTofu
and Terraform. With --quiet it prints only the token.

A scope is read:PATTERN or publish:PATTERN. A pattern matches
modules/NAMESPACE/NAME/SYSTEM or providers/NAMESPACE/TYPE. For the mirror it is
mirror-modules/HOSTNAME/NAMESPACE/NAME/SYSTEM or
mirror/HOSTNAME/NAMESPACE/TYPE. A * matches one segment, and ** matches any
number of segments. A pattern also covers everything below it: read:modules/acme
covers all modules of a namespace, and read:** covers everything.

A publish scope allows its holder to publish and deprecate modules and providers
through the registry, but not to read them. The first publish in a namespace
needs a pattern with the namespace's name, such as publish:modules/acme/**.`,
		Example: `  larder token create --name ci --scope 'read:modules/acme/*'
  larder token create --name team --scope 'publish:modules/acme/**' \
    --scope 'read:modules/acme/**'
  larder token create --name ada --scope 'read:**' --expires 365d
  export TF_TOKEN_registry_example_com=$(larder token create --quiet \
    --name ci --scope 'read:**')`,
		RunE: c.Run(func(ctx context.Context, _ []string) (output.View, error) {
			switch {
			case name == "":
				return nil, registry.WithHint(arguments.Errorf("the token's name is missing"),
					"Name its owner or its purpose, for example --name ci.")
			case !tokenName.MatchString(name):
				return nil, arguments.Errorf("invalid token name %q: it must be one word of letters, digits and . _ @ / + -", name)
			case len(scopes) == 0:
				return nil, registry.WithHint(arguments.Errorf("the token's scope is missing"),
					"Give what the token allows, for example --scope 'read:modules/acme/*'.")
			}
			if _, err := access.ParseScopes(scopes); err != nil {
				return nil, arguments.Errorf("--scope: %w", err)
			}
			lifetime, err := arguments.ParseLifetime(expires)
			if err != nil {
				return nil, arguments.Errorf("--expires: %w", err)
			}
			named, err := parseHostFlag(host)
			if err != nil {
				return nil, err
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				to := cmp.Or(named, s.Addressing)
				return output.As(createToken(ctx, s, registry.Token{Name: name, Scopes: scopes}, lifetime, to))
			})
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the token: its owner or its purpose")
	cmd.Flags().StringArrayVar(&scopes, "scope", nil,
		"`SCOPE` of the token, such as 'read:modules/acme/*'; can be repeated")
	hostFlag(cmd, &host)
	cmd.Flags().StringVar(&expires, "expires", "90d",
		"expire after this `DURATION`: days such as 90d, hours such as 12h, or never")
	return cmd
}

func hostFlag(cmd *cobra.Command, host *string) {
	cmd.Flags().StringVar(host, "host", "", "the registry's `HOST` in the printed configuration (default its own host)")
}

// parseHostFlag returns how clients address the host of a flag. It is the zero
// value for an empty host.
func parseHostFlag(host string) (place.Addressing, error) {
	if host == "" {
		return place.Addressing{}, nil
	}
	h, err := registry.ParseHost(host)
	if err != nil {
		return place.Addressing{}, arguments.Wrong(fmt.Errorf("--host: %w", err))
	}
	return place.Addressing{Host: h.Display()}, nil
}

// createdTokenView is a new token.
type createdTokenView struct {
	// Token is the token itself. No other command prints it.
	Token string `json:"token"`
	// Host is the registry's host, as clients write it. It is missing if it is
	// unknown.
	Host   string         `json:"host,omitempty"`
	Record registry.Token `json:"record"`

	to place.Addressing
}

func createToken(
	ctx context.Context, s *place.Store, record registry.Token, lifetime time.Duration, to place.Addressing,
) (v createdTokenView, err error) {
	by, err := s.By(ctx)
	if err != nil {
		return v, err
	}
	record.CreatedBy = by.String()
	record.CreatedAt = time.Now().UTC().Truncate(time.Second)
	if lifetime > 0 {
		record.ExpiresAt = record.CreatedAt.Add(lifetime)
	}
	token, digest := access.NewToken()
	record.ID = registry.TokenID(digest)
	if err := s.Catalog.AddToken(ctx, digest, record); err != nil {
		return v, err
	}
	return newTokenView(token, record, to), nil
}

func newTokenView(token string, record registry.Token, to place.Addressing) createdTokenView {
	v := createdTokenView{Token: token, Record: record, to: to}
	if to.Guessed == "" {
		v.Host = to.Host
	}
	return v
}

func (v createdTokenView) Text(p output.Page) {
	expires := "which never expires"
	if !v.Record.ExpiresAt.IsZero() {
		expires = "which expires " + output.FormatTime(v.Record.ExpiresAt)
	}
	created := fmt.Sprintf("Created token %s (%s), %s:", v.Record.Name, v.Record.ID, expires)
	p.Printf("%s\n\n  %s\n\n", p.Wrap(created), v.Token)
	p.Printf("%s\n", p.Wrap("Larder does not show it again. It allows "+strings.Join(v.Record.Scopes, " ")+"."))
	p.Printf("Add it to ~/.tofurc or ~/.terraformrc:\n\n  credentials %q {\n    token = %q\n  }\n\n", v.to.Host, v.Token)
	variable := client.TokenVariable(v.to.Host)
	export := "export " + variable + "=" + v.Token
	switch {
	case v.to.Guessed != "":
		p.Printf("%s\n", p.Wrap(v.to.Guessed))
	case variable == "":
		p.Printf("%s\n", p.Wrap("There is no TF_TOKEN_… environment variable for a host with a port."))
	case p.Width > 0 && len(export)+2 > p.Width:
		p.Printf("Or set this environment variable to the token:\n\n  %s\n", variable)
	default:
		p.Printf("Or set an environment variable:\n\n  %s\n", export)
	}
}

func (v createdTokenView) Quiet(p output.Page) { p.Printf("%s\n", v.Token) }

// tokensView is a list of tokens, the oldest first.
type tokensView struct {
	Tokens []listedToken `json:"tokens"`
	// Damaged lists the IDs of tokens with unreadable records. Nobody can use
	// these tokens.
	Damaged []string `json:"damaged,omitempty"`
}

type listedToken struct {
	registry.Token
	// State is valid or expires soon (within 14 days).
	State string `json:"state"`
	// LastUsedAt is when the token was last used. Later uses in the same hour
	// do not count. It is missing if no use is known.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
}

func listTokens(ctx context.Context, s *place.Store) (v tokensView, err error) {
	tokens, unreadable, err := s.Catalog.Tokens(ctx)
	if err != nil {
		return v, err
	}
	used, err := s.Catalog.TokenUses(ctx)
	if err != nil {
		return v, err
	}
	now := time.Now()
	v.Tokens = make([]listedToken, len(tokens))
	for i, t := range tokens {
		v.Tokens[i] = listedToken{t, output.ExpiryState(t.ExpiresAt, now), used[t.ID]}
	}
	for _, u := range unreadable {
		v.Damaged = append(v.Damaged, u.Name)
	}
	return v, nil
}

func (v tokensView) Text(p output.Page) {
	if len(v.Tokens)+len(v.Damaged) == 0 {
		p.Printf("There are no tokens.\n")
		return
	}
	var rows [][]string
	for _, t := range v.Tokens {
		expires, used := "never", "-"
		if !t.ExpiresAt.IsZero() {
			expires = output.FormatTime(t.ExpiresAt)
		}
		if !t.LastUsedAt.IsZero() {
			used = output.FormatTime(t.LastUsedAt)
		}
		rows = append(rows, []string{
			t.ID, t.Name, t.State, expires, used, strings.Join(t.Scopes, " "), t.CreatedAt.Format(time.DateOnly), t.CreatedBy,
		})
	}
	for _, id := range v.Damaged {
		rows = append(rows, []string{id, "-", "damaged", "-", "-", "-", "-", "-"})
	}
	by := output.ByColumn
	by.Optional = true
	p.Table([]terminal.Column{
		{Title: "ID"}, {Title: "NAME", Min: 10}, output.StateColumn,
		{Title: "EXPIRES", Min: len(time.DateOnly), Shorten: output.ShortTime},
		{Title: "LAST USED", Min: len(time.DateOnly), Shorten: output.ShortTime}, {Title: "SCOPES", Min: 16, Shorten: output.ShortList},
		{Title: "CREATED", Optional: true}, by,
	}, rows)
	if len(v.Damaged) > 0 {
		p.Printf("\n%s\n", p.Wrap("Nobody can use a damaged token. Revoke it by its ID."))
	}
}

func (v tokensView) Quiet(p output.Page) {
	for _, t := range v.Tokens {
		p.Printf("%s\n", t.ID)
	}
	for _, id := range v.Damaged {
		p.Printf("%s\n", id)
	}
}

func tokenListCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens",
		Long: `List tokens, the oldest first, without expired and revoked tokens.

The state of a token is valid, expires soon (within 14 days), or damaged if its
record is unreadable. With --quiet the command prints only IDs.

The registry stores when a token was last used once an hour, for 400 days. A -
means that no use is stored.`,
		Example: `  larder token list
  larder token list --store stack:larder --json`,
		RunE: c.Run(func(ctx context.Context, _ []string) (output.View, error) {
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return output.As(listTokens(ctx, s)) })
		}),
	}
	c.StoreFlags(cmd)
	return cmd
}

// rotatedTokenView is a new token that replaces another one.
type rotatedTokenView struct {
	createdTokenView
	// Replaced is the record of the old token, with its new name and expiry.
	Replaced registry.Token `json:"replaced"`
}

func (v rotatedTokenView) Text(p output.Page) {
	v.createdTokenView.Text(p)
	old := "The registry rejects the old token within a minute."
	if v.Replaced.ExpiresAt.After(v.Record.CreatedAt) {
		old = fmt.Sprintf("The old token is now named %s, and is valid until %s. To end it at once, "+
			"run `larder token revoke %s`.", v.Replaced.Name, output.FormatTime(v.Replaced.ExpiresAt), v.Replaced.ID)
	}
	p.Printf("\n%s\n", p.Wrap(old))
}

func tokenRotateCommand(c *cli.Program) *cobra.Command {
	var overlap, host string
	cmd := &cobra.Command{
		Use:   "rotate NAME|ID",
		Short: "Replace a token with a new one",
		Long: `Replace a token with a new one, which has the same name, scopes and lifetime.
The command prints it like larder token create.

The old token stays valid for the overlap, so that you can give the new one to
all clients. Its name gets -old- and its ID at the end, and it cannot be rotated
again. larder token list shows when it was last used. If it has leaked, use
--overlap 0: the registry then rejects it within a minute.`,
		Example: `  larder token rotate ci
  larder token rotate ci --overlap 7d
  larder token rotate 0a1b2c3d4e5f --overlap 0 --store stack:larder
  larder token rotate ci --quiet | gh secret set LARDER_TOKEN`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			var stays time.Duration
			if overlap != "0" {
				var err error
				if stays, err = arguments.ParseLifetime(overlap); err != nil || stays == 0 {
					return nil, arguments.Errorf("--overlap %s: it must be hours such as 24h, days such as 7d, or 0", overlap)
				}
			}
			named, err := parseHostFlag(host)
			if err != nil {
				return nil, err
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				by, err := s.By(ctx)
				if err != nil {
					return nil, err
				}
				token, digest := access.NewToken()
				created, replaced, err := s.Catalog.RotateToken(ctx, args[0], digest, stays, by.String())
				if errors.Is(err, registry.ErrNotFound) {
					return nil, noToken(ctx, s, "rotate", args[0])
				}
				to := cmp.Or(named, s.Addressing)
				return output.As(rotatedTokenView{newTokenView(token, created, to), replaced}, err)
			})
		}),
	}
	c.StoreFlags(cmd)
	hostFlag(cmd, &host)
	cmd.Flags().StringVar(&overlap, "overlap", "24h",
		"keep the old token valid for this `DURATION`: hours such as 24h, days such as 7d, or 0")
	return cmd
}

// revokedTokenView is the record of a token that was revoked. It has only the
// ID if the record was damaged.
type revokedTokenView struct {
	// Status is revoked.
	Status string `json:"status"`
	registry.Token
}

func (v revokedTokenView) Text(p output.Page) {
	p.Printf("%s\n", p.Wrap(fmt.Sprintf("Revoked token %s (%s). The registry rejects it within a minute.",
		cmp.Or(v.Name, "with a damaged record"), v.ID)))
}

func tokenRevokeCommand(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke NAME|ID",
		Short: "Revoke a token",
		Long: `Revoke a token by its name or its ID. The registry rejects the token within a
minute.`,
		Example: `  larder token revoke ci
  larder token revoke 0a1b2c3d4e5f --store stack:larder`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			return c.OnStoreToRemove(ctx, func(s *place.Store) (output.View, error) {
				by, err := s.By(ctx)
				if err != nil {
					return nil, err
				}
				revoked, err := s.Catalog.RevokeToken(ctx, args[0], by.String())
				if errors.Is(err, registry.ErrNotFound) {
					return nil, noToken(ctx, s, "revoke", args[0])
				}
				return output.As(revokedTokenView{"revoked", revoked}, err)
			})
		}),
	}
	c.StoreFlags(cmd)
	return cmd
}

// noToken returns the error for changing a token that does not exist.
func noToken(ctx context.Context, s *place.Store, change, name string) error {
	err := fmt.Errorf("cannot %s token %s: %w", change, name, registry.ErrNotFound)
	var names []string
	if tokens, _, err := s.Catalog.Tokens(ctx); err == nil {
		for _, t := range tokens {
			names = append(names, t.Name, t.ID)
		}
	}
	if near, ok := suggest.Nearest(name, names); ok {
		return registry.WithHint(err, "Did you mean %s?", near)
	}
	return registry.WithHint(err, "Run `larder token list` to list the tokens.")
}
