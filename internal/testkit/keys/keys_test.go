package keys_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"

	"github.com/larder-registry/larder/internal/testkit/keys"
)

// Only a key's public key verifies its signatures, and it has the key's expiry.
func TestSignRelease(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		algorithm string
		expires   time.Duration
		want      error
	}{
		{"RSA 2048", 0, nil},
		{"RSA 4096", 0, nil},
		{"Ed25519", 0, nil},
		{"P-256", 0, nil},
		{"P-384", 0, nil},
		{"Ed25519", time.Hour, nil},
		{"Ed25519", -time.Hour, pgperrors.ErrKeyExpired},
		{"RSA 2048", -time.Second, pgperrors.ErrKeyExpired},
	} {
		t.Run(test.algorithm+" "+test.expires.String(), func(t *testing.T) {
			t.Parallel()
			key, err := keys.NewSigningKey(test.algorithm, test.expires)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			sums := []byte("sums\n")
			if err := os.WriteFile(filepath.Join(dir, "a_SHA256SUMS"), sums, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := key.SignRelease(dir); err != nil {
				t.Fatal(err)
			}
			ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(key.Public))
			if err != nil {
				t.Fatal(err)
			}
			signature, err := os.ReadFile(filepath.Join(dir, "a_SHA256SUMS.sig"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := openpgp.CheckDetachedSignature(ring, bytes.NewReader(sums), bytes.NewReader(signature),
				nil); !errors.Is(err, test.want) {
				t.Error(err)
			}
			if _, err := openpgp.CheckDetachedSignature(ring, strings.NewReader("others\n"),
				bytes.NewReader(signature), nil); err == nil {
				t.Error("it verifies a text that it has not signed")
			}
			if ring[0].PrivateKey != nil || ring[0].PrimaryKey.Version != 4 {
				t.Error("it is not a public key of version 4")
			}
			if err := os.WriteFile(filepath.Join(dir, "b_SHA256SUMS"), sums, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := key.SignRelease(dir); err == nil {
				t.Error("it signs a folder with two SHA256SUMS")
			}
		})
	}
	for algorithm, expires := range map[string]time.Duration{"DSA": 0, "P-256": time.Millisecond,
		"P-384": 200 * 365 * 24 * time.Hour} {
		if _, err := keys.NewSigningKey(algorithm, expires); err == nil {
			t.Errorf("a key %s that expires after %s is created", algorithm, expires)
		}
	}
}
