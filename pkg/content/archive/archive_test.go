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

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// tree maps the files of a module's folder to their content. A value after "->
// " is the target of a symbolic link, in which MODULE is the folder itself.
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

// names returns the sorted paths in an archive.
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

// and returns a tree with empty files in addition. names has their paths,
// separated by spaces.
func (files tree) and(names string) tree {
	for _, name := range strings.Fields(names) {
		files[name] = ""
	}
	return files
}

func TestPackLeavesOut(t *testing.T) {
	t.Parallel()
	const plan = "PK\x03\x04....................______tfplan...."
	ignore := func(rules string) tree { return tree{".terraformignore": rules} }
	tests := []struct {
		name    string
		files   tree
		include string
		// The paths in want are in addition to main.tf. Those in ignored are by
		// .terraformignore.
		want, left, ignored string
	}{
		{
			name: "nothing", files: tree{"modules/a/main.tf": config}.and("README.md .hidden empty"),
			want: ".hidden README.md empty modules/a/main.tf",
		},
		{
			name: "always",
			files: tree{"modules/a/.git": "gitdir: x"}.and(`.git/config .terraform/modules/modules.json
				modules/a/.terraform/x .terragrunt-cache/x larder-data/larder.db .DS_Store .hg/x .gitignore .github/x.yml
				.terraform.lock.hcl`),
			want: ".github/x.yml .gitignore .terraform.lock.hcl",
		},
		{
			name: "secrets",
			files: tree{
				"plan.out":   plan,
				"tfplan.tf":  config,
				"tfstate.tf": config,
				"keys/a.pem": "-----BEGIN EC PRIVATE KEY-----\nx\n",
				"b.key":      "\n-----BEGIN OPENSSH PRIVATE KEY-----\r\nx",
				"ca.pem":     "-----BEGIN CERTIFICATE-----\nx\n",
				"keys.md":    "# -----BEGIN PRIVATE KEY-----",
				"small":      "PK",
				"other.zip":  "PK\x03\x04....................______readme....",
			}.and(`terraform.tfstate terraform.tfstate.backup terraform.tfstate.1700000000.backup .terraform.tfstate.lock.info
				terraform.tfstate.d/prod/terraform.tfstate x.tfplan tfplan terraform.tfvars prod.auto.tfvars a/b/x.tfvars.json
				.terraformrc credentials.tfrc.json .env crash.log id_ed25519 x.tfvars.md id_ed25519.pub .env.production
				.aws/credentials data/larder.db data/url.key data/tls/ca.key`),
			want: "ca.pem id_ed25519.pub keys.md other.zip small tfplan.tf tfstate.tf x.tfvars.md",
			left: `.aws/ .env .env.production .terraform.tfstate.lock.info .terraformrc a/b/x.tfvars.json b.key crash.log
				credentials.tfrc.json data/ id_ed25519 keys/a.pem plan.out prod.auto.tfvars terraform.tfstate
				terraform.tfstate.1700000000.backup terraform.tfstate.backup terraform.tfstate.d/ terraform.tfvars tfplan x.tfplan`,
		},
		{
			name:    "secrets that are asked for",
			files:   tree{"plan.out": plan}.and("examples/a/x.tfvars terraform.tfvars terraform.tfstate.d/a/b .git/config"),
			include: "/examples/**/*.tfvars terraform.tfstate.d/ plan.out",
			want:    "examples/a/x.tfvars plan.out terraform.tfstate.d/a/b", left: "terraform.tfvars",
		},
		{
			name: "templates of environment files",
			files: tree{"k/.env.tpl": "-----BEGIN PRIVATE KEY-----"}.and(`.env.example .env.tpl a/.env.sample .env.template
				.env.dist .env.production.example .env.tftpl .env.tmpl .env.local .env.examples .env.example.local .env.tplx
				.env.sample/.env .env.dist.d/x .env.template.key`),
			want: ".env.dist .env.example .env.production.example .env.template .env.tftpl .env.tmpl .env.tpl a/.env.sample",
			left: `.env.dist.d/ .env.example.local .env.examples .env.local .env.sample/.env .env.template.key .env.tplx
				k/.env.tpl`,
		},
		{
			name: "templates that are left out", files: ignore(".env.example").and(".env.example .env.tpl"),
			want: ".env.tpl .terraformignore", ignored: ".env.example",
		},
		{
			name: "a careless negation", files: ignore("!*\n!.git/\n!*.tfstate").and("terraform.tfstate .git/config"),
			want: ".terraformignore", left: "terraform.tfstate",
		},
		{
			name: "folders and files",
			files: ignore("# a comment\n\n  docs/  \nnotes\n*.tmp\n/top.txt\nfixtures/*.json\n").and(`docs/a modules/a/docs/b
				notes x/notes/deep/y a.tmp x/b.tmp top.txt x/top.txt fixtures/a.json fixtures/a.txt x/fixtures/b.json
				fixtures/sub/c.json adocs/c`),
			want:    ".terraformignore adocs/c fixtures/a.txt fixtures/sub/c.json x/top.txt",
			ignored: "a.tmp docs/ fixtures/a.json modules/a/docs/ notes top.txt x/b.tmp x/fixtures/b.json x/notes/",
		},
		{name: "a file where a folder is meant", files: ignore("docs/").and("docs"), want: ".terraformignore docs"},
		{
			name:  "the last rule decides",
			files: ignore("docs/\n!docs/keep/\ndocs/keep/not.md").and("docs/a docs/keep/b docs/keep/not.md"),
			want:  ".terraformignore docs/keep/b", ignored: "docs/a docs/keep/not.md",
		},
		{
			name: "wildcards",
			files: ignore("?.log\na*z\n**/deep/**/x\n[bc].txt\n{d}.txt").and(
				"1.log 12.log az abcz ab/z p/deep/q/r/x deep/x b.txt d.txt {d}.txt"),
			want:    ".terraformignore 12.log ab/z d.txt",
			ignored: "1.log abcz az b.txt deep/x p/deep/q/r/x {d}.txt",
		},
		{
			name: "line ends of Windows", files: ignore("\ufeffdocs/\r\n*.tmp\r\n").and("docs/a a.tmp"),
			want: ".terraformignore", ignored: "a.tmp docs/",
		},
		{
			name: "UTF-16 of PowerShell", files: ignore("\xFF\xFEd\x00o\x00c\x00s\x00/\x00\r\x00\n\x00").and("docs/a"),
			want: ".terraformignore", ignored: "docs/",
		},
		{
			name: "backslashes that stand for no folder", files: ignore("\\#a\nb\\[1]\n\\*.md\nno\\such").and("#a b[1] b.md"),
			want: ".terraformignore b.md", ignored: "#a b[1]",
		},
		{name: "itself", files: ignore(".terraformignore"), ignored: ".terraformignore"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.files["main.tf"] = config
			packed, left, err := pack(t, test.files.write(t), archive.Options{Include: strings.Fields(test.include)})
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{"main.tf"}, strings.Fields(test.want)...)
			slices.Sort(want)
			if diff := cmp.Diff(want, names(t, packed)); diff != "" {
				t.Error(diff)
			}
			got, ignored := []string{}, []string{}
			for _, l := range left {
				if l.Ignored {
					ignored = append(ignored, l.Path)
				} else {
					got = append(got, l.Path)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(strings.Fields(test.left), got); diff != "" {
				t.Errorf("reported as excluded: %s", diff)
			}
			slices.Sort(ignored)
			if diff := cmp.Diff(strings.Fields(test.ignored), ignored); diff != "" {
				t.Errorf("reported as excluded by .terraformignore: %s", diff)
			}
		})
	}
}

func TestPackRefuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	outside := t.TempDir()
	tests := []struct {
		name  string
		files tree
	}{
		{"a link out of the module", tree{"etc": "-> ../../../../../../etc/hostname"}},
		{"an absolute link", tree{"etc": "-> /etc/hostname"}},
		{"an absolute link to a folder", tree{"out": "-> " + outside}},
		{"an absolute link into the module", tree{"etc": "-> MODULE/main.tf"}},
		{"an absolute link to a folder of the module", tree{"a/x": "", "b": "-> MODULE/a"}},
		{"a name below a link", tree{"a": "-> shared", "shared/con.txt": ""}},
		{"a link below a link", tree{"a": "-> shared", "shared/out": "-> ../../etc"}},
		{"a file to be copied below a link", tree{"a": "-> shared", "shared/y": "-> ../.git", ".git/HEAD": ""}},
		{"two names below a link", tree{"a": "-> shared", "shared/x": "", "shared/X": ""}},
		{"a link to nothing", tree{"a": "-> b"}},
		{"a link to itself", tree{"a": "-> a"}},
		{"a circle of links", tree{"a": "-> b", "b": "-> a"}},
		{"a link to the folder above", tree{"x/up": "-> .."}},
		{"a link to its own folder", tree{"x/y/here": "-> ."}},
		{"folders that lead into each other", tree{"a/b": "-> ../c", "c/d": "-> ../a"}},
		{"a link to what is left out", tree{"state": "-> terraform.tfstate", "terraform.tfstate": "{}"}},
		{"a link into a folder that is left out", tree{"head": "-> .git/HEAD", ".git/HEAD": ""}},
		{"a link to a folder that is left out", tree{"git": "-> .git", ".git/HEAD": ""}},
		{
			"a link to what .terraformignore names",
			tree{".terraformignore": "docs/", "README.md": "-> docs/README.md", "docs/README.md": ""},
		},
		{"an empty pattern", tree{".terraformignore": "x\n!\n"}},
		{"a broken pattern", tree{".terraformignore": "[a\n"}},
		{"a folder instead of patterns", tree{".terraformignore/x": ""}},
		{"patterns in Latin-1", tree{".terraformignore": "x\ncaf\xe9\n"}},
		{"patterns in UTF-16 without a mark", tree{".terraformignore": "x\x00\n\x00"}},
		{"too many patterns", tree{".terraformignore": strings.Repeat("# x\n", 256<<10+1)}},
		{"backslashes between folders", tree{".terraformignore": "docs\\keys\n", "docs/keys/a.txt": ""}},
		{"a backslash before a wildcard", tree{".terraformignore": "/docs\\*.txt\n", "docs/a.txt": ""}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.files["main.tf"] = config
			_, _, err := pack(t, test.files.write(t), archive.Options{})
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
	t.Run("a pipe", func(t *testing.T) {
		t.Parallel()
		dir := tree{"main.tf": config}.write(t)
		if err := mkfifo(filepath.Join(dir, "pipe")); err != nil {
			t.Skip(err)
		}
		_, _, err := pack(t, dir, archive.Options{})
		if !errors.Is(err, registry.ErrInvalid) {
			t.Fatalf("got error %v, want ErrInvalid", err)
		}
		if !strings.Contains(err.Error(), "pipe") {
			t.Errorf("the error does not name the pipe: %v", err)
		}
	})
	for name, dir := range map[string]string{
		"a missing folder": filepath.Join(outside, "missing"),
		"a file":           filepath.Join(tree{"main.tf": config}.write(t), "main.tf"),
	} {
		if _, _, err := pack(t, dir, archive.Options{}); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err := pack(t, tree{"main.tf": config}.write(t), archive.Options{Include: []string{"!x"}})
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("an inclusion with an exclamation mark: %v", err)
	}
}

// A private key is packed if its own path may have secrets, unless its name
// excludes it.
func TestPackAllowedSecrets(t *testing.T) {
	t.Parallel()
	const key = "-----BEGIN PRIVATE " + "KEY-----\n"
	dir := tree{"main.tf": config, "a/b.key": key, "a/c.key": key, "id_rsa": key}.write(t)
	_, left, err := pack(t, dir, archive.Options{AllowSecrets: []string{"a/b.key", "a", "id_rsa"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []archive.Excluded{
		{Path: "a/c.key", Reason: "is a private key"},
		{Path: "id_rsa", Reason: "may contain secrets", Pattern: "id_rsa"},
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
}

// What cannot be packed is excluded from a module that exists elsewhere, unless it is
// configuration. Clients install such a module.
func TestPackExisting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files tree
		want  []string // the excluded paths
	}{
		"a link to nothing":           {tree{"docs/link": "-> gone"}, []string{"docs/link"}},
		"a link out of the module":    {tree{"link": "-> ../.."}, []string{"link"}},
		"an absolute link":            {tree{"link": "-> /etc/hosts"}, []string{"link"}},
		"a link to a folder above":    {tree{"a/loop": "-> .."}, []string{"a/loop"}},
		"two READMEs":                 {tree{"README.md": "x", "readme.md": "y"}, []string{"readme.md"}},
		"three READMEs":               {tree{"README.md": "x", "ReadMe.md": "y", "readme.md": "z"}, []string{"ReadMe.md", "readme.md"}},
		"folders that differ in case": {tree{"docs/a": "x", "Docs/b": "y"}, []string{"Docs/b"}},
		"a colon":                     {tree{"a:b": "x"}, []string{"a:b"}},
		"a separator of Windows":      {tree{`a\b`: "x"}, []string{`a\b`}},
		"a device of Windows":         {tree{"docs/aux.md": "x"}, []string{"docs/aux.md"}},
		"Latin-1 in a name":           {tree{"caf\xe9.txt": "x"}, []string{"caf\xe9.txt"}},
		"configuration with a colon":  {tree{"a:b.tf": config}, nil},
		"a dangling configuration":    {tree{"a.tf": "-> gone.tf"}, nil},
		"configuration twice":         {tree{"Main.tf": config}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.files["main.tf"] = config
			dir := test.files.write(t)
			if _, _, err := pack(t, dir, archive.Options{}); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("a new version: got error %v, want ErrInvalid", err)
			}
			packed, left, err := pack(t, dir, archive.Options{Existing: true})
			if test.want == nil {
				if !errors.Is(err, registry.ErrInvalid) {
					t.Errorf("got error %v, want ErrInvalid", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range left {
				got = append(got, e.Path)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("excluded (-want +got):\n%s", diff)
			}
			if m, err := archive.ReadModule(t.Context(), bytes.NewReader(packed)); err != nil || len(m.Files) != len(test.files)-len(test.want) {
				t.Errorf("the archive has %d files, %v", len(m.Files), err)
			}
		})
	}
}

// TestPackFollowsLinks checks that links become their targets, because clients
// unpack a link as an empty file.
func TestPackFollowsLinks(t *testing.T) {
	t.Parallel()
	packed, _, err := pack(t, tree{
		"main.tf":           config,
		"LICENSE":           "text",
		"modules/a/LICENSE": "-> ../../LICENSE",
		"modules/a/b":       "-> ../../LICENSE",
		"chain":             "-> modules/a/b",
		"shared/s/x":        "x",
		"modules/a/shared":  "-> ../../shared",
		"again":             "-> ./shared/",
		"up":                "-> shared/../LICENSE",
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

// TestPackIsDeterministic checks that the same files give the same bytes.
// Times, most permissions and the path of the folder do not matter. Changes of
// content, names and executable bits do.
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
		path := filepath.Join(second, name)
		if err := errors.Join(os.Chtimes(path, old, old), os.Chmod(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(second, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{first, second, link, second + "/.", second + "/b/.."} {
		if got, _, err := pack(t, dir, archive.Options{}); err != nil || !bytes.Equal(got, want) {
			t.Errorf("packing %s again gives different bytes, or an error: %v", dir, err)
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
			t.Errorf("%s changed, but the bytes did not, or there is an error: %v", name, err)
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
		if header.Uid+header.Gid != 0 || header.Uname+header.Gname != "" {
			t.Errorf("%s has an owner: %+v", header.Name, header)
		}
		if header.ModTime.Unix() != 0 {
			t.Errorf("%s has the time %s", header.Name, header.ModTime)
		}
		if header.Mode != 0o644 {
			t.Errorf("%s has the mode %#o", header.Name, header.Mode)
		}
	}
	if diff := cmp.Diff([]string{"b-c", "b.d/x", "b/x", "main.tf", "run.sh"}, order); diff != "" {
		t.Error(diff)
	}
}

// TestContentSum compares the content's sum with a constant. GNU tar writes the
// same bytes for these files in the ustar format. No release of Go and no
// machine may change them.
func TestContentSum(t *testing.T) {
	t.Parallel()
	packed, _, err := pack(
		t,
		tree{"main.tf": config, "modules/a/main.tf": config, "README.md": "# x\n"}.write(t),
		archive.Options{},
	)
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
	if want := hex.EncodeToString(sum[:]); m.SHA256 != want {
		t.Errorf("archive is sha256:%s, want %s", m.SHA256, want)
	}
	if m.Size != int64(len(packed)) {
		t.Errorf("archive has %d bytes, want %d", m.Size, len(packed))
	}
	want := []archive.File{
		{Path: "README.md", Size: 4},
		{Path: "main.tf", Size: int64(len(config))},
		{Path: "modules/a/main.tf", Size: int64(len(config))},
	}
	if diff := cmp.Diff(want, m.Files); diff != "" {
		t.Error(diff)
	}
	// The same tar with another compression level has the same content.
	again, err := archive.ReadModule(t.Context(), bytes.NewReader(recompress(t, packed)))
	if err != nil {
		t.Fatal(err)
	}
	if again.ContentSHA256 != m.ContentSHA256 {
		t.Errorf("recompressed: content is sha256:%s, want %s", again.ContentSHA256, m.ContentSHA256)
	}
	if again.SHA256 == m.SHA256 {
		t.Error("recompressed: the archive has the same sum")
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

// entry is an entry of a tar that Pack would not write.
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
	texts := golden.New(t)
	main := file("main.tf", config)
	good := archiveOf(t, main)
	tests := []struct {
		name   string
		packed []byte
	}{
		{"nothing", nil},
		{"no gzip", []byte("hello")},
		{"cut short", good[:len(good)-5]},
		{"something behind it", append(slices.Clone(good), "more"...)},
		{"a broken sum", append(slices.Clone(good[:len(good)-8]), 1, 2, 3, 4, 5, 6, 7, 8)},
		{"no tar", func() []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = io.WriteString(w, strings.Repeat("hello", 500))
			_ = w.Close()
			return b.Bytes()
		}()},
		{"a path up", archiveOf(t, main, file("../evil", ""))},
		{"a path up in the middle", archiveOf(t, main, file("a/../../evil", ""))},
		{"an absolute path", archiveOf(t, main, file("/etc/evil", ""))},
		{"a folder up", archiveOf(t, main, entry{tar.Header{Name: "../evil/", Typeflag: tar.TypeDir}, ""})},
		{
			"a symbolic link",
			archiveOf(t, main, entry{tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""}),
		},
		{"a hard link", archiveOf(t, main, entry{tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "main.tf"}, ""})},
		{"a device", archiveOf(t, main, entry{tar.Header{Name: "d", Typeflag: tar.TypeChar}, ""})},
		{"a pipe", archiveOf(t, main, entry{tar.Header{Name: "p", Typeflag: tar.TypeFifo}, ""})},
		{"a file twice", archiveOf(t, main, main)},
		{"a file that is a folder", archiveOf(t, main, file("a", ""), file("a/b", ""))},
		{"no module", archiveOf(t, file("README.md", ""))},
		{"a module further down", archiveOf(t, file("vpc/main.tf", config))},
		{"an example before a module", archiveOf(t, file("examples/a/main.tf", config), file("network/main.tf", config))},
		{"a module in the folder of modules", archiveOf(t, file("modules/main.tf", config))},
		{"bad syntax in the only module", archiveOf(t, file("modules/a/main.tf", "}"))},
		{"only what editors leave below modules", archiveOf(t, file("modules/a/.main.tf", config))},
		{"an empty archive", archiveOf(t)},
		{
			"only what editors leave",
			archiveOf(t, file(".main.tf", config), file("main.tf~", config), file("#main.tf#", config)),
		},
		{"only tests", archiveOf(t, file("main.tftest.hcl", ""))},
		{"bad syntax", archiveOf(t, file("main.tf", "output \"x\" {\n  value = 1\n  oops oops\n}\n"))},
		{"bad syntax in a module below", archiveOf(t, main, file("modules/a/vars.tf", "\n\n}"))},
		{"bad syntax in .tofu", archiveOf(t, main, file("extra.tofu", "a b c d"))},
		{"bad syntax in a symbol library", archiveOf(t, file("a.sym.hcl", "}"))},
		{"a hidden symbol library", archiveOf(t, file(".a.sym.hcl", ""))},
		{"bad JSON", archiveOf(t, file("main.tf.json", "{\n\"output\": \n"))},
		{"bad JSON in .tofu.json", archiveOf(t, main, file("x.tofu.json", "{]"))},
		{
			"syntax of Terraform 0.11",
			archiveOf(t, file("main.tf", "resource \"a\" \"b\" {\n  x = \"${list(\"a\")}\"\n  foo {\n \"a.b\" = 1\n }\n}")),
		},
		{"an override that does not parse", archiveOf(t, main, file("x_override.tf", "}"))},
		{"a long path", archiveOf(t, main, file(strings.Repeat("a/", 600)+"x", ""))},
		{"a long name", archiveOf(t, main, file(strings.Repeat("a", 256), ""))},
		{"a file of configuration too large", archiveOf(t, file("main.tf", strings.Repeat("#\n", 1<<20)))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := read(t, test.packed)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
}

// read reads a module, and returns why it may not be a new version.
func read(t *testing.T, packed []byte) error {
	m, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
	if err == nil && len(m.Problems) > 0 {
		err = m.Problems[0]
	}
	return err
}

// TestReadModuleRefusesEndlessNesting covers the recursive parser. A program
// cannot recover from an exhausted stack. Some of the parser's work is
// quadratic.
func TestReadModuleRefusesEndlessNesting(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"(", "[", "{a=", `["]",`, "[/*]*/", "[\n#]\n", "!", "- ", "-/**/", "true ? 1 : ", "1+", "1\n+", "f(", "[for a in ",
		`"${`, "${", `"%{if a}`, "<<A\n${", "a[b]", "[b]", "[b] ", ".c[b]", "[*]", "a.*.", "a==", "a&&", "a {\n",
	} {
		for _, begin := range []string{"x = ", `x = "`} {
			text := begin + strings.Repeat(pattern, 120_000/len(pattern))
			if err := read(t, archiveOf(t, file("main.tf", text))); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%s%s…: %v", begin, pattern, err)
			}
		}
	}
	for _, pattern := range []string{"[", `{"a":`, `["]",`, `[["\"]",`, `{"resource":[`} {
		packed := archiveOf(t, file("main.tf.json", strings.Repeat(pattern, 120_000/len(pattern))))
		if _, err := archive.ReadModule(t.Context(), bytes.NewReader(packed)); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("JSON %s…: %v", pattern, err)
		}
	}
}

// TestReadModuleMemory checks that parsing a file within the limits takes
// limited memory. A few kilobytes may unpack to a file full of tokens.
func TestReadModuleMemory(t *testing.T) {
	// The publishing function has this memory limit.
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
			t.Errorf("%q takes %d MiB of memory", test.pattern, most>>20)
		}
		t.Logf("%q: %d bytes packed, %d MiB, %v", test.pattern, len(packed), most>>20, err)
	}
	text := "x = [" + strings.Repeat("0,", 500_000) + "0]\n"
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, file("main.tf", text))))
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
	}
	golden.New(t).Error(t, err)
}

// TestReadModuleBomb checks that unpacking stops at the limit and takes little
// memory.
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
	// Concatenated gzip members are one valid stream, and are faster to make.
	bomb := append(packed(header.Bytes()), bytes.Repeat(packed(make([]byte, 1<<20)), 512)...)
	_, err := archive.ReadModule(t.Context(), bytes.NewReader(bomb))
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
	}
	golden.New(t).Error(t, err)
}

func TestReadModuleAccepts(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]entry{
		"JSON":                 {file("main.tf.json", `{"output":{"x":{"value":1}}}`)},
		".tofu":                {file("main.tofu", config)},
		".tofu.json":           {file("main.tofu.json", `{"output":{"x":{"value":1}}}`)},
		"a symbol library":     {file("a.sym.hcl", "function \"x\" {\n  return = symbols::y::z(1)\n}\n")},
		"symbols twice":        {file("a.sym.hcl", "values {\n  x = 1\n}\n"), file("b.sym.hcl", "values {\n  x = 1\n}\n")},
		"a library below":      {file("modules/a/a.sym.hcl", "")},
		"an empty file":        {file("main.tf", "")},
		"a comment":            {file("main.tf", "# nothing\n")},
		"a byte order mark":    {file("main.tf", "\ufeff"+config)},
		"line ends of Windows": {file("main.tf", strings.ReplaceAll(config, "\n", "\r\n"))},
		"a broken .tf that .tofu hides": {
			file("main.tf", "}"), file("main.tofu", config), file("x.tf.json", "{"), file("x.tofu.json", "{}"),
		},
		"a broken override that .tofu hides": {
			file("main.tf", config), file("a_override.tf", "}"), file("a_override.tofu", ""),
		},
		"broken examples": {
			file("main.tf", config), file("examples/a/main.tf", "}"), file("tests/broken.tf", "}"), file("modules.tf", config),
		},
		"broken files that nobody reads": {
			file("main.tf", config), file(".x.tf", "}"), file("main.tf~", "}"), file("modules/README.tf.md", "}"),
		},
		"entries for folders": {
			{tar.Header{Name: "modules/", Typeflag: tar.TypeDir}, ""},
			file("main.tf", config), file("modules/a/main.tf", config),
		},
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
			m, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, entries...)))
			if err != nil {
				t.Error(err)
			}
			if strings.Contains(name, "symbol") && len(m.Problems)+len(m.Notes) > 0 {
				t.Errorf("got problems %v and notes %v", m.Problems, m.Notes)
			}
		})
	}
}

// TestModuleProblems checks which folders of a module are held to what clients
// load. The problems do not make the module invalid.
func TestModuleProblems(t *testing.T) {
	t.Parallel()
	const twice = "variable \"x\" {}\nvariable \"x\" {}\n"
	const problem = `invalid module: %s:2:1: variable "x" is already declared at %[1]s:1`
	tests := map[string]struct {
		entries []entry
		want    string // the file with the problem
		notes   []string
	}{
		"the root":              {[]entry{file("main.tf", twice)}, "main.tf", nil},
		"a folder of modules/":  {[]entry{file("main.tf", config), file("modules/a/main.tf", twice)}, "modules/a/main.tf", nil},
		"two folders":           {[]entry{file("main.tf", "variable \"x\" {}\n"), file("modules/a/main.tf", "variable \"x\" {}\n")}, "", nil},
		"a folder further down": {[]entry{file("main.tf", config), file("modules/a/tests/main.tf", twice)}, "", nil},
		"a folder that is called": {[]entry{
			file("main.tf", "module \"x\" {\n  source = \"./modules/a/b\"\n}\n"), file("modules/a/b/main.tf", twice),
		}, "modules/a/b/main.tf", nil},
		"an example": {[]entry{file("main.tf", config), file("examples/a/main.tf", twice)}, "", nil},
		"a .tofu file in its place": {
			[]entry{file("main.tf", twice), file("main.tofu", config)}, "",
			[]string{`main.tf:2:1: variable "x" is already declared at main.tf:1 (only Terraform refuses it)`},
		},
		"a .tofu file for one that does not parse": {
			[]entry{file("main.tf.json", "{"), file("main.tofu.json", "{}")}, "",
			[]string{"main.tf.json:1:2: Missing value: The JSON data ends prematurely. (only Terraform refuses it)"},
		},
		"a later release": {[]entry{file("main.tf", "novelty {}\n")}, "",
			[]string{"main.tf:1:1: no known release of a client has a block novelty"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, test.entries...)))
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, problem := range m.Problems {
				if !errors.Is(problem, registry.ErrInvalid) {
					t.Errorf("%v is not ErrInvalid", problem)
				}
				got = append(got, problem.Error())
			}
			if test.want != "" {
				want = []string{fmt.Sprintf(problem, test.want)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.notes, m.Notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzReadModule checks that any bytes give a module that is safe to unpack, or
// ErrInvalid.
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

// FuzzConfig checks that parsing any configuration ends.
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

// FuzzIgnore packs two files with any .terraformignore.
func FuzzIgnore(f *testing.F) {
	f.Add("docs/\n!x\n")
	f.Add("**\n{a,b}\n[a-\n\\")
	f.Fuzz(func(t *testing.T, ignore string) {
		_, _, err := pack(
			t,
			tree{"main.tf": config, "a/b.tfstate": "", ".terraformignore": ignore}.write(t),
			archive.Options{},
		)
		if err != nil && !errors.Is(err, registry.ErrInvalid) {
			t.Error(err)
		}
	})
}

// BenchmarkPack packs modules with many small files.
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

// TestReadModuleWithoutRoot checks that configuration at any depth below
// modules/ is enough. Clients install //modules/a/b in the same way as
// //modules/a.
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
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("only an example: got error %v, want ErrInvalid", err)
	}
	golden.New(t).Error(t, err)
}

// TestPackNamesExcluded checks that an excluded file has its pattern and the
// place where configuration names it.
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
	const secret = "may contain secrets"
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
