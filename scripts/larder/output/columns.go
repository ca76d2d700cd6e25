package output

import (
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// The columns that several tables have.
var (
	VersionColumn   = terminal.Column{Title: "VERSION"}
	StateColumn     = terminal.Column{Title: "STATE", Paint: PaintState}
	PublishedColumn = terminal.Column{Title: "PUBLISHED", Min: len("2006-01-02"), Shorten: ShortTime}
	ByColumn        = terminal.Column{Title: "BY", Min: 10, Shorten: ShortIdentity}
	ReasonColumn    = terminal.Column{Title: "REASON", Below: true}
)
