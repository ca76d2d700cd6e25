package showcase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirrored is a mirrored provider, or the versions of one that a key signed.
type mirrored struct {
	address, key string
	versions     []version
}

const partnerKey = "34365D9472D7468F"

var allMirrored = []mirrored{
	{aws, partnerKey, []version{
		{"5.100.0", day(4, 2, 3, 0), "aws"}, {"6.18.0", day(10, 22, 3, 0), "aws"},
		{"6.18.1", day(10, 16, 3, 0), "aws"},
		{"6.19.0", day(10, 29, 3, 0), "aws"}, {"6.20.0", day(11, 5, 3, 0), "aws"},
		{"6.20.1", day(11, 9, 8, 12), "aws"},
	}},
	{"registry.example.net/hashicorp/random", partnerKey, []version{
		{"3.6.3", day(4, 2, 3, 1), "aws"}, {"3.7.2", day(4, 2, 3, 2), "aws"},
	}},
	{"registry.example.net/hashicorp/google", partnerKey, []version{{"7.9.0", day(10, 8, 3, 0), "aws"}}},
	{changed, "2D1B8A6E4C3F5079", []version{{"5.4.0", day(4, 2, 3, 5), "aws"}}},
	{changed, "C76001609EE3B136", []version{{"5.10.1", day(9, 10, 8, 45), "aws"}}},
	{"registry.example.net/grafana/grafana", "88F6E7E1C1C5B1E7", []version{{"4.5.3", day(8, 20, 3, 0), "aws"}}},
	{"mirror.example.org/hashicorp/aws", "", []version{{"6.20.0", day(11, 6, 3, 0), "aws"}}},
}

// mirror adds the mirrored providers. The copies of older versions have only
// the platforms that were in use.
func (f *filler) mirror(ctx context.Context) error {
	for _, m := range allMirrored {
		a, err := registry.ParseMirrorProvider(m.address)
		if err != nil {
			return err
		}
		for i, v := range m.versions {
			n, err := registry.ParseVersion(v.number)
			if err != nil {
				return err
			}
			by := publisher(v.publisher, "", "", n)
			used := func(platform string) bool {
				return strings.HasPrefix(platform, "linux_") || i > 0 && strings.HasPrefix(platform, "darwin_")
			}
			prefix := fmt.Sprintf("terraform-provider-%s_%s_", a.Name, n)
			record := registry.MirrorVersion{Version: n}
			for _, p := range packages(a.Path(), prefix, n, used) {
				record.Packages = append(record.Packages, registry.MirrorPackage{
					ProviderPackage: p, SigningKey: m.key, MirroredAt: v.at, MirroredBy: by,
				})
			}
			var sums *catalog.OriginSums
			if m.key != "" { // the others came from a folder
				sums = &catalog.OriginSums{
					MirrorSums: registry.MirrorSums{SigningKey: m.key, Keys: []registry.PublicKey{{KeyID: m.key}}},
					Lists:      func(string, string) bool { return true },
				}
				sums.Sums, sums.Signature = record.Packages[0].StoredFile, record.Packages[0].StoredFile
			}
			if _, _, err := f.data.Catalog.Mirror.AddSigned(ctx, a, record, sums, by.String()); err != nil {
				return err
			}
		}
	}
	return errors.Join(f.mirrorModule(ctx), f.origins(ctx))
}

// mirroredModule is a mirrored module whose versions have all states.
var mirroredModule = registry.MirrorAddress{
	Hostname: "registry.example.net", Namespace: "example-modules", Name: "vpc", System: "aws",
}

var moduleReleases = []release{
	{"5.16.0", day(9, 3, 18, 4), day(9, 4, 3, 0)}, {"5.17.0", day(10, 1, 17, 31), day(10, 2, 3, 0)},
	{"5.18.1", day(10, 14, 17, 31), day(10, 15, 3, 0)}, {"5.19.0", day(10, 28, 18, 55), day(10, 29, 3, 0)},
	{"6.0.0", day(11, 18, 19, 26), day(11, 19, 3, 0)},
}

// modulePin returns what the versions of the mirrored module are bound to.
func modulePin(commit string) registry.ModulePin {
	return registry.ModulePin{
		Source: "https://forge.example.org/example-modules/terraform-aws-vpc", Commit: strings.Repeat(commit, 5),
		H1: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
	}
}

// copyTo copies an object to another key, and sets that key in the file.
func (f *filler) copyTo(ctx context.Context, file *registry.StoredFile, key string) error {
	in, err := f.data.Objects.Open(ctx, file.Object, 0, -1)
	if err != nil {
		return err
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	file.Object = key
	return f.data.Objects.PutOnce(ctx, key, bytes.NewReader(data), objects.Digest{SHA256: file.SHA256, Size: file.Size})
}

// mirrorModule adds the versions of the mirrored module, with the documentation
// of one of the registry's own. The origin has changed the oldest one and one
// that is not mirrored.
func (f *filler) mirrorModule(ctx context.Context) error {
	own, err := f.data.Catalog.Modules.Get(ctx, registry.Module{Namespace: "acme", Name: "vpc", System: "aws"},
		registry.Version{Major: 4, Minor: 2})
	if err != nil {
		return err
	}
	for i, number := range []string{"5.16.0", "5.17.0", "5.19.0"} {
		n, err := registry.ParseVersion(number)
		if err != nil {
			return err
		}
		docs, files := *own.Docs, *own.FilesZip
		for _, file := range []*registry.StoredFile{&docs, &files} {
			if err := f.copyTo(ctx, file, mirroredModule.FileKey(n, file.SHA256, path.Base(file.Object))); err != nil {
				return err
			}
		}
		m := &registry.MirroredModule{
			StoredFile: registry.StoredFile{
				Object: mirroredModule.FileKey(n, own.SHA256, "vpc.tar.gz"), SHA256: own.SHA256, Size: own.Size,
			},
			Pin: modulePin("5d1c7a0e"), MirroredAt: day(10, 29+i, 8, 2), MirroredBy: publisher("aws", "", "", n),
		}
		m.Docs, m.Contents = &docs, own.Contents
		m.FilesZip = &files
		if i == 1 {
			m.Pin.Accepted = &registry.Decision{At: m.MirroredAt, By: operator, Reason: "They removed a large file."}
		}
		record := registry.MirrorVersion{Version: n, Module: m}
		if _, _, err := f.data.Catalog.Mirror.Add(ctx, mirroredModule, record, operator); err != nil {
			return err
		}
	}
	return f.origin(ctx, mirroredModule.String(), moduleReleases, func(o *registry.MirrorOrigin) {
		for _, n := range []registry.Version{{Major: 5, Minor: 16}, {Major: 5, Minor: 18, Patch: 1}} {
			o.Pin(n, modulePin("5d1c7a0e"), day(10, 29, 8, 2))
			o.Refuse(registry.RefusedVersion{
				Version: n, Pin: modulePin("91f3b26c"), Bound: modulePin("5d1c7a0e"), At: day(11, 12, 3, 0),
			})
		}
	})
}

// aws is the mirrored provider whose versions have all states. Of waits and
// fetched, no version is mirrored. Clients can make the mirror fetch versions of
// aws and fetched. changed has a key that an operator trusts.
const (
	aws     = "registry.example.net/hashicorp/aws"
	waits   = "registry.example.net/example/status"
	fetched = "registry.example.net/example/weather"
	changed = "registry.example.net/cloudflare/cloudflare"
)

const minAge = 7 * 24 * time.Hour

// policy is the policy of the mirror.
var policy = registry.MirrorPolicy{
	Text: `allow "registry.example.net/hashicorp/aws" {
  min_age = "7d"
  pull    = "open"
}

allow "registry.example.net/example/weather" {
  min_age  = "7d"
  pull     = "closed"
  upstream = "https://mirror.example.org"
}

allow "registry.example.net/*/*" {
  min_age = "7d"
}

allow "registry.example.net/*/*/*" {
  min_age = "7d"
  pull    = "closed"
}
`,
	Rules: []registry.MirrorRule{
		{Pattern: aws, Line: 1, MinAge: int64(minAge / time.Second), Pull: registry.PullOpen},
		{
			Pattern: fetched, Line: 6, MinAge: int64(minAge / time.Second), Pull: registry.PullClosed,
			Upstream: "https://mirror.example.org",
		},
		{Pattern: "registry.example.net/*/*", Line: 12, MinAge: int64(minAge / time.Second)},
		{
			Pattern: "registry.example.net/*/*/*", Line: 16, MinAge: int64(minAge / time.Second), Pull: registry.PullClosed,
		},
	},
	SetAt: day(4, 2, 2, 0), SetBy: operator,
}

// release is a version at its origin, with the time at which the mirror has seen
// it.
type release struct {
	number          string
	published, seen time.Time
}

var awsReleases = []release{
	{"5.100.0", day(3, 19, 18, 4), day(4, 2, 3, 0)},
	{"6.18.0", day(10, 14, 17, 31), day(10, 15, 3, 0)},
	{"6.18.1", time.Time{}, day(10, 16, 3, 0)},
	{"6.19.0", day(10, 21, 19, 2), day(10, 22, 3, 0)},
	{"6.20.0", day(10, 28, 18, 55), day(10, 29, 3, 0)},
	{"6.20.1", day(11, 8, 21, 17), day(11, 9, 3, 0)},
	{"6.20.2", day(11, 12, 4, 40), day(11, 13, 3, 0)},
	{"6.21.0", day(11, 18, 19, 26), day(11, 19, 3, 0)},
}

// origins sets the policy, and adds what the mirror has seen of some origins.
func (f *filler) origins(ctx context.Context) error {
	if _, err := f.data.Catalog.SetMirrorPolicy(ctx, policy, "4 rules"); err != nil {
		return err
	}
	first := registry.OriginKey{
		ID: partnerKey, Fingerprint: "C874011F0AB405110D02105534365D9472D7468F",
		Owner: "Example Releases <releases@example.net>", SeenAt: day(4, 2, 3, 0),
	}
	err := f.origin(ctx, aws, awsReleases, func(o *registry.MirrorOrigin) {
		o.Trust(first)
		o.Admit(registry.Version{Major: 6, Minor: 20, Patch: 1}, registry.Decision{
			At: day(11, 9, 8, 10), By: operator, Reason: "It fixes CVE-2026-1234.",
		})
		o.Refuse(registry.RefusedVersion{
			Version: registry.Version{Major: 6, Minor: 20, Patch: 2}, At: day(11, 20, 3, 0),
			Key: registry.OriginKey{
				ID: "5F0E3C1B9A7D2468", Fingerprint: "0B5D7F1E2A3C4D5E6F7081925F0E3C1B9A7D2468",
				Owner: "Example Releases <releases@example.net>", SeenAt: day(11, 20, 3, 0),
			},
		})
	})
	if err != nil {
		return err
	}
	err = f.origin(ctx, changed, []release{
		{"5.4.0", day(3, 24, 16, 20), day(4, 2, 3, 5)}, {"5.10.1", day(9, 2, 12, 0), day(9, 3, 3, 0)},
	}, func(o *registry.MirrorOrigin) {
		o.Trust(registry.OriginKey{
			ID: "2D1B8A6E4C3F5079", Fingerprint: "91C7A0E2B4D6F8130527496B2D1B8A6E4C3F5079",
			Owner: "Example Network <keys@example.net>", SeenAt: day(4, 2, 3, 5),
		})
		o.Trust(registry.OriginKey{
			ID: "C76001609EE3B136", Fingerprint: "6F2A9C4E1B7D3058A6C4E2F0C76001609EE3B136",
			Owner: "Example Network <keys@example.net>", SeenAt: day(9, 10, 3, 0),
			Trusted: &registry.Decision{
				At: day(9, 10, 8, 41), By: operator, Reason: "They announced the new key on 8 Sep.",
			},
		})
	})
	if err != nil {
		return err
	}
	err = f.origin(ctx, waits, []release{
		{"0.9.0", day(11, 15, 10, 0), day(11, 15, 10, 0)}, {"1.0.0", day(11, 17, 10, 0), day(11, 18, 3, 0)},
	}, func(*registry.MirrorOrigin) {})
	if err != nil {
		return err
	}
	return f.pulled(ctx)
}

// pulled adds what the mirror found when it checked origins for clients. The items
// never expire, because the origins were seen.
func (f *filler) pulled(ctx context.Context) (err error) {
	var older protocol.MirrorListing
	for minor := uint64(17); minor > 0; minor-- {
		older = append(older, registry.Version{Major: 6, Minor: minor})
	}
	for _, one := range []struct {
		registry.PulledAddress
		index protocol.MirrorListing
	}{
		{registry.PulledAddress{
			Address: aws, RequestedAt: day(11, 20, 8, 51), CheckedAt: day(11, 20, 8, 51),
			Pending: []registry.Version{{Major: 6, Minor: 21}, {Major: 6, Minor: 17}},
		}, older},
		{registry.PulledAddress{
			Address: fetched, RequestedAt: day(11, 20, 8, 40), CheckedAt: day(11, 20, 3, 0),
			Problem: "the origin did not answer in time", RetryAt: day(11, 20, 8, 41),
		}, protocol.MirrorListing{{Major: 1, Minor: 1}, {Major: 1}}},
	} {
		if one.Index, err = protocol.Compress(one.index); err != nil {
			return err
		}
		p, err := registry.ParseMirrorProvider(one.Address)
		if err != nil {
			return err
		}
		state, err := f.data.Catalog.Mirror.State(ctx, p, p.Hostname, nil, time.Now())
		if err != nil {
			return err
		}
		err = state.Update(ctx, func() error {
			state.Pulled = one.PulledAddress
			if state.Origin.SeenAt.IsZero() {
				state.Origin.SeenAt = one.CheckedAt
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// origin adds what the mirror has seen of the origin of a provider.
func (f *filler) origin(
	ctx context.Context, address string, releases []release, decide func(o *registry.MirrorOrigin),
) error {
	a, err := registry.ParseMirrorAddress(address)
	if err != nil {
		return err
	}
	_, err = f.data.Catalog.Mirror.UpdateOrigin(ctx, a,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			for _, r := range releases {
				n, err := registry.ParseVersion(r.number)
				if err != nil {
					return false, nil, err
				}
				o.See(map[registry.Version]time.Time{n: r.published}, r.seen)
			}
			decide(o)
			return true, nil, nil
		})
	return err
}
