package protocol

import "time"

// PullAction is the action of a [PullRequest].
type PullAction string

// The actions.
const (
	// PullIndex checks the versions of a provider at its origin, if the last check
	// is too old.
	PullIndex PullAction = "index"
	// PullVersion finds out whether and where a version can be fetched.
	PullVersion PullAction = "version"
	// PullCopy copies the packages of a version into the mirror.
	PullCopy PullAction = "copy"
	// PullNightly checks all providers that clients requested in the last 30 days.
	PullNightly PullAction = "nightly"
)

// PullRequest is a request to the worker. The worker stores its results, so that
// everyone finds them in the catalog.
type PullRequest struct {
	Action PullAction `json:"action"`
	// Address is HOSTNAME/NAMESPACE/TYPE. Only PullNightly has none.
	Address string `json:"address,omitempty"`
	// Version is that of PullVersion and PullCopy.
	Version string `json:"version,omitempty"`
	// Deadline is when the caller stops waiting for PullIndex and PullVersion.
	Deadline time.Time `json:"deadline,omitzero"`
	// PolicySetAt is the time of the policy that the caller has. A worker with an
	// earlier one reads it again.
	PolicySetAt time.Time `json:"policy_set_at,omitzero"`
	// Caller distinguishes callers, so that each gets only a share of the work. It is
	// not a name. Callers without a credential have none.
	Caller string `json:"caller,omitempty"`
}

// PullResponse is the response to a [PullRequest].
type PullResponse struct {
	// If Copy is true, the caller must start a PullCopy of the same version
	// without waiting for it.
	Copy bool `json:"copy,omitempty"`
}
