package rules_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ProtonMail/go-crypto/openpgp/s2k"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// TestProviderProblems checks that all problems of a release are reported at
// once, without those that only follow from another problem.
func TestProviderProblems(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	stranger, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	const name = "terraform-provider-inventory_1.0.0"
	program := map[string]string{"terraform-provider-inventory": "program"}
	for what, test := range map[string]struct {
		change func(*testing.T, builds.Release)
		keys   bool // the namespace has the key
		what   string
	}{
		"a first release": {func(t *testing.T, r builds.Release) {
			remove(t, r, "_SHA256SUMS", "_SHA256SUMS.sig", "_manifest.json")
			r.Write(t, name+"_darwin_arm64.zip", "not a zip")
			r.Zip(t, "terraform-provider-inventory-1.0.0-windows-amd64.zip", program)
			r.Zip(t, name+".zip", program)
		}, false, "publish acme/inventory 1.0.0"},
		"no name with a version": {func(t *testing.T, r builds.Release) {
			remove(t, r, "_linux_amd64.zip", "_darwin_arm64.zip", "_SHA256SUMS", "_SHA256SUMS.sig", "_manifest.json")
			r.Zip(t, name+".zip", program)
		}, false, "publish acme/inventory"},
		"another folder": {func(t *testing.T, r builds.Release) {
			remove(t, r, "_linux_amd64.zip", "_darwin_arm64.zip", "_SHA256SUMS", "_SHA256SUMS.sig", "_manifest.json")
		}, false, "publish acme/inventory"},
		"no folder": {func(t *testing.T, r builds.Release) {
			if err := os.RemoveAll(r.Dir); err != nil {
				t.Fatal(err)
			}
		}, true, "publish acme/inventory"},
		"two versions": {func(t *testing.T, r builds.Release) {
			r.Zip(t, "terraform-provider-inventory_1.1.0_linux_amd64.zip", program)
			r.Zip(t, "terraform-provider-other_1.0.0_linux_amd64.zip", program)
			r.Zip(t, "terraform-provider-other_1.0.0_linux_arm64.zip", program)
		}, true, "publish acme/inventory"},
		"sums of another build, signed by a stranger": {func(t *testing.T, r builds.Release) {
			r.Zip(t, name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "another program"})
			r.Zip(t, name+"_linux_arm64.zip", program)
			remove(t, r, "_darwin_arm64.zip")
			if err := stranger.SignRelease(r.Dir); err != nil {
				t.Fatal(err)
			}
		}, true, "publish acme/inventory 1.0.0"},
		"files that changed after signing": {func(t *testing.T, r builds.Release) {
			r.Zip(t, name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "another program"})
			r.Zip(t, name+"_linux_arm64.zip", program)
			r.Write(t, name+"_windows_amd64.zip", "not a zip, and not listed")
			remove(t, r, "_darwin_arm64.zip")
		}, true, "publish acme/inventory 1.0.0"},
		"a zip that is damaged and listed": {func(t *testing.T, r builds.Release) {
			r.Write(t, name+"_linux_amd64.zip", "not a zip")
		}, true, "publish acme/inventory 1.0.0"},
		"a manifest that is listed and missing": {func(t *testing.T, r builds.Release) {
			remove(t, r, "_manifest.json")
		}, true, "publish acme/inventory 1.0.0"},
		"a manifest that is listed and too large": {func(t *testing.T, r builds.Release) {
			r.Write(t, name+"_manifest.json", strings.Repeat(" ", 5<<20))
		}, true, "publish acme/inventory 1.0.0"},
		"a manifest that is listed and a link to a folder": {func(t *testing.T, r builds.Release) {
			remove(t, r, "_manifest.json")
			if err := os.Symlink(t.TempDir(), filepath.Join(r.Dir, name+"_manifest.json")); err != nil {
				t.Skip("LEFT OUT: no symbolic links:", err)
			}
		}, true, "publish acme/inventory 1.0.0"},
		"another manifest than is listed": {func(t *testing.T, r builds.Release) {
			r.Write(t, name+"_manifest.json", "{}")
		}, true, "publish acme/inventory 1.0.0"},
		"no version": {func(t *testing.T, r builds.Release) {
			for _, file := range []string{"_linux_amd64.zip", "_darwin_arm64.zip"} {
				renamed := filepath.Join(r.Dir, "terraform-provider-inventory_v1.0.0"+file)
				if err := os.Rename(filepath.Join(r.Dir, name+file), renamed); err != nil {
					t.Fatal(err)
				}
			}
			remove(t, r, "_SHA256SUMS", "_SHA256SUMS.sig", "_manifest.json")
		}, true, "publish acme/inventory"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := builds.NewRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
			test.change(t, r)
			var has []registry.SigningKey
			if test.keys {
				has = namespaceKeys(t)
			}
			_, err := rules.Preparer{}.ProviderFor(t.Context(), provider(r), has, true)
			all, ok := errors.AsType[*errs.ProblemsError](err)
			if !ok || !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("got error %v, want a ProblemsError of ErrInvalid", err)
			}
			if all.What != test.what {
				t.Errorf("the problems are those of %q, want %q", all.What, test.what)
			}
			recordProblems(t, texts, all.Problems, r.Dir)
		})
	}
}

// variable matches the parts of errors that differ between test runs: key IDs
// and SHA256 sums.
var variable = regexp.MustCompile(`\b[0-9A-F]{16}\b|\b[0-9a-f]{64}\b`)

// recordProblems records all problems in texts.
func recordProblems(t *testing.T, texts *golden.Texts, problems []error, dir string) {
	t.Helper()
	for _, problem := range problems {
		replace := []string{dir, "DIR"}
		for _, text := range variable.FindAllString(problem.Error(), -1) {
			replace = append(replace, text, "VARIABLE")
		}
		texts.Error(t, problem, replace...)
	}
}

func remove(t *testing.T, r builds.Release, ends ...string) {
	t.Helper()
	for _, end := range ends {
		if err := os.Remove(filepath.Join(r.Dir, r.Name+end)); err != nil {
			t.Fatal(err)
		}
	}
}

// namespaceKeys returns the keys that sign the releases of package builds.
func namespaceKeys(t *testing.T) []registry.SigningKey {
	t.Helper()
	signer, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParseKey(signer.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return []registry.SigningKey{{ID: key.ID, ASCIIArmor: key.ASCIIArmor}}
}

// TestProviderFor checks that the keys of the namespace do not change the
// prepared release.
func TestProviderFor(t *testing.T) {
	t.Parallel()
	r := builds.NewRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	keys := namespaceKeys(t)
	for _, unpack := range []bool{true, false} {
		prepared, err := rules.Preparer{}.ProviderFor(t.Context(), provider(r), keys, unpack)
		if err != nil {
			t.Fatal(err)
		}
		if prepared.Record.SigningKey != keys[0].ID || len(prepared.Files) != 5 {
			t.Errorf("key %s, %d files", prepared.Record.SigningKey, len(prepared.Files))
		}
		if first := prepared.Files[0]; (first.Zip == nil) != unpack || (prepared.Record.Packages[0].H1 != "") != unpack {
			t.Errorf("unpack %t: %+v, %+v", unpack, first, prepared.Record.Packages[0])
		}
	}
}

// TestProviderInterrupted checks that an error which is not a problem of the
// release ends the check.
func TestProviderInterrupted(t *testing.T) {
	t.Parallel()
	r := builds.NewRelease(t, "1.0.0", "linux_amd64")
	remove(t, r, "_manifest.json")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rules.Preparer{}.Provider(ctx, provider(r))
	if _, ok := errors.AsType[*errs.ProblemsError](err); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestModuleProblems checks that the problems of a module are reported at once,
// by file, line and column.
func TestModuleProblems(t *testing.T) {
	t.Parallel()
	m := rules.Module{
		Dir: t.TempDir(), Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"},
		Version: registry.Version{Major: 1}, Description: "two\nlines",
	}
	for name, content := range map[string]string{
		"good.tf": "# good\n", "main.tf": "locals {}\noutput \"a\" {\n", "x.tf": "variable \"x\" \"y\" {}\n",
	} {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := rules.Preparer{}.Module(t.Context(), m)
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok || !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("got error %v, want a ProblemsError of ErrInvalid", err)
	}
	if all.What != "publish acme/vpc/aws 1.0.0" {
		t.Errorf("the problems are those of %q", all.What)
	}
	recordProblems(t, golden.New(t), all.Problems, m.Dir)
}

// TestModuleWithCallOutside checks that a folder is not published if it calls
// another one, and that a packed module is copied as it is.
func TestModuleWithCallOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content := []byte("module \"network\" {\n  source = \"../network\"\n}\n")
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	m := rules.Module{
		Dir: dir, Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, Version: registry.Version{Major: 1},
	}
	_, err := rules.Preparer{}.Plan(t.Context(), m)
	const want = "cannot publish acme/vpc/aws 1.0.0: invalid module: main.tf:2 calls ../network, " +
		"which is outside of the published folder"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	packed, err := os.Create(filepath.Join(t.TempDir(), "vpc.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if _, err := archive.Pack(t.Context(), dir, archive.Options{}, packed); err != nil {
		t.Fatal(err)
	}
	m.Dir, m.Archive = "", packed.Name()
	prepared, err := rules.Preparer{}.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	prepared.Close()
}

// TestPassphraseProblem checks that ErrPassphrase is only returned if there are
// no problems.
func TestPassphraseProblem(t *testing.T) {
	t.Parallel()
	r := builds.NewRelease(t, "1.0.0", "linux_amd64")
	remove(t, r, "_SHA256SUMS", "_SHA256SUMS.sig")
	m := provider(r)
	m.SignKey = encryptedKey(t)
	_, err := rules.Preparer{}.Provider(t.Context(), m)
	if _, ok := errors.AsType[*errs.ProblemsError](err); ok || !errors.Is(err, signing.ErrPassphrase) {
		t.Errorf("nothing else is wrong: %v", err)
	}
	remove(t, r, "_manifest.json")
	_, err = rules.Preparer{}.Provider(t.Context(), m)
	if all, ok := errors.AsType[*errs.ProblemsError](err); !ok || errors.Is(err, signing.ErrPassphrase) {
		t.Errorf("the manifest is missing: %v", err)
	} else {
		recordProblems(t, golden.New(t), all.Problems, m.Dir)
	}
}

// TestPassphraseOfAKeyOfNoUse checks that ErrPassphrase is not returned for a
// key that the namespace does not have.
func TestPassphraseOfAKeyOfNoUse(t *testing.T) {
	t.Parallel()
	r := builds.NewRelease(t, "1.0.0", "linux_amd64")
	remove(t, r, "_SHA256SUMS", "_SHA256SUMS.sig")
	m := provider(r)
	m.SignKey = encryptedKey(t)
	id, err := signing.PrivateKeyID(m.SignKey)
	if err != nil {
		t.Fatal(err)
	}
	texts := golden.New(t)
	for _, keys := range [][]registry.SigningKey{nil, namespaceKeys(t)} {
		_, err := rules.Preparer{}.ProviderFor(t.Context(), m, keys, true)
		if all, ok := errors.AsType[*errs.ProblemsError](err); !ok || errors.Is(err, signing.ErrPassphrase) {
			t.Errorf("%d keys: %v", len(keys), err)
		} else {
			recordProblems(t, texts, all.Problems, m.Dir)
		}
		if keys != nil && !strings.Contains(err.Error(), id) {
			t.Errorf("the error does not contain the key ID %s: %v", id, err)
		}
	}
	has := []registry.SigningKey{{ID: id}}
	if _, err := (rules.Preparer{}).ProviderFor(t.Context(), m, has, true); !errors.Is(err, signing.ErrPassphrase) {
		t.Errorf("the namespace has the key: %v", err)
	}
}

func encryptedKey(t *testing.T) []byte {
	t.Helper()
	e, err := openpgp.NewEntity("Acme", "", "releases@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	fast := &packet.Config{S2KConfig: &s2k.Config{S2KMode: s2k.IteratedSaltedS2K, S2KCount: 65536}}
	if err := e.EncryptPrivateKeys([]byte("passphrase"), fast); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := e.SerializePrivateWithoutSigning(&out, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
