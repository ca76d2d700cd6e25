package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/progress"
)

// H1 returns the h1 digest of the files of a packed module. It does not depend on how
// they are packed. The archive must be one that [Pack] has written or that
// [ReadModule] accepts.
//
// Source: golang.org/x/mod/sumdb/dirhash, Hash1.
func H1(ctx context.Context, packed io.Reader) (string, error) {
	plain, err := gzip.NewReader(progress.WithContext(ctx, packed))
	if err != nil {
		return "", err
	}
	var lines []string
	for in := tar.NewReader(plain); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, in); err != nil { //nolint:gosec // the size of the archive is known
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sum.Sum(nil), header.Name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	all := sha256.Sum256([]byte(strings.Join(lines, "")))
	return "h1:" + base64.StdEncoding.EncodeToString(all[:]), nil
}
