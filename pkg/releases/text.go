package releases

import (
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// The bounds of what people write about a version, in bytes. Clients print a
// deprecation at each init.
const (
	maxDescription = 1000
	maxDeprecation = 500
	maxReason      = 500
)

// CheckDescription checks that a module's description is at most one line that
// lists can show. Errors are registry.ErrInvalid.
func CheckDescription(text string) error {
	return checkLine("description", text, maxDescription)
}

// CheckDeprecation checks that the message of a deprecation is at most one line
// that clients can show. Errors are registry.ErrInvalid.
func CheckDeprecation(message string) error {
	return checkLine("message", message, maxDeprecation)
}

// CheckReason checks that the reason for a withdrawal is one line, not of blanks
// alone. Errors are registry.ErrInvalid.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("%w reason: it is empty", registry.ErrInvalid)
	}
	return checkLine("reason", reason, maxReason)
}

func checkLine(what, text string, limit int) error {
	if len(text) > limit || !printable.Is(text) {
		return fmt.Errorf("%w %s: it is one line of at most %d bytes", registry.ErrInvalid, what, limit)
	}
	return nil
}
