package rules_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

const (
	zip      = "terraform-provider-inventory_1.0.0_linux_amd64.zip"
	manifest = "terraform-provider-inventory_1.0.0_manifest.json"
)

// The names in SHA256SUMS are those of a stranger. Only files of the folder are read.
func TestNamesInSums(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := builds.NewRelease(t, "1.0.0", "linux_amd64")
	name := r.Name + "_SHA256SUMS"
	text, err := os.ReadFile(filepath.Join(r.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	to, err := filepath.Rel(r.Dir, secret)
	if err != nil {
		t.Fatal(err)
	}
	r.Write(t, name, string(text)+strings.Repeat("0a", 32)+"  "+to+"\n")
	r.Resign(t)
	copied := rules.Provider{
		Dir: r.Dir, Address: registry.Provider{Namespace: "acme", Type: "inventory"},
		CopiedFrom: &registry.CopiedFrom{Source: "registry.example.com/acme/inventory"},
	}
	if _, err := (rules.Preparer{}).Provider(t.Context(), copied); err != nil {
		t.Errorf("a copy, whose clients ignore this line: %v", err)
	}
	copied.CopiedFrom = nil
	prepared, err := (rules.Preparer{}).Provider(t.Context(), copied)
	if err == nil {
		err = prepared.CheckNew()
	}
	if err == nil || strings.Contains(err.Error(), "has sha256:") {
		t.Errorf("a new version: %v, want an error without the digest of another file", err)
	}
}

func TestCheckSums(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	type sums = map[string]string
	for name, test := range map[string]struct {
		files    sums
		manifest string
		listed   sums
		want     string // the file in the error, or empty for none
	}{
		"all of them": {
			sums{zip: "a", "x.txt": "c"}, "b", sums{zip: "a", manifest: "b", "x.txt": "c"}, "",
		},
		"a file that no client reads":     {sums{zip: "a"}, "", sums{zip: "a", "x.txt": "c"}, ""},
		"a manifest that is not listed":   {sums{zip: "a", manifest: "b"}, "b", sums{zip: "a"}, ""},
		"a manifest by another name":      {sums{zip: "a", manifest: "b"}, "b", sums{zip: "a", "x_manifest.json": "b"}, ""},
		"another zip":                     {sums{zip: "a"}, "", sums{zip: "b"}, zip},
		"another manifest":                {sums{zip: "a", manifest: "c"}, "c", sums{zip: "a", manifest: "b"}, manifest},
		"another manifest by such a name": {sums{zip: "a"}, "c", sums{zip: "a", "x_manifest.json": "b"}, "x_manifest.json"},
		"another file":                    {sums{zip: "a", "x.txt": "d"}, "", sums{zip: "a", "x.txt": "c"}, "x.txt"},
		"a zip that is not listed":        {sums{zip: "a"}, "", sums{}, zip},
		"a zip that is missing":           {sums{}, "", sums{zip: "a"}, zip},
		"a manifest that is missing":      {sums{zip: "a"}, "", sums{zip: "a", manifest: "b"}, manifest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tolerated errs.Tolerated
			err := rules.CheckSums(test.files, test.manifest, test.listed, &tolerated)
			isMissing := strings.HasSuffix(name, "that is missing") // clients install the rest
			if notes := tolerated.Notes(); isMissing != (len(notes) > 0) || isMissing && err != nil {
				t.Errorf("the notes are %q, with the error %v", notes, err)
			}
			if err == nil {
				err = tolerated.Check("")
			}
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("got error %v, want ErrInvalid", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error does not contain %q: %v", test.want, err)
			}
			texts.Error(t, err)
		})
	}
}

// TestCheckSame checks that published versions are compared by their content.
func TestCheckSame(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	stored := registry.ModuleVersion{Version: registry.Version{Major: 1}, SHA256: "archive", ContentSHA256: "content"}
	inventory := registry.Provider{Namespace: "acme", Type: "inventory"}
	release := registry.ProviderVersion{
		Version: registry.Version{Major: 1}, Protocols: []string{"5.0", "6.0"},
		Sums: registry.StoredFile{SHA256: "sums"}, SigningKey: "KEY",
	}
	for name, test := range map[string]struct {
		err    error
		exists bool // whether err is ErrExists
	}{
		"the same archive": {rules.CheckSameModule(vpc, stored, "archive", ""), false},
		"the same content": {rules.CheckSameModule(vpc, stored, "another", "content"), false},
		"another module":   {rules.CheckSameModule(vpc, stored, "another", "other"), true},
		"the same release": {rules.CheckSameProvider(inventory, release, "sums", release.Protocols), false},
		"other sums":       {rules.CheckSameProvider(inventory, release, "other", release.Protocols), true},
		"other protocols":  {rules.CheckSameProvider(inventory, release, "sums", []string{"6.0"}), true},
		"its key": {
			rules.CheckSigner(inventory, release, []registry.SigningKey{{ID: "X"}, {ID: "KEY"}}), false,
		},
		"a key that is not there":  {rules.CheckSigner(inventory, release, []registry.SigningKey{{ID: "X"}}), true},
		"a namespace without keys": {rules.CheckSigner(inventory, release, nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !test.exists {
				if test.err != nil {
					t.Error(test.err)
				}
				return
			}
			if !errors.Is(test.err, registry.ErrExists) {
				t.Errorf("got error %v, want ErrExists", test.err)
			}
			texts.Error(t, test.err)
		})
	}
	// A publisher may not be a reader, so the error does not contain sums.
	if err := rules.CheckSameModule(vpc, stored, "another", "other"); strings.Contains(err.Error(), "sha256") {
		t.Errorf("the error describes the stored content: %v", err)
	}
}

// A release has only as many platforms as fit into an item of the table.
func TestPlatformsOfARelease(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]error{200: nil, 201: registry.ErrInvalid} {
		names := make([]string, count)
		for i := range names {
			names[i] = fmt.Sprintf("terraform-provider-inventory_1.0.0_os%d_amd64.zip", i)
		}
		found, err := rules.ParseNames("inventory", names)
		if !errors.Is(err, want) || len(found.Zips) != count {
			t.Errorf("%d platforms: %v with %d of them, want %v", count, err, len(found.Zips), want)
		}
		if err != nil && registry.Hint(err) == "" {
			t.Errorf("%v has no hint", err)
		}
	}
}

// A new version only has platforms that clients request, and others that the
// publisher allows.
func TestCheckPlatforms(t *testing.T) {
	t.Parallel()
	for platform, hint := range map[string]string{
		"linux_amd64": "", "windows_arm": "", "freebsd_riscv64": "", "darwin_arm64": "",
		"darwin_all":      "Did you mean darwin_arm64? Zip the program again for darwin_amd64.",
		"linux_armv6":     "Did you mean linux_arm?",
		"linux_armv7":     "Did you mean linux_arm?",
		"macos_arm64":     "Did you mean darwin_arm64?",
		"linux_aarch64":   "Did you mean linux_arm64?",
		"linux_amd46":     "Did you mean linux_amd64?",
		"windows_i386":    "Did you mean windows_386?",
		"haiku_sparc64":   "If a later release of a client requests it, use `--allow-platform haiku_sparc64`.",
		"freebsd_loong64": "If a later release of a client requests it, use `--allow-platform freebsd_loong64`.",
	} {
		parsed, err := registry.ParsePlatform(platform)
		if err != nil {
			t.Fatal(err)
		}
		zips := map[string]registry.Platform{"x_" + platform + ".zip": parsed}
		err = rules.CheckPlatforms(zips, []string{"later_one"})
		if errors.Is(err, registry.ErrInvalid) != (hint != "") {
			t.Errorf("%s: got error %v", platform, err)
		}
		if all, ok := errors.AsType[*errs.ProblemsError](err); ok && registry.Hint(all.Problems[0]) != hint {
			t.Errorf("%s: got hint %q, want %q", platform, registry.Hint(all.Problems[0]), hint)
		}
		if err := rules.CheckPlatforms(zips, []string{platform}); err != nil {
			t.Errorf("%s is allowed: %v", platform, err)
		}
	}
	if err := rules.CheckPlatforms(nil, []string{"x"}); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("got error %v for an allowed platform that is none", err)
	}
	_, err := rules.ParseNames("x", []string{"terraform-provider-x_1.0.0_windows_x86_64.zip"})
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok || registry.Hint(all.Problems[0]) != "Did you mean windows_amd64?" {
		t.Errorf("got error %v, want a hint at windows_amd64", err)
	}
}
