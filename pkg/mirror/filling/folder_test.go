package filling_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// folder is one that `providers mirror` could have written.
type folder string

// at is where the provider of most tests is.
func (f folder) at(name string) string {
	return filepath.Join(string(f), inventory.Hostname, inventory.Namespace, inventory.Name, name)
}

// newFolder has a version, with packages for platforms.
func newFolder(t testing.TB, r release) folder {
	t.Helper()
	f := folder(t.TempDir())
	archives := make(map[string]any)
	for _, platform := range r.platforms {
		packed := r.zip(t, platform)
		h1, zh := hashes(t, packed)
		write(t, f.at(zipName(r.version, platform)), packed)
		archives[platform] = map[string]any{"url": zipName(r.version, platform), "hashes": []string{h1, zh}}
	}
	f.document(t, r.version+".json", map[string]any{"archives": archives})
	f.index(t, r.version)
	return f
}

func (f folder) document(t testing.TB, name string, content any) {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.at(name), text)
}

func (f folder) index(t testing.TB, versions ...string) {
	t.Helper()
	all := make(map[string]struct{})
	for _, v := range versions {
		all[v] = struct{}{}
	}
	f.document(t, "index.json", map[string]any{"versions": all})
}

// add adds a version for linux_amd64, without its entry in the index.
func (f folder) add(t testing.TB, r release) {
	t.Helper()
	packed := r.zip(t, "linux_amd64")
	write(t, f.at(zipName(r.version, "linux_amd64")), packed)
	f.document(t, r.version+".json", map[string]any{
		"archives": map[string]any{
			"linux_amd64": map[string]any{
				"url": zipName(r.version, "linux_amd64"), "hashes": []string{"zh:" + providerfiles.Sum(packed)},
			},
		},
	})
}

// archives replaces the document of version 1.0.0 by one for one package.
func (f folder) archives(t testing.TB, platform, url string, hashes ...string) {
	t.Helper()
	f.document(t, "1.0.0.json",
		map[string]any{"archives": map[string]any{platform: map[string]any{"url": url, "hashes": hashes}}})
}

// files reads all there is, by path.
func (f folder) files(t testing.TB) map[string]string {
	t.Helper()
	found := make(map[string]string)
	if err := fs.WalkDir(os.DirFS(string(f)), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(string(f), path))
		found[path] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// one is a release for one platform.
var one = release{"1.0.0", []string{"linux_amd64"}, ours, ""}

func TestImport(t *testing.T) {
	t.Parallel()
	record(t)
	s := newStore(t)
	f := newFolder(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""})
	m := s.mirror(nil)
	m.DryRun = true
	s.gives(t, "a dry run", "1.0.0 [darwin_arm64 added, linux_amd64 added]")(m.Import(t.Context(), string(f)))
	s.empty(t, "a dry run")
	before := fmt.Sprint(f.files(t))
	results, err := s.mirror(nil).Import(t.Context(), string(f))
	if err != nil || describe(results) != "1.0.0 [darwin_arm64 added, linux_amd64 added]" ||
		s.has(t) != "1.0.0 [darwin_arm64 linux_amd64]" ||
		s.count(t) != 2 {
		t.Errorf("%s, %v, %s", describe(results), err, s.has(t))
	}
	for _, pkg := range s.records(t)[inventory][0].Packages {
		h1, zh := hashes(t, one.zip(t, pkg.String()))
		if pkg.H1 != h1 || "zh:"+pkg.SHA256 != zh || pkg.SigningKey != "" || pkg.Filename != zipName("1.0.0", pkg.String()) {
			t.Errorf("%+v", pkg)
		}
	}
	s.gives(t, "again", "1.0.0 [darwin_arm64 unchanged, linux_amd64 unchanged]")(
		s.mirror(nil).Import(t.Context(), string(f)),
	)
	if fmt.Sprint(f.files(t)) != before {
		t.Error("the folder was changed")
	}
	// A lost package is restored.
	if err := os.Remove(s.file(s.records(t)[inventory][0].Packages[1])); err != nil {
		t.Fatal(err)
	}
	if results, err := s.mirror(nil).Import(t.Context(), string(f)); err != nil ||
		describe(results) != "1.0.0 [darwin_arm64 unchanged, linux_amd64 restored]" ||
		s.count(t) != 2 {
		t.Errorf("missing: %s, %v", describe(results), err)
	}
	s.has(t)
	// A version does not change, and where one package would, none of the others is taken.
	other := newFolder(t, release{"1.0.0", []string{"linux_amd64", "windows_amd64"}, ours, "another"})
	_, err = s.mirror(nil).Import(t.Context(), string(other))
	failed(t, "other content", err, registry.ErrExists, inventory.String(), "linux_amd64")
	if s.has(t) != "1.0.0 [darwin_arm64 linux_amd64]" || s.count(t) != 2 {
		t.Errorf("%s, %d objects", s.has(t), s.count(t))
	}
}

// A restored package has the same status from every source.
func TestImportRestores(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t, one), newStore(t)
	if _, err := s.mirror(nil).Import(t.Context(), string(f)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.file(s.records(t)[inventory][0].Packages[0])); err != nil {
		t.Fatal(err)
	}
	s.gives(t, "", "1.0.0 [linux_amd64 restored]", "1.0.0 [linux_amd64]")(s.mirror(nil).Import(t.Context(), string(f)))
}

// PowerShell writes a byte order mark.
func TestImportOfMarkedDocuments(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t, one), newStore(t)
	for _, name := range []string{"index.json", "1.0.0.json"} {
		text, err := os.ReadFile(f.at(name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, f.at(name), append([]byte("\ufeff"), text...))
	}
	s.gives(t, "", "1.0.0 [linux_amd64 added]", "1.0.0 [linux_amd64]")(s.mirror(nil).Import(t.Context(), string(f)))
}

// The rehearsal writes only h1 hashes, like Terraform's `providers mirror`.
func TestImportOfClients(t *testing.T) {
	t.Parallel()
	releases, f := t.TempDir(), folder(t.TempDir())
	for _, platform := range []string{"linux_amd64", "darwin_arm64"} {
		write(t, filepath.Join(releases, zipName("1.0.0", platform)), one.zip(t, platform))
	}
	if err := clients.WriteMirrorFolder(releases, f.at("")); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	s.gives(t, "", "1.0.0 [darwin_arm64 added, linux_amd64 added]", "1.0.0 [darwin_arm64 linux_amd64]")(
		s.mirror(nil).Import(t.Context(), string(f)),
	)
	// What an origin has signed of it later is known then.
	o := simple(t)
	want := wanted(t, "linux_amd64")
	if results, err := s.mirror(o).Add(t.Context(), want); err != nil ||
		describe(results) != "1.0.0 [linux_amd64 verified]" ||
		o.times(".zip") != 0 {
		t.Errorf("%s, %v", describe(results), err)
	}
	packages := s.records(t)[inventory][0].Packages
	if packages[0].SigningKey != "" || packages[1].SigningKey != keyID(t, ours) || s.count(t) != 2 {
		t.Errorf("%+v, %d objects", packages, s.count(t))
	}
	s.gives(t, "again", "1.0.0 [linux_amd64 unchanged]")(s.mirror(o).Add(t.Context(), want))
}

// A provider with a port in its hostname does not prevent importing the others.
func TestImportSkips(t *testing.T) {
	t.Parallel()
	s, f := newStore(t), newFolder(t, one)
	const own = "registry.example.com:8443/acme/inventory"
	write(t, filepath.Join(string(f), own, "index.json"), []byte("<html>"))
	m := s.mirror(nil)
	var skipped []string
	m.Skip = func(address, reason string) { skipped = append(skipped, address+": "+reason) }
	s.gives(t, "", "1.0.0 [linux_amd64 added]")(m.Import(t.Context(), string(f)))
	want := []string{own + ": no client can use a mirror for a hostname with a port"}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Error(diff)
	}
}

// A hostname that ends with a dot is a second address of a host. Neither a
// folder nor a lock file can add it.
func TestHostnameWithDot(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t, one), newStore(t)
	hostname := filepath.Join(string(f), inventory.Hostname)
	if err := os.Rename(hostname, hostname+"."); err != nil {
		t.Fatal(err)
	}
	_, err := s.mirror(nil).Import(t.Context(), string(f))
	failed(t, "folder", err, registry.ErrInvalid, "its hostname ends with a dot")
	s.empty(t, "folder")
	lock := lockBlock(inventory.Hostname+"./acme/inventory", "1.0.0")
	_, _, err = filling.ParseLock(t.Context(), "test.lock.hcl", []byte(lock))
	failed(t, "lock file", err, registry.ErrInvalid, "its hostname ends with a dot")
}

// The object of an imported package is named independently of the origin.
func TestImportThenAddOfAnotherName(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	if _, err := s.mirror(nil).Import(t.Context(), string(newFolder(t, one))); err != nil {
		t.Fatal(err)
	}
	o.edit("filename", "inventory.zip", packagePage("1.0.0", "linux_amd64"))
	o.resum(t, func(sums string) string {
		return strings.ReplaceAll(sums, zipName("1.0.0", "linux_amd64"), "inventory.zip")
	})
	results, err := s.mirror(o).Add(t.Context(), wanted(t, "linux_amd64"))
	if err != nil || describe(results) != "1.0.0 [linux_amd64 verified]" ||
		s.records(t)[inventory][0].Packages[0].SigningKey != keyID(t, ours) {
		t.Errorf("%s, %v", describe(results), err)
	}
	if s.count(t) != 1 {
		t.Errorf("there are %d objects for one package", s.count(t))
	}
}

func TestImportHashes(t *testing.T) {
	t.Parallel()
	record(t)
	h1, zh := hashes(t, one.zip(t, "linux_amd64"))
	otherH1, otherZH := hashes(t, one.zip(t, "darwin_arm64"))
	for _, test := range []struct {
		what   string
		hashes []string
		words  []string // nil if it is accepted
	}{
		{"both", []string{h1, zh}, nil},
		{"h1", []string{h1}, nil},
		{"zh", []string{zh}, nil},
		{"those of other platforms too", []string{otherH1, otherZH, h1, zh}, nil},
		{"an unknown scheme too", []string{"h9:x", h1}, nil},
		{"a wrong h1", []string{otherH1}, []string{h1, otherH1}},
		{"a wrong zh", []string{otherZH}, []string{zh, otherZH}},
		// Clients would take it by the other one.
		{"a wrong h1 and a right zh", []string{otherH1, zh}, []string{h1}},
		{"a right h1 and a wrong zh", []string{h1, otherZH}, []string{zh}},
		{"none", []string{}, []string{}},
		{"unknown schemes", []string{"h9:x", "sha256:" + strings.TrimPrefix(zh, "zh:")}, []string{}},
		{"no kind", []string{strings.TrimPrefix(zh, "zh:"), "h1", "zh"}, []string{}},
		{"capital letters", []string{"zh:" + strings.ToUpper(strings.TrimPrefix(zh, "zh:"))}, []string{zh}},
	} {
		s, f := newStore(t), newFolder(t, one)
		f.archives(t, "linux_amd64", zipName("1.0.0", "linux_amd64"), test.hashes...)
		results, err := s.mirror(nil).Import(t.Context(), string(f))
		if test.words == nil {
			if err != nil || describe(results) != "1.0.0 [linux_amd64 added]" || s.has(t) != "1.0.0 [linux_amd64]" {
				t.Errorf("%s: %s, %v", test.what, describe(results), err)
			}
			continue
		}
		failed(t, test.what, err, registry.ErrInvalid, append(test.words, zipName("1.0.0", "linux_amd64"))...)
		s.empty(t, test.what)
	}
}

func TestImportRefuses(t *testing.T) {
	t.Parallel()
	record(t)
	name := zipName("1.0.0", "linux_amd64")
	h1, _ := hashes(t, one.zip(t, "linux_amd64"))
	url := func(url string) func(*testing.T, folder) {
		return func(t *testing.T, f folder) { t.Helper(); f.archives(t, "linux_amd64", url, h1) }
	}
	document := func(name, text string) func(*testing.T, folder) {
		return func(t *testing.T, f folder) { t.Helper(); write(t, f.at(name), []byte(text)) }
	}
	replace := func(name string, by func(path string) error) func(*testing.T, folder) {
		return func(t *testing.T, f folder) {
			t.Helper()
			if err := errors.Join(os.Remove(f.at(name)), by(f.at(name))); err != nil {
				t.Fatal(err)
			}
		}
	}
	pipe := mkfifo
	dir := func(path string) error { return os.Mkdir(path, 0o700) }
	link := func(to string) func(string) error { return func(path string) error { return os.Symlink(to, path) } }
	for _, test := range []struct {
		what   string
		change func(*testing.T, folder)
		words  []string
	}{
		{"a url with a path", url("sub/" + name), []string{"linux_amd64"}},
		{"a url that begins with a dot", url("./" + name), nil},
		{"a URL with ..", url("../" + name), nil},
		{"an absolute url", url("https://files.example.com/" + name), nil},
		{"an absolute path", url("/etc/passwd"), nil},
		{"a Windows path", url(`..\` + name), nil},
		{"a url with a query", url(name + "?x"), nil},
		{"the folder above", url(".."), nil},
		{"the folder itself", url("."), nil},
		{"no url", url(""), nil},
		{"a URL that is not printable", url("\x1b[31m"), nil},
		{"no such zip", url("missing.zip"), []string{"missing.zip"}},
		{"a pipe for a zip", replace(name, pipe), []string{name}},
		{"a folder for a zip", replace(name, dir), []string{name}},
		{"a link to a folder", replace(name, link(".")), []string{name}},
		{"a link to nowhere", replace(name, link("nowhere")), []string{name}},
		{"a link to a device", replace(name, link("/dev/zero")), []string{name}},
		{"an index in another encoding", document("index.json", "{\xe9}"), nil},
		{"an invalid zip", document(name, "<html>"), []string{name}},
		{"an empty zip", document(name, ""), []string{name}},
		{"another provider inside", func(t *testing.T, f folder) {
			packed := providerfiles.Zip(t, "terraform-provider-other", "program")
			write(t, f.at(name), packed)
			f.archives(t, "linux_amd64", name, "zh:"+providerfiles.Sum(packed))
		}, []string{name, "terraform-provider-inventory"}},
		{"another zip", func(t *testing.T, f folder) {
			write(t, f.at(name), providerfiles.Zip(t, "terraform-provider-inventory", "another"))
		}, []string{name, h1}},
		{"an invalid platform", func(t *testing.T, f folder) { f.archives(t, "linux", name, h1) }, []string{"linux"}},
		{
			"no document of the version", document("index.json", `{"versions": {"1.0.0": {}, "1.1.0": {}}}`),
			[]string{"1.1.0.json"},
		},
		{"an invalid version", document("index.json", `{"versions": {"newest": {}}}`), []string{"newest"}},
		{"a version with ..", document("index.json", `{"versions": {"../../../1.0.0": {}}}`), nil},
		{"a version in another form", document("index.json", `{"versions": {"1.0": {}}}`), []string{"1.0.0"}},
		{"an invalid index", document("index.json", "<html>"), []string{"index.json"}},
		{"an index without versions", document("index.json", "{}"), nil},
		{"an index of null", document("index.json", `{"versions": null}`), nil},
		{"an index with a list", document("index.json", `{"versions": ["1.0.0"]}`), nil},
		{"an index with text after it", document("index.json", `{"versions": {}} x`), nil},
		{"an empty index", document("index.json", ""), nil},
		{"a large index", document("index.json", strings.Repeat(" ", 16<<20)+`{"versions": {"1.0.0": {}}}`), nil},
		{"a deeply nested index", document("index.json", `{"versions": `+strings.Repeat(`{"a":`, 1<<20)), nil},
		{"an invalid document", document("1.0.0.json", "<html>"), []string{"1.0.0.json"}},
		{"a document without archives", document("1.0.0.json", "{}"), nil},
		{"a document with a list", document("1.0.0.json", `{"archives": []}`), nil},
		{
			"a document with an invalid hash",
			document("1.0.0.json", `{"archives": {"linux_amd64": {"url": "`+name+`", "hashes": [1]}}}`), nil,
		},
		{"a document with a package of null", document("1.0.0.json", `{"archives": {"linux_amd64": null}}`), nil},
		{"a pipe for an index", replace("index.json", pipe), nil},
		{"a pipe for a document", replace("1.0.0.json", pipe), nil},
		{"a folder for an index", replace("index.json", dir), nil},
		{"only hosts with a port", func(t *testing.T, f folder) {
			for _, host := range []string{"registry.example.com:8443", "127.0.0.1:8443"} {
				write(t, filepath.Join(string(f), host, "acme/inventory/index.json"), []byte(`{"versions": {}}`))
			}
			if err := os.RemoveAll(filepath.Join(string(f), inventory.Hostname)); err != nil {
				t.Fatal(err)
			}
		}, []string{"registry.example.com:8443/acme/inventory", "port"}},
		{"a host with a port beside a damaged index", func(t *testing.T, f folder) {
			write(t, filepath.Join(string(f), "127.0.0.1:8443/acme/inventory/index.json"), []byte(`{"versions": {}}`))
			write(t, f.at("index.json"), []byte("<html>"))
		}, nil},
		{"an invalid host", func(t *testing.T, f folder) {
			write(t, filepath.Join(string(f), "a_b/c/d/index.json"), []byte(`{"versions": {}}`))
		}, []string{"a_b/c/d"}},
		{"no index at all", func(t *testing.T, f folder) {
			if err := os.Remove(f.at("index.json")); err != nil {
				t.Fatal(err)
			}
		}, []string{"HOSTNAME/NAMESPACE/TYPE/index.json"}},
		{"no folder", func(t *testing.T, f folder) {
			if err := os.RemoveAll(string(f)); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			s, f := newStore(t), newFolder(t, one)
			test.change(t, f)
			results, err := s.mirror(nil).Import(t.Context(), string(f))
			failed(t, test.what, err, registry.ErrInvalid, test.words...)
			if len(results) != 0 {
				t.Error(describe(results))
			}
			s.empty(t, test.what)
			if _, err := s.mirror(nil).Import(t.Context(), string(newFolder(t, one))); err != nil ||
				s.has(t) != "1.0.0 [linux_amd64]" {
				t.Errorf("then: %v, %s", err, s.has(t))
			}
		})
	}
}

// The root folder is not a file name. An export would otherwise write it into
// its document.
func TestImportRoot(t *testing.T) {
	t.Parallel()
	record(t)
	packages, err := filling.ParseVersion([]byte(`{"archives": {"linux_amd64": {"url": "/"}}}`))
	if failed(t, "a url of /", err, registry.ErrInvalid); packages != nil {
		t.Errorf("%v", packages)
	}
}

func TestImportTakes(t *testing.T) {
	t.Parallel()
	name := zipName("1.0.0", "linux_amd64")
	h1, _ := hashes(t, one.zip(t, "linux_amd64"))
	for _, test := range []struct {
		what   string
		change func(folder)
		want   string
	}{
		{"a link to a file", func(f folder) {
			if err := errors.Join(os.Rename(f.at(name), f.at("real.zip")), os.Symlink("real.zip", f.at(name))); err != nil {
				t.Fatal(err)
			}
		}, "1.0.0 [linux_amd64]"},
		{"another name", func(f folder) {
			if err := os.Rename(f.at(name), f.at("inventory.zip")); err != nil {
				t.Fatal(err)
			}
			f.archives(t, "linux_amd64", "inventory.zip", h1)
		}, "1.0.0 [linux_amd64]"},
		{"one zip for two platforms", func(f folder) {
			f.document(t, "1.0.0.json", map[string]any{"archives": map[string]any{
				"linux_amd64": map[string]any{"url": name, "hashes": []string{h1}},
				"linux_arm64": map[string]any{"url": name, "hashes": []string{h1}},
			}})
		}, "1.0.0 [linux_amd64 linux_arm64]"},
		{"no versions", func(f folder) { f.index(t) }, ""},
		{"a version without archives", func(f folder) {
			f.document(t, "1.0.0.json", map[string]any{"archives": map[string]any{}})
		}, ""},
		{"a version that the index does not have", func(f folder) {
			f.document(t, "2.0.0.json",
				map[string]any{"archives": map[string]any{"linux_amd64": map[string]any{"url": name, "hashes": []string{h1}}}})
		}, "1.0.0 [linux_amd64]"},
		{"files that belong to no provider", func(f folder) {
			write(t, filepath.Join(string(f), "README"), []byte("x"))
			write(t, filepath.Join(string(f), "index.json"), []byte("x"))
			write(t, f.at("docs/index.json"), []byte("x"))
			write(t, f.at("terraform-provider-inventory_9.0.0_linux_amd64.zip"), []byte("x"))
		}, "1.0.0 [linux_amd64]"},
		{"what clients would not mind", func(f folder) {
			write(t, f.at("index.json"), []byte(` {"versions": {"1.0.0": {"more": 1}}, "more": []} `))
		}, "1.0.0 [linux_amd64]"},
	} {
		s, f := newStore(t), newFolder(t, one)
		test.change(f)
		if _, err := s.mirror(nil).Import(t.Context(), string(f)); err != nil || s.has(t) != test.want {
			t.Errorf("%s: %v, %q", test.what, err, s.has(t))
		}
	}
}

// An import stores the versions before a bad one. It stores nothing if a
// document is bad.
func TestImportSeveral(t *testing.T) {
	t.Parallel()
	record(t)
	f, s := newFolder(t, one), newStore(t)
	for _, version := range []string{"1.10.0", "1.9.0"} {
		f.add(t, release{version, nil, ours, ""})
	}
	f.index(t, "1.0.0", "1.10.0", "1.9.0", "2.0.0")
	_, err := s.mirror(nil).Import(t.Context(), string(f))
	failed(t, "a document missing", err, registry.ErrInvalid, "2.0.0.json")
	s.empty(t, "a document missing")

	f.index(t, "1.0.0", "1.10.0", "1.9.0")
	if err := flip(f.at(zipName("1.10.0", "linux_amd64"))); err != nil {
		t.Fatal(err)
	}
	results, err := s.mirror(nil).Import(t.Context(), string(f))
	failed(t, "a changed zip", err, registry.ErrInvalid, "1.10.0")
	if describe(results) != "1.0.0 [linux_amd64 added], 1.9.0 [linux_amd64 added]" ||
		s.has(t) != "1.9.0 [linux_amd64], 1.0.0 [linux_amd64]" ||
		s.count(t) != 2 {
		t.Errorf("%s, %s", describe(results), s.has(t))
	}
	if err := flip(f.at(zipName("1.10.0", "linux_amd64"))); err != nil {
		t.Fatal(err)
	}
	s.gives(t, "then", "1.0.0 [linux_amd64 unchanged], 1.9.0 [linux_amd64 unchanged], 1.10.0 [linux_amd64 added]")(
		s.mirror(nil).Import(t.Context(), string(f)),
	)
}

// An import continues after a version or a provider that the policy does not
// allow.
func TestImportContinues(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t, one), newStore(t)
	for _, v := range []string{"1.1.0", "1.2.0"} {
		f.add(t, release{v, []string{"linux_amd64"}, ours, ""})
	}
	f.index(t, "1.0.0", "1.1.0", "1.2.0")
	denied := filepath.Join(string(f), "another.example.com")
	if err := os.CopyFS(denied, os.DirFS(filepath.Join(string(f), inventory.Hostname))); err != nil {
		t.Fatal(err)
	}
	s.setPolicy(t, registry.MirrorRule{Pattern: "another.example.com/*/*", Deny: true},
		registry.MirrorRule{MinAge: int64(7 * day / time.Second)})
	s.editOrigin(t, func(o *registry.MirrorOrigin) {
		o.See(map[registry.Version]time.Time{
			parseVersion(t, "1.0.0"): start.AddDate(0, 0, -6), parseVersion(t, "1.1.0"): start.AddDate(0, 0, -8),
			parseVersion(t, "1.2.0"): start.AddDate(0, 0, -5),
		}, start)
	})
	m := s.mirror(nil)
	m.Now = func() time.Time { return start }
	results, err := m.Import(t.Context(), string(f))
	if !errors.Is(err, registry.ErrNotAdmitted) {
		t.Fatalf("%v, want ErrNotAdmitted", err)
	}
	want := []string{
		"cannot import another.example.com/acme/inventory: not admitted: line 1 of the mirror policy denies another.example.com/*/*",
		"cannot import registry.example.com/acme/inventory 1.0.0: not admitted: 1.0.0 is too new until 2126-11-02 09:30 UTC " +
			"(minimum age 7 days)",
		"cannot import registry.example.com/acme/inventory 1.2.0: not admitted: 1.2.0 is too new until 2126-11-03 09:30 UTC " +
			"(minimum age 7 days)",
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("1.1.0 [linux_amd64 added]", describe(results)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("1.1.0 [linux_amd64]", s.has(t)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// An import stores no version that was refused because of its key, not even if
// the policy is overruled. Of others, it notes that no signature was verified.
func TestImportOfRefused(t *testing.T) {
	t.Parallel()
	record(t)
	second, third := build("2.0.0", stranger), build("3.0.0", stranger)
	o, s := newOrigin(t, one, second), newStore(t)
	s.adds(t, o, "1.0.0")
	_, err := s.mirror(o).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "2.0.0"})
	if !errors.Is(err, registry.ErrNotAdmitted) {
		t.Fatalf("%v, want ErrNotAdmitted", err)
	}
	refused := string(newFolder(t, second))
	for _, reason := range []string{"", "no network"} {
		m := s.mirror(nil)
		m.Overrule = reason
		_, err := m.Import(t.Context(), refused)
		failed(t, "refused", err, registry.ErrNotAdmitted, "larder mirror trust "+inventory.String())
		if diff := cmp.Diff("1.0.0 [linux_amd64]", s.has(t)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	}
	results, err := s.mirror(nil).Import(t.Context(), string(newFolder(t, third)))
	if err != nil {
		t.Fatal(err)
	}
	noted(t, "another", results, "the folder has no signature")
	if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, keyID(t, stranger), "a new key"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.mirror(nil).Import(t.Context(), refused); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("3.0.0 [linux_amd64], 2.0.0 [linux_amd64], 1.0.0 [linux_amd64]", s.has(t)); diff != "" {
		t.Errorf("then stored (-want +got):\n%s", diff)
	}
}

// With a clock before the last sighting, an import refuses to compute ages.
func TestImportClock(t *testing.T) {
	t.Parallel()
	record(t)
	dir := string(newFolder(t, one))
	for _, test := range []struct {
		what   string
		minAge time.Duration
		offset time.Duration
		wrong  bool
	}{
		{"right", 7 * day, 0, false},
		{"an hour behind", 7 * day, -time.Hour, false},
		{"two days behind", 7 * day, -2 * day, true},
		{"two days behind, and no minimum age", 0, -2 * day, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newStore(t)
			s.setPolicy(t, registry.MirrorRule{MinAge: int64(test.minAge / time.Second)})
			s.editOrigin(t, func(o *registry.MirrorOrigin) {
				published := map[registry.Version]time.Time{parseVersion(t, "1.0.0"): start.AddDate(0, 0, -100)}
				o.See(published, start.AddDate(0, 0, -10))
				published[parseVersion(t, "1.1.0")] = start
				o.See(published, start)
			})
			m := s.mirror(nil)
			m.Now = func() time.Time { return start.Add(test.offset) }
			_, err := m.Import(t.Context(), dir)
			if test.wrong {
				failed(t, test.what, err, registry.ErrInvalid, "Set the clock of this machine.")
				s.empty(t, test.what)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	f := newFolder(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""})
	interrupted(t, 2, "1.0.0 [darwin_arm64 linux_amd64]", func(m *filling.Mirror) error {
		_, err := m.Import(t.Context(), string(f))
		return err
	})
}

// Some clients write a hostname in Unicode, but all request it in punycode.
func TestUnicodeHost(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t, one), newStore(t)
	if err := os.Rename(filepath.Join(string(f), inventory.Hostname),
		filepath.Join(string(f), "bücher.example")); err != nil {
		t.Fatal(err)
	}
	results, err := s.mirror(nil).Import(t.Context(), string(f))
	if err != nil || len(results) != 1 || results[0].Address.Hostname != "xn--bcher-kva.example" {
		t.Fatalf("%+v, %v", results, err)
	}
	out := folder(t.TempDir())
	if _, err := s.mirror(nil).Export(t.Context(), string(out), nil); err != nil {
		t.Fatal(err)
	}
	if files := out.files(t); files["xn--bcher-kva.example/acme/inventory/index.json"] == "" {
		t.Errorf("%q", files)
	}
	again := newStore(t)
	s.gives(t, "", "1.0.0 [linux_amd64 added]")(again.mirror(nil).Import(t.Context(), string(out)))
}

// filled is a registry with two versions, of which one has two platforms.
func filled(t testing.TB) *store {
	t.Helper()
	s := newStore(t)
	o := newOrigin(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""},
		release{"1.1.0-rc.1+b.5", []string{"linux_amd64"}, ours, ""})
	s.adds(t, o, "1.0.0")
	if _, err := s.mirror(o).Lock(t.Context(), locks(t, lockBlock(inventory.String(), "1.1.0-rc.1+b.5")), nil,
		false); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExport(t *testing.T) {
	t.Parallel()
	record(t)
	s, f := filled(t), folder(t.TempDir())
	m := s.mirror(nil)
	results, err := m.Export(t.Context(), string(f), nil)
	const all = "1.1.0-rc.1+b.5 [linux_amd64 %[1]s], 1.0.0 [darwin_arm64 %[1]s, linux_amd64 %[1]s]"
	if err != nil || describe(results) != fmt.Sprintf(all, "added") {
		t.Fatalf("%s, %v", describe(results), err)
	}
	got := f.files(t)
	const in = "registry.example.com/acme/inventory/"
	if len(got) != 12 { // each version has a SHA256SUMS, its signature and the keys
		t.Errorf("there are %d files", len(got))
	}
	var index struct {
		Versions map[string]map[string]any `json:"versions"`
	}
	if err := json.Unmarshal([]byte(got[in+"index.json"]), &index); err != nil || len(index.Versions) != 2 ||
		index.Versions["1.0.0"] == nil ||
		index.Versions["1.1.0-rc.1+b.5"] == nil {
		t.Errorf("%s, %v", got[in+"index.json"], err)
	}
	for _, v := range s.records(t)[inventory] {
		var document struct {
			Archives map[string]struct {
				URL    string   `json:"url"`
				Hashes []string `json:"hashes"`
			} `json:"archives"`
		}
		text := got[in+v.Version.String()+".json"]
		if err := json.Unmarshal([]byte(text), &document); err != nil || len(document.Archives) != len(v.Packages) {
			t.Errorf("%s, %v", text, err)
		}
		for _, pkg := range v.Packages {
			a := document.Archives[pkg.String()]
			if providerfiles.Sum([]byte(got[in+a.URL])) != pkg.SHA256 ||
				fmt.Sprint(a.Hashes) != "["+pkg.H1+" zh:"+pkg.SHA256+"]" ||
				a.URL != inventory.Filename(v.Version, pkg.Platform) {
				t.Errorf("%s %s: %+v", v.Version, pkg.Platform, a)
			}
		}
	}
	// A web server can read it.
	if err := filepath.WalkDir(string(f), func(path string, d fs.DirEntry, err error) error {
		info, e := d.Info()
		if err = errors.Join(err, e); err == nil && path != string(f) && info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// The progress of each zip is reported to its end.
	zip := zipName("1.0.0", "linux_amd64")
	p := m.Progress.(*progresstest.Recorder)
	p.CheckComplete(t)
	if w := p.Transfers("writing " + zip); len(p.Transfers("writing ")) != 3 || int(w[0].Moved) != len(got[in+zip]) {
		t.Errorf("reported %v", p.Transfers(""))
	}

	info, err := os.Stat(f.at(zipName("1.0.0", "linux_amd64")))
	if err != nil {
		t.Fatal(err)
	}
	if results, err := s.mirror(nil).Export(t.Context(), string(f), []registry.MirrorAddress{inventory}); err != nil ||
		describe(results) != fmt.Sprintf(all, "unchanged") ||
		fmt.Sprint(f.files(t)) != fmt.Sprint(got) {
		t.Errorf("again: %s, %v", describe(results), err)
	}
	if same, err := os.Stat(f.at(zipName("1.0.0", "linux_amd64"))); err != nil || !os.SameFile(info, same) {
		t.Errorf("it was written again, %v", err)
	}

	// Another registry takes it, and has the same then.
	other := newStore(t)
	if results, err := other.mirror(nil).Import(t.Context(), string(f)); err != nil || len(results) != 2 {
		t.Fatalf("%s, %v", describe(results), err)
	}
	theirs := other.records(t)[inventory]
	for i, v := range s.records(t)[inventory] {
		for j, pkg := range v.Packages {
			if their := theirs[i].Packages[j]; theirs[i].Version != v.Version || their.Platform != pkg.Platform ||
				their.SHA256 != pkg.SHA256 ||
				their.H1 != pkg.H1 ||
				their.Size != pkg.Size {
				t.Errorf("%+v is %+v there", pkg, their)
			}
		}
	}
	_, err = s.mirror(nil).Export(t.Context(), t.TempDir(), []registry.MirrorAddress{
		{Hostname: "registry.example.com", Namespace: "acme", Name: "other"},
	})
	failed(t, "a provider that is not mirrored", err, registry.ErrNotFound, "acme/other")
	empty := folder(t.TempDir())
	if results, err := newStore(t).mirror(nil).Export(t.Context(), string(empty), nil); err != nil || len(results) != 0 ||
		len(empty.files(t)) != 0 {
		t.Errorf("nothing: %v, %v", results, err)
	}
}

// Other files in the folder stay, and so do other files of the same version.
func TestExportMerges(t *testing.T) {
	t.Parallel()
	s := filled(t)
	f := newFolder(t, release{"1.0.0", []string{"windows_amd64"}, ours, ""})
	write(t, f.at("0.5.0.json"), []byte(`{"archives": {"plan9_386": {"url": "old.zip"}}}`))
	f.index(t, "1.0.0", "0.5.0")
	write(t, filepath.Join(string(f), "other.example.com/a/b/index.json"), []byte("whatever"))
	write(t, filepath.Join(string(f), "README"), []byte("whatever"))
	before := f.files(t)
	for range 2 {
		if _, err := s.mirror(nil).Export(t.Context(), string(f), nil); err != nil {
			t.Fatal(err)
		}
		after := f.files(t)
		for path, content := range before {
			if name := filepath.Base(path); after[path] != content &&
				(path == "other.example.com/a/b/index.json" || name != "index.json" && name != "1.0.0.json") {
				t.Errorf("%s was changed", path)
			}
		}
		versions, err := filling.ParseIndex([]byte(after["registry.example.com/acme/inventory/index.json"]))
		if err != nil || len(versions) != 3 {
			t.Errorf("%v, %v", versions, err)
		}
		packages, err := filling.ParseVersion([]byte(after["registry.example.com/acme/inventory/1.0.0.json"]))
		if err != nil || len(packages) != 3 {
			t.Errorf("%v, %v", packages, err)
		}
	}
	// The exported folder is valid.
	if err := errors.Join(os.Remove(filepath.Join(string(f), "other.example.com/a/b/index.json")),
		os.Remove(f.at("0.5.0.json"))); err != nil {
		t.Fatal(err)
	}
	f.index(t, "1.0.0", "1.1.0-rc.1+b.5")
	other := newStore(t)
	if _, err := other.mirror(nil).Import(t.Context(), string(f)); err != nil ||
		other.has(t) != "1.1.0-rc.1+b.5 [linux_amd64], 1.0.0 [darwin_arm64 linux_amd64 windows_amd64]" {
		t.Errorf("%v, %s", err, other.has(t))
	}
}

// A zip with other content is written again, and so is anything that is not a
// file.
func TestExportRepairs(t *testing.T) {
	t.Parallel()
	s := filled(t)
	name := zipName("1.0.0", "linux_amd64")
	for what, damage := range map[string]func(path string) error{
		"changed":           func(path string) error { return flip(path) },
		"cut short":         func(path string) error { return os.Truncate(path, 7) },
		"empty":             func(path string) error { return os.Truncate(path, 0) },
		"missing":           os.Remove,
		"a pipe":            func(path string) error { return errors.Join(os.Remove(path), mkfifo(path)) },
		"a link to nowhere": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nowhere", path)) },
		// The target of the link does not change.
		"a link to something else": func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("index.json", path))
		},
	} {
		f := folder(t.TempDir())
		if _, err := s.mirror(nil).Export(t.Context(), string(f), nil); err != nil {
			t.Fatal(err)
		}
		before := f.files(t)
		if err := damage(f.at(name)); err != nil {
			t.Fatal(err)
		}
		results, err := s.mirror(nil).Export(t.Context(), string(f), nil)
		if err != nil ||
			describe(results) != "1.1.0-rc.1+b.5 [linux_amd64 unchanged], 1.0.0 [darwin_arm64 unchanged, linux_amd64 added]" ||
			fmt.Sprint(f.files(t)) != fmt.Sprint(before) {
			t.Errorf("%s: %s, %v", what, describe(results), err)
		}
		if info, err := os.Lstat(f.at(name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", what, info, err)
		}
	}
}

// flip changes one byte of a file.
func flip(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return os.WriteFile(path, data, 0o600)
}

// What does not hold is not written, and no half of it either. Nothing names it, and
// other versions are written.
func TestExportRefuses(t *testing.T) {
	t.Parallel()
	record(t)
	for _, test := range []struct {
		what  string
		wreck func(*testing.T, *store, folder)
		kind  error
		words []string
	}{
		{"a changed object", func(t *testing.T, s *store, _ folder) {
			t.Helper()
			if err := flip(s.file(s.records(t)[inventory][1].Packages[1])); err != nil {
				t.Fatal(err)
			}
		}, registry.ErrInvalid, []string{zipName("1.0.0", "linux_amd64")}},
		{"a truncated object", func(t *testing.T, s *store, _ folder) {
			t.Helper()
			if err := os.Truncate(s.file(s.records(t)[inventory][1].Packages[1]), 9); err != nil {
				t.Fatal(err)
			}
		}, registry.ErrInvalid, []string{zipName("1.0.0", "linux_amd64")}},
		{"a missing object", func(t *testing.T, s *store, _ folder) {
			t.Helper()
			if err := os.Remove(s.file(s.records(t)[inventory][1].Packages[1])); err != nil {
				t.Fatal(err)
			}
		}, registry.ErrCorrupt, []string{zipName("1.0.0", "linux_amd64")}},
		{"an invalid document", func(t *testing.T, _ *store, f folder) {
			t.Helper()
			write(t, f.at("1.0.0.json"), []byte("<html>"))
		}, registry.ErrInvalid, []string{"1.0.0.json"}},
		{"an invalid index", func(t *testing.T, _ *store, f folder) {
			t.Helper()
			write(t, f.at("index.json"), []byte("<html>"))
		}, registry.ErrInvalid, []string{"index.json"}},
		{"a document with a URL from elsewhere", func(t *testing.T, _ *store, f folder) {
			t.Helper()
			write(t, f.at("1.0.0.json"), []byte(`{"archives": {"plan9_386": {"url": "https://files.example.com/x.zip"}}}`))
		}, registry.ErrInvalid, []string{"1.0.0.json"}},
		{"a pipe for an index", func(t *testing.T, _ *store, f folder) {
			t.Helper()
			if err := errors.Join(os.MkdirAll(f.at(""), 0o755), mkfifo(f.at("index.json"))); err != nil {
				t.Fatal(err)
			}
		}, registry.ErrInvalid, nil},
	} {
		s, f := filled(t), folder(t.TempDir())
		test.wreck(t, s, f)
		before := len(f.named(t, "*"))
		_, err := s.mirror(nil).Export(t.Context(), string(f), nil)
		failed(t, test.what, err, test.kind, append(test.words, inventory.String())...)
		if left := f.named(t, ".larder-*"); len(left) != 0 {
			t.Errorf("%s: %v is left", test.what, left)
		}
		// Nothing names it. The other version is complete.
		others := 1
		if strings.Contains(test.what, "index") {
			others = 0
		} else if got := slices.Collect(maps.Keys(f.indexed(t))); !slices.Equal(got, []string{"1.1.0-rc.1+b.5"}) {
			t.Errorf("%s: the index has %q", test.what, got)
		}
		if len(f.named(t, zipName("1.0.0", "linux_amd64"))) != 0 || before == 0 && len(f.named(t, "1.0.0.json")) != 0 ||
			len(f.named(t, "1.1.0*.json")) != others {
			t.Errorf("%s: there is %v", test.what, f.named(t, "*"))
		}
	}
	// A folder in a zip's place cannot be replaced.
	s, f := filled(t), folder(t.TempDir())
	if err := os.MkdirAll(f.at(zipName("1.0.0", "linux_amd64")), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.mirror(nil).Export(t.Context(), string(f), nil); err == nil || len(f.named(t, ".larder-*")) != 0 {
		t.Errorf("%v, %v", err, f.named(t, "*"))
	}
	// A file in the place of the folder.
	blocked := folder(t.TempDir())
	write(t, filepath.Join(string(blocked), inventory.Hostname), []byte("x"))
	if _, err := s.mirror(nil).Export(t.Context(), string(blocked), nil); err == nil {
		t.Error("a file is no folder")
	}
}

// indexed returns the versions in index.json.
func (f folder) indexed(t testing.TB) map[string]registry.Version {
	t.Helper()
	text, err := os.ReadFile(f.at("index.json"))
	if err != nil {
		t.Fatal(err)
	}
	versions, err := filling.ParseIndex(text)
	if err != nil {
		t.Fatal(err)
	}
	return versions
}

// named returns the names in the folder of the provider.
func (f folder) named(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(f.at(pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The parsers never panic, and accept only names of files in the same folder.
func FuzzFolder(f *testing.F) {
	f.Add([]byte(`{"versions": {"1.0.0": {}, "1.1.0-rc.1+b": {}}}`))
	f.Add([]byte(
		`{"archives": {"linux_amd64": {"url": "x.zip", "hashes": ["h1:x=", "zh:0"]}, "darwin_arm64": {"url": "../x.zip"}}}`))
	f.Add([]byte(`{"versions": null, "archives": {"a_b": null}}`))
	f.Add([]byte(`{"Versions": {"1.0": []}, "ARCHIVES": {"a_b": {"URL": "."}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		versions, err := filling.ParseIndex(text)
		if err != nil && (!errors.Is(err, registry.ErrInvalid) || versions != nil) {
			t.Errorf("%v, %v", versions, err)
		}
		for name, v := range versions {
			if name != v.String() || filepath.Base(name) != name {
				t.Errorf("%q is %s", name, v)
			}
		}
		packages, err := filling.ParseVersion(text)
		if err != nil && (!errors.Is(err, registry.ErrInvalid) || packages != nil) {
			t.Errorf("%v, %v", packages, err)
		}
		for _, p := range filling.Filenames(packages) {
			if p == "" || strings.ContainsAny(p, "/\\:\x00") {
				t.Errorf("%q lies elsewhere", p)
			}
		}
	})
}

// broken is a store of which reading ends in the middle of an object.
type broken struct{ objects.Store }

var errBroken = errors.New("the connection broke")

func (b broken) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := b.Store.Open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(body, 50), iotest.ErrReader(errBroken)), body}, nil
}

// An export that is interrupted at any point leaves no partial file, and no
// index that names a missing one. Another export finishes.
func TestExportInterrupted(t *testing.T) {
	t.Parallel()
	s, f := filled(t), folder(t.TempDir())
	m := s.mirror(nil)
	m.Objects = broken{s.objects}
	if _, err := m.Export(t.Context(), string(f), nil); !errors.Is(err, errBroken) || len(f.named(t, "*")) != 0 {
		t.Errorf("%v, %v", err, f.named(t, "*"))
	}
	for call := int64(1); ; call++ {
		f := folder(t.TempDir())
		m := s.mirror(nil)
		m.Catalog = catalog.New(&tabletest.Faulty{Table: s.table, FailAt: call})
		_, err := m.Export(t.Context(), string(f), nil)
		if err == nil {
			if call < 3 {
				t.Errorf("%d calls of the table, want at least 2", call-1)
			}
			break
		}
		// An unreadable catalog does not count as empty.
		if !errors.Is(err, tabletest.ErrFault) || len(f.named(t, "index.json")) != 0 || len(f.named(t, ".larder-*")) != 0 {
			t.Errorf("call %d fails: %v, %v", call, err, f.named(t, "*"))
		}
		if results, err := s.mirror(nil).Export(t.Context(), string(f), nil); err != nil || len(results) != 2 {
			t.Errorf("then: %v, %v", results, err)
		}
	}
}
