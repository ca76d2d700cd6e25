package output

import (
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// State returns the state of a version that is not withdrawn, with the reason.
// Both are empty if the version is neither hidden nor deprecated.
func State(deprecated string, hidden bool) (name, why string) {
	switch {
	case hidden:
		return "hidden", deprecated
	case deprecated != "":
		return "deprecated", deprecated
	}
	return "", ""
}

// The columns that several tables have.
var (
	VersionColumn   = terminal.Column{Title: "VERSION"}
	StateColumn     = terminal.Column{Title: "STATE", Paint: PaintState}
	PublishedColumn = terminal.Column{Title: "PUBLISHED", Min: len("2006-01-02"), Shorten: ShortTime}
	ByColumn        = terminal.Column{Title: "BY", Min: 10, Shorten: ShortIdentity}
	ReasonColumn    = terminal.Column{Title: "REASON", Below: true}
)
