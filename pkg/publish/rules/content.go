package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// ExistsError means that a version is published already with different content.
// It wraps registry.ErrExists.
type ExistsError struct {
	Address registry.Address
	Version registry.Version
	// Stored and Offered are set if the contents differ. They are the SHA256 sums
	// of a module's content or of a provider's SHA256SUMS. Error omits them,
	// because a publisher may not be a reader.
	Stored, Offered string

	how string
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("cannot publish %s %s: it is already published %s", e.Address, e.Version, e.how)
}

// Unwrap returns registry.ErrExists.
func (e *ExistsError) Unwrap() error { return registry.ErrExists }

func exists(e *ExistsError) error {
	return registry.WithHint(e, "A published version cannot change. Publish under a new version.")
}

const otherContent = "with different content"

// CheckSameModule returns an [ExistsError] unless a stored version has the same
// archive or the same content. archive and content are SHA256 sums.
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
// SHA256SUMS with the sum sums, and the same protocols. It ignores the
// signature, which differs each time it is made.
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
		"with a signature by key %s, which the namespace no longer has, so clients cannot install it",
		stored.SigningKey)
	return registry.WithHint(&ExistsError{Address: p, Version: stored.Version, how: how},
		"Contact the registry's owner to add that key again, or publish under a new version.")
}

// CheckKeys returns registry.ErrInvalid if a namespace has no signing keys.
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
