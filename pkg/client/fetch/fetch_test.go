package fetch_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/fetch"
	"github.com/larder-registry/larder/pkg/client/git"
	"github.com/larder-registry/larder/pkg/registry"
)

// origin serves archives and repositories over https.
type origin struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	handlers map[string]http.HandlerFunc
}

var served = &origin{files: map[string][]byte{}, handlers: map[string]http.HandlerFunc{}}

const (
	testBytes     = 4 << 20
	testFiles     = 200
	testDirectory = 256 << 10
	testObjects   = 500
	testStep      = time.Minute
)

// TestMain starts the origin, because git reads its authority from the
// environment.
func TestMain(m *testing.M) {
	fetch.SetLimits(testBytes, testFiles, testDirectory, testObjects, testStep)
	dir, err := os.MkdirTemp("", "larder-fetch-test-*")
	if err != nil {
		panic(err)
	}
	served.Server = httptest.NewTLSServer(served)
	ca := filepath.Join(dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"GIT_SSL_CAINFO": ca, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": dir,
	} {
		_ = os.Setenv(name, value) // it never fails for these
	}
	code := m.Run()
	served.Close()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	file, isFile := o.files[r.URL.Path]
	var handler http.HandlerFunc
	for path, h := range o.handlers {
		if strings.HasPrefix(r.URL.Path, path) {
			handler = h
		}
	}
	o.mu.Unlock()
	switch {
	case isFile:
		_, _ = w.Write(file)
	case handler != nil:
		handler(w, r)
	default:
		http.NotFound(w, r)
	}
}

// put serves a file, and returns its path.
func put(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := "/" + t.Name() + "/" + name
	served.mu.Lock()
	defer served.mu.Unlock()
	served.files[path] = content
	return path
}

// handle serves paths below a path, which it returns.
func handle(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	path := "/handled/" + t.Name() + "/"
	served.mu.Lock()
	defer served.mu.Unlock()
	served.handlers[path] = h
	return path
}

// fetched fetches the folder at a location.
func fetched(t *testing.T, l client.ModuleLocation) string {
	t.Helper()
	dir, err := fetcher(t).Folder(t.Context(), l, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fetcher returns a fetcher for an origin that the operator named.
func fetcher(t *testing.T) *fetch.Fetcher {
	t.Helper()
	config := served.Client().Transport.(*http.Transport).TLSClientConfig //nolint:forcetypeassert // of httptest
	c := client.New(nil, "larder/test", &http.Transport{TLSClientConfig: config.Clone()})
	c.Wait = time.Millisecond
	return &fetch.Fetcher{Client: c.Confine(t.Context(), served.URL), Hosts: []string{"127.0.0.1:8443"}}
}

// at returns a location of the origin.
func at(t *testing.T, reference string) client.ModuleLocation {
	t.Helper()
	base, err := url.Parse(served.URL + "/v1/modules/acme/vpc/aws/1.0.0/download")
	if err != nil {
		t.Fatal(err)
	}
	return client.ModuleLocation{Reference: strings.ReplaceAll(reference, "ORIGIN", served.URL), Base: base}
}

// tree returns the files below a folder, with their content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if e.Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			found[filepath.ToSlash(name)] = "-> " + target
			return err
		}
		data, err := os.ReadFile(path)
		info, _ := e.Info()
		text := string(data)
		if info.Mode()&0o100 != 0 {
			text = "x " + text
		}
		found[filepath.ToSlash(name)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// entry is an entry of an archive.
type entry struct {
	name, content string
	mode          fs.FileMode
	kind          byte // of a tar; 0: a file
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var packed bytes.Buffer
	out := tar.NewWriter(&packed)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode | 0o600), Typeflag: e.kind, Size: int64(len(e.content))}
		switch e.kind {
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname, h.Size = e.content, 0
		case tar.TypeChar, tar.TypeFifo, tar.TypeDir:
			h.Size = 0
		case 0:
			h.Typeflag = tar.TypeReg
		}
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(out, e.content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func gzipped(t *testing.T, plain []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	out := gzip.NewWriter(&packed)
	if _, err := out.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func zipOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var packed bytes.Buffer
	out := zip.NewWriter(&packed)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode | 0o600)
		w, err := out.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, e.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// module are the files of a repository with a module in modules/vpc.
var module = []entry{
	{name: "README.md", content: "# All\n"},
	{name: "modules/vpc/main.tf", content: "# vpc\n"},
	{name: "modules/vpc/run.sh", content: "#!/bin/sh\n", mode: 0o100},
}

var (
	whole = map[string]string{
		"README.md": "# All\n", "modules/vpc/main.tf": "# vpc\n", "modules/vpc/run.sh": "x #!/bin/sh\n",
	}
	vpc = map[string]string{"main.tf": "# vpc\n", "run.sh": "x #!/bin/sh\n"}
)

func TestArchives(t *testing.T) {
	t.Parallel()
	packed := gzipped(t, tarOf(t, module...))
	sum := sha256.Sum256(packed)
	for name, c := range map[string]struct {
		file, content, suffix string
		want                  map[string]string
		direct                bool
	}{
		"tar.gz":              {"x.tar.gz", string(packed), "", whole, false},
		"tgz by the query":    {"x", string(packed), "?archive=tgz", whole, false},
		"zip":                 {"x.zip", string(zipOf(t, module...)), "", whole, false},
		"folder":              {"x.tar.gz", string(packed), "//modules/vpc", vpc, false},
		"checksum":            {"x.tar.gz", string(packed), "?checksum=sha256:" + hex.EncodeToString(sum[:]), whole, false},
		"plain URL, a zip":    {"x", string(zipOf(t, module...)), "", whole, true},
		"plain URL, a tar.gz": {"x", string(packed), "", whole, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := at(t, put(t, c.file, []byte(c.content))+c.suffix)
			l.Direct = c.direct
			dir := fetched(t, l)
			if diff := cmp.Diff(c.want, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A URL that is not an archive leads to one by its header, and a folder stays.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	packed := put(t, "x.tar.gz", gzipped(t, tarOf(t, module...)))
	path := handle(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("terraform-get") != "1" {
			t.Error("the request lacks terraform-get=1")
		}
		w.Header().Set("X-Terraform-Get", packed)
	})
	dir := fetched(t, at(t, "ORIGIN"+path+"vpc//modules/vpc"))
	if diff := cmp.Diff(vpc, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// Between two Larders, the bytes stay the same.
func TestFile(t *testing.T) {
	t.Parallel()
	packed := gzipped(t, tarOf(t, module...))
	sum := sha256.Sum256(packed)
	path := put(t, "x.tar.gz", packed)
	var got bytes.Buffer
	if err := fetcher(t).File(t.Context(), at(t, path+"?checksum=sha256:"+hex.EncodeToString(sum[:])), &got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed, got.Bytes()) {
		t.Error("the bytes differ")
	}
	err := fetcher(t).File(t.Context(), at(t, path+"?checksum=sha256:"+strings.Repeat("ab", 32)), io.Discard)
	if host := strings.TrimPrefix(served.URL, "https://"); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), host) {
		t.Errorf("with another checksum: %v, want ErrInvalid with %s", err, host)
	}
}

// directoryOf returns a zip with a directory of a size in bytes, whose entries
// have no files.
func directoryOf(size int) []byte {
	const entry, end = 46, 22
	packed := make([]byte, 0, size+end)
	for len(packed)+entry <= size {
		packed = append(packed, "PK\x01\x02"...)
		packed = append(packed, make([]byte, entry-4)...)
	}
	count := uint16(0xffff) // readers do not rely on it
	packed = append(packed, "PK\x05\x06\x00\x00\x00\x00"...)
	for range 2 {
		packed = binary.LittleEndian.AppendUint16(packed, count)
	}
	packed = binary.LittleEndian.AppendUint32(packed, uint32(len(packed)-12))
	return append(packed, 0, 0, 0, 0, 0, 0)
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	many := make([]entry, testFiles+1)
	for i := range many {
		many[i].name = fmt.Sprintf("f%d", i)
	}
	wrongChecksum := gzipped(t, tarOf(t, module...))
	wrongChecksum[len(wrongChecksum)-8] ^= 0xff
	for name, c := range map[string]struct {
		file    string
		content []byte
	}{
		"path that leads out":          {"x.tar.gz", gzipped(t, tarOf(t, entry{name: "../out.tf"}))},
		"path that leads out, inside":  {"x.tar.gz", gzipped(t, tarOf(t, entry{name: "a/../../out.tf"}))},
		"absolute path":                {"x.tar.gz", gzipped(t, tarOf(t, entry{name: "/tmp/out.tf"}))},
		"path that leads out of a zip": {"x.zip", zipOf(t, entry{name: "../out.tf"})},
		"backslashes in a zip":         {"x.zip", zipOf(t, entry{name: `..\out.tf`})},
		"link that leads out": {"x.tar.gz", gzipped(t, tarOf(t,
			entry{name: "l", content: "../../etc", kind: tar.TypeSymlink}))},
		"absolute link": {
			"x.tar.gz", gzipped(t, tarOf(t, entry{name: "l", content: "/etc/passwd", kind: tar.TypeSymlink})),
		},
		"link that leads out of a zip": {"x.zip", zipOf(t, entry{name: "l", content: "../../etc", mode: fs.ModeSymlink})},
		"file through a link": {"x.tar.gz", gzipped(t, tarOf(t,
			entry{name: "a/b/l", content: "../..", kind: tar.TypeSymlink},
			entry{name: "a/b/l/../../../out.tf"}))},
		"hard link": {
			"x.tar.gz", gzipped(t, tarOf(t, entry{name: "l", content: "/etc/passwd", kind: tar.TypeLink})),
		},
		"device":         {"x.tar.gz", gzipped(t, tarOf(t, entry{name: "d", kind: tar.TypeChar}))},
		"pipe":           {"x.tar.gz", gzipped(t, tarOf(t, entry{name: "p", kind: tar.TypeFifo}))},
		"no files":       {"x.tar.gz", gzipped(t, tarOf(t))},
		"too many files": {"x.tar.gz", gzipped(t, tarOf(t, many...))},
		"bomb": {
			"x.tar.gz", gzipped(t, tarOf(t, entry{name: "f", content: strings.Repeat("0", testBytes+1)})),
		},
		"bomb of a zip":          {"x.zip", zipOf(t, entry{name: "f", content: strings.Repeat("0", testBytes+1)})},
		"too large":              {"x.tar.gz", make([]byte, testBytes+1)},
		"deep folders":           {"x.tar.gz", gzipped(t, tarOf(t, entry{name: strings.Repeat("a/", 10*testFiles) + "f"}))},
		"wrong checksum of gzip": {"x.tar.gz", wrongChecksum},
		"text":                   {"x.tar.gz", []byte("<html>sign in</html>")},
		"broken off":             {"x.tar.gz", gzipped(t, tarOf(t, module...))[:60]},
		"one file":               {"x.gz", gzipped(t, []byte("# vpc"))},
		"xz":                     {"x.tar.xz", []byte("\xfd7zXZ\x00")},
		"huge directory":         {"x.zip", directoryOf(2 * testDirectory)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "a", "b")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := fetcher(t).Folder(t.Context(), at(t, put(t, c.file, c.content)), dir)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("the error is %v, want ErrInvalid", err)
			}
			for path := range tree(t, outer) {
				if !strings.HasPrefix(path, "a/b/") {
					t.Errorf("there is a file %s", path)
				}
			}
		})
	}
}

// An archive that never ends is given up at the bound.
func TestEndlessArchive(t *testing.T) {
	t.Parallel()
	path := handle(t, func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	_, err := fetcher(t).Folder(t.Context(), at(t, path+"x.tar.gz"), t.TempDir())
	if !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("the error is %v, want ErrTooLarge", err)
	}
}

// A location that always leads to another one is given up.
func TestEndlessElsewhere(t *testing.T) {
	t.Parallel()
	hops := 0
	path := handle(t, func(w http.ResponseWriter, r *http.Request) {
		hops++
		w.Header().Set("X-Terraform-Get", r.URL.Path)
	})
	_, err := fetcher(t).Folder(t.Context(), at(t, path+"vpc"), t.TempDir())
	if !errors.Is(err, registry.ErrInvalid) || hops > 20 {
		t.Errorf("after %d requests the error is %v, want ErrInvalid", hops, err)
	}
}

// repository serves a repository with the tag v1.0.0 over https, and returns its
// path. change can add to it before the commit.
func repository(t *testing.T, change func(dir string, git func(args ...string))) string {
	t.Helper()
	path, _ := repositoryIn(t, change)
	return path
}

// repositoryIn is repository, and also returns its folder.
func repositoryIn(t *testing.T, change func(dir string, git func(args ...string))) (served, folder string) {
	t.Helper()
	program, err := exec.LookPath("git")
	if err != nil {
		t.Skip("LEFT OUT: git is not installed")
	}
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "--quiet", "--initial-branch=main")
	for _, e := range module {
		path := filepath.Join(dir, filepath.FromSlash(e.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(e.content), 0o600|e.mode); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(dir, git)
	}
	git("add", "--all")
	git("commit", "--quiet", "--message=first")
	git("tag", "v1.0.0")
	git("tag", "vpc/v1.0.0")
	out, err := exec.CommandContext(t.Context(), program, "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := "/handled/" + t.Name() + "/"
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: path,
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
	}
	return handle(t, backend.ServeHTTP), dir
}

// gitOutput returns the output of git in a repository.
func gitOutput(t *testing.T, dir string, args ...string) string {
	t.Helper()
	repository, err := git.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := repository.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestGit(t *testing.T) {
	t.Parallel()
	path, repo := repositoryIn(t, nil)
	commit := gitOutput(t, repo, "rev-parse", "HEAD")
	for name, c := range map[string]struct {
		suffix string
		want   map[string]string
	}{
		"default branch":     {"", whole},
		"tag":                {"?ref=v1.0.0", whole},
		"branch":             {"?ref=main", whole},
		"folder":             {"//modules/vpc?ref=v1.0.0", vpc},
		"tag with a slash":   {"//modules/vpc?ref=vpc/v1.0.0&depth=1", vpc},
		"path of a checkout": {"//modules/vpc?ref=refs/tags/v1.0.0", vpc},
		"commit":             {"?ref=" + commit, whole},
		"abbreviated commit": {"//modules/vpc?ref=" + commit[:8], vpc},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fetched(t, at(t, "git::ORIGIN"+path+".git"+c.suffix))
			if diff := cmp.Diff(c.want, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Some repositories are only folders of a web server.
func TestGitWithoutServer(t *testing.T) {
	t.Parallel()
	_, repo := repositoryIn(t, nil)
	gitOutput(t, repo, "update-server-info")
	files := http.FileServer(http.Dir(filepath.Join(repo, ".git")))
	path := handle(t, http.StripPrefix("/handled/"+t.Name()+"/repo.git", files).ServeHTTP)
	for name, suffix := range map[string]string{
		"default branch": "", "tag": "?ref=v1.0.0", "commit": "?ref=" + gitOutput(t, repo, "rev-parse", "HEAD"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fetched(t, at(t, "git::ORIGIN"+path+"repo.git"+suffix))
			if diff := cmp.Diff(whole, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHostileGit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(dir string, git func(args ...string))
		suffix string
		want   string
	}{
		"unknown ref":    {nil, "?ref=v9.9.9", "has no branch, tag or commit v9.9.9"},
		"unknown folder": {nil, "//modules/dns?ref=v1.0.0", "there is no folder modules/dns"},
		"submodule": {func(_ string, git func(args ...string)) {
			git("init", "--quiet", "modules/vpc/sub")
			git("-C", "modules/vpc/sub", "commit", "--quiet", "--allow-empty", "--message=first")
		}, "//modules/vpc?ref=v1.0.0", "is a submodule"},
		"Git LFS": {func(dir string, _ func(args ...string)) {
			pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("ab", 32) + "\nsize 12\n"
			_ = os.WriteFile(filepath.Join(dir, "modules", "vpc", "large.bin"), []byte(pointer), 0o600)
		}, "//modules/vpc?ref=v1.0.0", "large.bin is in Git LFS"},
		"link out of the folder": {func(dir string, _ func(args ...string)) {
			_ = os.Symlink("/etc", filepath.Join(dir, "modules", "etc"))
		}, "//modules/etc?ref=v1.0.0", "there is no folder modules/etc"},
		"deep folders": {func(dir string, _ func(args ...string)) {
			deep := filepath.Join(dir, strings.Repeat("a/", 100))
			_ = os.MkdirAll(deep, 0o700)
			for i := range testFiles / 8 {
				_ = os.WriteFile(filepath.Join(deep, fmt.Sprintf("f%d", i)), nil, 0o600)
			}
		}, "?ref=v1.0.0", "folders"},
		"large file": {func(dir string, _ func(args ...string)) {
			_ = os.WriteFile(filepath.Join(dir, "large"), make([]byte, testBytes+1), 0o600)
		}, "?ref=v1.0.0", "bytes"},
		"many files": {func(dir string, _ func(args ...string)) {
			for i := range testFiles + 1 {
				_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), nil, 0o600)
			}
		}, "?ref=v1.0.0", "files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := repository(t, c.change)
			_, err := fetcher(t).Folder(t.Context(), at(t, "git::ORIGIN"+path+".git"+c.suffix), t.TempDir())
			if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want ErrInvalid with %q", err, c.want)
			}
		})
	}
}

// A few kilobytes with more folders than git can ever list end soon.
func TestGitBomb(t *testing.T) {
	t.Parallel()
	var dir string
	path, repo := repositoryIn(t, func(in string, _ func(args ...string)) { dir = in })
	tree := "4b825dc642cb6eb9a060e54bf8d69288fbee4904" // the empty one
	mktree := func(entries string) string {
		cmd := exec.CommandContext(t.Context(), "git", "mktree", "--missing")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(entries)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	mktree("")
	for range 12 {
		var entries strings.Builder
		for i := range 10 {
			fmt.Fprintf(&entries, "040000 tree %s\tf%d\n", tree, i)
		}
		tree = mktree(entries.String())
	}
	commit := gitOutput(t, repo, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit-tree", "-m", "bomb", tree)
	gitOutput(t, repo, "tag", "bomb", commit)
	f := fetcher(t)
	_, err := f.Folder(t.Context(), at(t, "git::ORIGIN"+path+".git?ref=bomb"), t.TempDir())
	if !errors.Is(err, registry.ErrInvalid) { // by its output, or by its time on a slow machine
		t.Errorf("the error is %v, want ErrInvalid", err)
	}
}

// A repository that exceeds a limit is not fetched again in the same run.
func TestManyObjects(t *testing.T) {
	t.Parallel()
	path := repository(t, func(dir string, git func(args ...string)) {
		for i := range testObjects {
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), []byte(rand.Text()), 0o600)
		}
	})
	served.mu.Lock()
	backend := served.handlers[path]
	served.mu.Unlock()
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	var requests atomic.Int32
	handle(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		backend(&stalling{ResponseWriter: w, until: end}, r)
	})
	f := fetcher(t)
	for range 2 {
		_, err := f.Folder(t.Context(), at(t, "git::ORIGIN"+path+".git"), t.TempDir())
		if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "more than 500 objects") {
			t.Errorf("the error is %v, want ErrInvalid for the objects", err)
		}
	}
	if n := requests.Load(); n > 3 { // refs, and one or two for the pack
		t.Errorf("%d requests were sent", n)
	}
}

// stalling sends the beginning of a pack, and its rest much later.
type stalling struct {
	http.ResponseWriter
	until <-chan struct{}
	sent  int
}

func (s *stalling) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	if s.sent += n; s.sent > 8<<10 && err == nil {
		_ = http.NewResponseController(s.ResponseWriter).Flush()
		<-s.until
	}
	return n, err
}

// Filters of this machine do not run on the files of a repository, and its line
// endings do not apply.
func TestGitOfThisMachine(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	config := filepath.Join(t.TempDir(), "config")
	text := "[core]\n\tautocrlf = true\n[filter \"own\"]\n\tsmudge = touch " + ran + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	path := repository(t, func(dir string, _ func(args ...string)) {
		attributes := []byte("*.sh filter=own\n")
		if err := os.WriteFile(filepath.Join(dir, "modules", "vpc", ".gitattributes"), attributes, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	dir := fetched(t, at(t, "git::ORIGIN"+path+".git//modules/vpc"))
	want := maps.Clone(vpc)
	want[".gitattributes"] = "*.sh filter=own\n"
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the filter ran: %v", err)
	}
}

// A repository among the files of another one is nothing but files.
func TestGitEmbedded(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	embedded := map[string]string{
		"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": "",
		"config": "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch " + ran + "\n",
	}
	want := maps.Clone(vpc)
	maps.Copy(want, embedded)
	path := repository(t, func(dir string, _ func(args ...string)) {
		for name, text := range embedded {
			file := filepath.Join(dir, "modules", "vpc", filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	})
	dir := fetched(t, at(t, "git::ORIGIN"+path+".git//modules/vpc"))
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program ran: %v", err)
	}
}

// git uses the command for ssh of this machine, which can contain the key.
func TestGitOverSSH(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: the command is for a shell of Unix")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("LEFT OUT: git is not installed")
	}
	ran := filepath.Join(t.TempDir(), "ran")
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("[core]\n\tsshCommand = \"touch "+ran+"; echo Permission denied. >&2; false\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	_, err := fetcher(t).Folder(t.Context(), at(t, "git::ssh://git@127.0.0.1/repo.git"), t.TempDir())
	if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "Permission denied.: fatal: ") {
		t.Errorf("the error is %v, want ErrInvalid with the message of ssh", err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("the command did not run: %v", err)
	}
}

// In a hook of another repository, that repository does not change.
func TestGitInHook(t *testing.T) {
	path := repository(t, nil)
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "missing"))
	}
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "http.userAgent")
	t.Setenv("GIT_CONFIG_VALUE_0", "settings of CI")
	dir := fetched(t, at(t, "git::ORIGIN"+path+".git?ref=v1.0.0"))
	if diff := cmp.Diff(whole, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"} {
		if _, err := os.Stat(os.Getenv(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("git wrote to %s: %v", name, err)
		}
	}
}

// An origin with a public address must not lead to private ones. Here the
// operator has named no address, so this machine counts as private.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	packed := put(t, "x.tar.gz", gzipped(t, tarOf(t, module...)))
	redirect := handle(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://169.254.169.254/latest/meta-data", http.StatusFound)
	})
	public := client.New(nil, "larder/test", nil)
	public.Wait = time.Millisecond
	public = public.Confine(t.Context(), "")
	for name, c := range map[string]struct {
		client    *client.Client
		reference string
	}{
		"archive":               {public, served.URL + packed},
		"archive by name":       {public, "https://localhost:1/x.tar.gz"},
		"git over https":        {public, "git::" + served.URL + "/repo.git"},
		"git over ssh":          {public, "git::ssh://git@127.0.0.1/repo.git"},
		"git over ssh, by name": {public, "git@localhost:repo.git"},
		"metadata service":      {fetcher(t).Client, "https://169.254.169.254/x.tar.gz"},
		"redirect to it":        {fetcher(t).Client, served.URL + redirect + "x.tar.gz"},
		"git redirected to it":  {fetcher(t).Client, "git::" + served.URL + redirect + "repo.git"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fetch.Fetcher{Client: c.client}
			if c.client == public {
				f.Hosts = []string{"127.0.0.1", "localhost"} // otherwise ssh looks up nothing
			}
			_, err := f.Folder(t.Context(), at(t, c.reference), t.TempDir())
			if !errors.Is(err, client.ErrRefusedAddress) {
				t.Errorf("the error is %v, want ErrRefusedAddress", err)
			}
		})
	}
}

// Nothing stays in the temporary folder.
func TestLeftovers(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	good := put(t, "x.tar.gz", gzipped(t, tarOf(t, module...)))
	bad := put(t, "y.tar.gz", []byte("no archive"))
	repo := repository(t, nil)
	for _, reference := range []string{good, bad, "git::ORIGIN" + repo + ".git", "git::ORIGIN" + repo + ".git?ref=none"} {
		_, _ = fetcher(t).Folder(t.Context(), at(t, reference), t.TempDir()) // some fail
	}
	var left []string
	for path := range tree(t, temporary) {
		if !strings.Contains(path, "TestLeftovers") {
			left = append(left, path)
		}
	}
	slices.Sort(left)
	if len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}

// lent gives git of this machine a credential for every host.
func lent(t *testing.T, kind string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("HOME", dir)
	program := filepath.Join(dir, "askpass")
	texts := map[string]string{config: "", program: "#!/bin/sh\necho larder\n"}
	switch kind {
	case "credential helper":
		texts[config] = "[credential]\n\thelper = \"!echo username=larder; echo password=larder; :\"\n"
	case "netrc":
		texts[filepath.Join(dir, ".netrc")] = "default login larder password larder\n"
	case "header":
		texts[config] = "[http]\n\textraHeader = \"Authorization: Basic bGFyZGVyOmxhcmRlcg==\"\n"
	case "header of CI":
		t.Setenv("GIT_CONFIG_COUNT", "1")
		t.Setenv("GIT_CONFIG_KEY_0", "http.extraHeader")
		t.Setenv("GIT_CONFIG_VALUE_0", "Authorization: Basic bGFyZGVyOmxhcmRlcg==")
	case "other URL":
		host := strings.TrimPrefix(served.URL, "https://")
		texts[config] = "[url \"https://larder:larder@" + host + "/\"]\n\tinsteadOf = " + served.URL + "/\n"
	case "askpass":
		t.Setenv("GIT_ASKPASS", program)
	case "askpass of ssh":
		t.Setenv("SSH_ASKPASS", program)
	case "askpass of the settings":
		texts[config] = "[core]\n\taskPass = " + program + "\n"
	}
	for name, text := range texts {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// Git uses a credential of this machine only for a host that the person named.
func TestCredentialsOfGit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: the programs are scripts of a shell")
	}
	for _, kind := range []string{
		"credential helper", "netrc", "header", "header of CI", "other URL", "askpass", "askpass of ssh",
		"askpass of the settings",
	} {
		t.Run(kind, func(t *testing.T) {
			path := repository(t, nil)
			served.mu.Lock()
			backend := served.handlers[path]
			served.mu.Unlock()
			var asked atomic.Int32
			handle(t, func(w http.ResponseWriter, r *http.Request) {
				if user, password, _ := r.BasicAuth(); user != "larder" || password != "larder" {
					w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				asked.Add(1)
				backend(w, r)
			})
			lent(t, kind)
			f := fetcher(t)
			f.Hosts = []string{"registry.example.com", "localhost"}
			_, err := f.Folder(t.Context(), at(t, "git::ORIGIN"+path+".git"), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the host is not named: %v, want an error with it", err)
			}
			if hint := registry.Hint(err); !strings.Contains(hint, "`--allow-host 127.0.0.1`") {
				t.Errorf("the hint is %q", hint)
			}
			if n := asked.Load(); n != 0 {
				t.Errorf("%d requests have the credential", n)
			}
			if _, err := fetcher(t).Folder(t.Context(), at(t, "git::ORIGIN"+path+".git"), t.TempDir()); err != nil {
				t.Errorf("the host is named: %v", err)
			}
		})
	}
}

// Git does not try to log in to a host that nobody named, even if the location has
// a user. Windows and Kerberos would use the login of the person.
func TestUserOfOtherHost(t *testing.T) {
	t.Parallel()
	var logins atomic.Int32
	path := handle(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			logins.Add(1)
		}
		w.Header().Add("WWW-Authenticate", "Negotiate")
		w.Header().Add("WWW-Authenticate", "NTLM")
		w.WriteHeader(http.StatusUnauthorized)
	})
	for _, user := range []string{"", "git"} {
		f := fetcher(t)
		f.Hosts = nil
		from := "git::" + strings.Replace(served.URL, "https://", "https://"+user+"@", 1) + path + "a.git"
		if _, err := f.Folder(t.Context(), at(t, from), t.TempDir()); err == nil {
			t.Errorf("%s: got no error", from)
		}
	}
	if n := logins.Load(); n != 0 {
		t.Errorf("%d requests try to log in", n)
	}
}

// A public repository on a host that nobody named is fetched, and the host is
// reported.
func TestOtherHosts(t *testing.T) {
	t.Parallel()
	path := repository(t, nil)
	f := fetcher(t)
	f.Hosts = nil
	if _, err := f.Folder(t.Context(), at(t, "git::ORIGIN"+path+".git"), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"127.0.0.1"}, f.Others()); diff != "" {
		t.Error(diff)
	}
	named := fetcher(t)
	if _, err := named.Folder(t.Context(), at(t, "git::ORIGIN"+path+".git"), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if others := named.Others(); len(others) != 0 {
		t.Errorf("others are %q", others)
	}
}

// A named host cannot lead git to another one with the credentials of this
// machine. No key of ssh is used for a host that nobody named.
func TestLedElsewhere(t *testing.T) {
	t.Parallel()
	path := handle(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://localhost:1"+r.URL.Path+"?"+r.URL.RawQuery, http.StatusFound)
	})
	for reference, host := range map[string]string{
		"git::ORIGIN" + path + "a.git": "localhost", "git::ssh://git@git.example.com/a.git": "git.example.com",
		"git@git.example.com:a/b.git": "git.example.com",
	} {
		_, err := fetcher(t).Folder(t.Context(), at(t, reference), t.TempDir())
		if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), host+", which you did not name") {
			t.Errorf("%s: %v, want ErrInvalid with %s", reference, err, host)
		}
		if hint := registry.Hint(err); !strings.Contains(hint, "`--allow-host "+host+"`") {
			t.Errorf("%s: the hint is %q", reference, hint)
		}
	}
}
