package registry

import "time"

// AuditEntry records a change of the registry.
type AuditEntry struct {
	At time.Time `json:"at"`
	// By is the identity that made the change. It is the ARN of AWS
	// credentials, a user of the machine, or the name of a token or an OIDC
	// identity.
	By     string      `json:"by"`
	Action AuditAction `json:"action"`
	// Subject is the thing that changed, in one of these forms:
	//
	//	modules/NAMESPACE/NAME/SYSTEM
	//	providers/NAMESPACE/TYPE
	//	mirror/HOSTNAME/NAMESPACE/TYPE
	//	mirror-modules/HOSTNAME/NAMESPACE/NAME/SYSTEM
	//	keys/NAMESPACE/ID
	//	tokens/ID
	//	policy/mirror
	Subject string `json:"subject"`
	// Version is the version that was changed. It is missing if all versions or
	// none were changed.
	Version *Version `json:"version,omitempty"`
	// Detail has details of the change, such as platforms, a message or a reason.
	// Other examples are the digest of documentation or of a policy, and the owner
	// of a key. It also has the other registry of a copy, and the name and the
	// scopes of a token.
	Detail string `json:"detail,omitempty"`
	// AllowedSecrets are the paths of files and folders of a published module in
	// which the publisher allowed secrets.
	AllowedSecrets []string `json:"allowed_secrets,omitempty"`
	// Problem is why the entry cannot be trusted. It is empty if the entry is
	// as it was written, and is never stored. If the time of the entry is
	// unknown, At is the zero time.
	Problem string `json:"problem,omitempty"`
}

// AuditAction is the kind of a change.
type AuditAction string

// The actions.
const (
	AuditPublish     AuditAction = "publish"
	AuditMirror      AuditAction = "mirror"
	AuditDeprecate   AuditAction = "deprecate"
	AuditHide        AuditAction = "hide" // also deprecates
	AuditUndeprecate AuditAction = "undeprecate"
	AuditDocument    AuditAction = "document" // sets the documentation after the publish
	AuditCopy        AuditAction = "copy"     // of a version to another registry
	AuditWithdraw    AuditAction = "withdraw"
	AuditAddKey      AuditAction = "add-key"
	AuditReplaceKey  AuditAction = "replace-key"
	AuditRemoveKey   AuditAction = "remove-key"
	AuditCreateToken AuditAction = "create-token"
	AuditRevokeToken AuditAction = "revoke-token"
	AuditRotateToken AuditAction = "rotate-token" // of the old one
	AuditSetPolicy   AuditAction = "set-policy"   // of the mirror
	AuditAdmit       AuditAction = "admit"        // a version that is too new
	AuditOverrule    AuditAction = "overrule"     // the policy, for a version
	AuditRefuseKey   AuditAction = "refuse-key"   // of an origin
	AuditTrustKey    AuditAction = "trust-key"    // of an origin
	// AuditRefuseContent means that the origin has changed a version of a module.
	AuditRefuseContent AuditAction = "refuse-content"
	// AuditAcceptLoss names missing entries of the audit trail in its detail.
	AuditAcceptLoss AuditAction = "accept-loss"
)

// AuditedSums is a word in the details of [AuditMirror], beside platforms. It means
// that the version got a SHA256SUMS of its origin.
const AuditedSums = "SHA256SUMS"
