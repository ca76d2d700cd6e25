package main

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

func (c *cli) mirrorAdmitCommand() *cobra.Command {
	var w filling.Wanted
	var platforms []string
	var reason string
	cmd := &cobra.Command{
		Use:   "admit HOSTNAME/NAMESPACE/TYPE VERSION --reason WHY",
		Short: "Mirror a version that is too new",
		Long: `Admit a version that is younger than the minimum age in the mirror policy, and
mirror it. ` + "`larder list HOSTNAME/NAMESPACE/TYPE`" + ` shows the versions that are too
new. The other parts of the policy still apply.

Without --platform, the platforms are those of the mirror policy. If it names
none, they are those of the newest mirrored version. If the command fails, it
admits nothing, and you can run it again.

The audit trail shows who admitted a version, and the reason.` + fromOrigins,
		Example: `  larder mirror admit registry.opentofu.org/hashicorp/random 3.6.3 \
    --reason 'it fixes a leak that affects us'
  larder mirror admit registry.opentofu.org/hashicorp/random 3.6.3 \
    --reason 'it fixes a leak that affects us' --platform linux_amd64`,
		RunE: c.run(func(ctx context.Context, args []string) (_ view, err error) {
			if w.Address, err = registry.ParseMirrorProvider(args[0]); err != nil {
				return nil, err
			}
			v, err := registry.ParseTag(args[1])
			if err != nil {
				return nil, err
			}
			if reason == "" {
				return nil, registry.WithHint(usagef("--reason is missing"),
					"Give a reason, for example --reason 'it fixes a leak that affects us'.")
			}
			if err := rules.CheckReason(reason); err != nil {
				return nil, asUsage(err)
			}
			if len(platforms) > 0 {
				if w.Platforms, err = requirePlatforms(platforms); err != nil {
					return nil, err
				}
				if len(w.Platforms) == 0 {
					return nil, registry.WithHint(usagef("--platform: a version cannot be admitted for all platforms"),
						"Name the platforms, for example `--platform linux_amd64,darwin_arm64`.")
				}
			}
			return c.mirrorFromOrigins(ctx, fillFlags{}, mirrorView{}, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Admit(ctx, w, v, reason)
			})
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` with the reason: one line")
	cmd.Flags().StringSliceVar(&platforms, "platform", nil, "`PLATFORMS` to mirror, such as linux_amd64,darwin_arm64 "+
		"(default those of the mirror policy, or else of the newest mirrored version); can be repeated")
	upstreamFlag(cmd, &w.Upstream)
	unsignedFlag(cmd, &w.AllowUnsigned)
	return cmd
}

func (c *cli) mirrorTrustCommand() *cobra.Command {
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
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			address, err := registry.ParseMirrorProvider(args[0])
			if err != nil {
				return nil, err
			}
			if reason != "" {
				if err := rules.CheckReason(reason); err != nil {
					return nil, asUsage(err)
				}
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				return c.trust(ctx, s, address, args[1], reason)
			})
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` with the reason: one line")
	return cmd
}

func (c *cli) trust(ctx context.Context, s *store, address registry.MirrorProvider, key, reason string) (view, error) {
	m, err := c.newMirror(ctx, s)
	if err != nil {
		return nil, err
	}
	trusted, changed, err := m.Trust(ctx, address, key, reason)
	if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
		err = registry.WithHint(err, "Run `larder list %s%s` to see which versions are refused.", address, c.repeatedFlags())
	}
	if err != nil {
		return nil, err
	}
	v := trustedView{
		Status: "trusted", Address: address.String(), SigningKey: trusted.ID, Fingerprint: trusted.Fingerprint,
		Unsigned: trusted.ID == "", owner: trusted.Owner, flags: c.repeatedFlags(),
	}
	if !changed {
		v.Status = "unchanged"
	}
	return v, nil
}

// trustedView is the result of trusting a signing key of an origin.
type trustedView struct {
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
	// flags are those of [cli.repeatedFlags].
	flags string
}

func (v trustedView) text(p page) {
	key := "key " + cmp.Or(v.Fingerprint, v.SigningKey)
	if v.owner != "" {
		key += " of " + printable.Escape(v.owner)
	}
	switch {
	case v.Status == "unchanged" && v.Unsigned:
		p.println("Unchanged: the mirror already accepts versions of %s without a signature", v.Address)
	case v.Status == "unchanged":
		p.println("Unchanged: the mirror already trusts %s for %s", key, v.Address)
	case v.Unsigned:
		p.println("The mirror now accepts versions of %s without a signature. To mirror them, "+
			"run `larder mirror add %s --platform all --allow-unsigned%s`.", v.Address, v.Address, v.flags)
	default:
		p.println("The mirror now trusts %s for %s. "+
			"To mirror the refused versions, run `larder mirror add`, `lock` or `sync` again.", key, v.Address)
	}
}

// statuses returns the states of the versions of a mirrored provider.
func (l *lookup) statuses(address string) []admission.Status {
	a, err := registry.ParseMirrorProvider(address)
	if err != nil || l.remote != nil {
		return nil
	}
	v, _ := listMirrorProvider(l.ctx, l.catalog, a, l.now())
	return v.statuses
}

func (l *lookup) versionsToAdmit(address string) (found words) {
	for _, s := range l.statuses(address) {
		if s.State == admission.TooNew {
			found = append(found, cobra.CompletionWithDesc(s.Version.String(), "from "+formatFrom(s.AvailableAt)))
		}
	}
	return found
}

// keysToTrust returns the keys because of which versions of a provider are
// refused.
func (l *lookup) keysToTrust(address string) (found words) {
	versions := make(map[string][]string)
	var keys []string
	for _, s := range l.statuses(address) {
		if s.State != admission.Refused {
			continue
		}
		key := cmp.Or(s.Key.ID, filling.Unsigned)
		if versions[key] == nil {
			keys = append(keys, key)
		}
		versions[key] = append(versions[key], s.Version.String())
	}
	for _, key := range keys {
		found = append(found, cobra.CompletionWithDesc(key, strings.Join(versions[key], ", ")))
	}
	return found
}
