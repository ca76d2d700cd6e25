package rules

import (
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// The limits of texts about a version, in bytes. Clients print a deprecation at
// each init.
const (
	maxDescription = 1000
	maxDeprecation = 500
	maxReason      = 500
)

// CheckDescription returns registry.ErrInvalid unless a module's description is
// empty or one short, printable line.
func CheckDescription(text string) error {
	return checkLine("description", text, maxDescription)
}

// CheckDeprecation returns registry.ErrInvalid unless the message of a
// deprecation is empty or one short, printable line.
func CheckDeprecation(message string) error {
	return checkLine("message", message, maxDeprecation)
}

// CheckReason returns registry.ErrInvalid unless the reason for a withdrawal is
// one short, printable line that is not blank.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("%w reason: it is empty", registry.ErrInvalid)
	}
	return checkLine("reason", reason, maxReason)
}

func checkLine(what, text string, limit int) error {
	if len(text) > limit || !printable.Is(text) {
		return fmt.Errorf("%w %s: it must be one printable line of at most %d bytes", registry.ErrInvalid, what, limit)
	}
	return nil
}
