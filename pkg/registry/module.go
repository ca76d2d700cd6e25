package registry

import (
	"fmt"
	"strings"
	"time"

	regaddr "github.com/opentofu/registry-address/v2"
)

// Module is the address of a module in this registry: NAMESPACE/NAME/SYSTEM. It
// preserves case.
type Module struct {
	Namespace string
	Name      string
	System    string
}

// ParseModule parses NAMESPACE/NAME/SYSTEM. It accepts the same parts as
// OpenTofu's own parser. It rejects a hostname and a //subdirectory, which are
// not part of what a registry stores. Errors are [ErrInvalid].
func ParseModule(s string) (Module, error) { return parsedModules.get(s, parseModule) }

var parsedModules parsed[Module]

func parseModule(s string) (Module, error) {
	if strings.Count(s, "/") != 2 {
		form := moduleForm
		if strings.Count(s, "/") > 2 {
			form += ", without a hostname or a subdirectory"
		}
		return Module{}, invalidAddress(s, form)
	}
	source, err := regaddr.ParseModuleSource(s)
	if err != nil {
		return Module{}, invalidAddress(s, moduleForm, moduleParts(s)...)
	}
	p := source.Package
	return Module{Namespace: p.Namespace, Name: p.Name, System: p.TargetSystem}, nil
}

// String returns NAMESPACE/NAME/SYSTEM.
func (m Module) String() string { return m.Namespace + "/" + m.Name + "/" + m.System }

// Path returns modules/NAMESPACE/NAME/SYSTEM. It is the module's partition in
// the table, the prefix of its objects, and its name in scopes.
func (m Module) Path() string { return "modules/" + m.String() }

// ArchiveKey returns the object key of an archive of the module. The key
// contains the digest, so that it never refers to two different contents. It
// ends in .tar.gz because go-getter derives the type of an archive from the
// path.
func (m Module) ArchiveKey(v Version, sha256 string) string {
	return m.Path() + "/" + v.String() + "/" + sha256 + ".tar.gz"
}

// The names of the files that are made from the archive of a module version.
const (
	DocsName  = "docs.json.gz"
	FilesName = "files.zip"
)

// Documents are the files that are made from the archive of a module version.
// Each is missing if it could not be made, or if an old release published the
// version.
type Documents struct {
	// Docs is the stored file with the documentation, JSON compressed with
	// gzip.
	Docs *StoredFile `json:"docs,omitempty"`
	// FilesZip is the stored file with the files that people may want to read.
	FilesZip *StoredFile `json:"files,omitempty"`
	// Changes are counted when the documentation is made. They are missing if
	// there was no version before, or if one of both had no documentation.
	Changes *Changes `json:"changes,omitempty"`
}

// Changes counts what changed in a module since another version.
type Changes struct {
	Since Version `json:"since"`
	// Breaking counts the changes that can break a configuration. The others are
	// counted as added, removed or changed.
	Breaking int `json:"breaking,omitempty"`
	Added    int `json:"added,omitempty"`
	Removed  int `json:"removed,omitempty"`
	Changed  int `json:"changed,omitempty"`
}

// String returns the counts, such as "2 breaking, 3 added".
func (c Changes) String() string {
	var counts []string
	for _, one := range []struct {
		n    int
		what string
	}{{c.Breaking, "breaking"}, {c.Added, "added"}, {c.Removed, "removed"}, {c.Changed, "changed"}} {
		if one.n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	if len(counts) == 0 {
		return "no changes found"
	}
	return strings.Join(counts, ", ")
}

// Stored returns the files that are not missing.
func (d Documents) Stored() (files []StoredFile) {
	for _, f := range []*StoredFile{d.Docs, d.FilesZip} {
		if f != nil {
			files = append(files, *f)
		}
	}
	return files
}

// DocumentKey returns the object key of a file of [Documents] with a name. The
// key contains the digest, so that it never refers to two different contents.
func (m Module) DocumentKey(v Version, sha256, name string) string {
	return m.Path() + "/" + v.String() + "/" + sha256 + "/" + name
}

// ModuleVersion is the record of one published version of a module.
type ModuleVersion struct {
	Version Version `json:"version"`
	// Object is the key of the archive in the object store.
	Object string `json:"object,omitzero"`
	// SHA256 is the digest of the stored archive in lower-case hexadecimal.
	// Clients verify it.
	SHA256 string `json:"sha256,omitzero"`
	// ContentSHA256 is the digest of the uncompressed tar. If it is equal for
	// two archives, they have the same content, whichever compressor made them.
	ContentSHA256 string `json:"content_sha256,omitzero"`
	// Size is the size of the archive in bytes.
	Size        int64     `json:"size,omitzero"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	PublishedBy Publisher `json:"published_by,omitzero"`
	// Claimed is the Git source, as the publisher states it. It is missing if
	// the module was not in Git, or if the identity of the publisher proves it.
	Claimed     *ClaimedSource `json:"claimed,omitempty"`
	Description string         `json:"description,omitempty"`
	Documents
	// Contents are the [Contents] of the version, as JSON compressed with gzip.
	Contents []byte `json:"contents,omitempty"`
	// Deprecated is the reason for a deprecation. It is empty if the version is
	// not deprecated.
	Deprecated string `json:"deprecated,omitempty"`
	// Hidden means that the version is not listed, so that clients do not find
	// it.
	Hidden bool `json:"hidden,omitempty"`
	// CopiedFrom is set if the version was copied from another registry.
	CopiedFrom *CopiedFrom `json:"copied_from,omitempty"`
	// AllowedSecrets are the paths of files and folders in which the publisher
	// allowed secrets. They are for the audit trail only, and not stored in the
	// record.
	AllowedSecrets []string `json:"-"`
	// CopiedTo are the addresses of copies of the version in other registries,
	// with their hosts. It has the last [MaxCopies].
	CopiedTo []string `json:"copied_to,omitempty"`
	// Notes are what a copied version has, and a new version must not have.
	Notes []string `json:"notes,omitempty"`
	// Withdrawn is set if the version was withdrawn. The record then has only
	// the version and this field.
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`
}
