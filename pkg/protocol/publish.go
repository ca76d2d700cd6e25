package protocol

import (
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// PublishService is the identifier of the publish API in service discovery, and
// PublishPath is its value there. OpenTofu and Terraform do not look for it.
const (
	PublishService = "larder-publish.v1"
	PublishPath    = "/v1/publish/"
)

// The JSON documents of the publish API. Its paths begin with PublishPath,
// followed by modules/NAMESPACE/NAME/SYSTEM or providers/NAMESPACE/TYPE,
// followed by:
//
//	POST   VERSION/uploads                       Announcement -> Begun, 201; 200 if the same content is published
//	POST   VERSION/uploads/ID/inspect            -> Inspected, 200; 202 if files are left, or another request inspects them
//	POST   VERSION/uploads/ID/commit             -> Published, 200
//	DELETE VERSION/uploads/ID                    -> 204
//	PUT    deprecation, VERSION/deprecation      Deprecation -> 204
//	PUT    VERSION/copies                        Copy -> 204
//
// VERSION has no leading v. Every request can be repeated. Beginning an upload
// of the same content again continues the first one. DELETE abandons an upload,
// but a commit in progress may still publish it.
//
// Errors have these statuses, and their text has the reason:
//
//	400, 403  the request is invalid or denied
//	404       the caller has no such upload
//	409       other content is published, or, with Retry-After, a file is not uploaded or inspected yet
//	503       retry later
//	507       the registry's disk is full
//
// These codes have a meaning of their own:
//
//	corrupt, 500    stored files are damaged or missing; retrying does not help
//	issuer, 503     the registry cannot use the issuer of the caller's identity; retrying does not help
//	withdrawn, 409  the version was permanently removed
//
// If there is a "hint" beside the text, it describes what to do.
type (
	// Announcement describes the content to publish.
	Announcement struct {
		// Files are the archive NAME.tar.gz of a module, or the zips of a
		// provider with the names of the release.
		Files []File `json:"files"`
		// Sums is the SHA256SUMS of a provider. Signature is its signature, and
		// Manifest is the manifest, if there is one.
		Sums      []byte `json:"sums,omitempty"`
		Signature []byte `json:"signature,omitempty"`
		Manifest  []byte `json:"manifest,omitempty"`
		// ContentSHA256 is the digest of a module's files. It identifies an
		// archive of the same files that was packed differently. It is only
		// trusted to report that there is nothing to do.
		ContentSHA256 string `json:"content_sha256,omitempty"`
		// Description is the one-line description of a module.
		Description string `json:"description,omitempty"`
		// Protocols are the protocols of a provider. If there is a manifest,
		// they must be those in it.
		Protocols []string `json:"protocols,omitempty"`
		// CopiedFrom is set for a copy of a version of another registry. A copied
		// provider can lack the manifest that its SHA256SUMS lists.
		CopiedFrom *registry.CopiedFrom `json:"copied_from,omitempty"`
		// Claimed is the Git source of a module that is not a copy. Nothing
		// verifies it. The record has it if it adds something to the identity
		// of the caller.
		Claimed *registry.ClaimedSource `json:"claimed,omitempty"`
		// AllowSecrets are the paths of files and folders of a module that may have
		// secrets. Without them, the registry rejects a module with a well-known
		// secret, unless it is a copy.
		AllowSecrets []string `json:"allow_secrets,omitempty"`
		// AllowPlatforms are platforms of a provider, such as linux_amd64, that the
		// registry does not know from clients. Without them, it rejects such a
		// platform, unless the version is a copy.
		AllowPlatforms []string `json:"allow_platforms,omitempty"`
	}
	// File is one file of an [Announcement].
	File struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	// Begun is an upload, or the version that is already published.
	Begun struct {
		Upload    string    `json:"upload,omitempty"`
		ExpiresAt time.Time `json:"expires_at,omitzero"`
		// Files are the requests for the announced files, in the same order.
		Files []Put `json:"files,omitempty"`
		// Published is set if there is nothing to do.
		Published *Published `json:"published,omitempty"`
		// Newcomer is set if the publish creates a namespace, or an address that
		// looks like an existing one. It is not set for a copy.
		Newcomer *Newcomer `json:"newcomer,omitempty"`
	}
	// Newcomer is a namespace or an address that a publish creates. It has either
	// NewNamespace or NewAddress.
	Newcomer struct {
		// NewNamespace is the name of the new namespace.
		NewNamespace string `json:"new_namespace,omitempty"`
		// NewAddress is the new address in an existing namespace.
		NewAddress string `json:"new_address,omitempty"`
		// Near exists already. It is a namespace that differs from NewNamespace only
		// in case or by one character. Or it is an address that differs from
		// NewAddress only in case. The publish API names only what the caller may
		// read or publish.
		Near string `json:"near,omitempty"`
	}
	// Put is one PUT request. It must have exactly these headers and the
	// announced bytes. It is valid for a limited time, once.
	Put struct {
		Name   string            `json:"name"`
		URL    string            `json:"url,omitempty"`
		Header map[string]string `json:"header,omitempty"`
		// Stored means that the file is already stored. Only an upload that
		// continues reports that. Otherwise the PUT of a stored file returns 412.
		Stored bool `json:"stored,omitempty"`
	}
	// Inspected is the state of the inspection of an upload.
	Inspected struct {
		// Passed reports whether all files have passed. Files is how many have.
		Passed bool `json:"passed"`
		Files  int  `json:"files"`
	}
	// Published is the record of the published module or provider.
	Published struct {
		Module   *registry.ModuleVersion   `json:"module,omitempty"`
		Provider *registry.ProviderVersion `json:"provider,omitempty"`
		// Unchanged means that the same content was published before.
		Unchanged bool `json:"unchanged,omitempty"`
		// NotCompared means that the stored files of an unchanged version were
		// not compared with its record. The publish API on AWS cannot read
		// versions that were published with AWS credentials.
		NotCompared bool `json:"not_compared,omitempty"`
		// Dropped are the platforms of the previous version of a provider that
		// this version lacks.
		Dropped *DroppedPlatforms `json:"dropped_platforms,omitempty"`
		// Notes describe what is missing in the documentation of a module.
		Notes []string `json:"notes,omitempty"`
	}
	// Deprecation has the reason for a deprecation. An empty message ends it.
	Deprecation struct {
		Message string `json:"message"`
		// Hide also removes a version of a module from the listing.
		Hide bool `json:"hide,omitempty"`
	}
	// Copy records that a version was copied to another registry.
	Copy struct {
		// Target is the address there, HOST/NAMESPACE/NAME/SYSTEM or
		// HOST/NAMESPACE/TYPE.
		Target string `json:"target"`
	}
)

// String describes what is new, for people.
func (n Newcomer) String() string {
	text := n.NewAddress + " is new"
	if n.NewNamespace != "" {
		text = n.NewNamespace + " is a new namespace"
	}
	if n.Near != "" {
		text += "; " + n.Near + " exists"
	}
	return text
}
