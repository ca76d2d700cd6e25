package releases

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// ExistsError reports that a version is published, and not as it was to be. It
// is a registry.ErrExists, and has a hint.
type ExistsError struct {
	Address registry.Address
	Version registry.Version
	// Stored and Offered are set if the contents differ: the SHA256 sums of a
	// module's content, or of a provider's SHA256SUMS. Error leaves them out,
	// because a publisher may not be a reader.
	Stored, Offered string

	how string
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("cannot publish %s %s: it is published already %s", e.Address, e.Version, e.how)
}

// Unwrap returns registry.ErrExists.
func (e *ExistsError) Unwrap() error { return registry.ErrExists }

// exists returns e with the hint that is the same for all.
func exists(e *ExistsError) error {
	return registry.WithHint(e, "Versions do not change. Publish it under a new version.")
}

const otherContent = "with other content"

// CheckSameModule returns an [ExistsError] unless a stored version has an archive
// of a SHA256 sum, or the same content.
func CheckSameModule(m registry.Module, stored registry.ModuleVersion, archive, content string) error {
	if stored.SHA256 == archive || stored.ContentSHA256 == content {
		return nil
	}
	return exists(&ExistsError{
		Address: m, Version: stored.Version, how: otherContent,
		Stored: stored.ContentSHA256, Offered: content,
	})
}

// CheckSameProvider returns an [ExistsError] unless a stored version has a
// SHA256SUMS of a SHA256 sum, and these protocols. A signature is made anew each
// time, and is no other content.
func CheckSameProvider(p registry.Provider, stored registry.ProviderVersion, sums string, protocols []string) error {
	if stored.Sums.SHA256 != sums {
		return exists(&ExistsError{
			Address: p, Version: stored.Version, how: otherContent,
			Stored: stored.Sums.SHA256, Offered: sums,
		})
	}
	if !slices.Equal(stored.Protocols, protocols) {
		how := "for protocols " + strings.Join(stored.Protocols, ", ")
		return exists(&ExistsError{Address: p, Version: stored.Version, how: how})
	}
	return nil
}

// CheckSigner returns an [ExistsError] if the namespace no longer has the key
// that signed a stored version.
func CheckSigner(p registry.Provider, stored registry.ProviderVersion, keys []registry.SigningKey) error {
	if hasKey(keys, stored.SigningKey) {
		return nil
	}
	how := fmt.Sprintf(
		"with a signature by key %s, which the namespace does not have any more, so that nobody can install it",
		stored.SigningKey)
	return registry.WithHint(&ExistsError{Address: p, Version: stored.Version, how: how},
		"Have that key added again, or publish under a new version.")
}

// CheckKeys checks that a namespace has keys to sign with. Errors are
// registry.ErrInvalid.
func CheckKeys(namespace string, keys []registry.SigningKey) error {
	if len(keys) == 0 {
		return registry.WithHint(invalidRelease("namespace %s has no key yet", namespace),
			"The registry's owner adds the public key that signs its providers with `larder key add %s FILE`.", namespace)
	}
	return nil
}

func hasKey(keys []registry.SigningKey, id string) bool {
	return slices.ContainsFunc(keys, func(k registry.SigningKey) bool { return k.ID == id })
}
