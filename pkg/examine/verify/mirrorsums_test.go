package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirrorSigned adds the SHA256SUMS of the origin to a mirrored version, and
// returns its record.
func (d data) mirrorSigned(t *testing.T, v string) registry.MirrorVersion {
	t.Helper()
	dir := t.TempDir()
	key, err := signer()
	if err == nil {
		err = release(dir, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := func(end string) ([]byte, registry.StoredFile) {
		name := "terraform-provider-inventory_" + v + "_SHA256SUMS" + end
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256(text)
		sum := hex.EncodeToString(digest[:])
		return text, registry.StoredFile{Object: mirrored.FileKey(version(v), sum, name), SHA256: sum, Size: int64(len(text))}
	}
	var sums publish.MirrorSums
	sums.SumsData, sums.Sums = file("")
	sums.SignatureData, sums.Signature = file(".sig")
	sums.Keys = []registry.PublicKey{{ASCIIArmor: string(key.Public)}}
	sums.Lists = func(filename, sha256 string) bool { return signing.Lists(sums.SumsData, filename, sha256) }
	by, err := signing.VerifyOrigin(registry.Armored(sums.Keys), sums.SumsData, sums.SignatureData, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	sums.SigningKey = by.ID
	record := registry.MirrorVersion{Version: version(v)}
	if record, _, err = d.publisher().MirrorSigned(t.Context(), mirrored, record, nil, &sums); err != nil {
		t.Fatal(err)
	}
	return record
}

// varying matches what differs from run to run, because a key is made for each.
var varying = regexp.MustCompile(`[0-9a-f]{64}|[0-9A-F]{16}|\d+ bytes`)

// What clients would reject of the SHA256SUMS of a mirrored version is a fault.
func TestMirroredSums(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const v, here = "1.0.0", "mirror/registry.example.com/acme/inventory"
	edited := func(edit func(*registry.MirrorVersion)) func(*testing.T, data, registry.MirrorVersion) {
		return func(t *testing.T, d data, _ registry.MirrorVersion) {
			d.item(t, here, "version/"+v, record(t, edit))
		}
	}
	object := func(of func(registry.MirrorSums) registry.StoredFile,
		change func([]byte) []byte) func(*testing.T, data, registry.MirrorVersion) {
		return func(t *testing.T, d data, r registry.MirrorVersion) { d.object(t, of(r.Sums[0]).Object, change) }
	}
	sums := func(s registry.MirrorSums) registry.StoredFile { return s.Sums }
	signature := func(s registry.MirrorSums) registry.StoredFile { return s.Signature }
	for name, test := range map[string]struct {
		corrupt func(*testing.T, data, registry.MirrorVersion)
		want    string // empty: nothing
	}{
		"valid":                 {func(*testing.T, data, registry.MirrorVersion) {}, ""},
		"SHA256SUMS is missing": {object(sums, nil), "version-without-object " + here + " " + v},
		"SHA256SUMS is changed": {object(sums, func(b []byte) []byte { return bytes.ToUpper(b) }), "sha256 " + here + " " + v},
		"signature is missing":  {object(signature, nil), "version-without-object " + here + " " + v},
		"signature is cut":      {object(signature, func(b []byte) []byte { return b[1:] }), "size " + here + " " + v},
		"keys are missing": {edited(func(r *registry.MirrorVersion) { r.Sums[0].Keys = nil }),
			"listing " + here + "; signature " + here + " " + v},
		"package that it does not list": {edited(func(r *registry.MirrorVersion) { r.Packages[0].Filename = "other.zip" }),
			"sums " + here + " " + v},
		"other signer": {edited(func(r *registry.MirrorVersion) { r.Sums[0].SigningKey = "0C0AF313E5FD9F80" }),
			"signature " + here + " " + v},
		"keys of another": {func(t *testing.T, d data, r registry.MirrorVersion) {
			other, err := keys.NewSigningKey("P-256", 0)
			if err != nil {
				t.Fatal(err)
			}
			edited(func(r *registry.MirrorVersion) { r.Sums[0].Keys[0].ASCIIArmor = string(other.Public) })(t, d, r)
		}, "signature " + here + " " + v},
		"gone from the record": {func(t *testing.T, d data, r registry.MirrorVersion) {
			d.item(t, here, "version/"+v, record(t, func(r *registry.MirrorVersion) { r.Sums, r.Packages[0].Sums = nil, 0 }))
			d.object(t, r.Sums[0].Sums.Object, nil)
			d.object(t, r.Sums[0].Signature.Object, nil)
		}, "listing " + here + "; record " + here + " " + v},
		"not used": {func(t *testing.T, d data, r registry.MirrorVersion) {
			content := []byte("another")
			digest := sha256.Sum256(content)
			key := mirrored.FileKey(version(v), hex.EncodeToString(digest[:]), "terraform-provider-inventory_1.0.0_SHA256SUMS")
			if err := d.store.PutOnce(t.Context(), key, bytes.NewReader(content), objects.Digest{
				SHA256: hex.EncodeToString(digest[:]), Size: int64(len(content)),
			}); err != nil {
				t.Fatal(err)
			}
		}, "object-without-version " + here + " " + v + " (note)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			test.corrupt(t, d, d.mirrorSigned(t, v))
			report := d.verified(t)
			want := []string{}
			if test.want != "" {
				want = strings.Split(test.want, "; ")
			}
			if diff := cmp.Diff(want, summary(report)); diff != "" {
				t.Fatalf("(-want +got):\n%s\n%+v", diff, report.Findings)
			}
			for _, f := range report.Findings {
				texts.Text(t, varying.ReplaceAllString(f.Detail+"\n  fix: "+f.Fix+"\n", "…"))
			}
		})
	}
}
