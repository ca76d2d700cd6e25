package modulehosts_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
)

// one is the address of a module, at its version 1.0.0.
const one = "acme/vpc/aws"

func text(content string) map[string]string { return map[string]string{"main.tf": content} }

// get returns the status, a header and the body of an answer.
func get(t *testing.T, client *http.Client, url, header string) (status int, value string, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get(header), body
}

// entries returns the lines "mode name" and the contents of an archive.
func entries(t *testing.T, packed []byte) (lines []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		content, readErr := io.ReadAll(in)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%c %o %s%s %s", header.Typeflag, header.Mode, header.Name,
			header.PAXRecords["comment"], content))
	}
}

// Git lists the references of all forges, in both versions of its protocol.
func TestGit(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("LEFT OUT: git is not installed")
	}
	h := modulehosts.Serve(t)
	for name, forge := range map[string]modulehosts.Forge{
		"github": modulehosts.GitHub, "gitlab": modulehosts.GitLab,
		"bitbucket": modulehosts.Bitbucket, "codeberg": modulehosts.Codeberg,
	} {
		repository, address := "group/"+name+"/modules", "acme/"+name+"/aws"
		h.Add(modulehosts.Module{Address: address, Repository: repository, Forge: forge},
			modulehosts.Module{Address: address, Version: "2.0.0", Repository: repository, Forge: forge, Annotated: true})
		first, second := h.Commit(address, "1.0.0"), h.Commit(address, "2.0.0")
		all := []string{"SECOND HEAD", "SECOND refs/heads/main", "FIRST refs/tags/v1.0.0", "TAG refs/tags/v2.0.0",
			"SECOND refs/tags/v2.0.0^{}"}
		for _, version := range []string{"0", "2"} {
			for args, want := range map[string][]string{
				repository: all, repository + ".git": all, repository + " v2.0.0 v2.0.0^{}": all[3:],
			} {
				t.Run(version+" "+args, func(t *testing.T) {
					options := []string{"-c", "protocol.version=" + version, "ls-remote"}
					cmd := exec.CommandContext(t.Context(), git, append(options, strings.Fields(h.URL+"/"+args)...)...)
					cmd.Env = append(os.Environ(), "GIT_SSL_CAINFO="+h.CAFile, "GIT_CONFIG_GLOBAL="+os.DevNull,
						"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
					var stderr bytes.Buffer // with warnings of GitLab's redirects
					cmd.Stderr = &stderr
					out, err := cmd.Output()
					if err != nil {
						t.Fatalf("%v: %s", err, &stderr)
					}
					var got []string
					for line := range strings.Lines(string(out)) {
						object, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
						word := map[string]string{first: "FIRST", second: "SECOND"}[object]
						got = append(got, cmp.Or(word, "TAG")+" "+name)
					}
					if diff := gocmp.Diff(want, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// Each forge has archives of commits at its own path and with its own folder.
func TestArchives(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		forge                modulehosts.Forge
		asked, final, folder string
	}{
		"github":    {modulehosts.GitHub, "archive/COMMIT.tar.gz", "/codeload/Acme/Vpc/tar.gz/COMMIT", "Vpc-COMMIT"},
		"gitlab":    {modulehosts.GitLab, "-/archive/COMMIT/Vpc-COMMIT.tar.gz", "", "Vpc-COMMIT"},
		"bitbucket": {modulehosts.Bitbucket, "get/COMMIT.tar.gz", "", "Acme-Vpc-SHORT"},
		"codeberg":  {modulehosts.Codeberg, "archive/COMMIT.tar.gz", "", "vpc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := modulehosts.Serve(t)
			h.Add(modulehosts.Module{Address: one, Forge: test.forge, Repository: "Acme/Vpc", Archive: true,
				Files: map[string]string{"main.tf": "a", "x/run.sh": "#!", "sub/": ""},
				Links: map[string]string{"link": "main.tf"}})
			commit := h.Commit(one, "1.0.0")
			in := strings.NewReplacer("COMMIT", commit, "SHORT", commit[:12]).Replace
			location := h.URL + "/Acme/Vpc/" + in(test.asked)
			folder := in(test.folder)
			if diff := gocmp.Diff(location+"//"+folder+"?archive=tar.gz", h.Location(one, "1.0.0")); diff != "" {
				t.Errorf("the location: (-want +got):\n%s", diff)
			}
			_, _, body := get(t, h.Client(), location, "")
			want := []string{"g 0 pax_global_header" + commit + " ", "5 775 " + folder + "/ ", "2 777 " + folder + "/link ",
				"0 664 " + folder + "/main.tf a", "5 775 " + folder + "/sub/ ", "5 775 " + folder + "/x/ ",
				"0 775 " + folder + "/x/run.sh #!"}
			if diff := gocmp.Diff(want, entries(t, body)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			final := "/Acme/Vpc/" + in(test.asked)
			if test.final != "" {
				final = in(test.final)
			}
			if diff := gocmp.Diff(map[string]int{final: 1}, h.Archives()); diff != "" {
				t.Errorf("sent: (-want +got):\n%s", diff)
			}
		})
	}
}

// Each change of the origin shows where it should, and nowhere else.
func TestChanges(t *testing.T) {
	t.Parallel()
	type hosts = *modulehosts.Hosts
	for name, test := range map[string]struct {
		change func(hosts)
		want   string // what differs afterwards
	}{
		"nothing":         {func(hosts) {}, ""},
		"move tag":        {func(h hosts) { h.MoveTag(one, "1.0.0", text("b")) }, "location bytes files"},
		"compress again":  {func(h hosts) { h.Recompress(one, "1.0.0") }, "bytes"},
		"change files":    {func(h hosts) { h.ChangeFiles(one, "1.0.0", text("b")) }, "bytes files"},
		"move repository": {func(h hosts) { h.MoveRepository(one, "1.0.0", "other/terraform-aws-vpc") }, "location"},
		"no folder":       {func(h hosts) { h.Wrap(one, "1.0.0", "") }, "location bytes files"},
		"two folders":     {func(h hosts) { h.Wrap(one, "1.0.0", "a/b") }, "location bytes files"},
		"locate":          {func(h hosts) { h.Locate(one, "1.0.0", h.URL+"/nowhere") }, "location bytes files"},
		"serve archive":   {func(h hosts) { h.ServeArchive(one, "1.0.0", []byte("not one")) }, "bytes files"},
		"remove":          {func(h hosts) { h.Remove(one, "1.0.0") }, "location bytes files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := modulehosts.Serve(t)
			h.Add(modulehosts.Module{Address: one, Archive: true, Files: text("a")},
				modulehosts.Module{Address: one, Version: "2.0.0", Archive: true, Files: text("a")})
			client := h.Client()
			see := func(version string) (seen [3]string) {
				_, seen[0], _ = get(t, client, h.URL+"/v1/modules/"+one+"/"+version+"/download", "X-Terraform-Get")
				archive, _, _ := strings.Cut(strings.TrimPrefix(seen[0], h.URL), "//")
				_, _, body := get(t, client, h.URL+strings.TrimSuffix(archive, "?archive=tar.gz"), "")
				seen[1] = string(body)
				if strings.HasPrefix(seen[1], "\x1f\x8b") {
					seen[2] = strings.Join(entries(t, body)[1:], "\n") // without the commit
				}
				return seen
			}
			before, other := see("1.0.0"), see("2.0.0")
			test.change(h)
			var differs []string
			for i, now := range see("1.0.0") {
				if now != before[i] {
					differs = append(differs, []string{"location", "bytes", "files"}[i])
				}
			}
			if got := strings.Join(differs, " "); got != test.want {
				t.Errorf("%q differs, want %q", got, test.want)
			}
			if diff := gocmp.Diff(other, see("2.0.0")); diff != "" {
				t.Errorf("the other version: (-before +after):\n%s", diff)
			}
		})
	}
}

// The registry answers as public ones do.
func TestRegistry(t *testing.T) {
	t.Parallel()
	h := modulehosts.Serve(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	added := h.Add(modulehosts.Module{Address: one, Published: at},
		modulehosts.Module{Address: one, Version: "2.0.0", Tag: "two", ByCommit: true, Folder: "a/b"})
	if diff := gocmp.Diff([]string{one}, added); diff != "" {
		t.Errorf("added: (-want +got):\n%s", diff)
	}
	git, commit := "git::"+h.URL+"/acme/terraform-aws-vpc", h.Commit(one, "2.0.0")
	const missing = "404 404 page not found\n"
	for path, want := range map[string]string{
		".well-known/terraform.json":      `200 {"modules.v1":"/v1/modules/"}`,
		"v1/modules/acme/no/aws/versions": missing,
		"v1/modules/" + one + "/versions": `200 {"modules":[{"source":"` + one + `","versions":[` +
			`{"version":"1.0.0"},{"version":"2.0.0"}]}]}`,
		"v1/modules/" + one + "/1.0.0/download": "204 " + git + "?ref=v1.0.0",
		"v1/modules/" + one + "/2.0.0/download": "204 " + git + "//a/b?ref=" + commit,
		"v1/modules/" + one + "/3.0.0/download": missing,
		"v1/modules/" + one + "/1.0.0": `200 {"id":"` + one + `/1.0.0","name":"vpc","namespace":"acme","provider":"aws",` +
			`"published_at":"2026-03-04T05:06:07Z","source":"https://github.com/acme/terraform-aws-vpc",` +
			`"tag":"v1.0.0","version":"1.0.0"}`,
		"v1/modules/" + one + "/2.0.0": missing,
		"registry/docs/modules/" + one + "/index.json": `200 {"versions":[` +
			`{"id":"v1.0.0","published":"2026-03-04T05:06:07Z"}]}`,
	} {
		status, location, body := get(t, h.Client(), h.URL+"/"+path, "X-Terraform-Get")
		if diff := gocmp.Diff(want, fmt.Sprintf("%d %s%s", status, location, body)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", path, diff)
		}
	}
	h.PublicNames = true
	if got, want := h.Location(one, "1.0.0"), "git::https://github.com/acme/terraform-aws-vpc?ref=v1.0.0"; got != want {
		t.Errorf("with public names the location is %s, want %s", got, want)
	}
	archive := "https://github.com/acme/terraform-aws-vpc/archive/" + commit + ".tar.gz"
	if status, _, _ := get(t, h.Client(), archive, ""); status != http.StatusOK {
		t.Errorf("github.com has status %d", status)
	}
	all := h.Requests()
	if last := all[len(all)-1]; last.Host != "codeload.github.com" {
		t.Errorf("the last request was to %s", last.Host)
	}
}

// Held requests wait until a test releases them.
func TestHold(t *testing.T) {
	t.Parallel()
	h := modulehosts.Serve(t)
	h.Add(modulehosts.Module{Address: one})
	arrived, release := h.Hold("/versions")
	ended := make(chan int)
	client := h.Client()
	go func() {
		defer close(ended)
		status, _, _ := get(t, client, h.URL+"/v1/modules/"+one+"/versions", "")
		ended <- status
	}()
	if got, want := <-arrived, "/v1/modules/"+one+"/versions"; got != want {
		t.Errorf("%s arrived, want %s", got, want)
	}
	get(t, client, h.URL+"/.well-known/terraform.json", "") // is not held
	select {
	case <-ended:
		t.Error("the held request ended")
	default:
	}
	release()
	if status := <-ended; status != http.StatusOK {
		t.Errorf("the released request has status %d", status)
	}
}

// A server that was stopped serves at the same address again.
func TestStop(t *testing.T) {
	t.Parallel()
	h := modulehosts.Serve(t)
	h.Add(modulehosts.Module{Address: one})
	client, versions := h.Client(), h.URL+"/v1/modules/"+one+"/versions"
	get(t, client, versions, "")
	h.Stop()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, versions, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Do(req); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			answer.Body.Close()
		}
		t.Errorf("a stopped server: %v", err)
	}
	h.Start()
	if status, _, _ := get(t, client, versions, ""); status != http.StatusOK {
		t.Errorf("a server that serves again has status %d", status)
	}
}

// Clients install everything in the world, in all its folders.
func TestWorld(t *testing.T) {
	t.Parallel()
	clients.Each(t, func(t *testing.T, c clients.Client) {
		h := modulehosts.Serve(t)
		modules := modulehosts.World()
		for i := range modules {
			modules[i].Archive = true
		}
		h.Add(modules...)
		dir := t.TempDir()
		configuration := []byte(modulehosts.Application(modules...))
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), configuration, 0o600); err != nil {
			t.Fatal(err)
		}
		s := clients.Session{Client: c, Home: t.TempDir(), CAFile: h.CAFile,
			Config: h.HostBlocks("registry.opentofu.org", "registry.terraform.io")}
		for _, args := range [][]string{{"init", "-no-color"}, {"validate", "-no-color"}} {
			if out, err := s.Run(t.Context(), dir, args...); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
		}
	})
}
