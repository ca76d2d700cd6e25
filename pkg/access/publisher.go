package access

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// maxPart bounds each text of a registry.Publisher from a credential, in bytes.
// OpenID Connect allows 255 bytes for a subject.
const maxPart = 256

// tokenPublisher returns the publisher for a registry token. Its text form is
// bounded, including the prefix.
func tokenPublisher(name string) registry.Publisher {
	return registry.Publisher{Kind: registry.PublisherToken, Name: printable.Line(name, maxPart-len("token "))}
}

// publisher returns the publisher for a JWT of the issuer, from its verified
// claims. It truncates the issuer, the subject and the name if they are too
// long. It includes the claims of a CI job only if they are complete.
func (i *issuer) publisher(c claims, all map[string]any) registry.Publisher {
	p := registry.Publisher{
		Kind:    registry.PublisherOIDC,
		Issuer:  printable.Line(i.Issuer.Issuer, maxPart),
		Subject: printable.Line(c.Subject, maxPart),
	}
	if web, err := url.Parse(i.Issuer.Issuer); err == nil {
		job := jobClaims(all)
		if host := githubHost(web); host != "" {
			job.github(&p, &url.URL{Scheme: web.Scheme, Host: host})
		} else if job.isGitLab() {
			job.gitlab(&p, web)
		}
	}
	if i.Name != "" && i.Name != "sub" {
		if name, _ := all[i.Name].(string); name != p.Repository && name != p.Ref {
			p.Name = printable.Line(name, maxPart)
		}
	}
	return p
}

// githubHost returns the host of the repositories and runs of a GitHub issuer,
// or "" for any other issuer. The paths of GitHub's own issuers can name an
// enterprise.
//
// Source: GitHub's manual, "OpenID Connect reference".
func githubHost(issuer *url.URL) string {
	const service = "token.actions."
	switch host, isService := strings.CutPrefix(issuer.Host, service); {
	case isService && host == "githubusercontent.com":
		return "github.com"
	case isService && strings.HasSuffix(host, ".ghe.com"): // with data residency
		return host
	case issuer.Path == "/_services/token": // GitHub Enterprise Server
		return issuer.Host
	}
	return ""
}

// jobClaims are the verified claims of a token of a possible CI job. Only
// claims that the CI service itself sets are used. A job can choose the name of
// its workflow or environment, but not its repository, ref, commit and run.
type jobClaims map[string]any

// text returns a claim if it is a valid string of at most maxPart bytes, and ""
// otherwise. No check accepts "".
func (c jobClaims) text(name string, isValid func(string) bool) string {
	text, _ := c[name].(string)
	if len(text) > maxPart || !isValid(text) {
		return ""
	}
	return text
}

// github sets the job of a GitHub token. web is the URL of the host of its
// repository.
func (c jobClaims) github(p *registry.Publisher, web *url.URL) {
	p.Repository = c.text("repository", func(s string) bool { return isRepository(s) && strings.Count(s, "/") == 1 })
	p.Ref = c.text("ref", isRef)
	p.Commit = c.text("sha", isCommit)
	run := c.text("run_id", isNumber)
	if p.Repository == "" || run == "" {
		return
	}
	page := web.JoinPath(p.Repository, "actions/runs", run)
	if attempt := c.text("run_attempt", isNumber); attempt != "" {
		page = page.JoinPath("attempts", attempt)
	}
	p.RunURL = page.String()
}

// isGitLab reports whether a token belongs to a GitLab job. GitLab can run on
// any host. Its tokens for people have neither a project nor a job.
func (c jobClaims) isGitLab() bool {
	_, project := c["project_path"].(string)
	return project && (c.text("job_id", isNumber) != "" || c.text("pipeline_id", isNumber) != "")
}

// gitlab sets the job of a GitLab token. web is the URL of the GitLab server,
// which is also its issuer.
//
// Source: GitLab's manual, "OpenID Connect (OIDC) Authentication Using ID
// Tokens".
func (c jobClaims) gitlab(p *registry.Publisher, web *url.URL) {
	p.Repository = c.text("project_path", isRepository)
	// The claim ref does not distinguish a branch from a tag of the same name.
	if p.Ref = c.text("ref_path", isRef); p.Ref == "" {
		p.Ref = c.text("ref", isRef)
	}
	p.Commit = c.text("sha", isCommit)
	project := p.Repository
	if _, elsewhere := c["job_project_path"]; elsewhere { // a fork's merge request runs in the other project
		project = c.text("job_project_path", isRepository)
	}
	job, pipeline := c.text("job_id", isNumber), c.text("pipeline_id", isNumber)
	switch {
	case project == "":
	case job != "":
		p.RunURL = web.JoinPath(project, "-/jobs", job).String()
	case pipeline != "":
		p.RunURL = web.JoinPath(project, "-/pipelines", pipeline).String()
	}
}

// isRepository reports whether a text is the path of a repository: at least two
// plain segments.
func isRepository(s string) bool {
	segments := strings.Split(s, "/")
	for _, part := range segments {
		if part == "" || part == "." || part == ".." || strings.Trim(part, digits+"._-") != "" {
			return false
		}
	}
	return len(segments) > 1
}

// isRef reports whether a text is printable and has only characters that Git
// allows in a ref.
func isRef(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(` ~^:?*[\`, r)
	})
}

// isCommit reports whether a text is the full SHA-1 or SHA-256 hash of a
// commit.
func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// isNumber reports whether a text is a positive number of at most 20 digits.
func isNumber(s string) bool {
	return s != "" && len(s) <= 20 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}
