package access_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// publishAPI is access control in front of a handler that stands for the
// publish API and stores its last caller.
type publishAPI struct {
	*protected
	last access.Caller
}

func publishBy(t testing.TB, control *access.Control) *publishAPI {
	t.Helper()
	d := &publishAPI{protected: &protected{}}
	d.Handler = httpapi.Wrap(slog.New(
		slog.NewTextHandler(&d.log, nil),
	), control.RequirePublish(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.reached.Add(1)
		var ok bool
		if d.last, ok = access.CallerOf(r.Context()); !ok || d.last.ID == "" || d.last.Publisher.Kind == "" {
			t.Errorf("%s: nobody publishes: %+v", r.URL.Path, d.last)
		}
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, "there")
	})))
	return d
}

const (
	publishModule   = "/v1/publish/modules/acme/vpc/aws/1.0.0"
	publishProvider = "/v1/publish/providers/acme/x/1.0.0"
)

// Publishing needs a scope to publish the resource of the path. Scopes to read
// do not help.
func TestProtectPublish(t *testing.T) {
	t.Parallel()
	store := &records{}
	d := publishBy(t, access.New(parse(t, `{"public": ["**"]}`), store))
	token := func(scopes ...string) string { return "Bearer " + store.add("ci", scopes...) }
	acme, one := token("publish:modules/acme/**"), token("publish:modules/acme/vpc/aws", "read:**")
	all, reader, providers := token("publish:**"), token("read:**"), token("publish:providers/acme/x")
	modules, some := token("publish:modules/**"), token("publish:*/*/*")
	mirror := token("publish:mirror/**", "publish:mirror-modules/**")
	each := token("publish:*", "publish:*/modules/**", "publish:**/acme")
	const publish = "/v1/publish"
	for _, test := range []struct {
		token  string
		status int
		paths  []string
	}{
		{acme, 200, []string{publishModule, publish + "/modules/acme/vpc/aws", publishModule + "/uploads/7/commit"}},
		{one, 200, []string{publishModule}},
		{modules, 200, []string{publishModule}},
		{some, 200, []string{publishModule}},
		{each, 200, []string{publishModule}},
		{providers, 200, []string{publishProvider, publish + "/providers/acme/x"}},
		// Only callers who may publish everything can request paths without a
		// resource.
		{all, 200, []string{
			publishModule, publishProvider, publish + "/modules/acme/vpc", publish + "/", publish,
			publish + "/mirror/example.com/acme/x/1.0.0", publish + "/mirror-modules/example.com/acme/x/aws/1.0.0", path, "/",
		}},
		{acme, 403, []string{
			publish + "/modules/other/vpc/aws/1.0.0", publish + "/modules/acme2/vpc/aws/1.0.0", publishProvider,
			publish + "/modules/acme/vpc", publish + "/modules/acme/vpc/", publish + "/modules/acme", path,
			"/v1/publishmodules/acme/vpc/aws",
		}},
		{one, 403, []string{publish + "/modules/acme/vpc/azurerm/1.0.0", publish + "/modules/acme/vpc2/aws/1.0.0"}},
		{providers, 403, []string{publish + "/providers/acme/y/1.0.0", publishModule, publish + "/providers/acme/"}},
		{reader, 403, []string{publishModule, publishProvider}},
		{mirror, 403, []string{
			publishModule, publish + "/mirror/example.com/acme/x/1.0.0",
			publish + "/mirror-modules/example.com/acme/x/aws/1.0.0",
		}},
		{modules, 403, []string{publish + "/modules", publish + "/modules/", publish + "/modules/acme/vpc/", path}},
		{each, 403, []string{publish + "/modules/acme/vpc", publish + "/modules", publish, publish + "/uploads/7"}},
		{some, 403, []string{publish + "/a/b/c/d"}},
		{"Bearer ", 401, []string{publishModule, publish + "/"}},
		{"Bearer nonsense", 401, []string{publishModule}},
		{"Basic YTpi", 401, []string{publishModule}},
		{acme + "0", 401, []string{publishModule}},
	} {
		for _, path := range test.paths {
			d.want(t, test.status, path, test.token)
		}
	}
	d.want(t, 401, publishModule)
	d.want(t, 401, publishModule, acme, acme)
	if w := d.get(t, publishModule); w.Header().Get("WWW-Authenticate") != `Bearer realm="larder"` ||
		w.Header().Get("Cache-Control") != "no-store" ||
		strings.TrimSpace(w.Body.String()) != `{"errors":["authentication required"],"code":"unauthenticated"}` {
		t.Error(w.Header(), w.Body)
	}
	if w := d.get(
		t, publishModule, "Bearer nonsense",
	); w.Header().Get("WWW-Authenticate") != `Bearer realm="larder", error="invalid_token"` {
		t.Error(w.Header())
	}
	const forbidden = `{"errors":["forbidden"],"code":"forbidden"}`
	if w := d.get(t, publishModule, reader); strings.TrimSpace(w.Body.String()) != forbidden {
		t.Error(w.Body)
	}
	store.err = registry.ErrUnavailable
	d.want(t, 503, publishModule, token("publish:**"))
}

// A scope to publish something does not include reading it or anything else.
func TestPublishersDoNotRead(t *testing.T) {
	t.Parallel()
	store := &records{}
	p := protect(access.New(access.Settings{}, store))
	for _, scope := range []string{"publish:**", "publish:modules/acme/vpc/aws", "publish:*"} {
		token := "Bearer " + store.add("ci", scope)
		for _, path := range []string{
			path, "/v1/modules/acme/vpc/aws/1.0.0/download", "/v1/providers/acme/x/versions",
			"/v1/mirror/example.com/acme/x/index.json", publishModule,
		} {
			p.want(t, 403, path, token)
		}
	}
}

// A caller with a token is identified by the token's id, whatever its name. The
// cached decision ends within a minute of the token.
func TestTokenPublishes(t *testing.T) {
	t.Parallel()
	store := &records{}
	control := access.New(access.Settings{}, store)
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	d := publishBy(t, control)
	seen := make(map[string]bool)
	for _, token := range []string{
		store.add("ci", "publish:modules/acme/**"), store.add("ci", "publish:modules/acme/**"),
	} {
		d.want(t, 200, publishModule, "Bearer "+token)
		first := d.last
		sum := sha256.Sum256([]byte(token))
		if want := "token-" + hex.EncodeToString(sum[:])[:12]; first.ID != want || seen[first.ID] {
			t.Errorf("%+v, want %s", first, want)
		}
		if want := (registry.Publisher{Kind: registry.PublisherToken, Name: "ci"}); first.Publisher != want {
			t.Errorf("%+v, want %+v", first.Publisher, want)
		}
		seen[first.ID] = true
		for range 3 {
			if d.want(t, 200, publishModule, "Bearer "+token); d.last.ID != first.ID || d.last.Publisher != first.Publisher {
				t.Errorf("%+v and %+v", first, d.last)
			}
		}
		if strings.Contains(first.ID+first.Publisher.String()+d.log.String(), token[7:20]) {
			t.Error("the caller or the log contains the token")
		}
	}
	if n := store.reads.Load(); n != 2 {
		t.Errorf("%d reads for two tokens", n)
	}
	if !strings.Contains(d.log.String(), `caller="token ci"`) {
		t.Error(&d.log)
	}
	odd := "Bearer " + store.add(strings.Repeat("ä", 1000)+"\n\x1b", "publish:**")
	d.want(t, 200, publishModule, odd)
	if by := d.last.Publisher; len(by.String()) > 260 || !strings.HasSuffix(by.Name, "ä…") {
		t.Error(by)
	}
	odd = "Bearer " + store.add("a\n\x1b[31m", "publish:**")
	if d.want(t, 200, publishModule, odd); d.last.Publisher.String() != "token a \ufffd[31m" {
		t.Errorf("%q", d.last.Publisher)
	}
	clear(store.tokens)
	wall.Pass(time.Minute)
	d.want(t, 401, publishModule, odd)
}

// The first publish in a namespace needs a scope that names it.
func TestNamesNamespace(t *testing.T) {
	t.Parallel()
	for scopes, want := range map[string]bool{
		"publish:modules/acme/**": true, "publish:modules/acme": true, "publish:modules/acme/*": true,
		"publish:modules/acme/vpc/aws": true, "publish:modules/acme/*/aws": true, "publish:modules/acme/**/aws": true,
		"publish:*/acme": true, "publish:*/acme/**": true,
		"publish:** publish:modules/acme/vpc/aws": true, "publish:modules/*/vpc/aws publish:modules/acme/**": true,
		"publish:**": false, "publish:*": false, "publish:modules/**": false, "publish:modules": false,
		"publish:modules/*": false, "publish:modules/*/vpc/aws": false, "publish:*/*/vpc/aws": false,
		"publish:modules/**/vpc/aws": false, "publish:**/vpc": false,
		// In each of these, the name may match something else than the
		// namespace.
		"publish:**/acme/**": false, "publish:modules/**/acme/** publish:**": false,
		// Scopes to read, and scopes for other resources, do not count.
		"read:modules/acme/** publish:**": false, "publish:modules/acme/other/aws publish:**": false,
		"publish:providers/acme/** publish:modules/**": false, "publish:modules/other/** publish:**": false,
	} {
		store := &records{}
		d := publishBy(t, access.New(access.Settings{}, store))
		d.want(t, 200, publishModule, "Bearer "+store.add("ci", strings.Fields(scopes)...))
		if got := d.last.NamesNamespace("modules/acme/vpc/aws"); got != want {
			t.Errorf("%s: %v", scopes, got)
		}
		for _, nothing := range []string{"", "modules", "acme", "/", "mirror/example.com/acme/x"} {
			if d.last.NamesNamespace(nothing) {
				t.Errorf("%s names the namespace of %q", scopes, nothing)
			}
		}
	}
	if (access.Caller{}).NamesNamespace("modules/acme/vpc/aws") {
		t.Error("nobody names a namespace")
	}
	store := &records{}
	d := publishBy(t, access.New(access.Settings{}, store))
	d.want(t, 200, publishProvider, "Bearer "+store.add("ci", "publish:providers/acme/x", "publish:modules/other/**"))
	if !d.last.NamesNamespace("providers/acme/x") || d.last.NamesNamespace("providers/acme/y") ||
		d.last.NamesNamespace("modules/acme/x/aws") || !d.last.NamesNamespace("modules/other/x/aws") {
		t.Error("a provider's namespace")
	}
}

// Responses name only what the caller may read or publish, and namespaces that a
// scope names.
func TestRecognizes(t *testing.T) {
	t.Parallel()
	const vpc, acme, provided = "modules/acme/vpc/aws", "modules/acme", "providers/acme"
	const own = "publish:modules/acme/vpc/aws"
	for _, test := range []struct {
		public, scopes string
		path           string
		want           bool
	}{
		{scopes: own, path: vpc, want: true},
		{scopes: own, path: acme, want: true},
		{scopes: own, path: provided},
		{scopes: own, path: "modules/acme/iam/aws"},
		{scopes: own, path: "modules/acm"},
		{scopes: own, path: "modules/other"},
		{scopes: own + " publish:*/other/**", path: "providers/other", want: true},
		{scopes: own + " publish:*/other/x", path: "providers/other", want: true},
		{scopes: own + " publish:**", path: "modules/other", want: true},
		{scopes: own + " read:modules/other/**", path: "modules/other", want: true},
		{scopes: own + " read:modules/*", path: "modules/other", want: true},
		{scopes: own + " read:modules/*", path: "modules/other/vpc/aws", want: true},
		{scopes: own + " read:modules/*/vpc/aws", path: "modules/other"},
		{scopes: own + " read:modules/*/vpc/aws", path: "modules/other/vpc/aws", want: true},
		{scopes: own + " read:**/vpc/aws", path: "modules/other"},
		{scopes: own + " read:**/other/vpc", path: "modules/other"},
		{scopes: own + " read:mirror/other/**", path: "modules/other"},
		{public: "modules/other/**", scopes: own, path: "modules/other", want: true},
		{public: "modules/other/**", scopes: own, path: "modules/others"},
	} {
		store := &records{}
		settings := access.Settings{}
		if test.public != "" {
			settings = parse(t, `{"public": ["`+test.public+`"]}`)
		}
		d := publishBy(t, access.New(settings, store))
		d.want(t, 200, publishModule, "Bearer "+store.add("ci", strings.Fields(test.scopes)...))
		if got := d.last.Recognizes(test.path); got != test.want {
			t.Errorf("%s, public %q: %s: %t", test.scopes, test.public, test.path, got)
		}
	}
	if (access.Caller{}).Recognizes(vpc) {
		t.Error("nobody recognizes a module")
	}
}

func TestCallerOfNobody(t *testing.T) {
	t.Parallel()
	if c, ok := access.CallerOf(t.Context()); ok {
		t.Errorf("%+v", c)
	}
}

// jobs are the jobs of a CI service's issuer that publish.
type jobs struct {
	*publishAPI
	key    *ecdsa.PrivateKey
	claims map[string]any
}

// publishFrom returns the jobs of an issuer at a path, with rules. usual are
// the claims of a job that may publish.
func publishFrom(t *testing.T, path, rules string, usual map[string]any) *jobs {
	t.Helper()
	key := newKey(t)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	i.pose(i.URL + path)
	now := time.Now()
	claims := map[string]any{
		"iss": i.as, "aud": "https://registry.example.com", "jti": "1", "exp": now.Add(5 * time.Minute).Unix(),
		"iat": now.Unix(), "nbf": now.Add(-5 * time.Minute).Unix(),
	}
	maps.Copy(claims, usual)
	control := access.New(parse(t, fmt.Sprintf(
		`{"public": ["**"], "issuers": [{"issuer": %q, "audiences": ["https://registry.example.com"], "rules": %s}]}`,
		i.as, rules)), &records{})
	return &jobs{publishBy(t, control), key, claims}
}

// token returns the usual job's token with some claims changed. nil removes a
// claim.
func (j *jobs) token(t *testing.T, change ...any) string {
	t.Helper()
	claims := maps.Clone(j.claims)
	for i := 0; i < len(change); i += 2 {
		if claims[change[i].(string)] = change[i+1]; change[i+1] == nil {
			delete(claims, change[i].(string))
		}
	}
	return "Bearer " + sign(t, jose.ES256, j.key, "1", claims)
}

// Trusted publishing from GitHub Actions accepts the tag or environment of the
// right repository, and nothing else.
func TestPublishFromGitHub(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const sub = "repo:acme/vpc:ref:refs/tags/v1.0.0"
	j := publishFrom(t, "/_services/token", `[
		{"claims": {"repository": "acme/vpc", "ref": "refs/tags/**"}, "scopes": ["publish:modules/acme/vpc/aws"]},
		{"claims": {"repository_owner_id": "123456", "repository": "acme/terraform-provider-x",
			"environment": "release"}, "scopes": ["publish:providers/acme/x"]},
		{"claims": {"repository": "acme/*"}, "scopes": ["read:**"]}
	]`, map[string]any{
		"sub": sub, "repository": "acme/vpc", "repository_id": "7", "repository_owner": "acme",
		"repository_owner_id": "123456", "repository_visibility": "private", "actor": "ada", "event_name": "push",
		"ref": "refs/tags/v1.0.0", "ref_type": "tag", "ref_protected": "true",
		"sha":      "0123456789012345678901234567890123456789",
		"workflow": "Publish", "workflow_ref": "acme/vpc/.github/workflows/publish.yml@refs/tags/v1.0.0",
		"job_workflow_ref": "acme/vpc/.github/workflows/publish.yml@refs/tags/v1.0.0", "run_id": "8", "run_number": "1",
		"run_attempt": "1", "runner_environment": "github-hosted", "head_ref": "", "base_ref": "",
	})
	issuer := j.claims["iss"].(string)
	j.want(t, 200, publishModule, j.token(t))
	tag := j.last
	text := issuer + " " + sub + " (repository acme/vpc, ref refs/tags/v1.0.0)"
	if tag.Publisher.String() != text || !strings.Contains(j.log.String(), text) {
		t.Errorf("%q, want %q, the log:\n%s", tag.Publisher, text, &j.log)
	}
	want := registry.Publisher{
		Kind: registry.PublisherOIDC, Issuer: issuer, Subject: sub,
		Repository: "acme/vpc", Ref: "refs/tags/v1.0.0", Commit: "0123456789012345678901234567890123456789",
		RunURL: strings.TrimSuffix(issuer, "/_services/token") + "/acme/vpc/actions/runs/8/attempts/1",
	}
	if diff := cmp.Diff(want, tag.Publisher); diff != "" {
		t.Errorf("publisher (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(tag.ID, "jwt-") || len(tag.ID) != 68 || !tag.NamesNamespace("modules/acme/vpc/aws") {
		t.Errorf("%+v", tag)
	}
	// A job's next token belongs to the same caller. A token for another tag
	// belongs to another caller.
	if j.want(t, 200, publishModule, j.token(t, "jti", "2", "run_id", "9")); j.last.ID != tag.ID {
		t.Error(j.last.ID)
	}
	if j.want(
		t, 200, publishModule, j.token(t, "sub", "repo:acme/vpc:ref:refs/tags/v1.0.1", "ref", "refs/tags/v1.0.1"),
	); j.last.ID == tag.ID {
		t.Error("another subject is the same caller")
	}
	// The provider is published from an environment, whatever the ref.
	provider := []any{
		"repository", "acme/terraform-provider-x", "environment", "release", "ref", "refs/heads/main", "sub",
		"repo:acme/terraform-provider-x:environment:release",
	}
	with := func(more ...any) string { return j.token(t, append(append([]any{}, provider...), more...)...) }
	j.want(t, 200, publishProvider, with())
	j.reached.Store(0)
	hour := time.Now().Add(-time.Hour).Unix()
	for name, test := range map[string]struct {
		token, path string
		status      int
	}{
		"another repository": {
			j.token(t, "repository", "acme/other", "sub", "repo:acme/other:ref:refs/tags/v1.0.0"), publishModule, 403,
		},
		"another owner's": {
			j.token(t, "repository", "eve/vpc", "repository_owner", "eve"), publishModule, 403,
		},
		"a repository by another's name": {j.token(t, "repository", "acme/vpc/x"), publishModule, 403},
		"in another case":                {j.token(t, "repository", "Acme/VPC"), publishModule, 403},
		"no repository":                  {j.token(t, "repository", nil), publishModule, 403},
		"a list of others' repositories": {j.token(t, "repository", []string{"eve/vpc"}), publishModule, 403},
		"a branch": {
			j.token(t, "ref", "refs/heads/main", "ref_type", "branch", "sub", "repo:acme/vpc:ref:refs/heads/main"),
			publishModule, 403,
		},
		"a branch called as a tag": {j.token(t, "ref", "refs/heads/refs/tags/v1.0.0"), publishModule, 403},
		"a pull request": {
			j.token(
				t, "ref", "refs/pull/1/merge", "ref_type", "branch", "event_name", "pull_request", "head_ref",
				"refs/tags/v1.0.0", "base_ref", "main", "sub", "repo:acme/vpc:pull_request",
			),
			publishModule, 403,
		},
		"a pull request's target": {
			j.token(
				t, "ref", "refs/heads/main", "ref_type", "branch", "event_name", "pull_request_target", "sub",
				"repo:acme/vpc:pull_request",
			),
			publishModule, 403,
		},
		"no ref":            {j.token(t, "ref", nil), publishModule, 403},
		"another module":    {j.token(t), "/v1/publish/modules/acme/other/aws/1.0.0", 403},
		"another namespace": {j.token(t), "/v1/publish/modules/eve/vpc/aws/1.0.0", 403},
		"a provider":        {j.token(t), publishProvider, 403},
		"another environment": {
			with("environment", "staging", "sub", "repo:acme/terraform-provider-x:environment:staging"), publishProvider,
			403,
		},
		"no environment": {
			with("environment", nil, "sub", "repo:acme/terraform-provider-x:ref:refs/heads/main"), publishProvider, 403,
		},
		"a new owner of the same name": {with("repository_owner_id", "7"), publishProvider, 403},
		"the environment of another":   {j.token(t, "environment", "release"), publishProvider, 403},
		"no subject":                   {j.token(t, "sub", nil), publishModule, 403},
		"expired":                      {j.token(t, "exp", hour), publishModule, 401},
		"not yet":                      {j.token(t, "nbf", time.Now().Add(time.Hour).Unix()), publishModule, 401},
		"for another audience":         {j.token(t, "aud", "https://elsewhere.example.com"), publishModule, 401},
		"for GitHub's own audience":    {j.token(t, "aud", "https://github.com/acme"), publishModule, 401},
		"of another issuer": {
			j.token(t, "iss", "https://token.actions.githubusercontent.com"), publishModule, 401,
		},
		"signed by another": {"Bearer " + sign(t, jose.ES256, newKey(t), "1", j.claims), publishModule, 401},
	} {
		if w := j.get(t, test.path, test.token); w.Code != test.status {
			t.Errorf("%s: %d, want %d", name, w.Code, test.status)
		}
	}
	if n := j.reached.Load(); n != 0 {
		t.Errorf("%d requests went through", n)
	}
	all := errorsOf(j.log.String())
	j.get(t, publishModule, j.token(t, "sub", nil))
	texts.Text(t, strings.TrimPrefix(errorsOf(j.log.String()), all), fmt.Sprint(j.claims["iss"]), "ISSUER")
}

// Trusted publishing from GitLab CI, whose refs have no refs/tags prefix.
func TestPublishFromGitLab(t *testing.T) {
	t.Parallel()
	const sub = "project_path:acme/infra/vpc:ref_type:tag:ref:v1.0.0"
	j := publishFrom(t, "", `[{"claims": {"project_path": "acme/infra/vpc", "ref_type": "tag", "ref_protected": `+
		`"true"}, "scopes": ["publish:modules/acme/vpc/*"]}]`, map[string]any{
		"sub": sub, "namespace_id": "72", "namespace_path": "acme/infra", "project_id": "20",
		"project_path": "acme/infra/vpc", "user_id": "1", "user_login": "ada", "pipeline_id": "574",
		"pipeline_source": "push", "job_id": "302", "ref": "v1.0.0", "ref_path": "refs/tags/v1.0.0", "ref_type": "tag",
		"ref_protected": "true", "runner_id": 1, "runner_environment": "self-hosted",
		"sha": "0123456789012345678901234567890123456789",
	})
	j.want(t, 200, publishModule, j.token(t))
	issuer := j.claims["iss"].(string)
	want := registry.Publisher{
		Kind: registry.PublisherOIDC, Issuer: issuer, Subject: sub,
		Repository: "acme/infra/vpc", Ref: "refs/tags/v1.0.0", Commit: "0123456789012345678901234567890123456789",
		RunURL: issuer + "/acme/infra/vpc/-/jobs/302",
	}
	if diff := cmp.Diff(want, j.last.Publisher); diff != "" {
		t.Errorf("publisher (-want +got):\n%s", diff)
	}
	text := issuer + " " + sub + " (repository acme/infra/vpc, ref refs/tags/v1.0.0)"
	if j.last.Publisher.String() != text {
		t.Errorf("%q, want %q", j.last.Publisher, text)
	}
	j.want(t, 200, publishModule, j.token(t, "ref_protected", true))
	j.reached.Store(0)
	for name, test := range map[string]struct {
		token  string
		status int
	}{
		"another project":        {j.token(t, "project_path", "acme/infra/other"), 403},
		"a fork":                 {j.token(t, "project_path", "eve/vpc"), 403},
		"a project further down": {j.token(t, "project_path", "acme/infra/vpc/x"), 403},
		"a branch":               {j.token(t, "ref", "main", "ref_type", "branch", "ref_path", "refs/heads/main"), 403},
		"a branch called as it":  {j.token(t, "ref_type", "branch"), 403},
		"a merge request": {
			j.token(
				t, "ref", "feature", "ref_type", "branch", "ref_protected", "false", "pipeline_source", "merge_request_event",
			),
			403,
		},
		"a tag without protection": {j.token(t, "ref_protected", "false"), 403},
		"protection as a number":   {j.token(t, "ref_protected", 1), 403},
		"expired":                  {j.token(t, "exp", time.Now().Add(-time.Minute).Unix()), 401},
		"for GitLab itself":        {j.token(t, "aud", "https://gitlab.com"), 401},
	} {
		if w := j.get(t, publishModule, test.token); w.Code != test.status {
			t.Errorf("%s: %d, want %d", name, w.Code, test.status)
		}
	}
	if n := j.reached.Load(); n != 0 {
		t.Errorf("%d requests went through", n)
	}
}

// For any claims, the names of callers are bounded and on one line, and no two
// callers have the same ID.
func TestCallersOfAnIssuer(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	control := access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "name": "email",
		"rules": [{"claims": {"aud": "a"}, "scopes": ["publish:**"]}]}]}`, i.URL)), &records{})
	d := publishBy(t, control)
	long := strings.Repeat("a", 2000)
	ids := make(map[string]string)
	for _, test := range []struct{ sub, email, ref, want string }{
		{"ada", "", "", " ada"},
		{"ada2", "ada@example.com", "", ` ada2 (name "ada@example.com")`},
		{"ada3", "ada@example.com", "main", ` ada3 (name "ada@example.com")`}, // the issuer is not a CI service
		{"a\nb\x00", "c\r\x1b", "", " a b\ufffd (name \"c \ufffd\")"},
		{"a\nb", "", "", " a b"}, {"a b", "", "", " a b"},
		{long, long, long, " " + long[:256] + "… (name \"" + long[:256] + "…\")"},
		{long + "b", "", "", " " + long[:256] + "…"},
	} {
		d.want(
			t, 200, publishModule,
			"Bearer "+sign(
				t, jose.ES256, key, "1",
				map[string]any{
					"iss": i.URL, "aud": "a", "sub": test.sub, "email": test.email, "ref": test.ref, "repository": 7,
					"exp": time.Now().Add(time.Hour).Unix(),
				},
			),
		)
		if d.last.Publisher.String() != i.URL+test.want {
			t.Errorf("%.20q: %q", test.sub, d.last.Publisher)
		}
		if other, there := ids[d.last.ID]; there {
			t.Errorf("%.20q and %.20q are one", test.sub, other)
		}
		ids[d.last.ID] = test.sub
		if len(d.last.ID) != 68 || !errs.IsPlain(d.last.ID) {
			t.Error(d.last.ID)
		}
	}
	// The same subject of another issuer is another caller.
	other := newIssuer(t, public(&key.PublicKey, "1"))
	d = publishBy(t, access.New(parse(t, strings.Replace(anySubject(other.URL), "read:", "publish:", 1)), &records{}))
	d.want(
		t, 200, publishModule,
		"Bearer "+sign(
			t, jose.ES256, key, "1",
			map[string]any{"iss": other.URL, "aud": "a", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()},
		),
	)
	if _, there := ids[d.last.ID]; there {
		t.Error("callers of two issuers are one")
	}
}

// Concurrent requests never see each other's caller.
func TestCallersAtOnce(t *testing.T) {
	t.Parallel()
	store := &records{}
	h := access.New(access.Settings{}, store).RequirePublish(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		c, _ := access.CallerOf(r.Context())
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, c.Publisher.String())
	}))
	tokens := make(map[string]string)
	for n := range 8 {
		name := fmt.Sprint("ci", n)
		tokens[name] = "Bearer " + store.add(name, "publish:**")
	}
	done := make(chan string, len(tokens))
	for name, token := range tokens {
		go func() {
			for range 50 {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, publishModule, nil)
				r.Header.Set("Authorization", token)
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); strings.TrimSpace(w.Body.String()) != `"token `+name+`"` {
					done <- w.Body.String()
					return
				}
			}
			done <- ""
		}()
	}
	for range tokens {
		if bad := <-done; bad != "" {
			t.Error(bad)
		}
	}
}
