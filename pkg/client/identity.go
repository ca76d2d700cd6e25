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
	"strings"
	"sync"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Identity configures how a CI job proves its identity: with a token that its
// CI service has signed and that is valid for minutes.
type Identity struct {
	// Audience is the audience of the token. If empty, https://HOST is used.
	Audience string
	// Only makes the identity the only credential that is sent. UseIdentity
	// then returns an error if the job has none. Otherwise the identity is sent
	// only if there is no other credential for the host.
	Only bool
	// Transport may be nil, as for [New].
	Transport http.RoundTripper
}

// The environment variables that CI services set. Sources: GitHub's manual,
// "OpenID Connect reference"; GitLab's, "ID token authentication".
const (
	givenToken    = "LARDER_ID_TOKEN" //nolint:gosec // a name, not a secret
	requestURL    = "ACTIONS_ID_TOKEN_REQUEST_URL"
	requestBearer = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// UseIdentity lets the client send one host the identity of the CI job that it
// runs in, if there is one. The identity is the token in LARDER_ID_TOKEN, which
// a GitLab job declares, or a token that GitHub Actions issues. environ has the
// form of os.Environ.
//
// With [Identity.Only] it returns registry.ErrUnauthenticated if the job has no
// identity, and registry.ErrBadCredential if the token is not valid now. It
// returns registry.ErrInvalid if the environment or the host is malformed.
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
	i := &identity{host: name, audience: cmp.Or(how.Audience, registry.Host(name).URL()), required: how.Only}
	switch {
	case env[givenToken] != "":
		i.token = strings.TrimSpace(env[givenToken])
		if !isToken(i.token) {
			return registry.Errorf(registry.ErrInvalid,
				"cannot use this job's identity: %s is not an OpenID Connect token", givenToken)
		}
		i.offered = "from " + givenToken
		i.unfit = checkAudience(i.token, i.audience)
		if err := checkTime(i.token, time.Now()); err != nil && how.Only {
			return err
		}
	case env[requestURL] != "" && env[requestBearer] != "":
		// The error would quote the URL.
		i.url, err = url.Parse(env[requestURL])
		if err != nil || i.url.Scheme != "https" || i.url.Hostname() == "" || i.url.User != nil {
			return registry.Errorf(registry.ErrInvalid,
				"cannot use this job's identity: %s must be an https URL without a user", requestURL)
		}
		query := i.url.Query()
		query.Set("audience", i.audience)
		i.url.RawQuery = query.Encode()
		i.bearer = env[requestBearer]
		i.client = New(nil, "larder", how.Transport)
		i.client.metadata.CheckRedirect = stay
		i.offered = "for the audience " + printable.Mark(i.audience, 200)
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
			advice := "In GitHub Actions, " + github + ". In GitLab, " + gitlab + "."
			if i.advice != "" {
				advice = strings.ToUpper(i.advice[:1]) + i.advice[1:] + "."
			}
			err := registry.Errorf(registry.ErrUnauthenticated, "cannot use this job's identity: the job has none")
			return registry.WithHint(err, "%s", advice)
		}
	}
	c.identity = i
	return nil
}

// IdentitySent returns a hint that describes the identity that was sent, and
// how the registry can accept it. It is empty if none was sent.
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
	sent := "This job's identity was sent, " + i.offered + describeClaims(i.token) + ". "
	// A token that was just issued is fresh, whatever this machine's clock
	// shows.
	if _, expiry := validity(i.token); i.url == nil && expired(expiry, time.Now()) {
		return sent + "It expired at " + clockTime(expiry, time.Now()) + "."
	}
	return sent + "The registry must trust this issuer for this audience, and have a rule that matches this job."
}

// IdentityAdvice returns a hint about how this CI job can get an identity. It
// is empty outside of a CI job, or if the job has an identity.
func (c *Config) IdentityAdvice() string {
	if c.identity == nil || c.identity.advice == "" {
		return ""
	}
	return "To publish with this job's identity, " + c.identity.advice + "."
}

// identity is the identity of the current CI job.
type identity struct {
	host     svchost.Hostname
	audience string
	required bool
	offered  string // its description; empty if there is none
	advice   string // how to get one
	unfit    error  // why the given token must not be sent

	url    *url.URL // issues tokens; nil if the token is given
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
	if i.url == nil {
		if err := checkTime(i.token, time.Now()); err != nil {
			return nil, err
		}
	}
	if i.url != nil && !time.Now().Before(i.until) {
		token, err := i.fetch(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot get this job's identity: %w", err)
		}
		i.token, i.until = token, time.Now().Add(max(lifetime(token)-margin, margin/2))
	}
	i.sent = true
	return svcauth.HostCredentialsToken(i.token), nil
}

// margin is how long before its expiry a token is replaced.
const margin = time.Minute

// fetch requests a token from GitHub.
func (i *identity) fetch(ctx context.Context) (string, error) {
	what := requestInfo{method: http.MethodGet, url: i.url}
	request, err := newRequest(ctx, what, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+i.bearer)
	response, body, err := i.client.exchange(request, true, maxDescription)
	if err != nil {
		return "", what.connectionError(ctx, err)
	}
	var answer struct{ Value string }
	switch {
	case response.StatusCode != http.StatusOK:
		kind, hint := registry.ErrUnauthenticated, "Give the job `permissions: id-token: write`."
		if response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests {
			kind, hint = registry.ErrUnavailable, TryLater
		}
		err := registry.Errorf(kind, "cannot %s: the server responded: %s (%d)", what,
			strings.ToLower(http.StatusText(response.StatusCode)), response.StatusCode)
		return "", registry.WithHint(err, "%s", hint)
	case json.Unmarshal(body, &answer) != nil || !isToken(answer.Value):
		return "", registry.Errorf(registry.ErrInvalid, "cannot %s: the response has no token", what)
	}
	return answer.Value, nil
}

var tokens = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)

// isToken reports whether a text has the form of a signed JWT, and a size that
// fits into a header.
func isToken(s string) bool { return len(s) <= 16<<10 && tokens.MatchString(s) }

// lifetime returns how long a token is valid from its issue. It uses only the
// token's own times, because the issuer's clock may differ from this machine's.
func lifetime(token string) time.Duration {
	var claims struct{ Iat, Exp float64 }
	if !decodeClaims(token, &claims) || claims.Iat <= 0 {
		return 0
	}
	return time.Duration(min(max(claims.Exp-claims.Iat, 0), 3600)) * time.Second
}

// maxSkew is how far this machine's clock may differ from the registry's. A
// token that is further from its validity is not sent.
const maxSkew = 5 * time.Minute

// checkTime returns registry.ErrBadCredential for a given token that has
// expired or is not valid yet. The job cannot get another one.
func checkTime(token string, now time.Time) error {
	begin, expiry := validity(token)
	switch {
	case expired(expiry, now.Add(-maxSkew)):
		return registry.WithHint(registry.Errorf(registry.ErrBadCredential,
			"cannot use this job's identity: the token in %s expired at %s", givenToken, clockTime(expiry, now)),
			"The CI service issues the token when the job starts. Publish earlier in the job, or in a separate job. "+
				"If the token should be valid, check this machine's clock, which shows %s.", clockTime(now, now))
	case begin.After(now.Add(maxSkew)):
		return registry.WithHint(registry.Errorf(registry.ErrBadCredential,
			"cannot use this job's identity: the token in %s is not valid before %s", givenToken, clockTime(begin, now)),
			"Check this machine's clock, which shows %s.", clockTime(now, now))
	}
	return nil
}

// validity returns when a token begins to be valid and when it expires,
// according to its claims. A missing claim is the zero time.
func validity(token string) (begin, expiry time.Time) {
	var claims struct{ Nbf, Exp float64 }
	if !decodeClaims(token, &claims) {
		return begin, expiry
	}
	return moment(claims.Nbf), moment(claims.Exp)
}

func moment(seconds float64) time.Time {
	const latest = 1 << 38 // some 8000 years
	if seconds <= 0 || seconds > latest {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

func expired(expiry, now time.Time) bool { return !expiry.IsZero() && !now.Before(expiry) }

// clockTime formats a time for people, with the day unless it is today.
func clockTime(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04 UTC")
	}
	return t.Format("2006-01-02 15:04 UTC")
}

// decodeClaims decodes the claims of a token, and reports whether it could.
// Only the registry verifies them.
func decodeClaims(token string, claims any) bool {
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	return err == nil && json.Unmarshal(payload, claims) == nil
}

// checkAudience returns registry.ErrInvalid for a token that is not for an
// audience. The receiver could present such a token to the service that it is
// for.
func checkAudience(token, audience string) error {
	var claims struct{ Aud any }
	if !decodeClaims(token, &claims) {
		return registry.Errorf(registry.ErrInvalid,
			"cannot use this job's identity: the token in %s has unreadable claims", givenToken)
	}
	given, isList := claims.Aud.([]any)
	if !isList {
		given = []any{claims.Aud}
	}
	for _, one := range given {
		if text, isText := one.(string); isText && registry.Audience(text) == registry.Audience(audience) {
			return nil
		}
	}
	whom := "no audience"
	if claims.Aud != nil {
		whom = "the audience " + registry.ClaimText(claims.Aud)
	}
	expected := printable.Mark(audience, 200)
	err := registry.Errorf(registry.ErrInvalid,
		"cannot use this job's identity: the token in %s is for %s, not for %s", givenToken, whom, expected)
	return registry.WithHint(err,
		"Set its aud to %s, or set `--audience` to the audience that the registry expects.", expected)
}

func describeClaims(token string) string {
	var claims map[string]any
	if !decodeClaims(token, &claims) {
		return ""
	}
	texts := registry.DescribeClaims(claims)
	if texts == "" {
		return ""
	}
	return ", with the claims " + texts
}
