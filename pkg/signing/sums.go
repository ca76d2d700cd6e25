package signing

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Sum is one line of a SHA256SUMS.
type Sum struct {
	// SHA256 is in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
	// Filename is that of a package, without a folder.
	Filename string `json:"filename"`
}

// The bounds of a SHA256SUMS.
const (
	// MaxSums is in bytes.
	MaxSums     = 1 << 20
	maxLines    = 1000
	maxFilename = 255 // bytes, which is what file systems take
)

// oneVersion is the hint for a file that is too long.
const oneVersion = "List the packages of one version alone."

// ParseSums reads a SHA256SUMS. It is strict, because clients are not: a blank line makes them panic, for a comment they
// drop the checksums of all other platforms without a word, and of `sha256sum -b` they find no file. Errors are ErrInvalid.
func ParseSums(text []byte) ([]Sum, error) {
	if len(text) > MaxSums {
		return nil, registry.WithHint(fmt.Errorf("%w SHA256SUMS: it has more than %d bytes", registry.ErrInvalid, MaxSums), oneVersion)
	}
	if len(text) == 0 {
		return nil, registry.WithHint(fmt.Errorf("%w SHA256SUMS: it is empty", registry.ErrInvalid), "Make it with `sha256sum *.zip`.")
	}
	crlf := bytes.Contains(text, []byte("\r\n"))
	var sums []Sum
	lines := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		n := len(sums) + 1
		if n > maxLines {
			return nil, registry.WithHint(fmt.Errorf("%w SHA256SUMS: it has more than %d lines", registry.ErrInvalid, maxLines), oneVersion)
		}
		sum, err := parseSum(line, crlf)
		if err != nil {
			return nil, fmt.Errorf("%w SHA256SUMS, line %d: %w", registry.ErrInvalid, n, err)
		}
		if before := lines[sum.Filename]; before > 0 {
			return nil, registry.WithHint(fmt.Errorf("%w SHA256SUMS, line %d: %s is in line %d already",
				registry.ErrInvalid, n, sum.Filename, before), "List each file once, and sign the file again.")
		}
		lines[sum.Filename] = n
		sums = append(sums, sum)
	}
	return sums, nil
}

// parseSum reads one line with its end. Clients do not miss the end of the last one.
func parseSum(line string, crlf bool) (Sum, error) {
	const digits = 64
	line, ended := strings.CutSuffix(line, "\n")
	if ended {
		var cr bool
		if line, cr = strings.CutSuffix(line, "\r"); cr != crlf {
			return Sum{}, registry.WithHint(
				errors.New("some lines end in LF and others in CR LF"),
				"Write the file with one of them, and sign it again.")
		}
	}
	if line == "" {
		return Sum{}, registry.WithHint(
			errors.New("it is blank, over which clients crash"),
			"Take it out, and sign the file again.")
	}
	if len(line) < digits+2 || strings.Trim(line[:digits], "0123456789abcdefABCDEF") != "" || line[digits] != ' ' {
		return Sum{}, registry.WithHint(
			fmt.Errorf("%.80q is not 64 hexadecimal digits, two spaces and a file name", line),
			"Take out comments and headings, and sign the file again.")
	}
	sum, mode, name := line[:digits], line[digits+1], line[digits+2:]
	if strings.ToLower(sum) != sum {
		return Sum{}, registry.WithHint(
			errors.New("the digits are in upper case, which does not fit the hashes that clients are given"),
			"Write them in lower case, and sign the file again.")
	}
	if mode == '*' {
		return Sum{}, registry.WithHint(
			errors.New("there is a * before the name, and clients do not find the file"),
			"Use `sha256sum` without `-b`, and sign the file again.")
	}
	if mode != ' ' {
		return Sum{}, registry.WithHint(
			fmt.Errorf("%.80q has one space, not two, before the name", line),
			"Write it as `sha256sum` does, and sign the file again.")
	}
	if name == "" || name == "." || name == ".." || len(name) > maxFilename || strings.Contains(name, "/") || !registry.IsPlain(name) {
		return Sum{}, registry.WithHint(
			fmt.Errorf("%.80q is not a plain file name, of letters, digits and . _ ~ + -, without a folder", name),
			"Run sha256sum within the folder, and sign the file again.")
	}
	return Sum{SHA256: sum, Filename: name}, nil
}

// RenderSums writes a SHA256SUMS, sorted by file name.
func RenderSums(sums []Sum) []byte {
	sorted := slices.SortedFunc(slices.Values(sums), func(a, b Sum) int { return strings.Compare(a.Filename, b.Filename) })
	var out bytes.Buffer
	for _, s := range sorted {
		out.WriteString(s.SHA256 + "  " + s.Filename + "\n")
	}
	return out.Bytes()
}
