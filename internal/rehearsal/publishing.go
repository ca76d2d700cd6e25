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

	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// The audience of the CI jobs' tokens, and the repository that may publish.
const (
	jobsAudience   = "larder-rehearsal"
	jobsRepository = "acme/infra"
)

// fresh returns a namespace in which nothing has been published. jobs returns
// the namespace of the CI jobs.
func (r *Registry) fresh() string { return r.Namespace + "-fresh" }
func (r *Registry) jobs() string  { return jobsNamespace(r.Namespace) }

func jobsNamespace(namespace string) string { return namespace + "-jobs" }

// trusting returns access settings for CI jobs. Jobs for tags of one
// repository, in one environment, may publish modules.
func trusting(issuer, namespace string) (string, error) {
	rule := map[string]any{
		"claims": map[string]string{"repository": jobsRepository, "ref": "refs/tags/*", "environment": "release"},
		"scopes": []string{"publish:modules/" + jobsNamespace(namespace) + "/**"},
	}
	text, err := json.Marshal(map[string]any{"issuers": []any{map[string]any{"issuer": issuer,
		"audiences": []string{jobsAudience}, "rules": []any{rule}}}})
	return string(text), err
}

// publisher has a token of the registry, and no AWS credentials.
type publisher struct {
	*Registry
	token string
	file  string // a client configuration with the token
}

func (r *Registry) newPublisher(ctx context.Context, name, scope string) (publisher, error) {
	token, err := r.newToken(ctx, name, scope)
	if err != nil {
		return publisher{}, err
	}
	return r.publisher(token)
}

func (r *Registry) publisher(token string) (publisher, error) {
	p := publisher{Registry: r, token: token}
	home, err := os.MkdirTemp(r.Scratch, "publisher")
	if err != nil {
		return p, err
	}
	p.file = filepath.Join(home, "tofurc")
	return p, os.WriteFile(p.file, fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", r.Host, p.token), 0o600)
}

// larder runs the command line through the registry's own endpoint. It returns
// an error unless the output contains a text.
func (p publisher) larder(ctx context.Context, text string, args ...string) error {
	out, err := p.Through(ctx, []string{"TF_CLI_CONFIG_FILE=" + p.file}, args...)
	if err == nil && !strings.Contains(out, text) {
		err = fmt.Errorf("larder %s does not print %q:\n%s", strings.Join(args, " "), text, out)
	}
	return err
}

// refused returns an error unless the command line fails, with a text in its
// error.
func (p publisher) refused(ctx context.Context, why string, args ...string) error {
	err := p.larder(ctx, "", args...)
	switch {
	case err == nil:
		return fmt.Errorf("larder %s succeeded, and must be rejected", strings.Join(args, " "))
	case !strings.Contains(err.Error(), why):
		return fmt.Errorf("larder does not print %q: %w", why, err)
	}
	return nil
}

// send sends a document to a path of the registry's endpoint. It returns an
// error unless the response has the status.
func (r *Registry) send(ctx context.Context, method, path, token string, document, into any, want int) error {
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
		return fmt.Errorf("%s %s: %s, want %d: %s", method, path, response.Status, want, text)
	case into != nil:
		return json.Unmarshal(text, into)
	}
	return nil
}

// announcement announces a file that does not exist.
func announcement(name string) protocol.Announcement {
	return protocol.Announcement{Files: []protocol.File{{Name: name, Size: 1000, SHA256: fmt.Sprintf("%064x", 1)}}}
}

// giveUp begins to publish, and deletes the upload. Before that, it checks that
// missing files cannot be inspected or committed.
func (p publisher) giveUp(ctx context.Context, path string, a protocol.Announcement) error {
	var begun protocol.Begun
	uploads := protocol.PublishPath + path + "/uploads"
	if err := p.send(ctx, http.MethodPost, uploads, p.token, a, &begun, http.StatusCreated); err != nil {
		return err
	}
	at := uploads + "/" + begun.Upload
	for _, step := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, at + "/inspect", http.StatusConflict},
		{http.MethodPost, at + "/commit", http.StatusConflict},
		{http.MethodDelete, at, http.StatusNoContent},
		{http.MethodPost, at + "/commit", http.StatusNotFound},
	} {
		if err := p.send(ctx, step.method, step.path, p.token, nil, nil, step.want); err != nil {
			return err
		}
	}
	return nil
}

// promote records twice that version 1.0.0 at a path was copied to another
// registry. It returns an error unless the audit trail has that once.
func (p publisher) promote(ctx context.Context, path string) error {
	_, address, _ := strings.Cut(path, "/")
	target := protocol.Copy{Target: "prod.example.com/" + address}
	for range 2 {
		at := protocol.PublishPath + path + "/1.0.0/copies"
		if err := p.send(ctx, http.MethodPut, at, p.token, target, nil, http.StatusNoContent); err != nil {
			return err
		}
	}
	trail, err := p.Larder(ctx, "audit", address, "--json")
	if n := strings.Count(trail, "to "+target.Target); err == nil && n != 1 {
		err = fmt.Errorf("the audit trail has the copy to %s %d times:\n%s", target.Target, n, trail)
	}
	return err
}

// publishedBy returns an error unless there is one version at an address, with
// this publisher in its record.
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
		return fmt.Errorf("cannot parse the list of versions: %w:\n%s", err, text)
	}
	if len(list.Versions) != 1 {
		return fmt.Errorf("the list does not have exactly one version:\n%s", text)
	}
	if by := list.Versions[0].PublishedBy; by != want {
		return fmt.Errorf("%s was published by %+v, want %+v", address, by, want)
	}
	return nil
}

func (r *Registry) tokenNamed(name string) registry.Publisher {
	return registry.Publisher{Kind: registry.PublisherToken, Name: r.Namespace + "." + name}
}

// publishModuleScenario publishes a module with only a token of the registry.
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
		{protocol.PublishPath + path + "/1.0.0/uploads", all,
			http.StatusForbidden}, // a namespace comes to be by a scope that names it
		{protocol.PublishPath + "modules/" + r.Namespace + "/published/null/1.0.0/uploads", p.token,
			http.StatusForbidden},
		{protocol.PublishPath + "providers/" + r.fresh() + "/note/1.0.0/uploads", p.token, http.StatusForbidden},
	} {
		if err := r.send(ctx, http.MethodPost, test.path, test.token, a, nil, test.want); err != nil {
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
		text string
		args []string
	}{
		{`"status": "published"`, []string{"publish", "module", dir, address, "1.0.0", "--json"}},
		{`"status": "unchanged"`, []string{"publish", "module", dir, address, "1.0.0", "--json"}},
		{"", []string{"deprecate", address, "--message", "rehearsed"}},
		{"", []string{"deprecate", address, "1.0.0", "--message", "rehearsed"}},
	} {
		if err := p.larder(ctx, step.text, step.args...); err != nil {
			return err
		}
	}
	err = errors.Join(
		p.refused(ctx, `"code": "exists"`, "publish", "module", other, address, "1.0.0", "--json"),
		p.refused(ctx, "publish:modules/"+r.Namespace+"/published/null", "publish", "module", dir,
			r.Namespace+"/published/null", "1.0.0"),
		p.refused(ctx, "publish:modules/"+r.Namespace+"/hello/null", "deprecate", r.Namespace+"/hello/null",
			"--message", "no"),
		r.get(ctx, "/v1/"+path+"/versions", p.token, http.StatusForbidden),
		r.get(ctx, "/v1/"+path+"/1.0.0/download", p.token, http.StatusForbidden),
		r.publishedBy(ctx, address, r.tokenNamed("module-publisher")),
	)
	if err != nil {
		return err
	}
	if err := p.promote(ctx, path); err != nil {
		return err
	}
	return r.installModule(ctx, address, "1.0.0", "published")
}

// publishProviderScenario publishes a provider with only a token of the
// registry. The registry's owner has added the signing key.
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
	if err := p.refused(ctx, `"exit_code": 3`, append(publish, "--json")...); err != nil {
		return err
	}
	if _, err := r.Larder(ctx, "key", "add", r.fresh(), public); err != nil {
		return err
	}
	prepared, err := rules.Preparer{}.Provider(ctx, rules.Provider{
		Dir: release, Address: registry.Provider{Namespace: r.fresh(), Type: "note"},
	})
	if err != nil {
		return err
	}
	a := prepared.Announcement()
	for _, f := range prepared.Zips() {
		a.Files = append(a.Files, protocol.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256})
	}
	if err := p.giveUp(ctx, path+"/1.0.0", a); err != nil {
		return err
	}
	for _, step := range []struct {
		text string
		args []string
	}{
		{`"status": "published"`, append(publish, "--json")},
		{`"status": "unchanged"`, append(publish, "--json")},
		{"", []string{"deprecate", address, "--message", "rehearsed"}},
		{"", []string{"deprecate", address, "--undo"}},
		{"", []string{"deprecate", address, "1.0.0", "--message", "rehearsed by a token"}},
	} {
		if err := p.larder(ctx, step.text, step.args...); err != nil {
			return err
		}
	}
	err = errors.Join(
		r.get(ctx, "/v1/"+path+"/versions", p.token, http.StatusForbidden),
		r.publishedBy(ctx, address, r.tokenNamed("provider-publisher")),
		p.promote(ctx, path),
	)
	if err != nil {
		return err
	}
	return r.installProvider(ctx, address, "rehearsed by a token")
}

// trustScenario publishes with the identity of a CI job, without any secret.
// Jobs of the same repository for pull requests have an identity too, but may
// not publish.
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
		{"another repository's", r.CI, map[string]any{"repository": "acme/other",
			"sub": "repo:acme/other:environment:release"}, http.StatusForbidden},
		{"a fork's", r.CI, map[string]any{"repository": "mallory/infra",
			"sub": "repo:mallory/infra:environment:release"}, http.StatusForbidden},
		{"another ref's", r.CI, map[string]any{"ref": "refs/heads/feature"}, http.StatusForbidden},
		{"a branch's that is named like a tag", r.CI, map[string]any{"ref": "refs/heads/refs/tags/v1.0.0"},
			http.StatusForbidden},
		{"a pull request's", r.CI, map[string]any{"ref": "refs/pull/1/merge",
			"sub": "repo:" + jobsRepository + ":pull_request", "event_name": "pull_request"}, http.StatusForbidden},
		{"another environment's", r.CI, map[string]any{"environment": "test"}, http.StatusForbidden},
		{"nobody's", r.CI, map[string]any{"sub": ""}, http.StatusForbidden},
		{"an expired one", r.CI, map[string]any{"exp": now.Add(-time.Minute).Unix()}, http.StatusUnauthorized},
		{"a coming one", r.CI, map[string]any{"nbf": now.Add(time.Hour).Unix()}, http.StatusUnauthorized},
		{"one for another audience", r.CI, map[string]any{"aud": "https://registry.example.com"},
			http.StatusUnauthorized},
		{"one of another issuer", stranger, nil, http.StatusUnauthorized},
		{"one that another has signed", stranger, map[string]any{"iss": r.CI.URL}, http.StatusUnauthorized},
	} {
		token, err := test.ci.Token(with(test.claims))
		if err != nil {
			return err
		}
		if err := r.send(ctx, http.MethodPost, protocol.PublishPath+"modules/"+address+"/1.0.0/uploads", token,
			announcement("trusted.tar.gz"), nil, test.want); err != nil {
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
	if _, err := r.Through(ctx, []string{"LARDER_ID_TOKEN=" + token}, "publish", "module", dir, address, "1.0.0",
		"--ci-identity", "--audience", jobsAudience); err != nil {
		return err
	}
	return errors.Join(
		r.send(ctx, http.MethodPost, protocol.PublishPath+"modules/"+r.fresh()+"/published/null/1.0.0/uploads", token,
			announcement("published.tar.gz"), nil, http.StatusForbidden),
		r.publishedBy(ctx, address, registry.Publisher{
			Kind: registry.PublisherOIDC, Issuer: r.CI.URL, Subject: subject,
			Repository: jobsRepository, Ref: ref, Commit: commit,
			RunURL: r.CI.Web + "/" + jobsRepository + "/actions/runs/9001/attempts/1",
		}),
		r.get(ctx, "/v1/modules/"+address+"/versions", token, http.StatusForbidden),
	)
}
