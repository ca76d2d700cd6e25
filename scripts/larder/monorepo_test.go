package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	publishcommand "github.com/larder-registry/larder/scripts/larder/publish"
)

// gitIdentity are variables with which git commits without the user's settings.
var gitIdentity = []string{
	"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull,
	"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
	"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
}

// git runs git in a folder. It skips the test if git is not installed.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	if cmd.Err != nil {
		t.Skip("LEFT OUT:", cmd.Err)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), gitIdentity...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// newMonorepo returns a repository with some modules. Each of its commits has a
// tag for a version of each module.
func newMonorepo(t *testing.T, modules, versions int) string {
	t.Helper()
	dir := t.TempDir()
	var file, history strings.Builder
	data := func(path, text string) {
		fmt.Fprintf(&history, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text)
	}
	for m := range modules {
		fmt.Fprintf(&file, "module \"acme/m%d/aws\" {\n  path = \"modules/m%d\"\n  tag  = \"m%d/v*\"\n}\n", m, m, m)
	}
	for v := range versions {
		fmt.Fprintf(&history, "commit refs/heads/main\ncommitter test <test@example.com> %d +0000\ndata 0\n", 1700000000+v)
		data("larder.hcl", file.String())
		for m := range modules {
			data(fmt.Sprintf("modules/m%d/main.tf", m), fmt.Sprintf("output \"it\" { value = \"%d.%d\" }\n", m, v))
		}
		for m := range modules {
			fmt.Fprintf(&history, "reset refs/tags/m%d/v1.%d.0\nfrom refs/heads/main\n\n", m, v)
		}
	}
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	load := exec.CommandContext(t.Context(), "git", "fast-import", "--quiet")
	load.Dir, load.Stdin = dir, strings.NewReader(history.String())
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	git(t, dir, "reset", "--quiet", "--hard")
	return dir
}

// publishTagsIn runs larder publish in a repository and returns the number of
// versions for each status.
func publishTagsIn(t *testing.T, dir string, args ...string) map[string]int {
	t.Helper()
	return statuses(t, publishTagsCommand(t, dir, args...))
}

func publishTagsCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", append([]string{"publish", "--json"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+t.TempDir())
	return cmd
}

// statuses runs larder publish and returns the number of versions for each
// status.
func statuses(t *testing.T, cmd *exec.Cmd) map[string]int {
	t.Helper()
	started := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var v publishcommand.PublishedTagsView
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	numbers := make(map[string]int)
	for _, one := range v.Versions {
		numbers[one.Status]++
	}
	t.Logf("%v: %v", numbers, time.Since(started).Round(time.Millisecond))
	return numbers
}

// A run publishes the history of a repository. Another one changes nothing. A
// new tag publishes one version.
func TestPublishHistory(t *testing.T) {
	t.Parallel()
	const modules, versions = 20, 10
	dir, data := newMonorepo(t, modules, versions), newData(t)
	got := publishTagsIn(t, dir, "--all-tags", "--store", data)
	if diff := cmp.Diff(map[string]int{"published": modules * versions}, got); diff != "" {
		t.Errorf("the first run (-want +got):\n%s", diff)
	}
	before := contents(t, data)
	got = publishTagsIn(t, dir, "--all-tags", "--store", data)
	if diff := cmp.Diff(map[string]int{"unchanged": modules * versions}, got); diff != "" {
		t.Errorf("the second run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, contents(t, data)); diff != "" {
		t.Errorf("the second run changes the registry (-before +after):\n%s", diff)
	}
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=next")
	git(t, dir, "tag", "m7/v2.0.0")
	got = publishTagsIn(t, dir, "--store", data)
	if diff := cmp.Diff(map[string]int{"published": 1}, got); diff != "" {
		t.Errorf("a new tag (-want +got):\n%s", diff)
	}
	list := larder(t, "list", "acme/m7/aws", "--quiet", "--store", data)
	if n := strings.Count(list, "\n"); n != versions+1 {
		t.Errorf("acme/m7/aws has %d versions, want %d:\n%s", n, versions+1, list)
	}
}

// If a run is killed, the next one completes it, and the repository has no trace
// of the first one.
func TestPublishHistoryKilled(t *testing.T) {
	t.Parallel()
	const modules, versions = 2, 1
	dir := newMonorepo(t, modules, versions)
	before := contents(t, dir)
	completed := make(map[int]bool) // the numbers of versions that killed runs had published
	for at := 1; ; at++ {
		data := newData(t)
		more := killed(t, at, dir, "publish", "--all-tags", "--store", data)
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("killed at change %d, it changes the repository (-before +after):\n%s", at, diff)
		}
		if !more {
			break
		}
		got := publishTagsIn(t, dir, "--all-tags", "--store", data)
		if n := got["published"] + got["unchanged"]; n != modules*versions {
			t.Errorf("killed at change %d, and run again: %d versions are published, want %d", at, n, modules*versions)
		}
		completed[got["unchanged"]] = true
	}
	if diff := cmp.Diff(map[int]bool{0: true, 1: true, 2: true}, completed); diff != "" {
		t.Errorf("the numbers of versions that killed runs had published (-want +got):\n%s", diff)
	}
}

// A token publishes tags through the registry.
func TestPublishTagsThroughServer(t *testing.T) {
	t.Parallel()
	dir := newMonorepo(t, 2, 1)
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")
	p := s.publisher(t, credentials(s.Host, secret))
	for _, test := range []struct {
		name string
		args []string
		want map[string]int
	}{
		{"dry run", []string{"--dry-run"}, map[string]int{"dry_run": 2}},
		{"at HEAD", nil, map[string]int{"published": 2}},
		{"again", []string{"--all-tags"}, map[string]int{"unchanged": 2}},
	} {
		cmd := p.command(t, append([]string{"publish", "--json"}, test.args...)...)
		cmd.Dir = dir
		if diff := cmp.Diff(test.want, statuses(t, cmd)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	other := token(t, s.data, "--name", "other", "--scope", "publish:modules/acme/m0/aws")
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=next")
	git(t, dir, "tag", "m0/v2.0.0")
	git(t, dir, "tag", "m1/v2.0.0")
	cmd := s.publisher(t, credentials(s.Host, other)).command(t, "publish")
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != failure.ExitFailed {
		t.Errorf("without a scope for acme/m1/aws: exit code %d, want %d\n%s", code, failure.ExitFailed, out)
	}
	if want := "publish:modules/acme/m1/aws"; !strings.Contains(string(out), want) {
		t.Errorf("the output does not contain %q:\n%s", want, out)
	}
	if want := "1 published"; !strings.Contains(string(out), want) {
		t.Errorf("the output does not contain %q:\n%s", want, out)
	}
}

// The rules in the example workflows allow jobs of tags with a slash to publish
// the modules of a repository. They do not allow other jobs.
func TestMonorepoExamples(t *testing.T) {
	t.Parallel()
	const audience = "https://registry.example.com"
	for name, test := range map[string]struct{ path, tagged, other string }{
		"github": {
			"/_services/token",
			`{"sub": "repo:acme/terraform-modules:environment:release", "repository": "acme/terraform-modules", ` +
				`"repository_owner_id": "1234567", "environment": "release", "ref": "refs/tags/m0/v1.0.0", "event_name": "push", ` +
				`"sha": "0123456789abcdef0123456789abcdef01234567", "run_id": "9001", "run_attempt": "1"}`,
			`{"sub": "repo:acme/terraform-modules:pull_request", "repository": "acme/terraform-modules", ` +
				`"repository_owner_id": "1234567", "ref": "refs/pull/1/merge", "event_name": "pull_request"}`,
		},
		"gitlab": {
			"",
			`{"sub": "project_path:acme/terraform-modules:ref_type:tag:ref:m0/v1.0.0", ` +
				`"project_path": "acme/terraform-modules", "namespace_id": "7654321", "ref": "m0/v1.0.0", ` +
				`"ref_path": "refs/tags/m0/v1.0.0", "ref_type": "tag", "ref_protected": "true", ` +
				`"sha": "0123456789abcdef0123456789abcdef01234567", "job_id": "302", "pipeline_id": "574"}`,
			`{"sub": "project_path:acme/terraform-modules:ref_type:branch:ref:x", "project_path": "acme/terraform-modules", ` +
				`"namespace_id": "7654321", "ref": "x", "ref_type": "branch", "ref_protected": "false"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, example, dir := newJobs(t, test.path), readExampleFile(t, name+"-monorepo.yml"), newMonorepo(t, 1, 1)
			rules := filepath.Join(t.TempDir(), "access.json")
			writeFiles(t, filepath.Dir(rules), map[string]string{
				"access.json": strings.Replace(example.rules, example.settings.Issuers[0].Issuer, j.url, 1),
			})
			s := serve(t, t.TempDir(), "--access", rules)
			job := func(claims string) *exec.Cmd {
				p := s.publisher(t, "", "LARDER_ID_TOKEN="+j.token(t, audience, claims))
				cmd := p.command(t, "publish", "--json", "--ci-identity", "--audience", audience)
				cmd.Dir = dir
				return cmd
			}
			other := job(test.other)
			out, _ := other.CombinedOutput()
			if code := other.ProcessState.ExitCode(); code != failure.ExitFailed {
				t.Errorf("another job: exit code %d, want %d\n%s", code, failure.ExitFailed, out)
			}
			if diff := cmp.Diff(map[string]int{"published": 1}, statuses(t, job(test.tagged))); diff != "" {
				t.Errorf("a job of a tag (-want +got):\n%s", diff)
			}
			list := larder(t, "list", "acme/m0/aws", "--json", "--store", s.data)
			if want := `"ref": "refs/tags/m0/v1.0.0"`; !strings.Contains(list, want) {
				t.Errorf("the list does not contain %s:\n%s", want, list)
			}
			if warnings := example.settings.Warnings(); len(warnings) > 0 {
				t.Errorf("the example's rules: %q", warnings)
			}
		})
	}
}

// The commands of the example workflows are valid.
func TestMonorepoExampleCommands(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(`(?m)^[ -]*(?:run:)? *larder (.*)$`)
	for _, service := range []string{"github", "gitlab"} {
		e := readExampleFile(t, service+"-monorepo.yml")
		var names []string
		for _, found := range command.FindAllStringSubmatch(e.text, -1) {
			c := &cli.Program{}
			cmd, rest, err := newRoot(c).Find(strings.Fields(found[1]))
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: larder %s: %v", service, found[1], err)
				continue
			}
			names = append(names, cmd.Name())
			if cmd.Name() != "publish" {
				continue
			}
			if want := "https://registry.example.com"; c.PlaceFlags.Registry != want {
				t.Errorf("%s: larder publish uses the registry %s, want %s", service, c.PlaceFlags.Registry, want)
			}
			if !c.Remote.CIIdentity {
				t.Errorf("%s: larder publish does not use the job's identity", service)
			}
		}
		if diff := cmp.Diff([]string{"check", "publish"}, names); diff != "" {
			t.Errorf("%s: commands (-want +got):\n%s", service, diff)
		}
		for _, action := range regexp.MustCompile(`uses: *(.*)`).FindAllStringSubmatch(e.text, -1) {
			if !regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(action[1]) {
				t.Errorf("%s: action %s is not pinned to a commit", service, action[1])
			}
		}
	}
}
