// Package textfile decodes the text files of people. Editors and shells write
// UTF-8, with a byte order mark or without, or UTF-16, such as > in PowerShell.
package textfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// The byte order marks.
const (
	markUTF8    = "\xEF\xBB\xBF"
	markUTF16LE = "\xFF\xFE"
	markUTF16BE = "\xFE\xFF"
)

// HasMark reports whether a text begins with a byte order mark.
func HasMark(text []byte) bool {
	for _, mark := range []string{markUTF8, markUTF16LE, markUTF16BE} {
		if bytes.HasPrefix(text, []byte(mark)) {
			return true
		}
	}
	return false
}

// Read returns the text of a file of at most limit bytes, with the errors of
// [regularfile.Read] and [Decode].
func Read(path string, limit int64) ([]byte, error) {
	text, err := regularfile.Read(path, limit)
	if err != nil {
		return nil, err
	}
	return Decode(filepath.Base(path), text)
}

// Replace writes a file atomically, so that only its owner can read it, and makes
// its folder. If path is a link, the file that it points to is replaced. An error
// is [errs.ErrDiskFull] if the disk is full.
func Replace(path string, text []byte) error {
	err := replace(path, text)
	// The rest of the error names a temporary file.
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	if failed, ok := errors.AsType[*os.LinkError](err); ok {
		err = failed.Err
	}
	return errs.DiskFull(err)
}

func replace(path string, text []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".larder-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // does nothing after the rename
	_, err = temporary.Write(text)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// Decode returns a text in UTF-8 without a byte order mark. The mark decides
// whether the text is UTF-8 or UTF-16, and without one it is UTF-8. The result
// has at most one and a half times the bytes.
//
// Decode returns [errs.ErrInvalid] for any other encoding, and for a NUL. The
// error has the name of the file.
func Decode(name string, text []byte) ([]byte, error) {
	decoded, problem := decode(text)
	if problem != "" {
		return nil, errs.WithHint(errs.Errorf(errs.ErrInvalid, "cannot read %s: %s", name, problem), "Save it as UTF-8.")
	}
	return decoded, nil
}

// Show returns any text in UTF-8, for people to read. It replaces what cannot be
// decoded and each NUL with U+FFFD. Text without a byte order mark that is not
// UTF-8 is taken for Windows-1252, which includes the characters of Latin-1. guess
// describes how it was decoded, unless [Decode] accepts the text.
func Show(text []byte) (shown, guess string) {
	decoded, guess := decode(text)
	if !HasMark(text) && !utf8.Valid(text) {
		guess += ", so it was read as Windows-1252"
		decoded, _ = charmap.Windows1252.NewDecoder().Bytes(text) // it fails for no text
	}
	shown = strings.ToValidUTF8(string(decoded), "\uFFFD")
	return strings.ReplaceAll(shown, "\x00", "\uFFFD"), guess
}

// decode decodes as much of a text as it can, and returns the first problem.
func decode(text []byte) (decoded []byte, problem string) {
	isUTF16 := true
	switch {
	case bytes.HasPrefix(text, []byte(markUTF16LE)):
		decoded = fromUTF16(text[len(markUTF16LE):], binary.LittleEndian)
	case bytes.HasPrefix(text, []byte(markUTF16BE)):
		decoded = fromUTF16(text[len(markUTF16BE):], binary.BigEndian)
	default:
		decoded, isUTF16 = bytes.TrimPrefix(text, []byte(markUTF8)), false
	}
	n := 0
	for line := range bytes.Lines(decoded) {
		n++
		switch {
		case bytes.IndexByte(line, 0) >= 0:
			return decoded, fmt.Sprintf("line %d has a NUL byte", n)
		case utf8.Valid(line):
		case isUTF16:
			return decoded, fmt.Sprintf("line %d is not valid UTF-16", n)
		default:
			return decoded, fmt.Sprintf("line %d is not UTF-8", n)
		}
	}
	return decoded, ""
}

// fromUTF16 returns a text in UTF-8. The byte 0xFF, which is not UTF-8, replaces
// what is not valid.
func fromUTF16(text []byte, order binary.ByteOrder) (decoded []byte) {
	const invalid = 0xFF
	for ; len(text) > 1; text = text[2:] {
		r := rune(order.Uint16(text))
		if utf16.IsSurrogate(r) {
			second := rune(0)
			if len(text) > 3 {
				second = rune(order.Uint16(text[2:]))
			}
			if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
				decoded = append(decoded, invalid)
				continue
			}
			text = text[2:]
		}
		decoded = utf8.AppendRune(decoded, r)
	}
	if len(text) > 0 {
		decoded = append(decoded, invalid)
	}
	return decoded
}
