package registry

import (
	"strings"
	"time"

	regaddr "github.com/opentofu/registry-address/v2"
)

// Module is the address of a module within this registry: NAMESPACE/NAME/SYSTEM, its case kept as it was written.
type Module struct {
	Namespace string
	Name      string
	System    string
}

// ParseModule reads NAMESPACE/NAME/SYSTEM. It accepts what OpenTofu's own parser accepts for these three parts; a
// hostname or a //subdirectory is an error, since neither is part of what a registry stores. Errors are ErrInvalid.
func ParseModule(s string) (Module, error) {
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

// Path returns modules/NAMESPACE/NAME/SYSTEM: the module's partition in the table, the prefix of its objects, and what
// scopes name.
func (m Module) Path() string { return "modules/" + m.String() }

// ArchiveKey returns the object key of an archive of this module. It names the content, so that a key never means two
// things; it ends in .tar.gz because go-getter finds the archive type by the path's ending.
func (m Module) ArchiveKey(v Version, sha256 string) string {
	return m.Path() + "/" + v.String() + "/" + sha256 + ".tar.gz"
}

// ModuleVersion is the record of one published version of a module.
type ModuleVersion struct {
	Version Version `json:"version"`
	// Object is the key of the archive in the object store.
	Object string `json:"object,omitzero"`
	// SHA256 is that of the archive as stored, in lower-case hexadecimal; clients verify it.
	SHA256 string `json:"sha256,omitzero"`
	// ContentSHA256 is that of the uncompressed tar. Two archives are the same content when it is equal, whatever
	// release of a compressor wrote them.
	ContentSHA256 string `json:"content_sha256,omitzero"`
	// Size is that of the archive in bytes.
	Size        int64     `json:"size,omitzero"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	PublishedBy Publisher `json:"published_by,omitzero"`
	Description string    `json:"description,omitempty"`
	// Deprecated says why it should not be used any more; empty if it may be.
	Deprecated string `json:"deprecated,omitempty"`
	// Hidden says that it is not listed, so that no client finds it.
	Hidden bool `json:"hidden,omitempty"`
	// Withdrawn says that it was taken out of the registry for good. The record has nothing else then but the version.
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`
}
