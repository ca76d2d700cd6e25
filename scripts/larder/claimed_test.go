package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The identity of a CI job proves a commit. A claim of the same commit adds
// nothing to that, but a claim of changes does.
func TestClaimOfJob(t *testing.T) {
	t.Parallel()
	const audience = "https://registry.example.com"
	repository := t.TempDir()
	git(t, repository, "init", "--quiet", "--initial-branch=main")
	writeFiles(t, repository, withOutput("one"))
	git(t, repository, "add", "--all")
	git(t, repository, "commit", "--quiet", "--message=one")
	git(t, repository, "remote", "add", "origin", "https://gitlab-ci-token:s3cret@gitlab.example.com/acme/vpc.git")
	head := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD")
	head.Dir = repository
	hash, err := head.Output()
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(hash))

	j, dir, data := newJobs(t, ""), t.TempDir(), t.TempDir()
	writeFiles(t, dir, map[string]string{"access.json": fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": [%q], "rules": [
    {"claims": {"namespace_id": "7", "project_path": "acme/vpc", "ref": "v1"}, "scopes": ["publish:modules/acme/**"]}
  ]}]}`, j.url, audience)})
	s := serve(t, data, "--access", filepath.Join(dir, "access.json"))
	publish := func(version, sha string) *registry.ClaimedSource {
		t.Helper()
		job := s.publisher(t, "", "LARDER_ID_TOKEN="+j.token(t, audience, fmt.Sprintf(`{"sub": "project_path:acme/vpc",
			"namespace_id": "7", "project_path": "acme/vpc", "job_id": "1", "ref": "v1", "ref_path": "refs/tags/v1", "sha": %q}`, sha)))
		printed := job.run(t, 0, nil, "publish", "module", repository, "acme/vpc/aws", version,
			"--ci-identity", "--audience", audience)
		if strings.Contains(printed+s.log.String(), "s3cret") {
			t.Errorf("the password of the remote is printed:\n%s", printed)
		}
		var shown protocol.ModuleDetail
		text := larder(t, "show", "acme/vpc/aws", version, "--json", "--store", "dir:"+data)
		if err := json.Unmarshal([]byte(text), &shown); err != nil {
			t.Fatal(err)
		}
		if shown.PublishedBy.Commit != sha {
			t.Errorf("the identity has commit %q, want %q", shown.PublishedBy.Commit, sha)
		}
		return shown.Claimed
	}
	clean := &registry.ClaimedSource{Remote: "https://gitlab.example.com/acme/vpc.git", Commit: commit}
	if diff := gocmp.Diff((*registry.ClaimedSource)(nil), publish("1.0.0", commit)); diff != "" {
		t.Errorf("the claim of the job's commit (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(clean, publish("1.1.0", strings.Repeat("a", 40))); diff != "" {
		t.Errorf("the claim of another commit (-want +got):\n%s", diff)
	}
	writeFiles(t, repository, withOutput("two"))
	dirty := *clean
	dirty.Dirty = true
	if diff := gocmp.Diff(&dirty, publish("1.2.0", commit)); diff != "" {
		t.Errorf("the claim of a folder with changes (-want +got):\n%s", diff)
	}
}
