package output

import (
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// ShortTime shortens a time in a table to its date.
func ShortTime(at string, width int) string {
	date, _, _ := strings.Cut(at, " ")
	return terminal.CutEnd(date, width)
}

// ShortIdentity shortens the name of a user or a job. It returns the session
// name of an ARN, the subject of an OpenID Connect identity, or the beginning
// of another name.
func ShortIdentity(name string, width int) string {
	switch {
	case strings.HasPrefix(name, "arn:"):
		name = name[strings.LastIndexByte(name, '/')+1:]
	case strings.HasPrefix(name, "https://"):
		if _, subject, found := strings.Cut(name, " "); found {
			name = subject
		}
	}
	return terminal.CutEnd(name, width)
}

// ShortList returns the first words of a list and the number of the others.
func ShortList(list string, width int) string {
	words := strings.Fields(list)
	for n := len(words) - 1; n > 0; n-- {
		short := strings.Join(words[:n], " ") + " +" + strconv.Itoa(len(words)-n)
		if len(short) <= width {
			return short
		}
	}
	return terminal.CutEnd(list, width)
}

// ShortPublisher returns a publisher for a table. For a CI job it returns the
// repository, ref, short commit and issuer. For others it returns the name.
func ShortPublisher(p registry.Publisher) string {
	if p.Repository == "" {
		return p.String()
	}
	text := p.Repository
	if p.Ref != "" {
		text += " " + p.Ref
	}
	if p.Commit != "" {
		text += " " + p.Commit[:min(len(p.Commit), 7)]
	}
	return text + " (" + p.Issuer + ")"
}

// FormatTime formats a time in UTC, with minutes.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// FormatFrom formats a time from which something is possible. It rounds up to
// whole minutes.
func FormatFrom(t time.Time) string { return FormatTime(t.Add(time.Minute - 1)) }

// CallerName returns the name of a caller for people. Requests without a
// credential have no name.
func CallerName(name string) string {
	if name == "" {
		return "anonymous"
	}
	return name
}

// Mapped returns the result of a function for each element.
func Mapped[E, R any](all []E, of func(E) R) []R {
	results := make([]R, len(all))
	for i, e := range all {
		results[i] = of(e)
	}
	return results
}
