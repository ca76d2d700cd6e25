package mirror

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func admitCommand(c *cli.Program) *cobra.Command {
	var w filling.Wanted
	var platforms []string
	var reason string
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "admit ADDRESS VERSION --reason WHY",
		Short: "Mirror a version that is too new, or changed at its origin",
		Long: `Admit a version that is younger than the minimum age in the mirror policy, and
mirror it. ` + "`larder list ADDRESS`" + ` shows the versions that are too new. The other
parts of the policy still apply.

The mirror refuses a version of a module if its origin has changed it: to
another repository, commit or folder, or to other files. This command accepts
that. First find out why it was changed.

Without --platform, the platforms of a provider are those of the mirror policy.
If it names none, they are those of the newest mirrored version. If the command
fails, it admits nothing, and you can run it again.

The audit trail shows who admitted a version, and the reason.` + fromOrigins,
		Example: `  larder mirror admit registry.opentofu.org/hashicorp/random 3.6.3 \
    --reason 'it fixes a leak that affects us'
  larder mirror admit registry.opentofu.org/hashicorp/random 3.6.3 \
    --reason 'it fixes a leak that affects us' --platform linux_amd64
  larder mirror admit registry.opentofu.org/cloudposse/label/null 0.25.0 \
    --reason 'the author has announced the moved tag'`,
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			if w.Address, err = registry.ParseMirrorAddress(args[0]); err != nil {
				return nil, err
			}
			if w.Address.IsModule() {
				if err := refuseProviderFlags(platforms, w.AllowUnsigned); err != nil {
					return nil, err
				}
			}
			v, err := registry.ParseTag(args[1])
			if err != nil {
				return nil, err
			}
			if reason == "" {
				return nil, registry.WithHint(arguments.Errorf("--reason is missing"),
					"Give a reason, for example --reason 'it fixes a leak that affects us'.")
			}
			if err := rules.CheckReason(reason); err != nil {
				return nil, arguments.Wrong(err)
			}
			if len(platforms) > 0 {
				if w.Platforms, err = requirePlatforms(w.Address, platforms); err != nil {
					return nil, err
				}
				if len(w.Platforms) == 0 {
					return nil, registry.WithHint(arguments.Errorf("--platform: a version cannot be admitted for all platforms"),
						"Name the platforms, for example `--platform linux_amd64,darwin_arm64`.")
				}
			}
			return mirrorFromOrigins(ctx, c, fill, ResultView{}, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Admit(ctx, w, v, reason)
			})
		}),
	}
	c.StoreFlags(cmd)
	gitFlag(cmd, &fill)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` with the reason: one line")
	cmd.Flags().StringSliceVar(&platforms, "platform", nil, "`PLATFORMS` to mirror, such as linux_amd64,darwin_arm64 "+
		"(default those of the mirror policy, or else of the newest mirrored version); can be repeated")
	upstreamFlag(cmd, &w.Upstream)
	unsignedFlag(cmd, &w.AllowUnsigned)
	return cmd
}

func trustCommand(c *cli.Program) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "trust HOSTNAME/NAMESPACE/TYPE KEY",
		Short: "Trust another signing key of an origin registry",
		Long: `Trust another signing key of a provider's origin registry. The mirror trusts the
first key that it sees, and refuses versions that are signed by another one.
` + "`larder list HOSTNAME/NAMESPACE/TYPE`" + ` shows refused versions.

KEY is the ID of a refused key, or the whole fingerprint of any key. The word
unsigned accepts that the origin does not sign any more.

First find out whether the provider's publisher has announced the key. Someone
else who can sign with a new key may have taken over the origin. Then run the
command that was refused again: this command mirrors nothing.

The audit trail shows who trusts a key, and the reason.`,
		Example: `  larder mirror trust registry.opentofu.org/hashicorp/random 34365D9472D7468F \
    --reason 'announced at https://www.hashicorp.com/trust/security'
  larder mirror trust registry.example.com/acme/inventory unsigned`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			address, err := registry.ParseMirrorProvider(args[0])
			if err != nil {
				return nil, err
			}
			if reason != "" {
				if err := rules.CheckReason(reason); err != nil {
					return nil, arguments.Wrong(err)
				}
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				return trust(ctx, c, s, address, args[1], reason)
			})
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` with the reason: one line")
	return cmd
}

func trust(
	ctx context.Context, c *cli.Program, s *place.Store, address registry.MirrorAddress, key, reason string,
) (output.View, error) {
	m, err := newMirror(ctx, c, s)
	if err != nil {
		return nil, err
	}
	trusted, changed, err := m.Trust(ctx, address, key, reason)
	if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
		err = registry.WithHint(err, "Run `larder list %s` to see which versions are refused.", address)
	}
	if err != nil {
		return nil, err
	}
	v := TrustedView{
		Status: "trusted", Address: address.String(), SigningKey: trusted.ID, Fingerprint: trusted.Fingerprint,
		Unsigned: trusted.ID == "", owner: trusted.Owner, flags: c.RepeatedFlags(),
	}
	if !changed {
		v.Status = "unchanged"
	}
	return v, nil
}

// TrustedView is the result of trusting a signing key of an origin.
type TrustedView struct {
	// Status is trusted or unchanged.
	Status  string `json:"status"`
	Address string `json:"address"`
	// SigningKey is the ID of the key.
	SigningKey string `json:"signing_key,omitempty"`
	// Fingerprint of the key.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Unsigned is true if versions without a signature are accepted.
	Unsigned bool `json:"unsigned"`

	owner string
	// flags are those of [place.Finder.RepeatedFlags].
	flags string
}

// Text implements [output.View].
func (v TrustedView) Text(p output.Page) {
	key := "key " + cmp.Or(v.Fingerprint, v.SigningKey)
	if v.owner != "" {
		key += " of " + printable.Escape(v.owner)
	}
	switch {
	case v.Status == "unchanged" && v.Unsigned:
		p.Println("Unchanged: the mirror already accepts versions of %s without a signature", v.Address)
	case v.Status == "unchanged":
		p.Println("Unchanged: the mirror already trusts %s for %s", key, v.Address)
	case v.Unsigned:
		p.Println("The mirror now accepts versions of %s without a signature. To mirror them, "+
			"run `larder mirror add %s --platform all --allow-unsigned%s`.", v.Address, v.Address, v.flags)
	default:
		p.Println("The mirror now trusts %s for %s. "+
			"To mirror the refused versions, run `larder mirror add`, `lock` or `sync` again.", key, v.Address)
	}
}
