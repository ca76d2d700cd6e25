package registry

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Record is the record of one version of a module, a provider or a mirrored
// provider.
type Record interface {
	ModuleVersion | ProviderVersion | MirrorVersion
	// Number returns the version that the record is of.
	Number() Version
	// Listed reports whether clients find the version.
	Listed() bool
	// Withdrawal returns how the version was withdrawn, and nil if it was not.
	Withdrawal() *Withdrawal
	// Files returns the files that the version has in the object store.
	Files() []StoredFile
	// Validate returns what is wrong with the record as that of a version of the
	// address with a path, if anything: it lacks a file, or names an object of
	// another address or version. A withdrawn version has nothing to validate.
	Validate(path string) error
}

// Number implements Record.
func (v ModuleVersion) Number() Version { return v.Version }

// Number implements Record.
func (v ProviderVersion) Number() Version { return v.Version }

// Number implements Record.
func (v MirrorVersion) Number() Version { return v.Version }

// Listed implements Record.
func (v ModuleVersion) Listed() bool { return v.Withdrawn == nil && !v.Hidden }

// Listed implements Record.
func (v ProviderVersion) Listed() bool { return v.Withdrawn == nil }

// Listed implements Record.
func (v MirrorVersion) Listed() bool { return v.Withdrawn == nil }

// Withdrawal implements Record.
func (v ModuleVersion) Withdrawal() *Withdrawal { return v.Withdrawn }

// Withdrawal implements Record.
func (v ProviderVersion) Withdrawal() *Withdrawal { return v.Withdrawn }

// Withdrawal implements Record.
func (v MirrorVersion) Withdrawal() *Withdrawal { return v.Withdrawn }

// Files implements Record.
func (v ModuleVersion) Files() []StoredFile {
	return []StoredFile{{Object: v.Object, SHA256: v.SHA256, Size: v.Size}}
}

// Files implements Record.
func (v ProviderVersion) Files() []StoredFile {
	files := []StoredFile{v.Sums, v.Signature}
	for _, pkg := range v.Packages {
		files = append(files, pkg.StoredFile)
	}
	return files
}

// Files implements Record.
func (v MirrorVersion) Files() []StoredFile {
	files := make([]StoredFile, len(v.Packages))
	for i, pkg := range v.Packages {
		files[i] = pkg.StoredFile
	}
	return files
}

// Validate implements Record.
func (v ModuleVersion) Validate(path string) error { return validate(v, path, nil) }

// Validate implements Record.
func (v ProviderVersion) Validate(path string) error { return validate(v, path, v.Packages) }

// Validate implements Record.
func (v MirrorVersion) Validate(path string) error {
	packages := make([]ProviderPackage, len(v.Packages))
	for i, p := range v.Packages {
		packages[i] = p.ProviderPackage
	}
	return validate(v, path, packages)
}

// validate returns what is wrong with a record that has packages, or is a
// module's.
func validate[R Record](v R, path string, packages []ProviderPackage) error {
	if v.Withdrawal() != nil {
		return nil
	}
	if _, module := any(v).(ModuleVersion); !module && len(packages) == 0 {
		return errors.New("it has no package")
	}
	for _, f := range v.Files() {
		if err := f.validate(path + "/" + v.Number().String() + "/"); err != nil {
			return err
		}
	}
	for _, p := range packages {
		if _, err := ParsePlatform(p.String()); err != nil {
			// Not wrapped: no caller is at fault, as ErrInvalid would say.
			return fmt.Errorf("its object %s: %s", p.Object, err.Error())
		}
		if p.Filename == "" || !strings.HasPrefix(p.H1, "h1:") {
			return fmt.Errorf("its object %s has the name %.100q and the hash %.100q", p.Object, p.Filename, p.H1)
		}
	}
	return nil
}

// validate returns an error unless the file's key begins with a prefix and names
// its SHA-256. Its readers get a URL of that key, to which the SHA-256 may be
// appended, so that both must be plain.
func (f StoredFile) validate(prefix string) error {
	rest, below := strings.CutPrefix(f.Object, prefix)
	switch {
	case !below || path.Clean(f.Object) != f.Object || !IsPlain(f.Object):
		return fmt.Errorf("its object %.300q is not of this version", f.Object)
	case f.SHA256 == "" || !strings.Contains(rest, f.SHA256):
		return fmt.Errorf("its object %s does not have the recorded sha256:%.80q", f.Object, f.SHA256)
	case f.Size < 0:
		return fmt.Errorf("its object %s has %d bytes", f.Object, f.Size)
	}
	return nil
}

// Summary is what the catalog says of a module, a provider or a mirrored provider
// without reading its versions.
type Summary struct {
	// Address is as people write it: NAMESPACE/NAME/SYSTEM, NAMESPACE/TYPE or
	// HOSTNAME/NAMESPACE/TYPE.
	Address string `json:"address"`
	// Latest is the highest listed version that is no pre-release, or the highest
	// pre-release if there is nothing else.
	Latest Version `json:"latest"`
	// Description is that of a module's latest version.
	Description string `json:"description,omitempty"`
	// Deprecated says why none of its versions should be used any more.
	Deprecated string `json:"deprecated,omitempty"`
	// DeprecatedVersions are the deprecated versions of a provider, the newest
	// first. Its listing warns of them.
	DeprecatedVersions []DeprecatedVersion `json:"deprecated_versions,omitempty"`
	// Unlisted means that no version is listed, because all are withdrawn or
	// hidden, and that Latest is none.
	Unlisted bool `json:"unlisted,omitempty"`
}

// DeprecatedVersion is a version that should not be used any more.
type DeprecatedVersion struct {
	Version Version `json:"version"`
	// Message says why.
	Message string `json:"message"`
}
