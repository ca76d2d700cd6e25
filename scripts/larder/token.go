package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

func (c *cli) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens",
		Long: `Make, list and revoke tokens, by which clients may read from the registry, and publishers publish through it.

A token is shown once, when it is made; the registry keeps its SHA-256 alone. A revoked one is refused within a minute.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.tokenCreateCommand(), c.tokenListCommand(), c.tokenRevokeCommand())
	return cmd
}

// tokenName is what a token may be called: one word, so that it can be told from others in a log.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@/+-]{0,63}$`)

func (c *cli) tokenCreateCommand() *cobra.Command {
	var name, expires string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create --name NAME --scope SCOPE...",
		Short: "Make a token",
		Long: `Make a token, and print it once, with what to paste into a client's configuration.

A scope is read:PATTERN over modules/NAMESPACE/NAME/SYSTEM, providers/NAMESPACE/TYPE and mirror/HOST/NAMESPACE/TYPE. A * stands
for one segment and ** for any number; a pattern covers all that is below it too, so that read:modules/acme covers the
modules of a namespace, and read:** everything.

With publish:PATTERN a token publishes modules and providers by --registry, and deprecates them; it does not read them thereby. A
namespace's first publish needs a pattern that names it, such as publish:modules/acme/**.`,
		Example: `  larder token create --name ci --scope 'read:modules/acme/*'
  larder token create --name vpc-team --scope 'publish:modules/acme/**' --scope 'read:modules/acme/**'
  larder token create --name ada --scope 'read:**' --expires 365d --store stack:larder`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !tokenName.MatchString(name) {
				return usageError{fmt.Errorf("name %q: it is a word of letters, digits and . _ @ / + -, and says whose the token is", name)}
			}
			if len(scopes) == 0 {
				return usageError{errors.New("say with --scope what the token allows, such as --scope 'read:modules/acme/*'")}
			}
			if _, err := access.ParseScopes(scopes); err != nil {
				return usageError{err}
			}
			lifetime, err := parseLifetime(expires)
			if err != nil {
				return usageError{err}
			}
			return c.createToken(cmd.Context(), registry.Token{Name: name, Scopes: scopes}, lifetime)
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().StringVar(&name, "name", "", "whose the token is, or what for")
	cmd.Flags().StringArrayVar(&scopes, "scope", nil, "what it allows, such as 'read:modules/acme/*'; may be given several times")
	cmd.Flags().StringVar(&c.tokenHost, "host", "", "what to print as the registry's host (default that of the stack, or "+defaultAddress+")")
	cmd.Flags().StringVar(&expires, "expires", "90d", "how long it holds: days such as 90d, hours such as 12h, or never")
	return cmd
}

const day = 24 * time.Hour

// parseLifetime reads how long a token holds; 0 is for ever.
func parseLifetime(s string) (time.Duration, error) {
	if s == "never" {
		return 0, nil
	}
	wrong := fmt.Errorf("%w lifetime %q: it is days such as 90d or hours such as 12h, up to 3650d, or never", registry.ErrInvalid, s)
	unit := time.Hour
	number, isHours := strings.CutSuffix(s, "h")
	if !isHours {
		var isDays bool
		if number, isDays = strings.CutSuffix(s, "d"); !isDays {
			return 0, wrong
		}
		unit = day
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 3650*24 || time.Duration(n)*unit > 3650*day {
		return 0, wrong
	}
	return time.Duration(n) * unit, nil
}

func (c *cli) createToken(ctx context.Context, record registry.Token, lifetime time.Duration) (err error) {
	data, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	by, err := data.by(ctx)
	if err != nil {
		return err
	}
	record.CreatedBy = by.String()
	record.CreatedAt = time.Now().UTC().Truncate(time.Second)
	if lifetime > 0 {
		record.ExpiresAt = record.CreatedAt.Add(lifetime)
	}
	token, digest := access.NewToken()
	record.ID = registry.TokenID(digest)
	if err := data.catalog.AddToken(ctx, digest, record); err != nil {
		return err
	}
	host := cmp.Or(c.tokenHost, data.host, defaultAddress)
	if c.json {
		return c.printJSON(struct {
			Token  string         `json:"token"`
			Host   string         `json:"host"`
			Record registry.Token `json:"record"`
		}{token, host, record})
	}
	c.printf("Token %s (%s) %s, %s:\n\n  %s\n\nIt is not shown again. ", record.Name, record.ID, strings.Join(record.Scopes, " "), holds(record), token)
	c.printf("For the configuration of a client, ~/.tofurc or ~/.terraformrc, with the host that clients call the registry by:\n\n  credentials %q {\n    token = %q\n  }\n\n", host, token)
	if variable := client.TokenVariable(host); variable != "" {
		c.printf("or in its environment:\n\n  export %s=%s\n\n", variable, token)
	} else {
		c.printf("A host with a port cannot be named by a variable TF_TOKEN_....\n\n")
	}
	return nil
}

// holds says how long a token does.
func holds(t registry.Token) string {
	if t.ExpiresAt.IsZero() {
		return "without an end"
	}
	return "until " + t.ExpiresAt.Format("2006-01-02 15:04 MST")
}

func (c *cli) tokenListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens that hold",
		Example: `  larder token list
  larder token list --store stack:larder --json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			found, unreadable, err := data.catalog.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			damaged := make([]string, len(unreadable))
			for i, u := range unreadable {
				damaged[i] = u.Name
			}
			switch {
			case c.json:
				return c.printJSON(struct {
					Tokens  []registry.Token `json:"tokens"`
					Damaged []string         `json:"damaged,omitempty"`
				}{append([]registry.Token{}, found...), damaged})
			case len(found)+len(damaged) == 0:
				c.printf("There are no tokens.\n")
				return nil
			}
			table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "ID\tNAME\tHOLDS\tSCOPES\tMADE\tBY")
			for _, t := range found {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, holds(t), strings.Join(t.Scopes, " "), t.CreatedAt.Format("2006-01-02"), t.CreatedBy)
			}
			for _, id := range damaged {
				fmt.Fprintf(table, "%s\tdamaged: it lets nobody in; revoke it by its id\n", id)
			}
			return table.Flush()
		},
	}
	c.storeFlag(cmd)
	return cmd
}

func (c *cli) tokenRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke NAME | ID",
		Short: "Revoke a token",
		Long:  `Revoke a token by its name or, where several have that, by its id. It is refused within a minute.`,
		Example: `  larder token revoke ci
  larder token revoke 0a1b2c3d4e5f --store stack:larder`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			data, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, data.close()) }()
			by, err := data.by(cmd.Context())
			if err != nil {
				return err
			}
			revoked, err := data.catalog.RevokeToken(cmd.Context(), args[0], by.String())
			switch {
			case err != nil:
				return err
			case c.json:
				return c.printJSON(revoked)
			}
			c.printf("Token %s (%s) is revoked; it is refused within a minute.\n", cmp.Or(revoked.Name, "with a damaged record"), revoked.ID)
			return nil
		},
	}
	c.storeFlag(cmd)
	return cmd
}
