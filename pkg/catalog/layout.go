package catalog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// SchemaVersion is the version of what the items hold, which is stored with each
// of them. A release raises it if releases before it would misread an item. A
// field that they may ignore does not raise it.
const SchemaVersion = 1

// schemaKey is where a registry's own schema version is: that of this item, which
// holds nothing else. The first change of a registry writes it. A change reads it
// in the snapshot of what it depends on, and the command line reads it first, so
// that a release adds nothing to a registry that it cannot read. A release that
// raises SchemaVersion writes this item before it writes any other.
//
// It is in the catalog of no namespace, because every role that writes may read and
// write catalogs.
var schemaKey = Key{catalogPartition(""), "schema"}

// CheckSchema returns registry.ErrSchema for an item that another release has
// written in a way that this one does not read; 0 means that the item has no
// version.
func CheckSchema(k Key, version int64) error {
	what := "item " + k.Shown()
	if k == schemaKey {
		what = "the registry"
	}
	switch {
	case version == SchemaVersion:
		return nil
	case version > SchemaVersion:
		return fmt.Errorf("%s has schema version %d, and this release of Larder reads version %d: "+
			"use a newer release: %w", what, version, SchemaVersion, registry.ErrSchema)
	}
	return fmt.Errorf("%s was written before the first release of Larder, which does not read it: "+
		"publish again to a new registry: %w", what, registry.ErrSchema)
}

// Where everything is. The partition of an address is its path, such as
// modules/acme/vpc/aws.

// recordKey returns where the record of a version is, a registry.Record. Versions
// that differ in build metadata alone share it, because clients take either of
// them for the other: whatever is stored there has taken the number.
func recordKey(path string, n registry.Version) Key {
	n.Metadata = ""
	return Key{path, recordPrefix + n.String()}
}

// recordPrefix is what the sort keys of records begin with.
const recordPrefix = "version/"

// listingKey returns where the listing of an address is: a protocol.Document,
// which is empty if no version is listed.
func listingKey(path string) Key { return Key{path, "listing"} }

// entryKey returns where the entry of an address is, a registry.Summary: in a
// catalog, which is that of a namespace, or mirrorCatalog.
func entryKey(catalog, path string) Key { return Key{catalogPartition(catalog), path} }

func catalogPartition(catalog string) string { return "catalog/" + catalog }

// mirrorCatalog has the entries of all mirrored providers. No namespace's catalog
// has entries of that kind.
const mirrorCatalog = "mirror"

// namespaceKey returns the item that says that a namespace exists.
func namespaceKey(namespace string) Key { return Key{namespaces, namespace} }

const namespaces = "namespaces"

// signingKey returns where a key of a namespace is, a registry.SigningKey.
func signingKey(namespace, id string) Key { return Key{keysPartition(namespace), id} }

func keysPartition(namespace string) string { return "keys/" + namespace }

// tokenKey returns where the token of a digest is, a registry.Token.
func tokenKey(digest string) Key { return Key{tokens, digest} }

// tokensKey is an item that every new token changes, so that no two of one name are
// made at once. It is beside schemaKey for the reason that is given there.
var tokensKey = Key{catalogPartition(""), "tokens"}

// uploadKey returns where an upload is, a registry.Upload.
func uploadKey(id string) Key { return Key{uploadPartition(id), "upload"} }

func uploadPartition(id string) string { return "uploads/" + id }

// inspectionKey returns where what is known of a file of an upload is, a
// registry.Inspection.
func inspectionKey(id string, file int) Key {
	return Key{uploadPartition(id), "file/" + strconv.Itoa(file)}
}

// openKey returns where the uploads of an identity that are under way are. The
// name of an identity may be too long for a key.
func openKey(owner string) Key {
	sum := sha256.Sum256([]byte(owner))
	return Key{"uploads/of/" + hex.EncodeToString(sum[:]), "open"}
}

// The audit trail has a partition for each month, and in it a registry.AuditEntry
// for each change, in the order of time. Digits of a fixed number keep that order.
// What follows them tells changes of the same instant apart, so that writers never
// conflict.
const (
	auditMonth = "2006-01"
	auditTime  = "2006-01-02T15:04:05.000000000Z"
)

func auditPartition(month time.Time) string { return "audit/" + month.Format(auditMonth) }

func newAuditKey(at time.Time) Key {
	return Key{auditPartition(at), at.Format(auditTime) + "#" + rand.Text()}
}
