package signing

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Sum is a line of a SHA256SUMS file.
type Sum struct {
	// SHA256 in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
	// Filename of a package, without a folder.
	Filename string `json:"filename"`
}

// The limits of a SHA256SUMS file.
const (
	// MaxSums is the largest size, in bytes.
	MaxSums      = 1 << 20
	maxLines     = 1000  // of a new version
	maxRead      = 20000 // lines that are read
	maxTolerated = 21    // errors that are returned
	maxFilename  = 255   // bytes, the limit of common file systems
)

// oneVersion is the hint for a file that is too long.
const oneVersion = "List only the packages of one version."

// ParseSums parses the SHA256SUMS file of a new version. It returns
// registry.ErrInvalid for the first thing that makes some client fail or ignore a
// part of the file.
func ParseSums(text []byte) ([]Sum, error) {
	sums, tolerated, err := ReadSums(text)
	if len(tolerated) > 0 {
		err = tolerated[0]
	}
	if err != nil {
		return nil, err
	}
	return sums, nil
}

// ReadSums reads a SHA256SUMS file as clients do. The first two words of a line are
// the digest and the name. The first line with a name counts. tolerated has what a new
// version must not have. For example, a comment makes clients silently drop the
// checksums of all other platforms. The error is registry.ErrInvalid if no client can
// use the file. A blank line behind sums makes all of them panic.
func ReadSums(text []byte) (sums []Sum, tolerated []error, err error) {
	if len(text) > MaxSums {
		return nil, nil, registry.WithHint(
			fmt.Errorf("%w SHA256SUMS: it has more than %d bytes", registry.ErrInvalid, MaxSums), oneVersion)
	}
	if len(text) == 0 {
		return nil, nil, registry.WithHint(
			fmt.Errorf("%w SHA256SUMS: it is empty", registry.ErrInvalid), "Make it with `sha256sum *.zip`.")
	}
	if textfile.HasMark(text) {
		tolerated = append(tolerated, registry.WithHint(
			fmt.Errorf("%w SHA256SUMS: it begins with a byte order mark, which clients do not read", registry.ErrInvalid),
			"Save it as UTF-8 without a byte order mark, and sign it again."))
	}
	crlf := bytes.Contains(text, []byte("\r\n"))
	add := func(err error) {
		if len(tolerated) < maxTolerated {
			tolerated = append(tolerated, err)
		}
	}
	n, isSums := 0, true // clients read on while all lines are sums
	lines := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		n++
		if n > maxRead {
			return nil, tolerated, registry.WithHint(
				fmt.Errorf("%w SHA256SUMS: it has more than %d lines", registry.ErrInvalid, maxRead), oneVersion)
		}
		if n == maxLines+1 {
			add(registry.WithHint(
				fmt.Errorf("%w SHA256SUMS: it has more than %d lines", registry.ErrInvalid, maxLines), oneVersion))
		}
		sum, problem := parseSum(line, crlf)
		if problem != nil {
			problem = fmt.Errorf("%w SHA256SUMS, line %d: %w", registry.ErrInvalid, n, problem)
			words := strings.Fields(line)
			if len(words) == 0 && isSums {
				return nil, tolerated, problem
			}
			add(problem)
			if len(words) < 2 {
				isSums = false
				continue
			}
			sum = Sum{SHA256: strings.ToLower(words[0]), Filename: words[1]}
		}
		if before := lines[sum.Filename]; before > 0 {
			add(registry.WithHint(fmt.Errorf("%w SHA256SUMS, line %d: line %d lists %s already",
				registry.ErrInvalid, n, before, printable.Mark(sum.Filename, maxFilename)),
				"List each file once, and sign the file again."))
			continue
		}
		lines[sum.Filename] = n
		if !registry.IsSHA256(sum.SHA256) {
			isSums = false
			continue
		}
		sums = append(sums, sum)
	}
	return sums, tolerated, nil
}

// parseSum parses one line. Clients accept a last line without an end.
func parseSum(line string, crlf bool) (Sum, error) {
	const digits = 64
	line, ended := strings.CutSuffix(line, "\n")
	if ended {
		var cr bool
		if line, cr = strings.CutSuffix(line, "\r"); cr != crlf {
			return Sum{}, registry.WithHint(
				errors.New("some lines end in LF and others in CR LF"),
				"Use the same line ends in the whole file, and sign it again.")
		}
	}
	if line == "" {
		return Sum{}, registry.WithHint(
			errors.New("it is blank, which makes clients crash"),
			"Remove it, and sign the file again.")
	}
	if len(line) < digits+2 || strings.Trim(line[:digits], "0123456789abcdefABCDEF") != "" || line[digits] != ' ' {
		return Sum{}, registry.WithHint(
			fmt.Errorf("%.80q is not 64 hexadecimal digits, two spaces and a file name", line),
			"Remove comments and headings, and sign the file again.")
	}
	sum, mode, name := line[:digits], line[digits+1], line[digits+2:]
	if strings.ToLower(sum) != sum {
		return Sum{}, registry.WithHint(
			errors.New("the digits are in upper case, but registries send hashes in lower case"),
			"Write them in lower case, and sign the file again.")
	}
	if mode == '*' {
		return Sum{}, registry.WithHint(
			errors.New("there is a * in front of the name, so clients do not find the file"),
			"Use `sha256sum` without `-b`, and sign the file again.")
	}
	if mode != ' ' {
		return Sum{}, registry.WithHint(
			fmt.Errorf("%.80q has one space instead of two in front of the name", line),
			"Use the format of `sha256sum`, and sign the file again.")
	}
	reserved := name == "" || name == "." || name == ".."
	if reserved || len(name) > maxFilename || strings.Contains(name, "/") || !errs.IsPlain(name) {
		return Sum{}, registry.WithHint(
			fmt.Errorf("%.80q is not a file name of letters, digits and . _ ~ + - without a folder", name),
			"Run `sha256sum` within the folder, and sign the file again.")
	}
	return Sum{SHA256: sum, Filename: name}, nil
}

// RenderSums returns a SHA256SUMS file, sorted by file name.
func RenderSums(sums []Sum) []byte {
	sorted := slices.SortedFunc(slices.Values(sums), func(a, b Sum) int {
		return strings.Compare(a.Filename, b.Filename)
	})
	var out bytes.Buffer
	for _, s := range sorted {
		out.WriteString(s.SHA256 + "  " + s.Filename + "\n")
	}
	return out.Bytes()
}
