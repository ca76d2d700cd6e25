package verify

import (
	"cmp"
	"slices"
)

// Kind is a kind of finding.
type Kind string

// The kinds of findings.
const (
	VersionWithoutRecord Kind = "version-without-record"
	VersionWithoutObject Kind = "version-without-object"
	ObjectWithoutVersion Kind = "object-without-version"
	WithdrawnObject      Kind = "object-of-withdrawn-version"
	Unreadable           Kind = "unreadable"
	Size                 Kind = "size"
	SHA256               Kind = "sha256"
	H1                   Kind = "h1"
	Content              Kind = "content"
	Sums                 Kind = "sums"
	Signature            Kind = "signature"
	Listing              Kind = "listing"
	CatalogEntry         Kind = "catalog-entry"
	Contents             Kind = "contents"
	Namespace            Kind = "namespace"
	Record               Kind = "record"
	Documentation        Kind = "documentation"
	Audit                Kind = "audit"
	AuditMissing         Kind = "audit-missing"
	CopyNote             Kind = "copy-note"
)

// restoreRecord is the fix if the objects are unchanged and the record is
// wrong.
const restoreRecord = "restore the version's record (the item with this path and version/VERSION without build " +
	"metadata) from a backup of the table; if there is no backup, run `larder withdraw ADDRESS VERSION --reason WHY` " +
	"and publish it as a new version"

// fromBackup is how an object of a folder comes back from a backup.
const fromBackup = "or run `larder restore BACKUP --store ./restored`, and copy the object's file from restored/objects/ " +
	"to the same place in objects/ of the registry's folder"

// remedy returns the fix for findings of a kind that do not have their own.
func (k Kind) remedy(isFolder bool) string {
	switch {
	case isFolder && k == VersionWithoutObject:
		return "publish or mirror the version again to restore the missing object, " + fromBackup + "; if the version was " +
			"withdrawn and an older database brought its record back, withdraw it again instead"
	case isFolder && (k == Size || k == SHA256):
		return "clients reject it: remove the damaged object (the file with that name in objects/) and publish or mirror the " +
			"version again, which restores only what is missing; " + fromBackup
	}
	switch k {
	case VersionWithoutRecord:
		return "restore the version's record (the item with this path and version/VERSION without build metadata) from a " +
			"backup of the table; if there is no backup, run `larder withdraw ADDRESS VERSION --missing --reason WHY`, so " +
			"that nobody publishes other content under its number, and publish it as a new version"
	case VersionWithoutObject:
		return "publish or mirror the version again to restore the missing object, or restore it yourself (in a versioned " +
			"bucket, delete its delete marker); if the version was withdrawn and an older table brought its record back, " +
			"withdraw it again instead"
	case ObjectWithoutVersion:
		return "publish the version again to finish an interrupted publish, restore its record from a backup, or remove " +
			"the object yourself"
	case WithdrawnObject:
		return "run `larder withdraw` for that version again to remove what remains"
	case Unreadable:
		return "let the user of this command and of the server read and write it: they must be the same, and own all files " +
			"in the registry's folder"
	case Size, SHA256:
		return "clients reject it: remove the damaged object (the file with that name in objects/, or the object with " +
			"that key in the bucket) and publish or mirror the version again, which restores only what is missing; or " +
			"restore the object from a backup or from its previous version in the bucket; removing a version of an object " +
			"from the bucket requires s3:DeleteObjectVersion, which is in the policy of the stack's output WithdrawPolicyArn " +
			"and not in the operator's"
	case Content, H1, Sums:
		return restoreRecord
	case Signature:
		return "add the key that signed it with `larder key add NAMESPACE FILE`, or run `larder withdraw ADDRESS VERSION " +
			"--reason WHY` and publish it as a new version"
	case Listing, CatalogEntry, Contents, Namespace:
		return "run the command again with --repair"
	case Documentation:
		return "run the command again with --repair, or run `larder docs rebuild ADDRESS VERSION`; both need the archive"
	case Record:
		return "restore the item from a backup of the table"
	case Audit:
		return "something other than Larder wrote it: restore the item from a backup of the table, or remove it if the " +
			"backup does not have it (see docs/verify.md)"
	case AuditMissing:
		return "restore the missing items audit/YYYY-MM from a backup of the table; --repair cannot rebuild them, because " +
			"nothing else records who made a change; if nobody has restored or edited the table, someone has removed the " +
			"entries or has written to the table without Larder: find out who can write to it, and compare the stored " +
			"files with their source; if you cannot restore the items, run `larder verify --accept-loss`, which records " +
			"the lost entries so that they no longer count as faults"
	}
	return ""
}

// Finding is one problem.
type Finding struct {
	Kind Kind `json:"kind"`
	// Path is the location, such as modules/acme/vpc/aws, keys/acme or tokens.
	Path string `json:"path"`
	// Version is the version. It is empty if the finding is not about one.
	Version string `json:"version,omitempty"`
	// Object is the key of the object. It may be empty.
	Object string `json:"object,omitempty"`
	Detail string `json:"detail"`
	// Fix is how to repair a fault.
	Fix string `json:"fix,omitempty"`
	// Note means that it is not a fault: it does not affect clients, and may
	// resolve itself.
	Note bool `json:"note,omitempty"`
	// Repaired means that a repair has fixed it.
	Repaired bool `json:"repaired,omitempty"`
}

// Report is the result of a verification.
type Report struct {
	// Modules, Providers and Mirrored count the addresses that have a version.
	Modules   int `json:"modules"`
	Providers int `json:"providers"`
	Mirrored  int `json:"mirrored"`
	Versions  int `json:"versions"`
	// Objects counts the existing objects of versions, and Bytes how much of them
	// was read.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Findings are sorted by path, version, kind, object and detail.
	Findings []Finding `json:"findings"`
}

// Faults returns how many findings are faults that were not repaired.
func (r Report) Faults() int {
	n := 0
	for _, f := range r.Findings {
		if !f.Note && !f.Repaired {
			n++
		}
	}
	return n
}

// sort sorts findings, sets the missing fixes of faults, and removes
// duplicates. Several addresses may report the same problem of their namespace.
func sort(findings []Finding, isFolder bool) []Finding {
	for i := range findings {
		switch f := &findings[i]; {
		case f.Note || f.Repaired:
			f.Fix = ""
		case f.Fix == "":
			f.Fix = f.Kind.remedy(isFolder)
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Detail, b.Detail))
	})
	return slices.Compact(findings)
}
