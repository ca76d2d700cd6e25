package arguments

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// ParseAge parses an age: days such as 30d or hours such as 12h. Unlike the
// lifetime of a token, an age cannot be never.
func ParseAge(s string) (time.Duration, error) {
	age, err := ParseLifetime(s)
	if err != nil || age == 0 {
		return 0, fmt.Errorf("%w age %q: it must be days such as 30d or hours such as 12h, up to 3650d",
			registry.ErrInvalid, s)
	}
	return age, nil
}

// MaxKeyFile is the maximum size of a key file, in bytes.
const MaxKeyFile = 256 << 10

// CheckNamespace returns [registry.ErrInvalid] if a namespace is not valid.
func CheckNamespace(s string) error {
	if _, err := registry.ParseProvider(s + "/x"); err != nil {
		return registry.WithHint(fmt.Errorf("%w namespace %q: it must consist of lower-case letters, digits and hyphens",
			registry.ErrInvalid, s), "It is the first part of an address, such as acme in acme/inventory.")
	}
	return nil
}

// ReadFile reads a file, or a pipe, of at most limit bytes. It returns
// [registry.ErrInvalid] if the file cannot be read or is larger, and
// [fs.ErrPermission] if the user may not read it.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w file %s: it is larger than %d bytes", registry.ErrInvalid, path, limit)
	}
	return data, nil
}

func unreadable(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return regularfile.Unreadable(path, err)
	}
	return registry.Errorf(registry.ErrInvalid, "%w", regularfile.Unreadable(path, err))
}

// Version parses an optional VERSION. It returns nil without one.
func Version(args []string) (*registry.Version, error) {
	if len(args) == 0 {
		return nil, nil //nolint:nilnil // nil means the newest version
	}
	v, err := registry.ParseTag(args[0])
	return &v, err
}

// Day is a day of 24 hours.
const Day = 24 * time.Hour

// ParseLifetime parses the lifetime of a token. It returns 0 for a token that
// never expires.
func ParseLifetime(s string) (time.Duration, error) {
	if s == "never" {
		return 0, nil
	}
	wrong := fmt.Errorf("%w lifetime %q: it must be days such as 90d, hours such as 12h, up to 3650d, or never",
		registry.ErrInvalid, s)
	unit := time.Hour
	number, isHours := strings.CutSuffix(s, "h")
	if !isHours {
		var isDays bool
		if number, isDays = strings.CutSuffix(s, "d"); !isDays {
			return 0, wrong
		}
		unit = Day
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 3650*24 || time.Duration(n)*unit > 3650*Day {
		return 0, wrong
	}
	return time.Duration(n) * unit, nil
}

// ReadToken reads a token, which is one line, such as from standard input.
func ReadToken(from io.Reader) (string, error) {
	const maxLen = 16 << 10 // bytes
	line, err := bufio.NewReader(io.LimitReader(from, maxLen+1)).ReadString('\n')
	token := strings.TrimSpace(line)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", err
	case token == "" || len(line) > maxLen:
		return "", Errorf("there is no token on standard input: it must be one line")
	}
	return token, nil
}
