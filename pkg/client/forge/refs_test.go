package forge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/fetch"
	"github.com/larder-registry/larder/pkg/client/forge"
	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/registry"
)

// atForge starts a forge, and returns a client and the repository acme/vpc
// there.
func atForge(t *testing.T, handler http.Handler) (*client.Client, forge.Repository) {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + "/acme/vpc.git")
	if err != nil {
		t.Fatal(err)
	}
	r, err := forge.Find(location.Location{Git: true, URL: u}, map[string]registry.Forge{u.Host: registry.Forgejo})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(nil, "larder/test", s.Client().Transport)
	c.Wait = time.Millisecond
	return c, r
}

var (
	commit = strings.Repeat("c0", 20)
	object = strings.Repeat("0b", 20) // of an annotated tag
	long   = strings.Repeat("e1", 32)
)

// lines encodes lines as packets. An empty line ends a list.
func lines(all ...string) string {
	text := ""
	for _, line := range all {
		if line == "" {
			text += "0000"
		} else {
			text += fmt.Sprintf("%04x%s\n", len(line)+5, line)
		}
	}
	return text
}

const service = "# service=git-upload-pack"

var (
	second = lines(service, "", "version 2", "agent=git/2.39.5", "ls-refs=unborn", "fetch=shallow", "")
	zeroth = lines(service, "", commit+" HEAD\x00multi_ack symref=HEAD:refs/heads/trunk",
		commit+" refs/heads/v1", object+" refs/tags/v1", commit+" refs/tags/v1^{}", object+" refs/tags/v10", "")
)

// answering answers the two requests with fixed texts.
func answering(first, then string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text := first
		if r.Method == http.MethodPost {
			text = then
		}
		_, _ = io.WriteString(w, text) // the client notices
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	branch, tag, next := " refs/heads/v1", " refs/tags/v1", object+" refs/tags/v10"
	empty := strings.Repeat("0", 40) + " capabilities^{}\x00agent"
	for name, c := range map[string]struct {
		first, then string
		ref, want   string // without want, there is no such ref
	}{
		"tag":             {second, lines(commit+tag, next, ""), "v1", commit},
		"annotated tag":   {second, lines(object+tag+" peeled:"+commit, ""), "v1", commit},
		"tag and branch":  {second, lines(object+branch, commit+tag, ""), "v1", commit},
		"branch":          {second, lines(commit+branch, next, ""), "v1", commit},
		"default branch":  {second, lines(commit+" HEAD symref-target:refs/heads/trunk", ""), "", commit},
		"full name":       {second, lines(object+branch, commit+tag, ""), "refs/tags/v1", commit},
		"without service": {lines("version 2", ""), lines(commit+" HEAD", ""), "", commit},
		"long hashes":     {lines("version 2", "object-format=sha256", ""), lines(long+" HEAD", ""), "", long},
		"version 0":       {zeroth, "", "v1", commit},
		"version 1":       {lines(service, "", "version 1", commit+branch+"\x00", "shallow "+object, ""), "", "v1", commit},

		"missing":          {second, lines(next, ""), "v1", ""},
		"short hash":       {second, lines(""), "c0c0c0c", ""},
		"empty repository": {lines(service, "", empty, ""), "", "", ""},
		"unborn":           {second, lines("unborn HEAD symref-target:refs/heads/main", ""), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, r := atForge(t, answering(c.first, c.then))
			got, err := r.Commit(t.Context(), at, c.ref)
			if c.want == "" && !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("the error is %v, want ErrNotFound", err)
			}
			if c.want != "" && err != nil {
				t.Error(err)
			}
			if got != c.want {
				t.Errorf("the commit is %q, want %q", got, c.want)
			}
		})
	}
}

func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, then string }{
		"dumb":            {commit + "\tHEAD\n", ""},
		"page":            {"<!DOCTYPE html>", ""},
		"nothing":         {"", ""},
		"other service":   {lines("# service=git-receive-pack", "", commit+" HEAD", ""), ""},
		"no service":      {lines(commit+" HEAD", ""), ""},
		"more of service": {lines(service, "x", "", commit+" HEAD", ""), ""},
		"no end":          {zeroth[:len(zeroth)-4], ""},
		"no end of lines": {lines("version 2"), ""},
		"nothing second":  {second, ""},
		"cut off":         {second, lines(commit + " HEAD")[:20]},
		"length":          {second, "ffff" + commit + " HEAD\n0000"},
		"negative length": {second, "-001" + commit + " HEAD\n0000"},
		"no hash":         {second, lines("../../etc/passwd HEAD", "")},
		"error":           {second, lines("ERR \x1b[1mboo", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, r := atForge(t, answering(c.first, c.then))
			_, err := r.Commit(t.Context(), at, "")
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("the error is %v, want ErrInvalid", err)
			}
			if !strings.HasSuffix(err.Error(), "the response is not of the protocol of Git") {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

func TestOddRefs(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"v1\nv2", "v1\x00", strings.Repeat("x", 2000)} {
		if _, err := (forge.Repository{}).Commit(t.Context(), nil, ref); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("the error for %.9q is %v, want ErrInvalid", ref, err)
		}
	}
}

func TestCommitNeedsNoRequest(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{commit, strings.ToUpper(commit), long} {
		got, err := forge.Repository{}.Commit(t.Context(), nil, ref)
		if err != nil || got != strings.ToLower(ref) {
			t.Errorf("the commit of %s is %s with the error %v", ref, got, err)
		}
	}
}

// TestRequests compares the requests with those in the documentation of Git,
// and follows a redirect of the first.
func TestRequests(t *testing.T) {
	t.Parallel()
	var requests []string
	at, r := atForge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a failed read shows as another request
		requests = append(requests, fmt.Sprintf("%s %s %s %s%s %s", r.Method, r.RequestURI, r.Header.Get("Git-Protocol"),
			r.Header.Get("Content-Type"), r.Header.Get("Authorization"), body))
		switch {
		case strings.HasPrefix(r.URL.Path, "/acme/"):
			http.Redirect(w, r, "/Acme-Inc"+strings.TrimPrefix(r.RequestURI, "/acme"), http.StatusMovedPermanently)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, second)
		default:
			_, _ = io.WriteString(w, lines(commit+" refs/tags/v1", ""))
		}
	}))
	if _, err := r.Commit(t.Context(), at, "v1"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /acme/vpc.git/info/refs?service=git-upload-pack version=2  ",
		"GET /Acme-Inc/vpc.git/info/refs?service=git-upload-pack version=2  ",
		"POST /Acme-Inc/vpc.git/git-upload-pack version=2 application/x-git-upload-pack-request " +
			"0014command=ls-refs\n0017object-format=sha1\n00010009peel\n" +
			"001cref-prefix refs/tags/v1\n001dref-prefix refs/heads/v1\n0000",
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Errorf("the requests (-want +got):\n%s", diff)
	}
}

func TestCommitFails(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", code) }
	}
	endless := func(w http.ResponseWriter) {
		line := strings.Repeat(lines(commit+" refs/tags/v1"), 1000)
		for written := 0; written < 64<<20; written += len(line) {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}
	const hidden, tooLarge = "it does not exist, or is private", "the answer has more than 4194304 bytes"
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    error
		reason  string
	}{
		"not logged in":  {status(http.StatusUnauthorized), registry.ErrNotFound, hidden},
		"forbidden":      {status(http.StatusForbidden), registry.ErrNotFound, hidden},
		"no repository":  {status(http.StatusNotFound), registry.ErrNotFound, hidden},
		"out of service": {status(http.StatusServiceUnavailable), registry.ErrUnavailable, "service unavailable (503)"},
		"legal reasons":  {status(http.StatusUnavailableForLegalReasons), registry.ErrInvalid, "(451)"},
		"second private": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, second)
		}, registry.ErrNotFound, hidden},
		"endless first": {func(w http.ResponseWriter, _ *http.Request) { endless(w) }, registry.ErrInvalid, tooLarge},
		"endless second": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				endless(w)
			}
			_, _ = io.WriteString(w, second)
		}, registry.ErrInvalid, tooLarge},
		"redirects without end": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.RequestURI, http.StatusFound) },
			registry.ErrInvalid, "redirects more than 5 times",
		},
		"redirect to http": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://git.example.com/", http.StatusFound)
		}, registry.ErrInvalid, "redirects from https to another scheme"},
		"redirect to a login": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/login" {
				http.Redirect(w, r, "/login", http.StatusFound)
			}
			_, _ = io.WriteString(w, second)
		}, registry.ErrInvalid, "protocol of Git"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, r := atForge(t, c.handler)
			_, err := r.Commit(t.Context(), at, "v1")
			if !errors.Is(err, c.want) {
				t.Fatalf("the error is %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.reason) {
				t.Errorf("the error is %q, want %q in it", err, c.reason)
			}
			if errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, registry.ErrForbidden) {
				t.Errorf("the error %v would be one of the reader's own access", err)
			}
		})
	}
}

// TestConfined tests that a forge cannot lead to a private address.
func TestConfined(t *testing.T) {
	t.Parallel()
	_, r := atForge(t, http.NotFoundHandler())
	_, err := r.Commit(t.Context(), client.New(nil, "larder/test", nil).Confine(t.Context(), ""), "v1")
	if !errors.Is(err, client.ErrRefusedAddress) {
		t.Errorf("the error is %v, want ErrRefusedAddress", err)
	}
}

// TestBackend compares commits with those of the program git, through its own
// server, and examines an archive of git.
func TestBackend(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			testBackend(t, format)
		})
	}
}

func testBackend(t *testing.T, format string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("LEFT OUT: git is not installed")
	}
	dir := t.TempDir()
	work, bare := filepath.Join(dir, "work"), filepath.Join(dir, "acme", "vpc.git")
	git := func(args ...string) string {
		t.Helper()
		out, err := gitIn(t.Context(), dir, args...).Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	backend := filepath.Join(git("--exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("LEFT OUT: git has no server for HTTP here")
	}
	git("init", "--quiet", "--object-format="+format, "--initial-branch=trunk", work)
	in := func(args ...string) string { t.Helper(); return git(append([]string{"-C", work}, args...)...) }
	files := map[string]string{"main.tf": "", "secret.md": "", ".gitattributes": "*.md export-ignore\n"}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in("add", "--all")
	in("commit", "--quiet", "--message=first")
	in("tag", "light")
	in("tag", "--annotate", "--message=x", "annotated")
	in("tag", "--annotate", "--message=x", "twice", "annotated")
	in("branch", "both")
	in("commit", "--quiet", "--allow-empty", "--message=second")
	in("tag", "--annotate", "--message=x", "both")
	in("tag", "v1/x")
	in("branch", "v10")
	in("update-index", "--add", "--cacheinfo", "160000,"+in("rev-parse", "HEAD")+",sub/module")
	in("commit", "--quiet", "--message=third")
	git("clone", "--quiet", "--bare", work, bare)

	for _, version := range []string{"2", "1", "0"} {
		at, r := atForge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Set("Git-Protocol", "version="+version); strings.HasPrefix(r.URL.Path, "/acme/vpc/archive/") {
				name := strings.TrimSuffix(filepath.Base(r.URL.Path), ".tar.gz")
				cmd := gitIn(r.Context(), bare, "archive", "--format=tar.gz", "--prefix=vpc-x/", name)
				cmd.Stdout = w
				_ = cmd.Run() // an archive that is cut off is an error of the test
				return
			}
			(&cgi.Handler{
				Path: backend, Root: "/", Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
			}).ServeHTTP(w, r)
		}))
		refs := []string{"", "HEAD", "trunk", "light", "annotated", "twice", "both", "v1/x", "v10", "refs/heads/both"}
		for _, ref := range refs {
			got, err := r.Commit(t.Context(), at, ref)
			if err != nil {
				t.Errorf("version %s: %v", version, err)
				continue
			}
			// Git has all branches in the bare clone, and so prefers tags as
			// clients do.
			name := ref
			if ref == "" {
				name = "HEAD"
			}
			if want := git("-C", bare, "rev-parse", "--verify", "--quiet", name+"^{commit}"); got != want {
				t.Errorf("version %s: the commit of %q is %s, want %s", version, ref, got, want)
			}
		}
		if _, err := r.Commit(t.Context(), at, "v1"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("version %s: the error for a missing tag is %v, want ErrNotFound", version, err)
		}
		if version == "2" {
			examineArchive(t, at, r)
		}
	}
}

// examineArchive fetches and examines archives with a submodule, and before it
// was added.
func examineArchive(t *testing.T, c *client.Client, r forge.Repository) {
	t.Helper()
	for ref, want := range map[string]string{
		"both": "[the forge's archive lacks files that .gitattributes excludes with export-ignore: *.md] <nil>",
		"":     "[] invalid commit: sub/module is a submodule, whose files are not in the commit",
	} {
		commit, err := r.Commit(t.Context(), c, ref)
		if err != nil {
			t.Fatal(err)
		}
		from := client.ModuleLocation{Reference: r.Archive(commit) + "//vpc-x"}
		folder, err := (&fetch.Fetcher{Client: c}).Folder(t.Context(), from, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(folder, "main.tf")); err != nil {
			t.Error(err)
		}
		notes, err := forge.Examine(folder, "", true)
		if diff := cmp.Diff(want, fmt.Sprint(notes, " ", err)); diff != "" {
			t.Errorf("the archive of %q (-want +got):\n%s", ref, diff)
		}
	}
}

func gitIn(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	return cmd
}

var hash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func FuzzRefs(f *testing.F) {
	for _, seed := range []string{
		second, zeroth, lines(object+" refs/tags/v1 peeled:"+commit, ""), lines("unborn HEAD", ""),
		"0004", "0001", "ffff", "000g", "",
	} {
		f.Add([]byte(seed), "v1")
		f.Add([]byte(seed), "")
	}
	f.Fuzz(func(t *testing.T, answer []byte, ref string) {
		names := forge.Candidates(ref)
		found, err := forge.ReadRefs(answer, names)
		if err != nil && found != nil {
			t.Errorf("there are refs with the error %v", err)
		}
		for name, commit := range found {
			if !slices.Contains(names, name) {
				t.Errorf("the ref %q was not requested", name)
			}
			if !hash.MatchString(commit) {
				t.Errorf("the commit is %q", commit)
			}
		}
	})
}
