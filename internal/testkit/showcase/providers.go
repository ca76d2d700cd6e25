package showcase

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// platforms are OS_ARCH with the size of a provider's zip in KiB.
var platforms = map[string]int64{
	"darwin_amd64": 18637, "darwin_arm64": 17818, "freebsd_amd64": 18330, "linux_386": 17408, "linux_amd64": 18227,
	"linux_arm": 17306, "linux_arm64": 16998, "windows_amd64": 18842, "windows_arm64": 17510,
}

// provider is a provider to publish.
type provider struct {
	address  string
	versions []version
}

func day(month time.Month, day, hour, minute int) time.Time {
	return time.Date(2026, month, day, hour, minute, 0, 0, time.UTC)
}

var allProviders = []provider{
	{"acme/inventory", []version{
		{"0.9.0", day(5, 4, 9, 2), "token"}, {"1.0.0", day(5, 4, 16, 0), "token"},
		{"1.0.1", day(5, 20, 8, 11), "ci"}, {"1.1.0", day(7, 2, 12, 12), "ci"},
		{"1.2.0", day(7, 30, 10, 45), "ci"}, {"1.3.0", day(10, 5, 13, 1), "ci"},
		{"1.3.1", day(10, 20, 15, 33), "ci"}, {"1.3.2", day(10, 28, 9, 58), "ci"},
		{"1.4.0", day(11, 13, 16, 40), "ci"},
	}},
	{"data/warehouse", []version{{"0.4.0", day(8, 6, 11, 0), "ci"}, {"0.4.1", day(9, 12, 11, 0), "ci"}}},
	{"platform/ipam", []version{{"2.1.0", day(9, 23, 14, 0), "aws"}}},
	{"security/policies", []version{{"1.0.2", day(6, 9, 10, 30), "user"}}},
}

func (f *filler) providers(ctx context.Context) error {
	for _, p := range allProviders {
		a, err := registry.ParseProvider(p.address)
		if err != nil {
			return err
		}
		key, err := f.addKey(ctx, a.Namespace)
		if err != nil {
			return err
		}
		for _, v := range p.versions {
			if err := f.provider(ctx, a, v, key.ID); err != nil {
				return err
			}
		}
	}
	inventory := registry.Provider{Namespace: "acme", Type: "inventory"}
	first := registry.Version{Major: 1}
	d := catalog.Deprecation{Message: "It leaks files. Use 1.0.1.", By: operator}
	if _, err := f.data.Catalog.Providers.Deprecate(ctx, inventory, &first, d); err != nil {
		return err
	}
	return f.withdraw(ctx, inventory, "1.1.0", day(7, 2, 15, 0), "It has a key of the build account.")
}

func (f *filler) provider(ctx context.Context, a registry.Provider, v version, key string) error {
	n, err := registry.ParseVersion(v.number)
	if err != nil {
		return err
	}
	by := publisher(v.publisher, a.Namespace, "terraform-provider-"+a.Type, n)
	prefix := "terraform-provider-" + a.Type + "_" + n.String() + "_"
	record := registry.ProviderVersion{
		Version: n, Protocols: []string{"6.0"}, SigningKey: key, PublishedAt: v.at, PublishedBy: by,
		Packages:  packages(a.Path(), prefix, n, all),
		Sums:      file(a.Path(), n, prefix+"SHA256SUMS", 1024),
		Signature: file(a.Path(), n, prefix+"SHA256SUMS.sig", 119),
	}
	_, _, err = f.data.Catalog.Providers.Publish(ctx, a, n, by.String(),
		func(context.Context, protocol.Document) (registry.ProviderVersion, error) { return record, nil })
	return err
}

func all(string) bool { return true }

func packages(path, prefix string, v registry.Version, has func(string) bool) []registry.ProviderPackage {
	var packages []registry.ProviderPackage
	for platform, size := range platforms {
		if !has(platform) {
			continue
		}
		os, arch, _ := strings.Cut(platform, "_")
		name := prefix + platform + ".zip"
		hash := sha256.Sum256([]byte("h1 " + path + name))
		packages = append(packages, registry.ProviderPackage{
			Platform: registry.Platform{OS: os, Arch: arch}, Filename: name,
			StoredFile: file(path, v, name, size<<10), H1: "h1:" + base64.StdEncoding.EncodeToString(hash[:]),
		})
	}
	slices.SortFunc(packages, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return packages
}

// file returns a file that is not stored. Its digest is that of its name.
func file(path string, v registry.Version, name string, size int64) registry.StoredFile {
	sum := sha256.Sum256([]byte(path + name))
	digest := hex.EncodeToString(sum[:])
	return registry.StoredFile{Object: path + "/" + v.String() + "/" + digest + "/" + name, SHA256: digest, Size: size}
}

// addKey creates the signing key of a namespace. It is the same in each run.
func (f *filler) addKey(ctx context.Context, namespace string) (registry.SigningKey, error) {
	owner := strings.ToUpper(namespace[:1]) + namespace[1:]
	made := day(5, 4, 8, 0)
	config := &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Curve: packet.Curve25519, Time: func() time.Time { return made },
		Rand: rand.NewChaCha8(sha256.Sum256([]byte(namespace))),
	}
	entity, err := openpgp.NewEntity(owner+" Platform", "", "platform@example.com", config)
	if err != nil {
		return registry.SigningKey{}, err
	}
	var block bytes.Buffer
	w, err := armor.Encode(&block, openpgp.PublicKeyType, nil)
	if err == nil {
		err = entity.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return registry.SigningKey{}, err
	}
	key, err := signing.ParseKey(block.Bytes(), made)
	if err != nil {
		return key, err
	}
	key.AddedAt, key.AddedBy = made, operator
	if namespace == "data" {
		key.ExpiresAt = day(12, 4, 8, 0)
	}
	_, err = f.data.Catalog.AddSigningKey(ctx, namespace, key)
	return key, err
}
