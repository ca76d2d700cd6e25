package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// CopiedFrom describes where a version was copied from. The publisher of the
// copy states it, and nothing verifies it. It skips the checks that are only for new
// versions. The record shows it to everyone, and has their findings as notes.
type CopiedFrom struct {
	// Source is the address in the other registry: HOST/NAMESPACE/NAME/SYSTEM,
	// or HOST/NAMESPACE/TYPE for a provider. If its host is unknown, the name of
	// its store replaces the host.
	Source string `json:"source"`
	// PublishedAt and PublishedBy are those of the version in the other registry.
	// They are empty if they are unknown.
	PublishedAt time.Time `json:"published_at,omitzero"`
	PublishedBy Publisher `json:"published_by,omitzero"`
	// Claimed is that of the version in the other registry.
	Claimed *ClaimedSource `json:"claimed,omitempty"`
}

// maxCopied bounds all texts of a [CopiedFrom] together, and maxSource bounds the
// source, in bytes.
const maxCopied, maxSource = 1 << 10, 256

// Check returns ErrInvalid if a text is too long or not printable, or Claimed
// is not valid.
func (c CopiedFrom) Check() error {
	p := c.PublishedBy
	size := 0
	for _, text := range []string{
		c.Source, string(p.Kind), p.Name, p.Issuer, p.Subject, p.Repository, p.Ref, p.Commit, p.RunURL,
	} {
		if size += len(text); size > maxCopied || !printable.Is(text) {
			return fmt.Errorf("%w origin of a copy: its texts must be printable and have at most %d bytes together",
				ErrInvalid, maxCopied)
		}
	}
	if c.Claimed != nil {
		if err := c.Claimed.Check(); err != nil {
			return err
		}
	}
	if len(c.Source) > maxSource {
		return fmt.Errorf("%w origin of a copy: the source has more than %d bytes", ErrInvalid, maxSource)
	}
	if strings.ContainsAny(c.Source, " ?#@\\") || strings.Count(c.Source, "/") < 2 {
		return fmt.Errorf("%w origin of a copy: the source %.100q is not HOST/NAMESPACE/…", ErrInvalid, c.Source)
	}
	return nil
}

// String returns the origin in one line, for the audit trail.
func (c CopiedFrom) String() string {
	text := "copied from " + c.Source
	if by := c.PublishedBy.String(); by != "" {
		text += ", published by " + by
	}
	if !c.PublishedAt.IsZero() {
		text += " at " + c.PublishedAt.UTC().Format(time.RFC3339)
	}
	return text
}

// MaxCopies is the largest number of copies that a record lists.
const MaxCopies = 10

// addCopy adds the address of a copy to those of a record. If there are too
// many, it drops the oldest one. It reports whether the copy is new.
func addCopy(copies []string, target string) ([]string, bool) {
	if slices.Contains(copies, target) {
		return copies, false
	}
	copies = append(slices.Clone(copies), target)
	return copies[max(0, len(copies)-MaxCopies):], true
}

// AddCopy returns the record of a version that was also copied to a target, as
// HOST/NAMESPACE/NAME/SYSTEM, and reports whether it is new.
func (v ModuleVersion) AddCopy(target string) (ModuleVersion, bool) {
	copies, isNew := addCopy(v.CopiedTo, target)
	v.CopiedTo = copies
	return v, isNew
}

// AddCopy is [ModuleVersion.AddCopy] for a provider.
func (v ProviderVersion) AddCopy(target string) (ProviderVersion, bool) {
	copies, isNew := addCopy(v.CopiedTo, target)
	v.CopiedTo = copies
	return v, isNew
}
