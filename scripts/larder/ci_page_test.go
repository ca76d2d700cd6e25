package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"golang.org/x/mod/modfile"
)

// ciBlock is a block of docs/publish-from-ci.md for a workflow.
type ciBlock struct {
	text string
	// script is what the job runs.
	script string
}

// readCIBlocks returns the block for GitHub and the one for GitLab that contain a
// text.
func readCIBlocks(t *testing.T, text string) (blocks map[string]ciBlock) {
	t.Helper()
	page, err := os.ReadFile("../../docs/publish-from-ci.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks = make(map[string]ciBlock)
	for _, found := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(found[1], text) {
			continue
		}
		if strings.HasPrefix(found[1], "- ") {
			var steps []struct{ Run string }
			if err := yaml.Unmarshal([]byte(found[1]), &steps); err != nil {
				t.Fatalf("%v\n%s", err, found[1])
			}
			blocks["GitHub"] = ciBlock{found[1], steps[len(steps)-1].Run}
			continue
		}
		var job struct {
			BeforeScript []string `yaml:"before_script"`
			Script       []string
		}
		if err := yaml.Unmarshal([]byte(found[1]), &job); err != nil {
			t.Fatalf("%v\n%s", err, found[1])
		}
		blocks["GitLab"] = ciBlock{found[1], strings.Join(append(job.BeforeScript, job.Script...), "\n")}
	}
	if len(blocks) != 2 {
		t.Fatalf("%d blocks contain %q, want one for each service", len(blocks), text)
	}
	return blocks
}

// Jobs install larder from a commit with a command that go accepts, and with the
// Go version of the module.
func TestInstallsCommit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	module, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	// ParseLax ignores these, and go install of a version refuses them.
	if found := regexp.MustCompile(`(?m)^(replace|exclude)\b`).Find(text); found != nil {
		t.Errorf("go.mod has the directive %s", found)
	}
	for service, block := range readCIBlocks(t, "go install") {
		name, found := strings.CutPrefix(block.script, "go install "+module.Module.Mod.Path+"/")
		name, commit, _ := strings.Cut(strings.TrimSpace(name), "@")
		if !found || !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(commit) {
			t.Errorf("%s: the job runs %q", service, block.script)
		}
		if _, err := os.Stat(filepath.Join("../..", name, "main.go")); err != nil {
			t.Errorf("%s: %v", service, err)
		}
		release := strings.TrimSuffix(module.Go.Version, ".0")
		if !regexp.MustCompile(`(golang:|go-version: ")` + regexp.QuoteMeta(release) + `\b`).MatchString(block.text) {
			t.Errorf("%s: the job does not use Go %s:\n%s", service, release, block.text)
		}
	}
}

// The registry has a certificate of a private authority, and the issuer has one of
// another. The commands of the page publish, and without its variable they fail.
func TestPrivateAuthorities(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("the page is for jobs on Linux")
	}
	j := newJobsOf(t, "", httptest.NewTLSServer)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"access.json": fmt.Sprintf(`{"issuers": [{
  "issuer": %q, "audiences": ["https://registry.example.com"],
  "rules": [{"claims": {"project_id": "1", "ref_protected": "true"}, "scopes": ["publish:modules/acme/vpc/aws"]}]
}]}`, j.url)})
	certFile, keyFile := certify(t, proxiedHost)
	s := serveIn(t, []string{"SSL_CERT_FILE=" + j.authority}, t.TempDir(), "--host", proxiedHost,
		"--cert", certFile, "--key", keyFile, "--access", filepath.Join(dir, "access.json"))
	proxy := proxyTo(t, proxiedHost+":443", s.Address)
	identity := j.token(t, "https://"+proxiedHost, `{"sub": "job", "project_id": "1", "ref_protected": "true"}`)
	github := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("audience"); got != "https://"+proxiedHost {
			t.Errorf("the job requests a token for %s", got)
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"value": identity})
	}))
	t.Cleanup(github.Close)
	jobs := map[string]struct {
		authority string // in REGISTRY_CA
		env       []string
	}{
		// GitHub's own authority is one of the system's.
		"GitHub": {readText(t, certFile), []string{
			"GITHUB_ACTIONS=true", "GITHUB_REF_NAME=v1.0.0", "ACTIONS_ID_TOKEN_REQUEST_URL=" + github.URL + "?v=1",
			"ACTIONS_ID_TOKEN_REQUEST_TOKEN=x", "SSL_CERT_DIR=" + filepath.Dir(authority(t, github)),
		}},
		"GitLab": {certFile, []string{"GITLAB_CI=true", "CI_COMMIT_TAG=v1.1.0", "LARDER_ID_TOKEN=" + identity}},
	}
	for service, block := range readCIBlocks(t, "REGISTRY_CA") {
		run := func(authority string) (string, error) {
			module := t.TempDir()
			writeFiles(t, module, withOutput("it"))
			cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", block.script)
			cmd.Dir = module
			cmd.Env = append(closedEnv(t), "HTTPS_PROXY="+proxy, "RUNNER_TEMP="+t.TempDir(), "REGISTRY_CA="+authority)
			cmd.Env = append(cmd.Env, jobs[service].env...)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := run(""); err == nil || !strings.Contains(out, "SSL_CERT_FILE") {
			t.Errorf("%s: the job does not need the authority: %v\n%s", service, err, out)
		}
		if out, err := run(jobs[service].authority); err != nil {
			t.Errorf("%s: %v\n%s", service, err, out)
		}
	}
	published := larder(t, "list", "acme/vpc/aws", "--quiet", "--store", s.data)
	if diff := cmp.Diff("1.1.0\n1.0.0\n", published); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}
