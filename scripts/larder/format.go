package main

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

func shortTime(at string, width int) string {
	date, _, _ := strings.Cut(at, " ")
	return terminal.CutEnd(date, width)
}

// shortIdentity shortens the name of a user or a job. It returns the session
// name of an ARN, the subject of an OpenID Connect identity, or the beginning
// of another name.
func shortIdentity(name string, width int) string {
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

// shortList returns the first words of a list and the number of the others.
func shortList(list string, width int) string {
	words := strings.Fields(list)
	for n := len(words) - 1; n > 0; n-- {
		short := strings.Join(words[:n], " ") + " +" + strconv.Itoa(len(words)-n)
		if len(short) <= width {
			return short
		}
	}
	return terminal.CutEnd(list, width)
}

// shortPublisher returns a publisher for a table. For a CI job it returns the
// repository, ref, short commit and issuer. For others it returns the name.
func shortPublisher(p registry.Publisher) string {
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

// formatTime formats a time in UTC, with minutes.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// formatFrom formats a time from which something is possible. It rounds up to
// whole minutes.
func formatFrom(t time.Time) string { return formatTime(t.Add(time.Minute - 1)) }

// callerName returns the name of a caller for people. Requests without a
// credential have no name.
func callerName(name string) string {
	if name == "" {
		return "anonymous"
	}
	return name
}

// quoted returns a word, in quotes if a shell needs them.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-:", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
