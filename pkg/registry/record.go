package registry

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Record is the record of one version of a module, a provider or a mirrored
// provider.
type Record interface {
	ModuleVersion | ProviderVersion | MirrorVersion
	// Number returns the version of the record.
	Number() Version
	// Listed reports whether clients find the version.
	Listed() bool
	// Withdrawal returns the withdrawal of the version, or nil if it is not
	// withdrawn.
	Withdrawal() *Withdrawal
	// Files returns the files of the version in the object store.
	Files() []StoredFile
	// Validate returns an error if the record cannot be that of a version of
	// the address with the path. For example, it can lack a file or name an
	// object of another version. Validate returns nil for a withdrawn version.
	Validate(path string) error
}

// Number implements [Record].
func (v ModuleVersion) Number() Version { return v.Version }

// Number implements [Record].
func (v ProviderVersion) Number() Version { return v.Version }

// Number implements [Record].
func (v MirrorVersion) Number() Version { return v.Version }

// Listed implements [Record].
func (v ModuleVersion) Listed() bool { return v.Withdrawn == nil && !v.Hidden }

// Listed implements [Record].
func (v ProviderVersion) Listed() bool { return v.Withdrawn == nil }

// Listed implements [Record].
func (v MirrorVersion) Listed() bool { return v.Withdrawn == nil }

// Withdrawal implements [Record].
func (v ModuleVersion) Withdrawal() *Withdrawal { return v.Withdrawn }

// Withdrawal implements [Record].
func (v ProviderVersion) Withdrawal() *Withdrawal { return v.Withdrawn }

// Withdrawal implements [Record].
func (v MirrorVersion) Withdrawal() *Withdrawal { return v.Withdrawn }

// Archive returns the archive that clients download.
func (v ModuleVersion) Archive() StoredFile {
	return StoredFile{Object: v.Object, SHA256: v.SHA256, Size: v.Size}
}

// Files implements [Record]. They are the archive and what was made from it.
func (v ModuleVersion) Files() []StoredFile {
	return append([]StoredFile{v.Archive()}, v.Stored()...)
}

// Files implements [Record].
func (v ProviderVersion) Files() []StoredFile {
	files := []StoredFile{v.Sums, v.Signature}
	for _, pkg := range v.Packages {
		files = append(files, pkg.StoredFile)
	}
	return files
}

// Files implements [Record].
func (v MirrorVersion) Files() []StoredFile {
	var files []StoredFile
	if v.Module != nil {
		files = append(append(files, v.Module.StoredFile), v.Module.Stored()...)
	}
	for _, pkg := range v.Packages {
		files = append(files, pkg.StoredFile)
	}
	for _, s := range v.Sums {
		if files = append(files, s.Sums); s.Signed() {
			files = append(files, s.Signature)
		}
	}
	return files
}

// Validate implements [Record].
func (v ModuleVersion) Validate(path string) error { return validate(v, path, nil) }

// Validate implements [Record].
func (v ProviderVersion) Validate(path string) error { return validate(v, path, v.Packages) }

// Validate implements [Record].
func (v MirrorVersion) Validate(path string) error {
	packages := make([]ProviderPackage, len(v.Packages))
	for i, p := range v.Packages {
		if packages[i] = p.ProviderPackage; p.Sums < 0 || p.Sums > len(v.Sums) {
			return fmt.Errorf("its object %s refers to SHA256SUMS %d of %d", p.Object, p.Sums, len(v.Sums))
		}
	}
	return validate(v, path, packages)
}

// validate validates a record. packages is empty for a module.
func validate[R Record](v R, path string, packages []ProviderPackage) error {
	if v.Withdrawal() != nil {
		return nil
	}
	_, isModule := any(v).(ModuleVersion)
	if mirrored, ok := any(v).(MirrorVersion); ok && strings.HasPrefix(path, MirrorModulePrefix) {
		if isModule = true; mirrored.Module == nil || len(packages) > 0 {
			return errors.New("it is not the record of a module")
		}
	}
	if !isModule && len(packages) == 0 {
		return errors.New("it has no packages")
	}
	for _, f := range v.Files() {
		if err := f.validate(path + "/" + v.Number().String() + "/"); err != nil {
			return err
		}
	}
	for _, p := range packages {
		if _, err := ParsePlatform(p.String()); err != nil {
			// Not wrapped: ErrInvalid would blame the caller.
			return fmt.Errorf("its object %s: %s", p.Object, err.Error())
		}
		if p.Filename == "" || !strings.HasPrefix(p.H1, "h1:") {
			return fmt.Errorf("its object %s has the name %.100q and the hash %.100q", p.Object, p.Filename, p.H1)
		}
	}
	return nil
}

// validate returns an error unless the file's key begins with a prefix and
// contains its SHA-256. Clients receive a URL of the key, to which the SHA-256
// can be appended, so both must need no escaping.
func (f StoredFile) validate(prefix string) error {
	rest, below := strings.CutPrefix(f.Object, prefix)
	switch {
	case !below || path.Clean(f.Object) != f.Object || !errs.IsPlain(f.Object):
		return fmt.Errorf("its object %.300q does not belong to this version", f.Object)
	case f.SHA256 == "" || !strings.Contains(rest, f.SHA256):
		return fmt.Errorf("its object %s does not have the recorded sha256:%.80q", f.Object, f.SHA256)
	case f.Size < 0:
		return fmt.Errorf("its object %s has %d bytes", f.Object, f.Size)
	}
	return nil
}

// Summary describes a module, a provider or a mirrored provider in the catalog.
// It can be read without the versions.
type Summary struct {
	// Address is NAMESPACE/NAME/SYSTEM, NAMESPACE/TYPE or
	// HOSTNAME/NAMESPACE/TYPE.
	Address string `json:"address"`
	// Latest is the highest listed version that is not a pre-release. If there
	// are only pre-releases, it is the highest one.
	Latest Version `json:"latest"`
	// Description is the description of a module's latest version.
	Description string `json:"description,omitempty"`
	// PublishedAt is the time of the publish of the latest version. For a
	// mirrored provider it is when the latest version got its newest package.
	PublishedAt time.Time `json:"published_at,omitzero"`
	// Source is the URL of the repository that published the latest version. It
	// is empty if no identity proves it.
	Source string `json:"source,omitempty"`
	// SigningKey is the ID of the key that signed a provider's latest version.
	SigningKey string `json:"signing_key,omitempty"`
	// Contents identifies the [Contents] of a module. It changes with them, and
	// is empty if there are none.
	Contents string `json:"contents,omitempty"`
	// Deprecated is the reason for deprecating all versions.
	Deprecated string `json:"deprecated,omitempty"`
	// LatestDeprecated is the reason for deprecating a module's latest version.
	LatestDeprecated string `json:"latest_deprecated,omitempty"`
	// DeprecatedVersions are the deprecated versions, the newest first. The
	// listing of a provider has warnings for them.
	DeprecatedVersions []DeprecatedVersion `json:"deprecated_versions,omitempty"`
	// Withdrawn are the withdrawn versions, the newest first. If there are more
	// than 1,000, it has only the highest.
	Withdrawn []Version `json:"withdrawn,omitempty"`
	// Hidden are the hidden versions of a module, with the same limit.
	Hidden []Version `json:"hidden,omitempty"`
	// Unlisted means that no version is listed, because all are withdrawn or
	// hidden. Latest is then empty.
	Unlisted bool `json:"unlisted,omitempty"`
}

// LatestDeprecation returns the reason for deprecating the latest version, or
// else the one for deprecating all versions. It is empty if there is neither.
func (s Summary) LatestDeprecation() string {
	reason := s.LatestDeprecated
	for _, d := range s.DeprecatedVersions {
		if d.Version == s.Latest && d.Message != "" {
			reason = d.Message
		}
	}
	return cmp.Or(reason, s.Deprecated)
}

// DeprecatedVersion is a deprecated version.
type DeprecatedVersion struct {
	Version Version `json:"version"`
	// Message is the reason. It is empty for a module.
	Message string `json:"message,omitempty"`
}
