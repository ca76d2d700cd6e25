package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
)

// built returns the folder with an unsigned release of a real provider, for
// platforms.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "larder-provider-")
	if err != nil {
		return "", err
	}
	return dir, clients.BuildProvider(context.Background(), dir, "1.0.0", platforms())
})

// platforms returns this machine's platform and another one.
func platforms() []string {
	other := "windows_amd64"
	return []string{clients.Platform(), other}
}

// releaseOf copies the provider's release to a new folder and signs it.
func releaseOf(t testing.TB, key keys.SigningKey) string {
	t.Helper()
	from, err := built()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := key.SignRelease(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func signingKey(t testing.TB, algorithm string) keys.SigningKey {
	t.Helper()
	key, err := keys.NewSigningKey(algorithm, 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// keyFile writes the public key to a file.
func keyFile(t testing.TB, key keys.SigningKey) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.asc")
	if err := os.WriteFile(file, key.Public, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func addKey(t testing.TB, data, namespace string, key keys.SigningKey) {
	t.Helper()
	larder(t, "key", "add", namespace, keyFile(t, key), "--store", "dir:"+data)
}

// note writes a configuration in which the provider writes a file.
func note(t testing.TB, source, version, path string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"main.tf": fmt.Sprintf(`terraform {
  required_providers {
    note = {
      source  = %q
      version = %q
    }
  }
}

resource "note_file" "it" {
  path    = %q
  content = "written"
}
`, source, version, path)})
	return dir
}

// Clients install and run a published provider after they have verified its
// signature.
func TestProvider(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", "dir:"+s.data)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		written := filepath.Join(t.TempDir(), "note.txt")
		dir := note(t, s.Host+"/acme/note", "1.0.0", written)
		session := session(t, c, s)
		out, err := session.Run(t.Context(), dir, "init", "-no-color")
		if err != nil || !strings.Contains(out, "signed") {
			t.Fatal(err, out)
		}
		if out, err := session.Run(t.Context(), dir, "apply", "-auto-approve"); err != nil {
			t.Fatal(err, out)
		}
		if text, err := os.ReadFile(written); err != nil || string(text) != "written" {
			t.Errorf("%q, %v", text, err)
		}
		lock, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))
		if err != nil {
			t.Fatal(err)
		}
		// There is an h1 hash for this platform, and a zh hash for each file in
		// SHA256SUMS.
		if h1, zh := strings.Count(string(lock), `"h1:`), strings.Count(string(lock), `"zh:`); h1 != 1 || zh != 3 {
			t.Errorf("%d h1 and %d zh:\n%s", h1, zh, lock)
		}
	})
}

// Both clients accept signatures by all supported kinds of keys.
func TestKeyAlgorithms(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	namespaces := map[string]string{
		"RSA 2048": "rsa2048",
		"RSA 4096": "rsa4096",
		"Ed25519":  "ed25519",
		"P-256":    "p256",
		"P-384":    "p384",
	}
	for algorithm, namespace := range namespaces {
		key := signingKey(t, algorithm)
		addKey(t, s.data, namespace, key)
		larder(t, "publish", "provider", releaseOf(t, key), namespace+"/note", "--store", "dir:"+s.data)
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		for algorithm, namespace := range namespaces {
			session := session(t, c, s)
			dir := note(t, s.Host+"/"+namespace+"/note", "1.0.0", "x")
			if out, err := session.Run(t.Context(), dir, "init", "-no-color"); err != nil ||
				!strings.Contains(out, "signed") {
				t.Errorf("%s: %v\n%s", algorithm, err, out)
			}
		}
	})
}

// After a new key is added, versions signed by the old key can still be
// installed. After the old key is removed, they cannot.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	old, young := signingKey(t, "Ed25519"), signingKey(t, "P-256")
	addKey(t, s.data, "acme", old)
	larder(t, "publish", "provider", releaseOf(t, old), "acme/note", "--store", "dir:"+s.data)
	addKey(t, s.data, "acme", young)
	next := t.TempDir()
	if err := clients.BuildProvider(t.Context(), next, "1.1.0", []string{clients.Platform()}); err != nil {
		t.Fatal(err)
	}
	if err := young.SignRelease(next); err != nil {
		t.Fatal(err)
	}
	larder(t, "publish", "provider", next, "acme/note", "--store", "dir:"+s.data)
	t.Run("both", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			for _, version := range []string{"1.0.0", "1.1.0"} {
				session := session(t, c, s)
				dir := note(t, s.Host+"/acme/note", version, "x")
				if out, err := session.Run(t.Context(), dir, "init", "-no-color"); err != nil {
					t.Errorf("%s: %v\n%s", version, err, out)
				}
			}
		})
	})
	listed := larder(t, "key", "list", "acme", "--store", "dir:"+s.data)
	ids := regexp.MustCompile(`(?m)^([0-9A-F]{16})  valid  (Ed25519|ECDSA P-256) .* 1 version `).
		FindAllStringSubmatch(listed, -1)
	if len(ids) != 2 {
		t.Fatalf("%s", listed)
	}
	for _, id := range ids {
		if id[2] != "Ed25519" {
			continue
		}
		remove := exec.CommandContext(t.Context(), "larder", "key", "remove", "acme", id[1], "--store", "dir:"+s.data)
		rejected, err := remove.CombinedOutput()
		if err == nil {
			t.Errorf("key remove without --force succeeds:\n%s", rejected)
		}
		forced := larder(t, "key", "remove", "acme", id[1], "--force", "--store", "dir:"+s.data)
		for _, out := range []string{string(rejected), forced} {
			if !strings.Contains(out, "acme/note 1.0.0") {
				t.Errorf("the output does not name the version that needs the key:\n%s", out)
			}
		}
		texts := golden.New(t)
		texts.Text(t, errorText(string(rejected)))
		texts.Text(t, "with --force:\n"+steady(forced))
	}
	t.Run("without the old key", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session := session(t, c, s)
			dir := note(t, s.Host+"/acme/note", "1.0.0", "x")
			if out, err := session.Run(t.Context(), dir, "init", "-no-color"); err == nil ||
				!strings.Contains(out, "sign") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	})
}

// Clients print the deprecation of a provider, until it is removed. They do not
// find a hidden version of a module.
func TestDeprecate(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	store := "dir:" + s.data
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", store)
	for _, v := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, s.data, "acme/vpc/aws", v, withOutput(v))
	}
	inits := func(t *testing.T, check func(out string, err error) bool) {
		t.Helper()
		t.Run("clients", func(t *testing.T) {
			clients.Each(t, func(t *testing.T, c clients.Client) {
				session := session(t, c, s)
				if out, err := session.Run(t.Context(), note(t, s.Host+"/acme/note", "1.0.0", "x"), "init", "-no-color"); !check(
					strings.Join(strings.Fields(out), " "),
					err,
				) {
					t.Error(err, out)
				}
			})
		})
	}
	larder(t, "deprecate", "acme/note", "1.0.0", "--message", "it forgets: use 2.0.0", "--store", store)
	inits(t, func(out string, err error) bool {
		return err == nil && strings.Contains(out, "Provider acme/note 1.0.0 is deprecated: it forgets: use 2.0.0")
	})
	larder(t, "deprecate", "acme/note", "1.0.0", "--undo", "--store", store)
	larder(t, "deprecate", "acme/note", "--message", "use acme/pad", "--store", store)
	inits(t, func(out string, err error) bool {
		return err == nil && strings.Contains(out, "Provider acme/note is deprecated: use acme/pad") &&
			!strings.Contains(out, "forgets")
	})
	larder(t, "deprecate", "acme/note", "--undo", "--store", store)
	inits(t, func(out string, err error) bool { return err == nil && !strings.Contains(out, "deprecated") })

	use := func(version, want string) {
		t.Helper()
		t.Run("module "+version, func(t *testing.T) {
			clients.Each(t, func(t *testing.T, c clients.Client) {
				dir := t.TempDir()
				writeFiles(
					t,
					dir,
					map[string]string{
						"main.tf": fmt.Sprintf(
							"module \"it\" {\n  source = %q\n  version = %q\n}\n",
							s.Host+"/acme/vpc/aws",
							version,
						),
					},
				)
				session := session(t, c, s)
				out, err := session.Run(t.Context(), dir, "init", "-no-color")
				if (err == nil) != (want != "") || !strings.Contains(out, want) {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
	larder(t, "deprecate", "acme/vpc/aws", "1.1.0", "--message", "opens a port", "--hide", "--store", store)
	if out := larder(t, "list", "acme/vpc/aws", "--store", store); !strings.Contains(out, "1.1.0    hidden  ") ||
		!strings.Contains(out, "  opens a port\n") {
		t.Error(out)
	}
	use(">= 1.0.0", "1.0.0 for it")
	use("1.1.0", "")
	larder(t, "deprecate", "acme/vpc/aws", "1.1.0", "--undo", "--store", store)
	use("1.1.0", "1.1.0 for it")
	larder(t, "deprecate", "acme/vpc/aws", "--message", "use acme/network/aws", "--store", store)
	if out := larder(t, "list", "--store", store); !strings.Contains(out, "1.1.0   deprecated  use acme/network/aws") {
		t.Error(out)
	}
}

// A publish that is killed leaves the whole version visible, or nothing. A second
// publish uploads the rest.
func TestKilledProviderPublish(t *testing.T) {
	t.Parallel()
	key := signingKey(t, "Ed25519")
	release := releaseOf(t, key)
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "larder", args...).CombinedOutput()
		return string(out), err
	}
	var got []string // what killed publishes had done
	for at := 1; ; at++ {
		data := newData(t)
		addKey(t, data, "acme", key)
		publish := []string{"publish", "provider", release, "acme/note", "--store", "dir:" + data}
		if !killed(t, at, "", publish...) {
			break
		}
		files, err := filepath.Glob(filepath.Join(data, "objects/providers/acme/note/1.0.0/*/*"))
		if err != nil {
			t.Fatal(err)
		}
		state, want := fmt.Sprintf("%d files", len(files)), "Published acme/note 1.0.0"
		if n := len(files); 0 < n && n < 4 {
			want = fmt.Sprintf("%d of 4 files are stored already", n)
		}
		if _, err := run("list", "acme/note", "--store", "dir:"+data); err == nil {
			state, want = state+", visible", "Unchanged: acme/note 1.0.0"
		}
		got = append(got, state)
		if out, err := run(publish...); err != nil || !strings.Contains(out, want) {
			t.Errorf("killed after %s, and published again: %v, want %q\n%s", state, err, want, out)
		}
	}
	want := []string{"0 files", "1 files", "2 files", "3 files", "4 files", "4 files, visible"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("killed publishes (-want +got):\n%s", diff)
	}
}

// Clients reject a zip, SHA256SUMS or signature if one byte has changed.
func TestTamperedProvider(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", "dir:"+s.data)
	for _, name := range []string{"_" + clients.Platform() + ".zip", "_SHA256SUMS", "_SHA256SUMS.sig"} {
		t.Run(name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(s.data, "objects/providers/acme/note/1.0.0/*/*"+name))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			good, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			changed := bytes.Clone(good)
			changed[len(changed)/2] ^= 1
			if err := os.WriteFile(files[0], changed, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { // after the clients' sub-tests
				if err := os.WriteFile(files[0], good, 0o600); err != nil {
					t.Error(err)
				}
			})
			clients.Each(t, func(t *testing.T, c clients.Client) {
				out, err := session(
					t,
					c,
					s,
				).Run(t.Context(), note(t, s.Host+"/acme/note", "1.0.0", "x"), "init", "-no-color")
				if err == nil || !strings.Contains(out, "checksum") && !strings.Contains(out, "signature") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}

// Clients print their own error if a provider is not available.
func TestUnavailableProvider(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--require-token")
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	elsewhere := t.TempDir()
	if err := clients.BuildProvider(t.Context(), elsewhere, "1.0.0", platforms()[1:]); err != nil {
		t.Fatal(err)
	}
	if err := key.SignRelease(elsewhere); err != nil {
		t.Fatal(err)
	}
	larder(t, "publish", "provider", elsewhere, "acme/note", "--store", "dir:"+s.data)
	good, other := token(
		t,
		s.data,
		"--name",
		"good",
		"--scope",
		"read:providers/acme/*",
	), token(
		t,
		s.data,
		"--name",
		"other",
		"--scope",
		"read:modules/**",
	)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		for _, test := range []struct{ name, config, source, want string }{
			{"no token", "", "acme/note", "requires authentication credentials"},
			{"a token of others", credentials(s.Host, other), "acme/note", "rejected the given authentication credentials"},
			{
				"another platform", credentials(s.Host, good), "acme/note",
				"does not have a package available for your current platform",
			},
			{"no such provider", credentials(s.Host, good), "acme/none", "does not have a provider named"},
		} {
			session := session(t, c, s)
			session.Config = test.config
			out, err := session.Run(t.Context(), note(t, s.Host+"/"+test.source, "1.0.0", "x"), "init", "-no-color")
			if err == nil ||
				!strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(out, "│", "")), " "), test.want) {
				t.Errorf("%s: %v\n%s", test.name, err, out)
			}
		}
	})
}
