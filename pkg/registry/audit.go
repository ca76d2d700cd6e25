package registry

import "time"

// AuditEntry says who has changed what of the registry, and when.
type AuditEntry struct {
	At time.Time `json:"at"`
	// By is the one that the change was made as: the ARN of AWS credentials, a user of the machine, or the name of a
	// token or of an identity.
	By     string      `json:"by"`
	Action AuditAction `json:"action"`
	// Subject is what was changed: modules/NAMESPACE/NAME/SYSTEM, providers/NAMESPACE/TYPE, mirror/HOSTNAME/NAMESPACE/TYPE,
	// keys/NAMESPACE/ID or tokens/ID.
	Subject string `json:"subject"`
	// Version is the one that was changed, and nil where it was all of them, or none.
	Version *Version `json:"version,omitempty"`
	// Detail is what else there is to say: platforms, a message, a key's owner, a token's name and scopes.
	Detail string `json:"detail,omitempty"`
	// Problem says why the entry cannot be relied on, and is empty of one that is as it was written. At is the zero time where
	// nothing says when that was. No entry is stored with it.
	Problem string `json:"problem,omitempty"`
}

// AuditAction is what was done.
type AuditAction string

// All that is recorded.
const (
	AuditPublish     AuditAction = "publish"
	AuditMirror      AuditAction = "mirror"
	AuditDeprecate   AuditAction = "deprecate"
	AuditHide        AuditAction = "hide" // and deprecate
	AuditUndeprecate AuditAction = "undeprecate"
	AuditWithdraw    AuditAction = "withdraw"
	AuditAddKey      AuditAction = "add-key"
	AuditReplaceKey  AuditAction = "replace-key"
	AuditRemoveKey   AuditAction = "remove-key"
	AuditCreateToken AuditAction = "create-token"
	AuditRevokeToken AuditAction = "revoke-token"
	// AuditAcceptLoss names in its detail entries that the trail has lost.
	AuditAcceptLoss AuditAction = "accept-loss"
)
