package registry

import (
	"slices"
	"time"
)

// Upload is a publish in progress through the publish API, with the inspections
// of its files.
type Upload struct {
	ID string `json:"id"`
	// Path is the address to publish to: modules/NAMESPACE/NAME/SYSTEM or
	// providers/NAMESPACE/TYPE.
	Path    string  `json:"path"`
	Version Version `json:"version"`
	// Owner is the identity that began the upload. Only the owner can continue
	// it.
	Owner string `json:"owner"`
	// Description is for a module. Protocols are for a provider.
	Description string   `json:"description,omitempty"`
	Protocols   []string `json:"protocols,omitempty"`
	// CopiedFrom is set for a copy from another registry.
	CopiedFrom *CopiedFrom `json:"copied_from,omitempty"`
	// Claimed is the Git source of a module, as the publisher states it.
	Claimed *ClaimedSource `json:"claimed,omitempty"`
	// AllowSecrets are the paths in a module that may have secrets.
	AllowSecrets []string `json:"allow_secrets,omitempty"`
	// Sums is the SHA256SUMS of a provider, and Signature is its signature.
	Sums      string       `json:"sums,omitempty"`
	Signature []byte       `json:"signature,omitempty"`
	Files     []UploadFile `json:"files"`
	CreatedAt time.Time    `json:"created_at"`
	ExpiresAt time.Time    `json:"expires_at"`
	// Claims is how many requests have begun to inspect the files. ClaimedUntil
	// is until when the last one may do so, unless it renews its claim. It is
	// zero if that request has ended.
	Claims       int       `json:"claims,omitempty"`
	ClaimedUntil time.Time `json:"claimed_until,omitzero"`
	// Ended is empty, [UploadCommitted] or [UploadAborted].
	Ended string `json:"ended,omitempty"`
}

// Pending returns the first file without a result of its inspection. It returns
// -1 if all files have passed, or if one was rejected.
func (u *Upload) Pending() int {
	if u.Refused() >= 0 {
		return -1
	}
	return slices.IndexFunc(u.Files, func(f UploadFile) bool { return f.State == "" })
}

// Refused returns the first file that was rejected, or -1.
func (u *Upload) Refused() int {
	return slices.IndexFunc(u.Files, func(f UploadFile) bool { return f.State == InspectionRefused })
}

// End records how an upload has ended. It drops the texts of the publisher,
// because the item remains for some time even if the version is withdrawn.
func (u *Upload) End(how string) {
	u.Ended, u.Description, u.CopiedFrom, u.Claimed, u.AllowSecrets, u.Signature = how, "", nil, nil, nil, nil
	for i := range u.Files {
		u.Files[i].Notes = nil
	}
}

// The ways in which an upload can end.
const (
	UploadCommitted = "committed"
	UploadAborted   = "aborted"
)

// UploadFile is an announced file of an upload, with its place in the object
// store and its inspection.
type UploadFile struct {
	StoredFile
	Name string `json:"name"`
	Inspection
}

// Inspection is the result of inspecting an uploaded file.
type Inspection struct {
	// State is empty, [InspectionPassed] or [InspectionRefused]. A rejected file
	// stays rejected, since its bytes do not change.
	State string `json:"state,omitempty"`
	// Attempts counts the inspections that started without recording a result.
	// Those that were given up do not count.
	Attempts int `json:"attempts,omitempty"`
	// Problem is why the file was rejected. Hint is what to do about it, and
	// can be empty.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`

	// ContentSHA256 is for a module. H1 is for the package of a provider.
	ContentSHA256 string `json:"content_sha256,omitempty"`
	// Documents are those of a module. There are no words, because this item
	// remains for some time after the version is withdrawn. DocsNotes describe
	// why there is no documentation.
	Documents
	DocsNotes []string `json:"docs_notes,omitempty"`
	H1        string   `json:"h1,omitempty"`
	// Notes are the notes of the version about the file.
	Notes []string `json:"notes,omitempty"`
}

// The results of an inspection.
const (
	InspectionPassed  = "passed"
	InspectionRefused = "refused"
)

// UploadKey returns the object key of a file that is published through the
// publish API. The files of operators have keys without the api segment, so
// that the role of the publish API cannot access them.
func UploadKey(path string, v Version, sha256, filename string) string {
	return UploadPrefix(path, v) + sha256 + "/" + filename
}

// UploadPrefix returns the beginning of the keys of [UploadKey] for a version.
func UploadPrefix(path string, v Version) string { return path + "/" + v.String() + "/api/" }
