// Package secrets finds well-known secrets in files, such as private keys and
// access tokens.
//
// It decides by the form of a secret, and by its checksum if the format has
// one. So it finds few forms, and has few false alarms. It does not find
// passwords, because they have no form. Samples from documentation and
// placeholders do not count.
package secrets

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Finding is a secret in a file. It does not contain the secret.
type Finding struct {
	// Path is the path of the file.
	Path string
	// Line is the line in which the secret begins. The first line is 1.
	Line int
	// Kind is the kind of the secret, such as "GitHub token".
	Kind string
}

// String returns PATH:LINE contains a secret (KIND).
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d contains a secret (%s)", f.Path, f.Line, f.Kind)
}

// Check returns the findings as a [*errs.ProblemsError] of
// registry.ErrInvalid, or nil if there are none.
func Check(found []Finding) error {
	var problems errs.Problems
	for _, f := range found {
		// Any error is ErrInvalid.
		_ = problems.Add(registry.WithHint(fmt.Errorf("%w module: %s", registry.ErrInvalid, f),
			"Remove it, and revoke it if others have seen it. If the file may be public, allow it with `--allow-secret PATH`."))
	}
	return problems.Err("")
}

// maxAllowed bounds the paths that are allowed to have secrets, in bytes, and
// maxPaths their number.
const (
	maxAllowed = 8 << 10
	maxPaths   = 100
)

// CheckAllowed returns registry.ErrInvalid unless all paths can be allowed. Each
// must be the path of a file or a folder below the root of a module.
func CheckAllowed(paths []string) error {
	if len(paths) > maxPaths {
		return fmt.Errorf("%w paths of allowed secrets: there are more than %d", registry.ErrInvalid, maxPaths)
	}
	size := 0
	for _, p := range paths {
		if !fs.ValidPath(p) || p == "." || strings.Contains(p, `\`) || !printable.Is(p) {
			return registry.WithHint(fmt.Errorf("%w path %.200q of allowed secrets", registry.ErrInvalid, p),
				"Write the path of a file or a folder, relative to the folder of the module and with slashes.")
		}
		if size += len(p); size > maxAllowed {
			return fmt.Errorf("%w paths of allowed secrets: they have more than %d KiB", registry.ErrInvalid, maxAllowed>>10)
		}
	}
	return nil
}

// IsAllowed reports whether a file is one of the paths, or in one of them.
func IsAllowed(paths []string, file string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		below, found := strings.CutPrefix(file, p)
		return found && (below == "" || below[0] == '/')
	})
}

const (
	// window is how many bytes of a file are in memory.
	window = 256 << 10
	// maxSecret is the largest size of a secret in bytes, with the text that
	// shows its kind. Longer secrets may not be found.
	maxSecret = 32 << 10
	// markSize is the size of the byte order mark of UTF-16.
	markSize = 2
	// maxFound is the largest number of findings of a [Scanner].
	maxFound = 100
)

// Scanner finds secrets in files. Begin a file, write it, and end it. The zero
// value is ready for use. Its memory does not depend on the size of the files.
type Scanner struct {
	// Allowed are the paths of files and folders that may have secrets. The
	// scanner does not read them.
	Allowed []string

	found []Finding
	path  string
	skip  bool // of the current file
	// opened reports whether the encoding of the file is known. wide is set for
	// UTF-16, and high is the index of the high byte in each pair.
	opened, wide bool
	high         int
	pair         []byte // an incomplete pair
	text         []byte
	scanned      int // bytes of text before which secrets are reported
	lines        int // line breaks before text
}

// Begin begins a file.
func (s *Scanner) Begin(path string) {
	*s = Scanner{
		Allowed: s.Allowed, found: s.found, path: path, text: s.text[:0], pair: s.pair[:0],
		skip: IsAllowed(s.Allowed, path) || len(s.found) >= maxFound,
	}
}

// Write scans a part of the file. It never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	size := len(p)
	for len(p) > 0 && !s.skip {
		n := min(len(p), window-len(s.text))
		if !s.opened {
			n = min(n, markSize-len(s.text))
		}
		s.add(p[:n])
		p = p[n:]
		if !s.opened && len(s.text) == markSize {
			s.open()
		}
		if len(s.text) == window {
			s.scan(window - maxSecret)
		}
	}
	return size, nil
}

// End ends the file.
func (s *Scanner) End() {
	if !s.opened && !s.skip {
		s.open()
	}
	if !s.skip {
		s.scan(len(s.text))
	}
	s.skip = true
}

// Found returns the secrets in the files so far, at most 100 of them, in the
// order of the files and lines.
func (s *Scanner) Found() []Finding { return s.found }

// open determines the encoding from the beginning of the file.
func (s *Scanner) open() {
	s.opened = true
	if mark := string(s.text); mark == "\xfe\xff" || mark == "\xff\xfe" {
		s.wide, s.high, s.text = true, strings.IndexByte(mark, 0xfe), s.text[:0]
	}
}

// add adds a part of the file to the text. It converts UTF-16 to ASCII, because
// secrets have only ASCII characters.
func (s *Scanner) add(p []byte) {
	if !s.wide {
		s.text = append(s.text, p...)
		return
	}
	for _, b := range p {
		if s.pair = append(s.pair, b); len(s.pair) < 2 {
			continue
		}
		c := s.pair[1-s.high]
		if s.pair[s.high] != 0 || c >= 0x80 {
			c = 0xff
		}
		s.text, s.pair = append(s.text, c), s.pair[:0]
	}
}

// scan reports the secrets that begin before an offset of the text, and drops
// the text that is not needed any more.
func (s *Scanner) scan(until int) {
	first := len(s.found)
	t := text{all: s.text}
	for _, r := range rules() {
		for _, literal := range r.literals {
			for at := s.scanned; ; at++ {
				next := bytes.Index(s.text[at:min(len(s.text), until+len(literal)-1)], literal)
				if next < 0 {
					break
				}
				at += next
				if kind := r.find(&t, at); kind != "" {
					line := s.lines + 1 + bytes.Count(s.text[:at], []byte("\n"))
					s.found = append(s.found, Finding{Path: s.path, Line: line, Kind: kind})
				}
				if len(s.found) >= maxFound+first {
					break
				}
			}
		}
	}
	slices.SortFunc(s.found[first:], func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Kind, b.Kind))
	})
	s.found = slices.Compact(s.found)
	if len(s.found) >= maxFound {
		s.found, s.skip = s.found[:maxFound], true
	}
	drop := max(0, until-maxSecret)
	s.lines += bytes.Count(s.text[:drop], []byte("\n"))
	s.text = append(s.text[:0], s.text[drop:]...)
	s.scanned = until - drop
}
