// Package providerfiles makes the files of a provider's version that an origin
// serves in tests.
package providerfiles

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/internal/testkit/keys"
)

// Zip returns a package with one executable file. No client could run it. The
// same arguments always give the same bytes.
func Zip(t testing.TB, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: name, Method: zip.Deflate}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Sum returns the SHA-256 digest of a file in hexadecimal.
func Sum(file []byte) string {
	s := sha256.Sum256(file)
	return hex.EncodeToString(s[:])
}

// Sign returns a detached signature from the time when the key was created. So
// an expired key can sign too, and no clock of a test is before the signature.
func Sign(t testing.TB, key keys.SigningKey, file []byte) []byte {
	t.Helper()
	ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(key.Private))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	config := &packet.Config{Time: ring[0].PrimaryKey.CreationTime.Local}
	if err := openpgp.DetachSign(&out, ring[0], bytes.NewReader(file), config); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
