package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// tree is a module's folder: what a file holds, or, after "-> ", where a link leads. MODULE there is the folder itself.
type tree map[string]string

func (files tree) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if link, ok := strings.CutPrefix(files[name], "-> "); ok {
			err = os.Symlink(strings.ReplaceAll(link, "MODULE", dir), path)
		} else {
			err = os.WriteFile(path, []byte(files[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func pack(t testing.TB, dir string, options archive.Options) ([]byte, []archive.Excluded, error) {
	t.Helper()
	var out bytes.Buffer
	left, err := archive.Pack(t.Context(), dir, options, &out)
	return out.Bytes(), left, err
}

// names returns the paths in an archive.
func names(t testing.TB, packed []byte) []string {
	t.Helper()
	var got []string
	for name := range contents(t, packed) {
		got = append(got, name)
	}
	slices.Sort(got)
	return got
}

func contents(t testing.TB, packed []byte) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for in := tar.NewReader(unzipped); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got[header.Name] = string(body)
	}
}

const config = `output "x" { value = 1 }` + "\n"

func TestPackLeavesOut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		files   tree
		include []string
		want    []string // beside main.tf
		left    []string
		ignored []string // by .terraformignore
	}{
		{name: "nothing", files: tree{"README.md": "", "modules/a/main.tf": config, ".hidden": "", "empty": ""}, want: []string{".hidden", "README.md", "empty", "modules/a/main.tf"}},
		{
			name: "always",
			files: tree{
				".git/config": "", "modules/a/.git": "gitdir: x", ".terraform/modules/modules.json": "", "modules/a/.terraform/x": "",
				".terragrunt-cache/x": "", "larder-data/larder.db": "", ".DS_Store": "", ".hg/x": "", ".gitignore": "", ".github/x.yml": "", ".terraform.lock.hcl": "",
			},
			want: []string{".github/x.yml", ".gitignore", ".terraform.lock.hcl"},
		},
		{
			name: "secrets",
			files: tree{
				"terraform.tfstate": "", "terraform.tfstate.backup": "", "terraform.tfstate.1700000000.backup": "", ".terraform.tfstate.lock.info": "",
				"terraform.tfstate.d/prod/terraform.tfstate": "", "x.tfplan": "", "tfplan": "", "plan.out": "PK\x03\x04....................______tfplan....",
				"terraform.tfvars": "", "prod.auto.tfvars": "", "a/b/x.tfvars.json": "", ".terraformrc": "", "credentials.tfrc.json": "", ".env": "", "crash.log": "", "id_ed25519": "",
				"tfplan.tf": config, "tfstate.tf": config, "x.tfvars.md": "", "id_ed25519.pub": "", "keys/a.pem": "-----BEGIN EC PRIVATE KEY-----\nx\n", "b.key": "\n-----BEGIN OPENSSH PRIVATE KEY-----\r\nx", "ca.pem": "-----BEGIN CERTIFICATE-----\nx\n", "keys.md": "# -----BEGIN PRIVATE KEY-----",
				".env.production": "", ".aws/credentials": "", "data/larder.db": "", "data/url.key": "", "data/tls/ca.key": "", "small": "PK", "other.zip": "PK\x03\x04....................______readme....",
			},
			want: []string{"ca.pem", "id_ed25519.pub", "keys.md", "other.zip", "small", "tfplan.tf", "tfstate.tf", "x.tfvars.md"},
			left: []string{
				".aws/", ".env", ".env.production", ".terraform.tfstate.lock.info", ".terraformrc", "a/b/x.tfvars.json", "b.key", "crash.log", "credentials.tfrc.json", "data/", "id_ed25519", "keys/a.pem", "plan.out", "prod.auto.tfvars",
				"terraform.tfstate", "terraform.tfstate.1700000000.backup", "terraform.tfstate.backup", "terraform.tfstate.d/", "terraform.tfvars", "tfplan", "x.tfplan",
			},
		},
		{
			name:    "secrets that are asked for",
			files:   tree{"examples/a/x.tfvars": "", "terraform.tfvars": "", "terraform.tfstate.d/a/b": "", "plan.out": "PK\x03\x04....................______tfplan....", ".git/config": ""},
			include: []string{"/examples/**/*.tfvars", "terraform.tfstate.d/", "plan.out"},
			want:    []string{"examples/a/x.tfvars", "plan.out", "terraform.tfstate.d/a/b"},
			left:    []string{"terraform.tfvars"},
		},
		{
			name: "templates of environment files",
			files: tree{
				".env.example": "", ".env.tpl": "", "a/.env.sample": "", ".env.template": "", ".env.dist": "",
				".env.production.example": "", ".env.tftpl": "", ".env.tmpl": "",
				".env.local": "", ".env.examples": "", ".env.example.local": "", ".env.tplx": "",
				".env.sample/.env": "", ".env.dist.d/x": "", ".env.template.key": "",
				"k/.env.tpl": "-----BEGIN PRIVATE KEY-----",
			},
			want: []string{
				".env.dist", ".env.example", ".env.production.example", ".env.template", ".env.tftpl", ".env.tmpl", ".env.tpl", "a/.env.sample",
			},
			left: []string{
				".env.dist.d/", ".env.example.local", ".env.examples", ".env.local", ".env.sample/.env", ".env.template.key", ".env.tplx", "k/.env.tpl",
			},
		},
		{
			name:    "templates that are left out",
			files:   tree{".terraformignore": ".env.example", ".env.example": "", ".env.tpl": ""},
			want:    []string{".env.tpl", ".terraformignore"},
			ignored: []string{".env.example"},
		},
		{name: "a careless negation", files: tree{".terraformignore": "!*\n!.git/\n!*.tfstate", "terraform.tfstate": "", ".git/config": ""}, want: []string{".terraformignore"}, left: []string{"terraform.tfstate"}},
		{
			name: "folders and files",
			files: tree{
				".terraformignore": "# a comment\n\n  docs/  \nnotes\n*.tmp\n/top.txt\nfixtures/*.json\n", "docs/a": "", "modules/a/docs/b": "", "notes": "", "x/notes/deep/y": "",
				"a.tmp": "", "x/b.tmp": "", "top.txt": "", "x/top.txt": "", "fixtures/a.json": "", "fixtures/a.txt": "", "x/fixtures/b.json": "", "fixtures/sub/c.json": "", "adocs/c": "",
			},
			want:    []string{".terraformignore", "adocs/c", "fixtures/a.txt", "fixtures/sub/c.json", "x/top.txt"},
			ignored: []string{"a.tmp", "docs/", "fixtures/a.json", "modules/a/docs/", "notes", "top.txt", "x/b.tmp", "x/fixtures/b.json", "x/notes/"},
		},
		{name: "a file where a folder is meant", files: tree{".terraformignore": "docs/", "docs": ""}, want: []string{".terraformignore", "docs"}},
		{name: "the last rule decides", files: tree{".terraformignore": "docs/\n!docs/keep/\ndocs/keep/not.md", "docs/a": "", "docs/keep/b": "", "docs/keep/not.md": ""}, want: []string{".terraformignore", "docs/keep/b"}, ignored: []string{"docs/a", "docs/keep/not.md"}},
		{name: "wildcards", files: tree{".terraformignore": "?.log\na*z\n**/deep/**/x\n[bc].txt\n{d}.txt", "1.log": "", "12.log": "", "az": "", "abcz": "", "ab/z": "", "p/deep/q/r/x": "", "deep/x": "", "b.txt": "", "d.txt": "", "{d}.txt": ""}, want: []string{".terraformignore", "12.log", "ab/z", "d.txt"}, ignored: []string{"1.log", "abcz", "az", "b.txt", "deep/x", "p/deep/q/r/x", "{d}.txt"}},
		{name: "line ends of Windows", files: tree{".terraformignore": "\ufeffdocs/\r\n*.tmp\r\n", "docs/a": "", "a.tmp": ""}, want: []string{".terraformignore"}, ignored: []string{"a.tmp", "docs/"}},
		{name: "itself", files: tree{".terraformignore": ".terraformignore"}, ignored: []string{".terraformignore"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.files["main.tf"] = config
			packed, left, err := pack(t, test.files.write(t), archive.Options{Include: test.include})
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{"main.tf"}, test.want...)
			slices.Sort(want)
			if diff := cmp.Diff(want, names(t, packed)); diff != "" {
				t.Error(diff)
			}
			var got, ignored []string
			for _, l := range left {
				if l.Ignored {
					ignored = append(ignored, l.Path)
				} else {
					got = append(got, l.Path)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.left, got); diff != "" {
				t.Errorf("reported as left out: %s", diff)
			}
			slices.Sort(ignored)
			if diff := cmp.Diff(test.ignored, ignored); diff != "" {
				t.Errorf("reported as named by .terraformignore: %s", diff)
			}
		})
	}
}

func TestPackRefuses(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	tests := []struct {
		name  string
		files tree
		want  string
	}{
		{"a link out of the module", tree{"etc": "-> ../../../../../../etc/hostname"}, "symbolic link etc"},
		{"an absolute link", tree{"etc": "-> /etc/hostname"}, "symbolic link etc"},
		{"an absolute link to a folder", tree{"out": "-> " + outside}, "symbolic link out"},
		{"an absolute link into the module", tree{"etc": "-> MODULE/main.tf"},
			"the symbolic link etc leads to an absolute path: make it relative"},
		{"an absolute link to a folder of the module", tree{"a/x": "", "b": "-> MODULE/a"},
			"the symbolic link b leads to an absolute path: make it relative"},
		{"a name below a link", tree{"a": "-> shared", "shared/con.txt": ""},
			`"shared/con.txt" in the module: it has the part "con.txt", which is a device`},
		{"a link below a link", tree{"a": "-> shared", "shared/out": "-> ../../etc"},
			"the symbolic link shared/out does not lead"},
		{"a file to be copied below a link", tree{"a": "-> shared", "shared/y": "-> ../.git", ".git/HEAD": ""},
			"the symbolic link shared/y leads to .git"},
		{"two names below a link", tree{"a": "-> shared", "shared/x": "", "shared/X": ""},
			"shared/X and shared/x are one"},
		{"a link to nothing", tree{"a": "-> b"}, "symbolic link a"},
		{"a link to itself", tree{"a": "-> a"}, "symbolic link a"},
		{"a circle of links", tree{"a": "-> b", "b": "-> a"}, "symbolic link a"},
		{"a link to the folder above", tree{"x/up": "-> .."}, "symbolic link x/up"},
		{"a link to its own folder", tree{"x/y/here": "-> ."}, "symbolic link x/y/here"},
		{"folders that lead into each other", tree{"a/b": "-> ../c", "c/d": "-> ../a"}, "symbolic link a/b/d"},
		{"a link to what is left out", tree{"state": "-> terraform.tfstate", "terraform.tfstate": "{}"}, "leads to terraform.tfstate"},
		{"a link into a folder that is left out", tree{"head": "-> .git/HEAD", ".git/HEAD": ""}, "leads to .git/HEAD"},
		{"a link to a folder that is left out", tree{"git": "-> .git", ".git/HEAD": ""}, "leads to .git"},
		{"a link to what .terraformignore names", tree{".terraformignore": "docs/", "README.md": "-> docs/README.md", "docs/README.md": ""}, "leads to docs/README.md"},
		{"a backslash in a name", tree{`a\b`: ""}, `a\\b`},
		{"a line break in a name", tree{"a\nb": ""}, `a\nb`},
		{"a name that is no UTF-8", tree{"a\xffb": ""}, `"a\xffb"`},
		{"an empty pattern", tree{".terraformignore": "x\n!\n"}, ".terraformignore:2"},
		{"a broken pattern", tree{".terraformignore": "[a\n"}, ".terraformignore:1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.files["main.tf"] = config
			_, _, err := pack(t, test.files.write(t), archive.Options{})
			if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want ErrInvalid that names %s", err, test.want)
			}
		})
	}
	t.Run("a pipe", func(t *testing.T) {
		t.Parallel()
		dir := tree{"main.tf": config}.write(t)
		if err := mkfifo(filepath.Join(dir, "pipe")); err != nil {
			t.Skip(err)
		}
		if _, _, err := pack(t, dir, archive.Options{}); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "pipe") {
			t.Error(err)
		}
	})
	for name, dir := range map[string]string{"a missing folder": filepath.Join(outside, "missing"), "a file": filepath.Join(tree{"main.tf": config}.write(t), "main.tf")} {
		if _, _, err := pack(t, dir, archive.Options{}); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := pack(t, tree{"main.tf": config}.write(t), archive.Options{Include: []string{"!x"}}); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("an inclusion with an exclamation mark: %v", err)
	}
}

// Clients unpack a link as an empty file, so links become what they lead to.
func TestPackFollowsLinks(t *testing.T) {
	t.Parallel()
	packed, _, err := pack(t, tree{
		"main.tf": config, "LICENSE": "text", "modules/a/LICENSE": "-> ../../LICENSE", "modules/a/b": "-> ../../LICENSE", "chain": "-> modules/a/b",
		"shared/s/x": "x", "modules/a/shared": "-> ../../shared", "again": "-> ./shared/", "up": "-> shared/../LICENSE",
	}.write(t), archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"main.tf": config, "LICENSE": "text", "modules/a/LICENSE": "text", "modules/a/b": "text", "chain": "text",
		"shared/s/x": "x", "modules/a/shared/s/x": "x", "again/s/x": "x", "up": "text",
	}
	if diff := cmp.Diff(want, contents(t, packed)); diff != "" {
		t.Error(diff)
	}
}

// The same files give the same bytes, whatever their times, their permissions beside the right to run, and the way the
// folder is named; and each difference that counts changes them.
func TestPackIsDeterministic(t *testing.T) {
	t.Parallel()
	files := tree{"main.tf": config, "b/x": "1", "b-c": "2", "b.d/x": "3", "run.sh": "#!/bin/sh"}
	first := files.write(t)
	want, _, err := pack(t, first, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second := files.write(t)
	old := time.Now().Add(-1000 * time.Hour)
	for name := range files {
		if err := errors.Join(os.Chtimes(filepath.Join(second, name), old, old), os.Chmod(filepath.Join(second, name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(second, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{first, second, link, second + "/.", second + "/b/.."} {
		if got, _, err := pack(t, dir, archive.Options{}); err != nil || !bytes.Equal(got, want) {
			t.Errorf("packing %s again gives other bytes, %v", dir, err)
		}
	}
	for name, change := range map[string]func(dir string) error{
		"content":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "b-c"), []byte("3"), 0o600) },
		"name":       func(dir string) error { return os.Rename(filepath.Join(dir, "b-c"), filepath.Join(dir, "b-d")) },
		"executable": func(dir string) error { return os.Chmod(filepath.Join(dir, "run.sh"), 0o755) },
		"more":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) },
	} {
		dir := files.write(t)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if got, _, err := pack(t, dir, archive.Options{}); err != nil || bytes.Equal(got, want) {
			t.Errorf("%s changed, and the bytes did not, %v", name, err)
		}
	}
	var order []string
	unzipped, _ := gzip.NewReader(bytes.NewReader(want))
	for in := tar.NewReader(unzipped); ; {
		header, err := in.Next()
		if err != nil {
			break
		}
		order = append(order, header.Name)
		if header.Uid+header.Gid != 0 || header.Uname+header.Gname != "" || header.ModTime.Unix() != 0 || header.Mode != 0o644 {
			t.Errorf("%s: %+v", header.Name, header)
		}
	}
	if diff := cmp.Diff([]string{"b-c", "b.d/x", "b/x", "main.tf", "run.sh"}, order); diff != "" {
		t.Error(diff)
	}
}

// The content's sum is a fixed one, which GNU tar gives too for these files in ustar format: no release of Go and no
// machine may change it.
func TestContentSum(t *testing.T) {
	t.Parallel()
	packed, _, err := pack(t, tree{"main.tf": config, "modules/a/main.tf": config, "README.md": "# x\n"}.write(t), archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if want := "24c0a385d376c4994a2896ccf0b05e5b220213d4dfe91ef194611d9d37334b98"; m.ContentSHA256 != want {
		t.Errorf("content is sha256:%s, want %s", m.ContentSHA256, want)
	}
	sum := sha256.Sum256(packed)
	if m.SHA256 != hex.EncodeToString(sum[:]) || m.Size != int64(len(packed)) {
		t.Errorf("archive is sha256:%s, %d bytes", m.SHA256, m.Size)
	}
	want := []archive.File{{Path: "README.md", Size: 4}, {Path: "main.tf", Size: int64(len(config))}, {Path: "modules/a/main.tf", Size: int64(len(config))}}
	if diff := cmp.Diff(want, m.Files); diff != "" {
		t.Error(diff)
	}
	// The same tar, compressed otherwise, is the same content.
	other := recompress(t, packed)
	if again, err := archive.ReadModule(t.Context(), bytes.NewReader(other)); err != nil || again.ContentSHA256 != m.ContentSHA256 || again.SHA256 == m.SHA256 {
		t.Errorf("compressed otherwise: %+v, %v", again, err)
	}
}

func recompress(t testing.TB, packed []byte) []byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, unzipped); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// entry is one entry of a tar that Pack would not write.
type entry struct {
	tar.Header
	body string
}

func archiveOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		if e.Size == 0 {
			e.Size = int64(len(e.body))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name, body string) entry { return entry{tar.Header{Name: name}, body} }

func TestReadModuleRefuses(t *testing.T) {
	t.Parallel()
	main := file("main.tf", config)
	good := archiveOf(t, main)
	tests := []struct {
		name   string
		packed []byte
		want   string
	}{
		{"nothing", nil, ""},
		{"no gzip", []byte("hello"), ""},
		{"cut short", good[:len(good)-5], ""},
		{"something behind it", append(slices.Clone(good), "more"...), ""},
		{"a broken sum", append(slices.Clone(good[:len(good)-8]), 1, 2, 3, 4, 5, 6, 7, 8), ""},
		{"no tar", func() []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = io.WriteString(w, strings.Repeat("hello", 500))
			_ = w.Close()
			return b.Bytes()
		}(), ""},
		{"a path up", archiveOf(t, main, file("../evil", "")), "../evil"},
		{"a path up in the middle", archiveOf(t, main, file("a/../../evil", "")), "evil"},
		{"an absolute path", archiveOf(t, main, file("/etc/evil", "")), "/etc/evil"},
		{"a path of Windows", archiveOf(t, main, file(`a\..\..\evil`, "")), "evil"},
		{"a folder up", archiveOf(t, main, entry{tar.Header{Name: "../evil/", Typeflag: tar.TypeDir}, ""}), "../evil"},
		{"a symbolic link", archiveOf(t, main, entry{tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""}), "l is not a plain file"},
		{"a hard link", archiveOf(t, main, entry{tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "main.tf"}, ""}), "l is not a plain file"},
		{"a device", archiveOf(t, main, entry{tar.Header{Name: "d", Typeflag: tar.TypeChar}, ""}), "d is not a plain file"},
		{"a pipe", archiveOf(t, main, entry{tar.Header{Name: "p", Typeflag: tar.TypeFifo}, ""}), "p is not a plain file"},
		{"a file twice", archiveOf(t, main, main), "main.tf is in it twice"},
		{"a file that is a folder", archiveOf(t, main, file("a", ""), file("a/b", "")), "a is both"},
		{"no module", archiveOf(t, file("README.md", "")), "no .tf or .tofu file"},
		{"a module further down", archiveOf(t, file("vpc/main.tf", config)),
			"publish the folder that holds them, such as vpc"},
		{"an example before a module", archiveOf(t, file("examples/a/main.tf", config), file("network/main.tf", config)),
			"such as network"},
		{"a module in the folder of modules", archiveOf(t, file("modules/main.tf", config)), "such as modules"},
		{"bad syntax in the only module", archiveOf(t, file("modules/a/main.tf", "}")), "modules/a/main.tf:1"},
		{"only what editors leave below modules", archiveOf(t, file("modules/a/.main.tf", config)),
			"no .tf or .tofu file"},
		{"an empty archive", archiveOf(t), "no .tf or .tofu file"},
		{"only what editors leave", archiveOf(t, file(".main.tf", config), file("main.tf~", config), file("#main.tf#", config)), "no .tf or .tofu file"},
		{"only tests", archiveOf(t, file("main.tftest.hcl", "")), "no .tf or .tofu file"},
		{"bad syntax", archiveOf(t, file("main.tf", "output \"x\" {\n  value = 1\n  oops oops\n}\n")), "main.tf:3"},
		{"bad syntax in a module below", archiveOf(t, main, file("modules/a/vars.tf", "\n\n}")), "modules/a/vars.tf:3"},
		{"bad syntax in .tofu", archiveOf(t, main, file("extra.tofu", "a b c d")), "extra.tofu:1"},
		{"bad JSON", archiveOf(t, file("main.tf.json", "{\n\"output\": \n")), "main.tf.json"},
		{"bad JSON in .tofu.json", archiveOf(t, main, file("x.tofu.json", "{]")), "x.tofu.json:1"},
		{"syntax of Terraform 0.11", archiveOf(t, file("main.tf", "resource \"a\" \"b\" {\n  x = \"${list(\"a\")}\"\n  foo {\n \"a.b\" = 1\n }\n}")), "main.tf:4"},
		{"an unlabelled block", archiveOf(t, file("main.tf", "\nvariable {}\n")), "main.tf:2"},
		{"an override that does not parse", archiveOf(t, main, file("x_override.tf", "}")), "x_override.tf:1"},
		{"a long path", archiveOf(t, main, file(strings.Repeat("a/", 600)+"x", "")), "more than 1024 bytes"},
		{"a long name", archiveOf(t, main, file(strings.Repeat("a", 256), "")), "more than 255 bytes"},
		{"a file of configuration too large", archiveOf(t, file("main.tf", strings.Repeat("#\n", 1<<20))), "main.tf has more than"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := archive.ReadModule(t.Context(), bytes.NewReader(test.packed))
			if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v; want ErrInvalid that names %q", m, err, test.want)
			}
		})
	}
}

// The parser is recursive, and nothing recovers from an exhausted stack; some of its work is quadratic.
func TestReadModuleRefusesEndlessNesting(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"(", "[", "{a=", `["]",`, "[/*]*/", "[\n#]\n", "!", "- ", "-/**/", "true ? 1 : ", "1+", "1\n+", "f(", "[for a in ", `"${`, "${", `"%{if a}`, "<<A\n${", "a[b]", "[b]", "[b] ", ".c[b]", "[*]", "a.*.", "a==", "a&&",
		"a {\n",
	} {
		for _, begin := range []string{"x = ", `x = "`} {
			text := begin + strings.Repeat(pattern, 120_000/len(pattern))
			_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, file("main.tf", text))))
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%s%s…: %v", begin, pattern, err)
			}
		}
	}
	for _, pattern := range []string{"[", `{"a":`, `["]",`, `[["\"]",`, `{"resource":[`} {
		if _, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, file("main.tf.json", strings.Repeat(pattern, 120_000/len(pattern)))))); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("JSON %s…: %v", pattern, err)
		}
	}
}

// What a file within its bounds takes to parse is bounded too: a few kilobytes may unpack to a file of nothing but signs.
func TestReadModuleMemory(t *testing.T) {
	// As the function that publishes has it, which counts on it.
	const limit = 384 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	for _, test := range []struct {
		begin, pattern, end string
	}{
		{"x = [", "0,", "0]\n"},
		{"", "\n", ""},
	} {
		text := test.begin + strings.Repeat(test.pattern, 299_990/len(test.pattern)) + test.end
		var entries []entry
		for i := range 2 {
			entries = append(entries, file(fmt.Sprintf("%d.tf", i), text))
		}
		packed := archiveOf(t, entries...)
		runtime.GC()
		var most uint64
		done, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			for {
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		_, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
		close(done)
		<-watched
		if most > limit {
			t.Errorf("%q takes %d MiB at once", test.pattern, most>>20)
		}
		t.Logf("%q: %d bytes packed, %d MiB, %v", test.pattern, len(packed), most>>20, err)
	}
	text := "x = [" + strings.Repeat("0,", 500_000) + "0]\n"
	if _, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, file("main.tf", text)))); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "words and signs") {
		t.Error(err)
	}
}

// A bomb is given up when it has unpacked to the bound, and takes no memory.
func TestReadModuleBomb(t *testing.T) {
	t.Parallel()
	packed := func(data []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(data) // into memory
		_ = w.Close()
		return out.Bytes()
	}
	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros"}); err != nil {
		t.Fatal(err)
	}
	// What is compressed in parts is as good as whole, and made sooner.
	bomb := append(packed(header.Bytes()), bytes.Repeat(packed(make([]byte, 1<<20)), 512)...)
	if _, err := archive.ReadModule(t.Context(), bytes.NewReader(bomb)); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Error(err)
	}
}

func TestReadModuleAccepts(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]entry{
		"JSON":                               {file("main.tf.json", `{"output":{"x":{"value":1}}}`)},
		".tofu":                              {file("main.tofu", config)},
		".tofu.json":                         {file("main.tofu.json", `{"output":{"x":{"value":1}}}`)},
		"an empty file":                      {file("main.tf", "")},
		"a comment":                          {file("main.tf", "# nothing\n")},
		"a byte order mark":                  {file("main.tf", "\ufeff"+config)},
		"line ends of Windows":               {file("main.tf", strings.ReplaceAll(config, "\n", "\r\n"))},
		"a broken .tf that .tofu hides":      {file("main.tf", "}"), file("main.tofu", config), file("x.tf.json", "{"), file("x.tofu.json", "{}")},
		"a broken override that .tofu hides": {file("main.tf", config), file("a_override.tf", "}"), file("a_override.tofu", "")},
		"broken examples":                    {file("main.tf", config), file("examples/a/main.tf", "}"), file("tests/broken.tf", "}"), file("modules.tf", config)},
		"broken files that nobody reads":     {file("main.tf", config), file(".x.tf", "}"), file("main.tf~", "}"), file("modules/README.tf.md", "}")},
		"entries for folders":                {{tar.Header{Name: "modules/", Typeflag: tar.TypeDir}, ""}, file("main.tf", config), file("modules/a/main.tf", config)},
		"what only a client can judge": {file("main.tf", `
terraform {
  required_version = ">= 1.8, < 99"
  required_providers {
    aws = { source = "hashicorp/aws", version = "~> 5.0", configuration_aliases = [aws.other] }
  }
}
variable "source" {
  type    = string
  default = provider::x::y("z")
}
module "early" {
  source  = var.source
  version = local.version
}
module "for" {
  for_each = toset(["a"])
  source   = "./${each.key}"
}
provider "aws" {
  for_each = var.regions
  alias    = "by_region"
}
resource "a" "b" {
  provider = aws.by_region[each.key]
  lifecycle {
    prevent_destroy = var.keep
  }
}
resource "a" "sensitive" {
  sensitive = var.x
}
provider "b" {
  version = local.y
}
ephemeral "c" "d" {}
check "e" {}
moved {
  from = a.b
  to   = a.c
}
removed {
  from = a.x
}
import {
  to = a.b
  id = "x"
}
some_block_of_a_later_release "x" "y" {}
`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, entries...))); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever the bytes are, reading them ends with a module that is safe to unpack, or with ErrInvalid.
func FuzzReadModule(f *testing.F) {
	f.Add(archiveOf(f, file("main.tf", config)))
	f.Add(archiveOf(f, file("main.tf.json", `{"variable":{"x":{"default":[1,null]}}}`), file("../x", "")))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		m, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		for _, f := range m.Files {
			if !filepath.IsLocal(f.Path) {
				t.Errorf("accepted: %q", f.Path)
			}
		}
	})
}

// Whatever a configuration file says, checking it ends.
func FuzzConfig(f *testing.F) {
	f.Add("main.tf", config)
	f.Add("main.tf.json", `{"terraform":{"required_providers":{"a":{"source":"x"}}}}`)
	f.Add("x.tofu", `variable "x" { default = { a = [for x in y : x] } }`)
	f.Fuzz(func(t *testing.T, name, source string) {
		if len(name) > 50 || strings.ContainsAny(name, "\x00\n") || name == "" {
			return
		}
		var out bytes.Buffer
		compressed := gzip.NewWriter(&out)
		w := tar.NewWriter(compressed)
		if w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(source))}) != nil {
			return
		}
		_, _ = io.WriteString(w, source)
		_ = errors.Join(w.Close(), compressed.Close())
		if _, err := archive.ReadModule(t.Context(), &out); err != nil && !errors.Is(err, registry.ErrInvalid) {
			t.Error(err)
		}
	})
}

// FuzzIgnore packs two files under any .terraformignore.
func FuzzIgnore(f *testing.F) {
	f.Add("docs/\n!x\n")
	f.Add("**\n{a,b}\n[a-\n\\")
	f.Fuzz(func(t *testing.T, ignore string) {
		_, _, err := pack(t, tree{"main.tf": config, "a/b.tfstate": "", ".terraformignore": ignore}.write(t), archive.Options{})
		if err != nil && !errors.Is(err, registry.ErrInvalid) {
			t.Error(err)
		}
	})
}

// BenchmarkPack packs modules of many small files.
func BenchmarkPack(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		files := tree{"main.tf": config}
		for i := range n - 1 {
			files[fmt.Sprintf("modules/m%d/main.tf", i)] = config
		}
		dir := files.write(b)
		b.Run(fmt.Sprintf("%d files", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := archive.Pack(b.Context(), dir, archive.Options{}, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Configuration below modules/ is enough, at any depth: clients install
// //modules/a/b as they install //modules/a.
func TestReadModuleWithoutRoot(t *testing.T) {
	t.Parallel()
	for name, folders := range map[string][]string{
		"main.tf":               {"."},
		"modules/a/main.tf":     {"modules/a"},
		"modules/a/b/main.tofu": {"modules/a/b"},
		"modules/a/x.tf.json":   {"modules/a"},
	} {
		content := config
		if strings.HasSuffix(name, ".json") {
			content = "{}"
		}
		packed := archiveOf(t, file("README.md", ""), file(name, content))
		m, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(folders, m.Folders()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	packed := archiveOf(t, file("examples/a/main.tf", config), file("README.md", ""))
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
	if !errors.Is(err, registry.ErrInvalid) || strings.Contains(err.Error(), "such as") {
		t.Errorf("only an example: %v", err)
	}
}

// What is left out says by which pattern, and where configuration names it.
func TestPackNamesExcluded(t *testing.T) {
	t.Parallel()
	files := tree{
		"main.tf": `locals {
  a = file("${path.module}/.env")
  b = templatefile("${path.module}/conf/../id_rsa", {})
  c = "${path.module}/kept.txt ${path.module}/b.tfvars"
  d = "${path.root}/c.tfvars"
  e = "/d.tfvars"
}
`,
		"modules/a/main.tofu":  "locals {\n x = [for f in [1] : file(\"${path.module}/../../key.pem\")]\n}\n",
		"modules/a/more.tf":    `locals { y = fileset("${path.module}/.aws", "*") }`,
		"modules/a/x.tf.json":  `{"locals": {"x": "${path.module}/b.tfvars"}}`,
		"examples/a/main.tf":   `locals { x = file("${path.module}/../../b.tfvars") }`,
		".env":                 "",
		"id_rsa":               "",
		"b.tfvars":             "",
		"c.tfvars":             "",
		"d.tfvars":             "",
		"kept.txt":             "",
		"key.pem":              "-----BEGIN PRIVATE KEY-----",
		"modules/a/.aws/x":     "",
		"modules/a/.env.local": "",
	}
	_, got, err := pack(t, files.write(t), archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const secret = "may hold secrets"
	want := []archive.Excluded{
		{Path: ".env", Reason: secret, Pattern: ".env", NamedBy: "main.tf:2"},
		{Path: "b.tfvars", Reason: secret, Pattern: "*.tfvars"},
		{Path: "c.tfvars", Reason: secret, Pattern: "*.tfvars"},
		{Path: "d.tfvars", Reason: secret, Pattern: "*.tfvars"},
		{Path: "id_rsa", Reason: secret, Pattern: "id_rsa", NamedBy: "main.tf:3"},
		{Path: "key.pem", Reason: "is a private key", NamedBy: "modules/a/main.tofu:2"},
		{Path: "modules/a/.aws/", Reason: secret, Pattern: ".aws/", NamedBy: "modules/a/more.tf:1"},
		{Path: "modules/a/.env.local", Reason: secret, Pattern: ".env.*"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
