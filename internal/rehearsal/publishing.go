package rehearsal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Whom the tokens of CI jobs are for, and the repository that may publish.
const (
	jobsAudience   = "larder-rehearsal"
	jobsRepository = "acme/infra"
)

// fresh is a namespace that nobody has published in yet, and jobs the one for CI jobs.
func (r *Registry) fresh() string { return r.Namespace + "-fresh" }
func (r *Registry) jobs() string  { return jobsNamespace(r.Namespace) }

func jobsNamespace(namespace string) string { return namespace + "-jobs" }

// trusting are access settings by which jobs for tags of one repository, in one environment, publish modules.
func trusting(issuer, namespace string) (string, error) {
	rule := map[string]any{
		"claims": map[string]string{"repository": jobsRepository, "ref": "refs/tags/*", "environment": "release"},
		"scopes": []string{"publish:modules/" + jobsNamespace(namespace) + "/**"},
	}
	text, err := json.Marshal(map[string]any{"issuers": []any{map[string]any{"issuer": issuer, "audiences": []string{jobsAudience}, "rules": []any{rule}}}})
	return string(text), err
}

// publisher is somebody who has a token of the registry, and no credentials of AWS.
type publisher struct {
	*Registry
	token string
	file  string // a configuration that has it
}

// newPublisher makes a token with one scope, and who has it.
func (r *Registry) newPublisher(ctx context.Context, name, scope string) (publisher, error) {
	p := publisher{Registry: r}
	var err error
	if p.token, err = r.newToken(ctx, name, scope); err != nil {
		return p, err
	}
	home, err := os.MkdirTemp(r.Scratch, "publisher")
	if err != nil {
		return p, err
	}
	p.file = filepath.Join(home, "tofurc")
	return p, os.WriteFile(p.file, fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", r.Host, p.token), 0o600)
}

// larder runs the command line through the registry's own endpoint, and fails unless that says something.
func (p publisher) larder(ctx context.Context, says string, args ...string) error {
	out, err := p.Through(ctx, []string{"TF_CLI_CONFIG_FILE=" + p.file}, args...)
	if err == nil && !strings.Contains(out, says) {
		err = fmt.Errorf("larder %s does not say %q:\n%s", strings.Join(args, " "), says, out)
	}
	return err
}

// refused fails unless the command line does, and says why.
func (p publisher) refused(ctx context.Context, why string, args ...string) error {
	err := p.larder(ctx, "", args...)
	switch {
	case err == nil:
		return fmt.Errorf("larder %s succeeds, and must be refused", strings.Join(args, " "))
	case !strings.Contains(err.Error(), why):
		return fmt.Errorf("larder does not say %q: %w", why, err)
	}
	return nil
}

// ask sends a document to a path of the registry's endpoint, and fails where the status is another.
func (r *Registry) ask(ctx context.Context, method, path, token string, document, into any, want int) error {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(document); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+r.Host+path, &body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := r.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case response.StatusCode != want:
		return fmt.Errorf("%s %s: %s, and it must be %d: %s", method, path, response.Status, want, text)
	case into != nil:
		return json.Unmarshal(text, into)
	}
	return nil
}

// announcement is of a file that nobody has.
func announcement(names ...string) protocol.Announcement {
	var a protocol.Announcement
	for i, name := range names {
		a.Files = append(a.Files, protocol.File{Name: name, Size: 1000, SHA256: fmt.Sprintf("%064x", i+1)})
	}
	return a
}

// giveUp begins to publish, finds that nothing is inspected before it is there, and gives it up.
func (p publisher) giveUp(ctx context.Context, path string, a protocol.Announcement) error {
	var begun protocol.Begun
	uploads := protocol.PublishPath + path + "/uploads"
	if err := p.ask(ctx, http.MethodPost, uploads, p.token, a, &begun, http.StatusCreated); err != nil {
		return err
	}
	at := uploads + "/" + begun.Upload
	for _, step := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, at + "/files/0/inspect", http.StatusConflict},
		{http.MethodPost, at + "/commit", http.StatusConflict},
		{http.MethodDelete, at, http.StatusNoContent},
		{http.MethodPost, at + "/commit", http.StatusNotFound},
	} {
		if err := p.ask(ctx, step.method, step.path, p.token, nil, nil, step.want); err != nil {
			return err
		}
	}
	return nil
}

// publishedBy fails unless the record of the only version of something has this
// publisher.
func (r *Registry) publishedBy(ctx context.Context, address string, want registry.Publisher) error {
	text, err := r.Larder(ctx, "list", address, "--json")
	if err != nil {
		return err
	}
	var list struct {
		Versions []struct {
			PublishedBy registry.Publisher `json:"published_by"`
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fmt.Errorf("the list of versions: %w:\n%s", err, text)
	}
	if len(list.Versions) != 1 {
		return fmt.Errorf("it is not a list of one version:\n%s", text)
	}
	if by := list.Versions[0].PublishedBy; by != want {
		return fmt.Errorf("%s is published by %+v, and that must be %+v", address, by, want)
	}
	return nil
}

// tokenNamed is the publisher with a registry token of the rehearsal.
func (r *Registry) tokenNamed(name string) registry.Publisher {
	return registry.Publisher{Kind: registry.PublisherToken, Name: r.Namespace + "." + name}
}

// publishModuleScenario publishes a module with nothing but a token of the registry.
func publishModuleScenario(ctx context.Context, r *Registry) error {
	address := r.fresh() + "/published/null"
	path := "modules/" + address
	p, err := r.newPublisher(ctx, "module-publisher", "publish:modules/"+r.fresh()+"/**")
	if err != nil {
		return err
	}
	all, err := r.newToken(ctx, "all-modules", "publish:modules/**")
	if err != nil {
		return err
	}
	a := announcement("published.tar.gz")
	for _, test := range []struct {
		path, token string
		want        int
	}{
		{protocol.PublishPath + path + "/1.0.0/uploads", "", http.StatusUnauthorized},
		{protocol.PublishPath + path + "/1.0.0/uploads", all, http.StatusForbidden}, // a namespace comes to be by a scope that names it
		{protocol.PublishPath + "modules/" + r.Namespace + "/published/null/1.0.0/uploads", p.token, http.StatusForbidden},
		{protocol.PublishPath + "providers/" + r.fresh() + "/note/1.0.0/uploads", p.token, http.StatusForbidden},
	} {
		if err := r.ask(ctx, http.MethodPost, test.path, test.token, a, nil, test.want); err != nil {
			return err
		}
	}
	if err := p.giveUp(ctx, path+"/1.0.0", a); err != nil {
		return err
	}
	dir, err := r.folder("output \"text\" {\n  value = \"published\"\n}\n")
	if err != nil {
		return err
	}
	other, err := r.folder("output \"text\" {\n  value = \"other\"\n}\n")
	if err != nil {
		return err
	}
	for _, step := range []struct {
		says string
		args []string
	}{
		{"Published " + address, []string{"publish", "module", dir, address, "1.0.0"}},
		{"Unchanged: " + address, []string{"publish", "module", dir, address, "1.0.0"}},
		{"", []string{"deprecate", address, "--message", "rehearsed"}},
		{"", []string{"deprecate", address, "1.0.0", "--message", "rehearsed"}},
	} {
		if err := p.larder(ctx, step.says, step.args...); err != nil {
			return err
		}
	}
	err = errors.Join(
		p.refused(ctx, "with other content", "publish", "module", other, address, "1.0.0"),
		p.refused(ctx, "publish:modules/"+r.Namespace+"/published/null", "publish", "module", dir, r.Namespace+"/published/null", "1.0.0"),
		p.refused(ctx, "publish:modules/"+r.Namespace+"/hello/null", "deprecate", r.Namespace+"/hello/null", "--message", "no"),
		r.get(ctx, "/v1/"+path+"/versions", p.token, http.StatusForbidden),
		r.get(ctx, "/v1/"+path+"/1.0.0/download", p.token, http.StatusForbidden),
		r.publishedBy(ctx, address, r.tokenNamed("module-publisher")),
	)
	if err != nil {
		return err
	}
	return r.installModule(ctx, address, "1.0.0", "published")
}

// publishProviderScenario publishes a provider with nothing but a token of the registry, signed by a key that the
// registry's owner has added.
func publishProviderScenario(ctx context.Context, r *Registry) error {
	release, public, err := r.signedRelease(ctx)
	if err != nil {
		return err
	}
	address := r.fresh() + "/note"
	path := "providers/" + address
	p, err := r.newPublisher(ctx, "provider-publisher", "publish:"+path)
	if err != nil {
		return err
	}
	publish := []string{"publish", "provider", release, address}
	if err := p.refused(ctx, "has no key yet", publish...); err != nil {
		return err
	}
	if _, err := r.Larder(ctx, "key", "add", r.fresh(), public); err != nil {
		return err
	}
	const name = "terraform-provider-note_0.9.0_"
	a := announcement(name+clients.Platform()+".zip", name+"SHA256SUMS", name+"SHA256SUMS.sig")
	a.Protocols = []string{"6.0"}
	if err := p.giveUp(ctx, path+"/0.9.0", a); err != nil {
		return err
	}
	for _, step := range []struct {
		says string
		args []string
	}{
		{"Published " + address, publish},
		{"Unchanged: " + address, publish},
		{"", []string{"deprecate", address, "--message", "rehearsed"}},
		{"", []string{"deprecate", address, "--undo"}},
		{"", []string{"deprecate", address, "1.0.0", "--message", "rehearsed by a token"}},
	} {
		if err := p.larder(ctx, step.says, step.args...); err != nil {
			return err
		}
	}
	err = errors.Join(
		r.get(ctx, "/v1/"+path+"/versions", p.token, http.StatusForbidden),
		r.publishedBy(ctx, address, r.tokenNamed("provider-publisher")),
	)
	if err != nil {
		return err
	}
	return r.installProvider(ctx, address, "rehearsed by a token")
}

// trustScenario publishes by the identity of a CI job, without any secret. The same repository's jobs for pull requests
// have an identity as well, and do not publish.
func trustScenario(ctx context.Context, r *Registry) error {
	if r.CI == nil {
		return nil
	}
	stranger, err := issuers.StartCI()
	if err != nil {
		return err
	}
	defer stranger.Close()
	address := r.jobs() + "/trusted/null"
	const subject, ref = "repo:" + jobsRepository + ":environment:release", "refs/tags/v1.0.0"
	const commit = "0123456789abcdef0123456789abcdef01234567"
	with := func(claims map[string]any) map[string]any {
		all := map[string]any{
			"aud": jobsAudience, "sub": subject, "repository": jobsRepository, "ref": ref, "environment": "release",
			"event_name": "push", "sha": commit, "run_id": "9001", "run_attempt": "1",
		}
		maps.Copy(all, claims)
		return all
	}
	now := time.Now()
	for _, test := range []struct {
		name   string
		ci     *issuers.CI
		claims map[string]any
		want   int
	}{
		{"another repository's", r.CI, map[string]any{"repository": "acme/other", "sub": "repo:acme/other:environment:release"}, http.StatusForbidden},
		{"a fork's", r.CI, map[string]any{"repository": "mallory/infra", "sub": "repo:mallory/infra:environment:release"}, http.StatusForbidden},
		{"another ref's", r.CI, map[string]any{"ref": "refs/heads/feature"}, http.StatusForbidden},
		{"a branch's that is named like a tag", r.CI, map[string]any{"ref": "refs/heads/refs/tags/v1.0.0"}, http.StatusForbidden},
		{"a pull request's", r.CI, map[string]any{"ref": "refs/pull/1/merge", "sub": "repo:" + jobsRepository + ":pull_request", "event_name": "pull_request"}, http.StatusForbidden},
		{"another environment's", r.CI, map[string]any{"environment": "test"}, http.StatusForbidden},
		{"nobody's", r.CI, map[string]any{"sub": ""}, http.StatusForbidden},
		{"an expired one", r.CI, map[string]any{"exp": now.Add(-time.Minute).Unix()}, http.StatusUnauthorized},
		{"a coming one", r.CI, map[string]any{"nbf": now.Add(time.Hour).Unix()}, http.StatusUnauthorized},
		{"one for another audience", r.CI, map[string]any{"aud": "https://registry.example.com"}, http.StatusUnauthorized},
		{"one of another issuer", stranger, nil, http.StatusUnauthorized},
		{"one that another has signed", stranger, map[string]any{"iss": r.CI.URL}, http.StatusUnauthorized},
	} {
		token, err := test.ci.Token(with(test.claims))
		if err != nil {
			return err
		}
		if err := r.ask(ctx, http.MethodPost, protocol.PublishPath+"modules/"+address+"/1.0.0/uploads", token, announcement("trusted.tar.gz"), nil, test.want); err != nil {
			return fmt.Errorf("%s: %w", test.name, err)
		}
	}
	token, err := r.CI.Token(with(nil))
	if err != nil {
		return err
	}
	dir, err := r.folder("output \"text\" {\n  value = \"trusted\"\n}\n")
	if err != nil {
		return err
	}
	if _, err := r.Through(ctx, []string{"LARDER_ID_TOKEN=" + token}, "publish", "module", dir, address, "1.0.0", "--ci-identity", "--audience", jobsAudience); err != nil {
		return err
	}
	return errors.Join(
		r.ask(ctx, http.MethodPost, protocol.PublishPath+"modules/"+r.fresh()+"/published/null/1.0.0/uploads", token, announcement("published.tar.gz"), nil, http.StatusForbidden),
		r.publishedBy(ctx, address, registry.Publisher{
			Kind: registry.PublisherOIDC, Issuer: r.CI.URL, Subject: subject,
			Repository: jobsRepository, Ref: ref, Commit: commit,
			RunURL: r.CI.Web + "/" + jobsRepository + "/actions/runs/9001/attempts/1",
		}),
		r.get(ctx, "/v1/modules/"+address+"/versions", token, http.StatusForbidden),
	)
}
