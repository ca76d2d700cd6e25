package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// Identity says how a CI job shows which one it is: by a token that its CI service has signed for it, and that holds for
// minutes.
type Identity struct {
	// Audience is whom the token is made for; https://HOST if it is empty.
	Audience string
	// Only has nothing else sent, and it is an error if the job has none. Otherwise it is sent where no other credential
	// for the host is there.
	Only bool
	// Transport may be nil, as for New.
	Transport http.RoundTripper
}

// What jobs are offered. Sources: GitHub's manual, "OpenID Connect reference"; GitLab's, "ID token authentication".
const (
	givenToken    = "LARDER_ID_TOKEN" //nolint:gosec // a name, not a secret
	requestURL    = "ACTIONS_ID_TOKEN_REQUEST_URL"
	requestBearer = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// UseIdentity lets a host, and no other, be sent the identity of the CI job that this is, if it is one: that in
// LARDER_ID_TOKEN, which a GitLab job declares, or one that GitHub Actions are asked for. environ is as os.Environ gives it.
func (c *Config) UseIdentity(environ []string, host string, how Identity) error {
	name, err := parseHost(host)
	if err != nil {
		return err
	}
	env := make(map[string]string)
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		env[key] = value
	}
	i := &identity{host: name, audience: cmp.Or(how.Audience, "https://"+string(name)), required: how.Only}
	switch {
	case env[givenToken] != "":
		i.token = strings.TrimSpace(env[givenToken])
		if !isToken(i.token) {
			return fmt.Errorf("%w identity of this job: what %s holds is no token of OpenID Connect", registry.ErrInvalid, givenToken)
		}
		i.offered = "that of " + givenToken
		i.unfit = misdirected(i.token, i.audience)
	case env[requestURL] != "" && env[requestBearer] != "":
		// An error would quote the URL.
		if i.url, err = url.Parse(env[requestURL]); err != nil || i.url.Scheme != "https" || i.url.Hostname() == "" || i.url.User != nil {
			return fmt.Errorf("%w identity of this job: %s must be a URL with https, without a user", registry.ErrInvalid, requestURL)
		}
		query := i.url.Query()
		query.Set("audience", i.audience)
		i.url.RawQuery = query.Encode()
		i.bearer = env[requestBearer]
		i.client = New(nil, "larder", how.Transport)
		i.client.metadata.CheckRedirect = stay
		i.offered = "one for the audience " + printable.Mark(i.audience, 200)
	default:
		github := "give the job `permissions: id-token: write`"
		gitlab := fmt.Sprintf("give the job `id_tokens: {%s: {aud: %q}}`", givenToken, i.audience)
		switch {
		case env["GITHUB_ACTIONS"] == "true":
			i.advice = github
		case env["GITLAB_CI"] == "true":
			i.advice = gitlab
		}
		if how.Only {
			return fmt.Errorf("%w: this job has no identity to show: %s", registry.ErrUnauthenticated,
				cmp.Or(i.advice, "in GitHub Actions "+github+"; in GitLab "+gitlab))
		}
	}
	c.identity = i
	return nil
}

// IdentitySent says what the identity that was sent says of this job, and what the registry needs to accept it; nothing
// where none was sent.
func (c *Config) IdentitySent() string {
	i := c.identity
	if i == nil {
		return ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.sent {
		return ""
	}
	return "this job's identity was sent, " + i.offered + described(i.token) + ": the registry must trust this issuer for this audience, and have a rule that lets such a job in"
}

// IdentityAdvice says how a CI job can have an identity to send; nothing where this is no such job, or it has one.
func (c *Config) IdentityAdvice() string {
	if c.identity == nil || c.identity.advice == "" {
		return ""
	}
	return "or publish by this job's identity: " + c.identity.advice
}

// identity is that of the job which this is.
type identity struct {
	host     svchost.Hostname
	audience string
	required bool
	offered  string // how it is called; empty if there is none
	advice   string // how to have one
	unfit    error  // why the one that is given must not be sent

	url    *url.URL // to ask for a token; nil: it is given
	bearer string
	client *Client

	mu    sync.Mutex
	token string
	until time.Time
	sent  bool
}

func (i *identity) is(host svchost.Hostname) bool {
	return i != nil && i.host == host && i.offered != ""
}
func (i *identity) only(host svchost.Hostname) bool { return i.is(host) && i.required }

func (i *identity) forHost(ctx context.Context) (svcauth.HostCredentials, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unfit != nil {
		return nil, i.unfit
	}
	if i.url != nil && !time.Now().Before(i.until) {
		token, err := i.ask(ctx)
		if err != nil {
			return nil, fmt.Errorf("identity of this job: %w", err)
		}
		i.token, i.until = token, time.Now().Add(max(lifetime(token)-spare, spare/2))
	}
	i.sent = true
	return svcauth.HostCredentialsToken(i.token), nil
}

// spare is how long before its end a token is replaced.
const spare = time.Minute

// ask asks GitHub for a token.
func (i *identity) ask(ctx context.Context) (string, error) {
	what := asked{method: http.MethodGet, url: i.url}
	request, err := newRequest(ctx, what, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+i.bearer)
	response, body, err := i.client.exchange(request, true)
	if err != nil {
		return "", what.broken(ctx, err)
	}
	var answer struct{ Value string }
	switch {
	case response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests:
		return "", fmt.Errorf("%s: %w: it answers %d %s; try again later", what, registry.ErrUnavailable, response.StatusCode, http.StatusText(response.StatusCode))
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s: %w: it answers %d %s; give the job `permissions: id-token: write`", what, registry.ErrUnauthenticated, response.StatusCode, http.StatusText(response.StatusCode))
	case json.Unmarshal(body, &answer) != nil || !isToken(answer.Value):
		return "", fmt.Errorf("%s: %w answer: there is no token in it", what, registry.ErrInvalid)
	}
	return answer.Value, nil
}

var tokens = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)

// isToken says whether something has the form of a signed JWT, of a size that fits into a header.
func isToken(s string) bool { return len(s) <= 16<<10 && tokens.MatchString(s) }

// lifetime is how long a token holds from when it was made: whoever made it may have another time than this machine.
func lifetime(token string) time.Duration {
	var said struct{ Iat, Exp float64 }
	if !decodeClaims(token, &said) || said.Iat <= 0 {
		return 0
	}
	return time.Duration(min(max(said.Exp-said.Iat, 0), 3600)) * time.Second
}

// decodeClaims reads the claims of a token, and says whether it could. Verifying them is the registry's.
func decodeClaims(token string, claims any) bool {
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	return err == nil && json.Unmarshal(payload, claims) == nil
}

// misdirected is the error for a token that is not for an audience: whoever gets it could show it to him that it is for.
func misdirected(token, audience string) error {
	var said struct{ Aud any }
	if !decodeClaims(token, &said) {
		return fmt.Errorf("%w identity of this job: the claims of the token in %s cannot be read", registry.ErrInvalid, givenToken)
	}
	given, isList := said.Aud.([]any)
	if !isList {
		given = []any{said.Aud}
	}
	if slices.Contains(given, any(audience)) {
		return nil
	}
	whom := "no audience"
	if said.Aud != nil {
		whom = "the audience " + shown(said.Aud)
	}
	return fmt.Errorf("%w identity of this job: the token in %s is for %s, and %s is asked for here: let its aud be that, or say by --audience whom the registry expects it to be for",
		registry.ErrInvalid, givenToken, whom, printable.Mark(audience, 200))
}

// described is what a token says of its job, as far as that helps to write a rule for it.
func described(token string) string {
	var said map[string]any
	if !decodeClaims(token, &said) {
		return ""
	}
	var claims []string
	for _, name := range []string{"iss", "aud", "sub", "repository", "project_path", "ref", "environment"} {
		if value := said[name]; value != nil {
			claims = append(claims, name+" "+shown(value))
		}
	}
	if claims == nil {
		return ""
	}
	return ", which says " + strings.Join(claims, ", ")
}

// shown is a claim's value, fit to be shown.
func shown(value any) string {
	list, isList := value.([]any)
	if !isList {
		return printable.Mark(fmt.Sprint(value), 200)
	}
	var all []string
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	return printable.Mark(strings.Join(all, " and "), 200)
}
