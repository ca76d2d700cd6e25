package catalog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// SchemaVersion is the version of the format of items. It is stored with each
// item. A release raises it if older releases would misread an item. Adding a
// field that they can ignore does not raise it.
const SchemaVersion = 1

// schemaKey identifies an empty item whose schema version is that of the
// registry. The first change of a registry writes it.
//
// Every change reads the item in its snapshot, and the command line reads it
// before anything else. So no release adds to a registry that it cannot read. A
// release that raises [SchemaVersion] writes this item before any other.
//
// It is in a catalog that belongs to no namespace, because every role that
// writes may read and write catalogs.
var schemaKey = Key{catalogPartition(""), "schema"}

// CheckSchema returns [registry.ErrSchema] for an item whose format this
// release does not read, because another release wrote it. Version 0 means that
// the item has no version.
func CheckSchema(k Key, version int64) error {
	if version == SchemaVersion {
		return nil
	}
	name, hint := "item "+k.Shown(), "Use a newer release of Larder."
	if k == schemaKey {
		name = "the registry"
	}
	if version < SchemaVersion {
		hint = "Use the release of Larder that wrote it, or publish your versions to a new registry."
	}
	return registry.WithHint(fmt.Errorf("%s has schema version %d, and this release of Larder reads version %d: %w",
		name, version, SchemaVersion, registry.ErrSchema), "%s", hint)
}

// recordKey returns the key of the record of a version, a [registry.Record].
// Versions that differ only in build metadata share a key, because clients
// treat them as the same version. So a stored record takes the number for all
// of them.
func recordKey(path string, n registry.Version) Key {
	n.Metadata = ""
	return Key{path, recordPrefix + n.String()}
}

// recordPrefix is the beginning of the sort keys of records.
const recordPrefix = "version/"

// listingKey returns the key of the listing of an address, a
// [protocol.Document]. The document is empty if no version is listed. The
// partition of an address is its path, such as modules/acme/vpc/aws.
func listingKey(path string) Key { return Key{path, "listing"} }

// entryKey returns the key of the entry of an address, a [registry.Summary].
// The catalog is the name of a namespace, or mirrorCatalog.
func entryKey(catalog, path string) Key { return Key{catalogPartition(catalog), path} }

// contentsKey returns the key of the [registry.Contents] of a module, as
// encoded. It is beside the entries, so that lists need not read it. The item
// is empty if there are none.
func contentsKey(catalog, path string) Key {
	return Key{catalogPartition(catalog), contentsPrefix + path}
}

const contentsPrefix = "contents/"

func catalogPartition(catalog string) string { return "catalog/" + catalog }

// mirrorCatalog is the catalog of all mirrored providers. No namespace's
// catalog has entries of that kind.
const mirrorCatalog = "mirror"

// namespaceKey returns the key of the item that records that a namespace
// exists.
func namespaceKey(namespace string) Key { return Key{namespaces, namespace} }

const namespaces = "namespaces"

// signingKey returns the key of a namespace's [registry.SigningKey].
func signingKey(namespace, id string) Key { return Key{keysPartition(namespace), id} }

func keysPartition(namespace string) string { return "keys/" + namespace }

// tokenKey returns the key of the [registry.Token] with a digest.
func tokenKey(digest string) Key { return Key{tokens, digest} }

// tokensKey is the key of an item that every new token changes. So two tokens
// with the same name cannot be created at the same time. It is beside schemaKey
// for the reason given there.
var tokensKey = Key{catalogPartition(""), "tokens"}

// sessionKey returns the key of the [registry.Session] with a digest.
func sessionKey(digest string) Key { return Key{sessions, digest} }

// loginKey returns the key of an item that exists while a login cannot be used
// again. It has the digest of the login's state.
func loginKey(digest string) Key { return Key{sessions, digest + "/used"} }

// loginsKey returns the key of the [logins] of an identity.
func loginsKey(of registry.Identity) Key {
	person := of.Token
	if person == "" {
		person = fmt.Sprintf("%s\x00%v", of.Issuer, of.Claims["sub"])
	}
	sum := sha256.Sum256([]byte(person))
	return Key{sessions, "of/" + hex.EncodeToString(sum[:])}
}

// The partitions below begin with mirror/, because the function that fetches
// providers may write only such partitions. No provider has the same partition.
// Their items expire, but for those of providers that an origin has.
const (
	providersPartition = "mirror/providers"
	originsPartition   = "mirror/origins"
	budgetPartition    = "mirror/budget"
	copySlots          = "mirror/slots"
)

// The partitions below begin with usage/, because the function that counts
// downloads may read and write only such partitions. Most of their items
// expire.
const (
	usagePrefix = "usage/"
	totals      = usagePrefix + "totals"
	tokenUses   = usagePrefix + "tokens"
)

// usagePartition returns the partition with the downloads of an address, such
// as usage/modules/acme/vpc/aws. No address has one of the partitions above.
func usagePartition(a registry.Address) string { return usagePrefix + a.Path() }

// downloadsKey returns the key of the [downloadCounts] of a version and a day.
func downloadsKey(a registry.Address, d registry.DailyDownloads) Key {
	return Key{usagePartition(a), d.Day.UTC().Format(time.DateOnly) + "/" + d.Version.String()}
}

// totalKey returns the key of the [downloadCounts] of an address.
func totalKey(path string) Key { return Key{totals, path} }

// tokenUseKey returns the key of the [tokenUse] of the token with an ID.
func tokenUseKey(id string) Key { return Key{tokenUses, id} }

// countingKey is the key of the item [counting].
var countingKey = Key{usagePrefix + "counting", "since"}

// inspectionSlots is the partition of the leases of [Catalog.TakeInspectionSlot].
// The function that publishes may write it.
const inspectionSlots = "uploads/slots"

// mirrorKey returns the key of the item of a mirrored provider. It exists also for a
// provider of which no version is mirrored.
func mirrorKey(p registry.MirrorAddress) Key { return Key{providersPartition, p.String()} }

// pulledVersionKey returns the key of the [registry.PulledVersion] of a version,
// a [protocol.Document].
func pulledVersionKey(p registry.MirrorAddress, n registry.Version) Key {
	return Key{p.Path(), "pulled/" + n.String()}
}

// originServiceKey returns the key of the [OriginService] of a host, for the modules
// or the providers that it has.
func originServiceKey(a registry.MirrorAddress, host string) Key {
	if a.IsModule() {
		host += "/modules"
	}
	return Key{originsPartition, host}
}

// budgetKey returns the key of the [registry.PullBudget] that was spent on a day.
func budgetKey(day time.Time) Key { return Key{budgetPartition, day.Format(time.DateOnly)} }

// policyKey is the key of the [registry.MirrorPolicy]. It is in a partition of its
// own, so that functions that write mirrored versions cannot change it.
var policyKey = Key{"policy", "mirror"}

// policySubject is the subject of audit entries about the policy.
const policySubject = "policy/mirror"

// uploadKey returns the key of a [registry.Upload].
func uploadKey(id string) Key { return Key{"uploads/" + id, "upload"} }

// openKey returns the key of the open uploads of an identity. It has a hash of
// the identity's name, which can be too long for a key.
func openKey(owner string) Key {
	sum := sha256.Sum256([]byte(owner))
	return Key{"uploads/of/" + hex.EncodeToString(sum[:]), "open"}
}

// The audit trail has a partition for each month. It has a
// [registry.AuditEntry] for each change, in the order of time, which timestamps
// of a fixed length preserve. A random suffix separates changes of the same
// instant, so that writers never conflict.
const (
	auditMonth = "2006-01"
	auditTime  = "2006-01-02T15:04:05.000000000Z"
)

func auditPartition(month time.Time) string { return "audit/" + month.Format(auditMonth) }

func newAuditKey(at time.Time) Key {
	return Key{auditPartition(at), at.Format(auditTime) + "#" + rand.Text()}
}
