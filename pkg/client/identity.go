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
			return registry.Errorf(registry.ErrInvalid,
				"cannot use this job's identity: %s holds no OpenID Connect token", givenToken)
		}
		i.offered = "that of " + givenToken
		i.unfit = misdirected(i.token, i.audience)
		if err := checkTime(i.token, time.Now()); err != nil && how.Only {
			return err
		}
	case env[requestURL] != "" && env[requestBearer] != "":
		// An error would quote the URL.
		if i.url, err = url.Parse(env[requestURL]); err != nil || i.url.Scheme != "https" || i.url.Hostname() == "" || i.url.User != nil {
			return registry.Errorf(registry.ErrInvalid,
				"cannot use this job's identity: %s must be a URL with https, without a user", requestURL)
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
			advice := "In GitHub Actions, " + github + ". In GitLab, " + gitlab + "."
			if i.advice != "" {
				advice = strings.ToUpper(i.advice[:1]) + i.advice[1:] + "."
			}
			err := registry.Errorf(registry.ErrUnauthenticated, "cannot use this job's identity: it has none")
			return registry.WithHint(err, "%s", advice)
		}
	}
	c.identity = i
	return nil
}

// IdentitySent returns a hint: what the identity that was sent says of this job,
// and what the registry needs to accept it. It is empty if none was sent.
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
	sent := "This job's identity was sent, " + i.offered + described(i.token) + ". "
	// One that was asked for was fresh, whatever this machine's clock shows.
	if _, expiry := validity(i.token); i.url == nil && expired(expiry, time.Now()) {
		return sent + "It expired at " + clockTime(expiry, time.Now()) + "."
	}
	return sent + "The registry must trust this issuer for this audience, and have a rule that lets such a job in."
}

// IdentityAdvice returns a hint: how a CI job can have an identity to send. It is
// empty if this is no such job, or it has one.
func (c *Config) IdentityAdvice() string {
	if c.identity == nil || c.identity.advice == "" {
		return ""
	}
	return "To publish with this job's identity, " + c.identity.advice + "."
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
	if i.url == nil {
		if err := checkTime(i.token, time.Now()); err != nil {
			return nil, err
		}
	}
	if i.url != nil && !time.Now().Before(i.until) {
		token, err := i.ask(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot get this job's identity: %w", err)
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
	case response.StatusCode != http.StatusOK:
		kind, hint := registry.ErrUnauthenticated, "Give the job `permissions: id-token: write`."
		if response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests {
			kind, hint = registry.ErrUnavailable, TryLater
		}
		err := registry.Errorf(kind, "cannot %s: it answered: %s (%d)", what,
			strings.ToLower(http.StatusText(response.StatusCode)), response.StatusCode)
		return "", registry.WithHint(err, "%s", hint)
	case json.Unmarshal(body, &answer) != nil || !isToken(answer.Value):
		return "", registry.Errorf(registry.ErrInvalid, "cannot %s: there is no token in the answer", what)
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

// maxSkew is how far this machine's clock may be from the registry's. Beyond that,
// a token is not sent that does not hold by this machine's clock.
const maxSkew = 5 * time.Minute

// checkTime returns registry.ErrBadCredential for a given token that has expired, or
// is not valid yet: no other can be had in its place.
func checkTime(token string, now time.Time) error {
	begin, expiry := validity(token)
	switch {
	case expired(expiry, now.Add(-maxSkew)):
		return registry.WithHint(registry.Errorf(registry.ErrBadCredential,
			"cannot use this job's identity: the token in %s expired at %s", givenToken, clockTime(expiry, now)), "A CI service makes it when the job starts. Publish earlier in the job, or in a job "+
			"of its own. If it should be valid, check this machine's clock, which shows %s.", clockTime(now, now))
	case begin.After(now.Add(maxSkew)):
		return registry.WithHint(registry.Errorf(registry.ErrBadCredential,
			"cannot use this job's identity: the token in %s is not valid before %s", givenToken, clockTime(begin, now)), "Check this machine's clock, which shows %s.", clockTime(now, now))
	}
	return nil
}

// validity returns when a token begins to be valid and when it expires, by its
// claims; the zero time where they do not say.
func validity(token string) (begin, expiry time.Time) {
	var said struct{ Nbf, Exp float64 }
	if !decodeClaims(token, &said) {
		return begin, expiry
	}
	return moment(said.Nbf), moment(said.Exp)
}

// moment returns the time of a claim.
func moment(seconds float64) time.Time {
	const latest = 1 << 38 // some 8000 years
	if seconds <= 0 || seconds > latest {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

func expired(expiry, now time.Time) bool { return !expiry.IsZero() && !now.Before(expiry) }

// clockTime returns a time for people, with the day if that is not today.
func clockTime(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04 UTC")
	}
	return t.Format("2006-01-02 15:04 UTC")
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
		return registry.Errorf(registry.ErrInvalid,
			"cannot use this job's identity: the claims of the token in %s cannot be read", givenToken)
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
	asked := printable.Mark(audience, 200)
	err := registry.Errorf(registry.ErrInvalid,
		"cannot use this job's identity: the token in %s is for %s, and not for %s", givenToken, whom, asked)
	return registry.WithHint(err, "Let its aud be %s, or name the audience that the registry expects by `--audience`.", asked)
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
