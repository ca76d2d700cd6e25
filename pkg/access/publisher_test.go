package access_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	githubIssuer = "https://token.actions.githubusercontent.com"
	gitlabIssuer = "https://gitlab.example.com"
	someCommit   = "0123456789abcdef0123456789abcdef01234567"
)

type (
	claimSet  map[string]any
	publisher = registry.Publisher
)

// with returns the claims with some of them changed.
func (c claimSet) with(changed claimSet) claimSet {
	all := maps.Clone(c)
	maps.Copy(all, changed)
	return all
}

// A job can choose the claims on the last lines of these.
var (
	githubClaims = claimSet{
		"sub": "repo:acme/vpc:environment:release", "repository": "acme/vpc", "ref": "refs/tags/v1.0.0",
		"sha": someCommit, "run_id": "9001", "run_attempt": "2", "run_number": "7", "actor": "ada",
		"workflow": "acme/other", "environment": "release", "head_ref": "acme/other",
	}
	gitlabClaims = claimSet{
		"sub": "project_path:acme/net/vpc:ref_type:tag:ref:v1.0.0", "project_path": "acme/net/vpc", "ref": "v1.0.0",
		"ref_path": "refs/tags/v1.0.0", "ref_type": "tag", "sha": someCommit, "job_id": "302", "pipeline_id": "574",
		"user_login": "ada", "environment": "acme/other",
	}
)

func githubPublisher() publisher {
	return publisher{
		Kind: registry.PublisherOIDC, Issuer: githubIssuer, Subject: "repo:acme/vpc:environment:release",
		Repository: "acme/vpc", Ref: "refs/tags/v1.0.0", Commit: someCommit,
		RunURL: "https://github.com/acme/vpc/actions/runs/9001/attempts/2",
	}
}

func gitlabPublisher() publisher {
	return publisher{
		Kind: registry.PublisherOIDC, Issuer: gitlabIssuer, Subject: "project_path:acme/net/vpc:ref_type:tag:ref:v1.0.0",
		Repository: "acme/net/vpc", Ref: "refs/tags/v1.0.0", Commit: someCommit,
		RunURL: gitlabIssuer + "/acme/net/vpc/-/jobs/302",
	}
}

// checkPublisher fails unless the publisher of a token with these claims is
// want.
func checkPublisher(t *testing.T, issuer access.Issuer, claims claimSet, want publisher) {
	t.Helper()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	var verified map[string]any // with the types of a token's claims
	if err := json.Unmarshal(text, &verified); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, access.PublisherOf(issuer, verified)); diff != "" {
		t.Errorf("publisher (-want +got):\n%s", diff)
	}
}

// The claims of a GitHub job are either complete or omitted, and the URL of its
// run is built from plain claims.
func TestGitHubPublisher(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1000)
	same := func(*publisher) {}
	noRepository := func(p *publisher) { p.Repository, p.RunURL = "", "" }
	ref := func(text string) func(*publisher) { return func(p *publisher) { p.Ref = text } }
	noRef := ref("")
	noCommit := func(p *publisher) { p.Commit = "" }
	noRun := func(p *publisher) { p.RunURL = "" }
	noAttempt := func(p *publisher) { p.RunURL = "https://github.com/acme/vpc/actions/runs/9001" }
	for name, test := range map[string]struct {
		changed claimSet
		want    func(*publisher)
	}{
		"the usual":                  {nil, same},
		"a pull request":             {claimSet{"ref": "refs/pull/1/merge"}, ref("refs/pull/1/merge")},
		"a ref in Unicode":           {claimSet{"ref": "refs/heads/größer"}, ref("refs/heads/größer")},
		"no attempt":                 {claimSet{"run_attempt": nil}, noAttempt},
		"the claims of a GitLab job": {claimSet{"project_path": "acme/other", "job_id": "1"}, same},
		"a commit by SHA-256": {
			claimSet{"sha": strings.Repeat("0f", 32)}, func(p *publisher) { p.Commit = strings.Repeat("0f", 32) },
		},
		"a repository with a dot": {claimSet{"repository": "acme/.github"}, func(p *publisher) {
			p.Repository, p.RunURL = "acme/.github", "https://github.com/acme/.github/actions/runs/9001/attempts/2"
		}},
		"a long subject": {claimSet{"sub": long}, func(p *publisher) { p.Subject = long[:256] + "…" }},

		"no repository":                    {claimSet{"repository": nil}, noRepository},
		"a repository above another":       {claimSet{"repository": "../other"}, noRepository},
		"a repository of three segments":   {claimSet{"repository": "acme/vpc/x"}, noRepository},
		"a repository of one segment":      {claimSet{"repository": "vpc"}, noRepository},
		"a repository with a query":        {claimSet{"repository": "acme/vpc?x=y"}, noRepository},
		"a repository with an escape":      {claimSet{"repository": "acme/%2e%2e"}, noRepository},
		"a list of repositories":           {claimSet{"repository": []string{"acme/vpc"}}, noRepository},
		"a long repository":                {claimSet{"repository": "acme/" + long}, noRepository},
		"no ref":                           {claimSet{"ref": nil}, noRef},
		"a long ref":                       {claimSet{"ref": "refs/heads/" + long}, noRef},
		"a ref with a control character":   {claimSet{"ref": "refs/heads/x\x1b[31m"}, noRef},
		"a ref in the other direction":     {claimSet{"ref": "refs/heads/\u202ex"}, noRef},
		"a ref that is not UTF-8":          {claimSet{"ref": "refs/heads/\xff"}, noRef},
		"a ref of two lines":               {claimSet{"ref": "refs/heads/x\ny"}, noRef},
		"a ref that looks like two":        {claimSet{"ref": "refs/heads/x, repository acme/other"}, noRef},
		"a ref that is a number":           {claimSet{"ref": 7}, noRef},
		"no commit":                        {claimSet{"sha": ""}, noCommit},
		"a short commit":                   {claimSet{"sha": someCommit[:7]}, noCommit},
		"a commit that is not hexadecimal": {claimSet{"sha": strings.Repeat("g", 40)}, noCommit},
		"no run":                           {claimSet{"run_id": nil}, noRun},
		"a run above another":              {claimSet{"run_id": "1/../../.."}, noRun},
		"a run that is not a string":       {claimSet{"run_id": 9001}, noRun},
		"a long run":                       {claimSet{"run_id": strings.Repeat("1", 21)}, noRun},
		"an attempt above another":         {claimSet{"run_attempt": "../1"}, noAttempt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := githubPublisher()
			test.want(&want)
			checkPublisher(t, access.Issuer{Issuer: githubIssuer}, githubClaims.with(test.changed), want)
		})
	}
}

// The run of a GitHub job is on the host of its issuer.
func TestGitHubHosts(t *testing.T) {
	t.Parallel()
	for issuer, web := range map[string]string{
		githubIssuer:                                          "https://github.com",
		githubIssuer + "/octocorp":                            "https://github.com",
		"https://token.actions.octocorp.ghe.com":              "https://octocorp.ghe.com",
		"https://token.actions.octocorp.ghe.com/octocorp":     "https://octocorp.ghe.com",
		"https://github.example.com/_services/token":          "https://github.example.com",
		"https://github.example.com:8443/_services/token":     "https://github.example.com:8443",
		"https://ci.example.com":                              "",
		"https://ci.example.com/x/_services/token":            "",
		"https://token.actions.githubusercontent.com.example": "",
		"https://token.actions.ghe.com.example":               "",
		"https://example.com/token.actions.ghe.com":           "",
	} {
		t.Run(issuer, func(t *testing.T) {
			t.Parallel()
			want := publisher{Kind: registry.PublisherOIDC, Issuer: issuer, Subject: githubPublisher().Subject}
			if web != "" {
				want = githubPublisher()
				want.Issuer, want.RunURL = issuer, web+"/acme/vpc/actions/runs/9001/attempts/2"
			}
			checkPublisher(t, access.Issuer{Issuer: issuer}, githubClaims, want)
		})
	}
}

// Claims of a GitLab job follow the same rules. Its issuer is the GitLab server
// that runs it.
func TestGitLabPublisher(t *testing.T) {
	t.Parallel()
	const pipeline = gitlabIssuer + "/acme/net/vpc/-/pipelines/574"
	same := func(*publisher) {}
	noRepository := func(p *publisher) { p.Repository, p.RunURL = "", "" }
	for name, test := range map[string]struct {
		changed claimSet
		want    func(*publisher)
	}{
		"the usual":                  {nil, same},
		"a job without its pipeline": {claimSet{"pipeline_id": nil}, same},
		"a pipeline without its job": {claimSet{"job_id": nil}, func(p *publisher) { p.RunURL = pipeline }},
		"an older one, a short ref":  {claimSet{"ref_path": nil}, func(p *publisher) { p.Ref = "v1.0.0" }},
		"the claims of a GitHub job": {claimSet{"repository": "acme/other", "run_id": "1"}, same},
		"a fork's merge request": {
			claimSet{"project_path": "eve/vpc", "job_project_path": "acme/net/vpc"},
			func(p *publisher) { p.Repository = "eve/vpc" },
		},

		"a job's project that is none": {claimSet{"job_project_path": "acme/../x"}, func(p *publisher) { p.RunURL = "" }},
		"a project above another":      {claimSet{"project_path": "acme/../../x"}, noRepository},
		"a project of one segment":     {claimSet{"project_path": "acme"}, noRepository},
		"no commit":                    {claimSet{"sha": nil}, func(p *publisher) { p.Commit = "" }},
		"a job above another":          {claimSet{"job_id": "3/../4"}, func(p *publisher) { p.RunURL = pipeline }},
		"neither a job nor a pipeline": {claimSet{"job_id": nil, "pipeline_id": "x"}, func(p *publisher) {
			*p = publisher{Kind: p.Kind, Issuer: p.Issuer, Subject: p.Subject}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := gitlabPublisher()
			test.want(&want)
			checkPublisher(t, access.Issuer{Issuer: gitlabIssuer}, gitlabClaims.with(test.changed), want)
		})
	}
	for issuer, run := range map[string]string{
		"https://gitlab.com":               "https://gitlab.com/acme/net/vpc/-/jobs/302",
		"https://example.com/gitlab":       "https://example.com/gitlab/acme/net/vpc/-/jobs/302",
		"https://example.com:8443/gitlab/": "https://example.com:8443/gitlab/acme/net/vpc/-/jobs/302",
	} {
		want := gitlabPublisher()
		want.Issuer, want.RunURL = issuer, run
		checkPublisher(t, access.Issuer{Issuer: issuer}, gitlabClaims, want)
	}
}

// People have a name from the claim in the settings. For other CI services,
// only the issuer and subject are used.
func TestPublisherNames(t *testing.T) {
	t.Parallel()
	const people = "https://idp.example.com"
	person := func(subject, name string) publisher {
		return publisher{Kind: registry.PublisherOIDC, Issuer: people, Subject: subject, Name: name}
	}
	named := func(p publisher, name string) publisher {
		p.Name = name
		return p
	}
	long := strings.Repeat("a", 1000)
	for test, row := range map[string]struct {
		issuer, name string
		claims       claimSet
		want         publisher
	}{
		"a person":                     {people, "email", claimSet{"sub": "7", "email": "ada"}, person("7", "ada")},
		"a person without that claim":  {people, "email", claimSet{"sub": "7"}, person("7", "")},
		"a person and no such setting": {people, "", claimSet{"sub": "7", "email": "ada"}, person("7", "")},
		"a person by the subject":      {people, "sub", claimSet{"sub": "7"}, person("7", "")},
		"a person with two names": {
			people, "email", claimSet{"sub": "7", "email": []string{"ada", "eve"}}, person("7", ""),
		},
		"a person on two lines": {
			people, "email", claimSet{"sub": "7\n8", "email": "a\x1bb"}, person("7 8", "a\ufffdb"),
		},
		"a person with a long name": {people, "email", claimSet{"sub": "7", "email": long}, person("7", long[:256]+"…")},
		"a person with a job's claims": {
			people, "", claimSet{"sub": "7", "project_path": "acme/vpc", "ref": "x", "sha": someCommit}, person("7", ""),
		},
		"a GitHub job by its actor":      {githubIssuer, "actor", githubClaims, named(githubPublisher(), "ada")},
		"a GitHub job by its repository": {githubIssuer, "repository", githubClaims, githubPublisher()},
		"a GitLab job by its user":       {gitlabIssuer, "user_login", gitlabClaims, named(gitlabPublisher(), "ada")},
	} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			checkPublisher(t, access.Issuer{Issuer: row.issuer, Name: row.name}, row.claims, row.want)
		})
	}
}

// For any claims, the publisher is printable and bounded, and the page of its
// run is on the issuer's own host.
func FuzzPublisher(f *testing.F) {
	f.Add("acme/vpc", "refs/heads/main", someCommit, "1", "2")
	f.Add("../..", "\u202e", "", "1?", "#")
	f.Fuzz(func(t *testing.T, repository, ref, sha, run, attempt string) {
		claims := claimSet{
			"sub": repository, "repository": repository, "project_path": repository, "ref": ref, "ref_path": ref,
			"sha": sha, "run_id": run, "run_attempt": attempt, "job_id": run, "pipeline_id": attempt,
		}
		for issuer, host := range map[string]string{githubIssuer: "github.com", gitlabIssuer: "gitlab.example.com"} {
			p := access.PublisherOf(access.Issuer{Issuer: issuer, Name: "sha"}, claims)
			text := p.String() + p.Commit + p.RunURL
			if len(text) > 3000 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q", text)
			}
			if p.RunURL == "" {
				continue
			}
			u, err := url.Parse(p.RunURL)
			if err != nil {
				t.Fatal(err)
			}
			if u.Scheme != "https" || u.Host != host {
				t.Errorf("%s is elsewhere", p.RunURL)
			}
			if u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/"+p.Repository+"/") {
				t.Errorf("%s is no page of %s", p.RunURL, p.Repository)
			}
		}
	})
}
