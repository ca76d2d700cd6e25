package protocol

import (
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// PublishService is the identifier under which discovery lists the publish API,
// and PublishPath its value there. OpenTofu and Terraform do not look for it.
const (
	PublishService = "larder-publish.v1"
	PublishPath    = "/v1/publish/"
)

// The documents of the publish API, as JSON. Below PublishPath are modules/NAMESPACE/NAME/SYSTEM and providers/NAMESPACE/TYPE, and
// below these:
//
//	POST   VERSION/uploads                       Announcement -> Begun, 201; 200 where the same content is published
//	POST   VERSION/uploads/ID/files/N/inspect    -> Inspected, 200; 202 while another request inspects it
//	POST   VERSION/uploads/ID/commit             -> Published, 200
//	DELETE VERSION/uploads/ID                    -> 204
//	PUT    deprecation, VERSION/deprecation      Deprecation -> 204
//
// All of them can be sent again; a second begin of the same goes on with the first. VERSION is without the v of a tag.
// DELETE gives an upload up, but for a commit that is under way, which may still publish it.
//
// 409 says that other content is published, or, with Retry-After, that something is missing as yet: a file that is not
// uploaded or not inspected. 404 says that there is no such upload of the caller's, 503 that asking again later is right,
// 507 that the registry's disk is full, and 400 and 403 say why in the error's text.
// The code "corrupt", with 500, means that stored files are damaged or missing.
// "issuer", with 503, means that the registry cannot use the issuer of the
// caller's identity. Asking again helps with neither. "withdrawn", with 409, means
// that the version was removed permanently. A "hint" beside the text says what to
// do.
type (
	// Announcement is what is to be published.
	Announcement struct {
		// Files are a module's one archive, NAME.tar.gz, or a provider's zips, SHA256SUMS, its signature and the manifest, by
		// the names that a release has.
		Files []File `json:"files"`
		// ContentSHA256 is that of a module's files, for an archive of the same files that was packed otherwise. It is
		// believed no more than for saying that there is nothing to do.
		ContentSHA256 string `json:"content_sha256,omitempty"`
		// Description is a module's, one line.
		Description string `json:"description,omitempty"`
		// Protocols are a provider's. Where there is a manifest they must be those that it names.
		Protocols []string `json:"protocols,omitempty"`
	}
	// File is one of them.
	File struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	// Begun is an upload, or what is published already.
	Begun struct {
		Upload    string    `json:"upload,omitempty"`
		ExpiresAt time.Time `json:"expires_at,omitzero"`
		// Files are where to put those that were announced, in their order.
		Files []Put `json:"files,omitempty"`
		// Published is set where there is nothing to do.
		Published *Published `json:"published,omitempty"`
	}
	// Put is one PUT request: of exactly these bytes, with exactly these headers, for a limited time, once.
	Put struct {
		Name   string            `json:"name"`
		URL    string            `json:"url,omitempty"`
		Header map[string]string `json:"header,omitempty"`
		// Stored says that the file is there already.
		Stored bool `json:"stored,omitempty"`
	}
	// Inspected says how far the inspection of a file is.
	Inspected struct {
		// Passed is false while it goes on.
		Passed bool `json:"passed"`
	}
	// Published is what is visible then: a module's record or a provider's.
	Published struct {
		Module   *registry.ModuleVersion   `json:"module,omitempty"`
		Provider *registry.ProviderVersion `json:"provider,omitempty"`
		// Unchanged says that the same content was published before.
		Unchanged bool `json:"unchanged,omitempty"`
		// NotCompared says that stored files of an unchanged version were not compared
		// with its record. The publish API on AWS cannot read what was published with
		// AWS credentials.
		NotCompared bool `json:"not_compared,omitempty"`
		// Dropped are platforms that a provider's version before has, and this one
		// has not.
		Dropped *DroppedPlatforms `json:"dropped_platforms,omitempty"`
	}
	// Deprecation says why something should not be used any more; an empty message takes that back.
	Deprecation struct {
		Message string `json:"message"`
		// Hide takes a module's version out of the listing too.
		Hide bool `json:"hide,omitempty"`
	}
)
