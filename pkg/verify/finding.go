package verify

import (
	"cmp"
	"slices"
)

// Kind is what is wrong.
type Kind string

// The kinds of findings.
const (
	VersionWithoutRecord Kind = "version-without-record"
	VersionWithoutObject Kind = "version-without-object"
	ObjectWithoutVersion Kind = "object-without-version"
	WithdrawnObject      Kind = "object-of-withdrawn-version"
	Size                 Kind = "size"
	SHA256               Kind = "sha256"
	H1                   Kind = "h1"
	Content              Kind = "content"
	Sums                 Kind = "sums"
	Signature            Kind = "signature"
	Listing              Kind = "listing"
	CatalogEntry         Kind = "catalog-entry"
	Namespace            Kind = "namespace"
	Record               Kind = "record"
	Audit                Kind = "audit"
	AuditMissing         Kind = "audit-missing"
)

// restoreRecord is what there is to do where the objects are as they were published, and the record is not.
const restoreRecord = "restore the version's record, the item of this path and version/VERSION without build metadata, from a backup of the table; where there is none, take the version out by `larder withdraw ADDRESS VERSION --reason WHY`, and publish under a new one"

// remedy is what there is to do about findings of a kind, where they do not say it themselves.
func (k Kind) remedy() string {
	switch k {
	case VersionWithoutRecord:
		return "restore the version's record, the item of this path and version/VERSION without build metadata, from a backup of the table; if there is none, run `larder withdraw ADDRESS VERSION --missing --reason WHY`, so that nobody publishes other content under its number, and publish under a new one"
	case VersionWithoutObject:
		return "publish or mirror the same again, which puts back what is missing, or restore the object: in a versioned bucket by deleting its delete marker; one that was withdrawn, and whose record came back with an older table, is withdrawn again instead"
	case ObjectWithoutVersion:
		return "publish the same again to finish what was interrupted, restore the version's record from a backup, or remove the object by hand"
	case WithdrawnObject:
		return "run `larder withdraw` of that version again, which removes what remains"
	case Size, SHA256:
		return "clients refuse it: remove the damaged object, the file of that name in objects/ or the object of that key in the bucket, and publish or mirror the same again, which puts back what is missing and leaves alone what is there; or restore the object from a backup, or by its former version in the bucket. Removing a version of an object from the bucket takes s3:DeleteObjectVersion, which the policy of the stack's output WithdrawPolicyArn allows, and the operator's does not"
	case Content, H1, Sums:
		return restoreRecord
	case Signature:
		return "add the key that signed it by `larder key add NAMESPACE FILE`, or take the version out by `larder withdraw ADDRESS VERSION --reason WHY`, and publish under a new one"
	case Listing, CatalogEntry, Namespace:
		return "run it again with --repair"
	case Record:
		return "restore the item from a backup of the table"
	case Audit:
		return "somebody has written it there: restore the item from a backup of the table, or remove it where that has none (see docs/verify-and-restore.md)"
	case AuditMissing:
		return "restore the items audit/YYYY-MM that are missing from a backup of the table. --repair does not make " +
			"them up, because nothing else says who made a change. If nobody has restored or edited the table, " +
			"somebody has removed the entries, or has written to the table without Larder: find out who can " +
			"write to it, and compare what is stored with its source. If nothing can be restored, " +
			"`larder verify --accept-loss` records which entries are lost, and they are no faults any more"
	}
	return ""
}

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind `json:"kind"`
	// Path is where it is, such as modules/acme/vpc/aws, keys/acme, tokens.
	Path string `json:"path"`
	// Version is empty where it is not of one.
	Version string `json:"version,omitempty"`
	// Object is the key of the object that it is about.
	Object string `json:"object,omitempty"`
	Detail string `json:"detail"`
	// Fix is how to repair a fault.
	Fix string `json:"fix,omitempty"`
	// Note says that it is no fault: no client meets it, and it may pass by itself.
	Note bool `json:"note,omitempty"`
	// Repaired says that it held no more, and does again.
	Repaired bool `json:"repaired,omitempty"`
}

// Report is what there is to say of a registry.
type Report struct {
	// Modules, Providers and Mirrored are those that have a version.
	Modules   int `json:"modules"`
	Providers int `json:"providers"`
	Mirrored  int `json:"mirrored"`
	Versions  int `json:"versions"`
	// Objects are those that versions have and that are there, and Bytes that were read of them.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Findings are in the order of path, version, kind, object and detail.
	Findings []Finding `json:"findings"`
}

// Faults returns how many of the findings are faults that remain.
func (r Report) Faults() int {
	n := 0
	for _, f := range r.Findings {
		if !f.Note && !f.Repaired {
			n++
		}
	}
	return n
}

// sort gives findings their order, and faults what there is to do. What several addresses have told, such as of their
// namespace, stays once.
func sort(findings []Finding) []Finding {
	for i := range findings {
		switch f := &findings[i]; {
		case f.Note || f.Repaired:
			f.Fix = ""
		case f.Fix == "":
			f.Fix = f.Kind.remedy()
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Detail, b.Detail))
	})
	return slices.Compact(findings)
}
