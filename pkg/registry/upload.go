package registry

import "time"

// Upload is a publish under way through the registry's own endpoint.
type Upload struct {
	ID string `json:"id"`
	// Path is what is published: modules/NAMESPACE/NAME/SYSTEM or providers/NAMESPACE/TYPE.
	Path    string  `json:"path"`
	Version Version `json:"version"`
	// Owner is who began it, and alone may go on with it.
	Owner string `json:"owner"`
	// Description is a module's, Protocols a provider's.
	Description string       `json:"description,omitempty"`
	Protocols   []string     `json:"protocols,omitempty"`
	Files       []UploadFile `json:"files"`
	CreatedAt   time.Time    `json:"created_at"`
	ExpiresAt   time.Time    `json:"expires_at"`
	// Ended is empty, UploadCommitted or UploadAborted.
	Ended string `json:"ended,omitempty"`
}

// How an upload can have ended.
const (
	UploadCommitted = "committed"
	UploadAborted   = "aborted"
)

// UploadFile is a file of an upload: what was announced, and where it goes.
type UploadFile struct {
	StoredFile
	Name string `json:"name"`
}

// Inspection is what the registry found out about a stored file of an upload, by reading it.
type Inspection struct {
	// State is empty, InspectionRunning, InspectionPassed or InspectionRefused.
	State string `json:"state,omitempty"`
	// Until is when a running one is given up, unless it says that it goes on.
	Until time.Time `json:"until,omitzero"`
	// Attempts is how many inspections have started without leaving a result.
	// Those that were given up do not count.
	Attempts int `json:"attempts,omitempty"`
	// Problem is why the file is refused, and Hint what to do about it. Hint can be
	// empty.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`

	// ContentSHA256 is a module's, H1 a provider package's.
	ContentSHA256 string `json:"content_sha256,omitempty"`
	H1            string `json:"h1,omitempty"`
	// Sums are the lines of a SHA256SUMS, SHA256 by file name.
	Sums map[string]string `json:"sums,omitempty"`
	// Protocols are those that a manifest names.
	Protocols []string `json:"protocols,omitempty"`
}

// States of an inspection. A refused file stays refused, as its bytes do not change; whether a signature holds depends on
// more than these, and is found out anew each time.
const (
	InspectionRunning = "running"
	InspectionPassed  = "passed"
	InspectionRefused = "refused"
)

// UploadKey returns the object key of a file that is published through the
// publish API. An operator's files have keys without the api segment, so that the
// role of the publish API cannot reach them.
func UploadKey(path string, v Version, sha256, filename string) string {
	return path + "/" + v.String() + "/api/" + sha256 + "/" + filename
}
