package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/larder-registry/larder/scripts/larder/failure"
)

// metric returns the value of a metric of the server.
func (s *server) metric(t *testing.T, name string) string {
	t.Helper()
	response, err := http.Get(s.Metrics) //nolint:noctx // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("there is no metric %s:\n%s", name, text)
	}
	return string(found[1])
}

// A running server uses a changed access file without a restart. A rule that is
// removed no longer applies to jobs whose decisions are cached. With a broken
// file, the earlier rules stay.
func TestAccessReload(t *testing.T) {
	t.Parallel()
	const audience = "https://registry.example.com"
	j, dir, module := newJobs(t, ""), t.TempDir(), t.TempDir()
	writeFiles(t, module, withOutput("x"))
	file := filepath.Join(dir, "access.json")
	settings := fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": [%q], "rules": [
    {"claims": {"repository_owner_id": "1234567", "repository": "acme/vpc", "ref": "refs/tags/*"},
      "scopes": ["publish:modules/acme/**"]}
  ]}]}`, j.url, audience)
	write := func(text string) {
		t.Helper()
		// A rename replaces it at once, so the server never reads a part of it.
		writeFiles(t, dir, map[string]string{"access.json.new": text})
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(settings)
	s := serve(t, t.TempDir(), "--access", file, "--metrics", "0")
	job := s.publisher(t, "", "LARDER_ID_TOKEN="+j.token(t, audience, `{"sub": "repo:acme/vpc", "repository": "acme/vpc",
		"repository_owner_id": "1234567", "ref": "refs/tags/v1"}`))
	for _, stage := range []struct {
		text, logged string
		code         int
		printed      []string
		valid        string
	}{
		{settings, "", 0, nil, "1"},
		{strings.Replace(settings, `"rules"`, `"rule"`, 1), "cannot use the changed access settings", 0, nil, "0"},
		{`{}`, `change="issuer removed" issuer=` + j.url, failure.ExitFailed, []string{"401"}, "1"},
	} {
		write(stage.text)
		s.log.waitFor(t, stage.logged)
		job.run(t, stage.code, stage.printed,
			"publish", "module", module, "acme/vpc/aws", "1.0.0", "--ci-identity", "--audience", audience)
		if got := s.metric(t, "larder_access_file_valid"); got != stage.valid {
			t.Errorf("%s: larder_access_file_valid is %s, want %s", stage.text, got, stage.valid)
		}
	}
}
