package openid

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// CodeFlow logs people in with the client of [Login.Web], by OAuth's
// authorization code with PKCE. Create one with [Login.CodeFlow].
//
// Sources: RFC 6749, section 4.1; RFC 7636; OpenID Connect Core 1.0, section
// 3.1.
type CodeFlow struct {
	// Client sends the requests. It follows no redirect, because the requests
	// have secrets.
	Client *http.Client

	login    *Login
	provider *Provider
	cached   *Cached[Configuration]
}

// exchangeTimeout is longer than that of other requests, because a code cannot
// be exchanged twice.
const exchangeTimeout = 8 * time.Second

// maxTokens bounds the response of a token endpoint, in bytes.
const maxTokens = 128 << 10

// CodeFlow returns the flow of a login. It returns nil if the login is nil or
// has no Web.
func (l *Login) CodeFlow() *CodeFlow {
	if l == nil || l.Web == nil {
		return nil
	}
	p := NewProvider(l.Issuer)
	return &CodeFlow{
		Client: &http.Client{
			Timeout:       exchangeTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		login: l, provider: p, cached: NewCached("configuration of issuer "+l.Issuer, p.Configuration),
	}
}

// Issuer returns the issuer's identifier.
func (f *CodeFlow) Issuer() string { return f.login.Issuer }

// ClientID returns the client's identifier.
func (f *CodeFlow) ClientID() string { return f.login.Web.Client }

// Attempt has the secrets of one login.
type Attempt struct {
	// State and Nonce bind the issuer's redirect and its ID token to the
	// browser.
	State, Nonce string
	// Verifier is the code verifier of PKCE, of 43 to 128 characters.
	Verifier string
	// Redirect is the URL to which the issuer sends the browser back.
	Redirect string
}

// URL returns the issuer's page on which a person signs in. Errors are those of
// [LoginService].
func (f *CodeFlow) URL(ctx context.Context, a Attempt) (string, error) {
	authorize, _, err := f.login.endpoints(ctx, f.provider, f.cached)
	if err != nil {
		return "", err
	}
	scopes := f.login.Scopes
	if !slices.Contains(scopes, "openid") { // without it there is no ID token
		scopes = append([]string{"openid"}, scopes...)
	}
	challenge := sha256.Sum256([]byte(a.Verifier))
	query := authorize.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": f.ClientID(), "redirect_uri": a.Redirect,
		"scope": strings.Join(scopes, " "), "state": a.State, "nonce": a.Nonce,
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "code_challenge_method": "S256",
	} {
		query.Set(name, value)
	}
	authorize.RawQuery = query.Encode()
	return authorize.String(), nil
}

// Tokens are the tokens of a person who has signed in. They are not verified.
type Tokens struct {
	Access string `json:"access_token"`
	ID     string `json:"id_token"`
}

// ErrCode means that the issuer rejects a code, because it has expired or was
// already used. It is registry.ErrBadCredential.
var ErrCode = fmt.Errorf("%w: the issuer rejects the code", errs.ErrBadCredential)

// Exchange returns the tokens for a code. secret is the client's secret, which
// is empty for a public client. The error is [ErrCode], or registry.ErrIssuer if
// another attempt cannot succeed. It contains no secret.
func (f *CodeFlow) Exchange(ctx context.Context, a Attempt, code, secret string) (Tokens, error) {
	_, endpoint, err := f.login.endpoints(ctx, f.provider, f.cached)
	if err != nil {
		return Tokens{}, err
	}
	tokens, err := f.exchange(ctx, endpoint, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {a.Redirect},
		"client_id": {f.ClientID()}, "code_verifier": {a.Verifier},
	}, secret)
	if err != nil {
		return Tokens{}, fmt.Errorf("cannot exchange a code at the token endpoint of issuer %s: %w", f.Issuer(), err)
	}
	return tokens, nil
}

func (f *CodeFlow) exchange(ctx context.Context, endpoint string, form url.Values, secret string) (Tokens, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return Tokens{}, errors.New("invalid URL")
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if secret != "" {
		// Both parts are encoded first (RFC 6749, section 2.3.1).
		request.SetBasicAuth(url.QueryEscape(f.ClientID()), url.QueryEscape(secret))
	}
	response, err := f.Client.Do(request)
	if err != nil {
		return Tokens{}, failureWithin(err, exchangeTimeout)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxTokens+1))
	if err != nil {
		return Tokens{}, failureWithin(err, exchangeTimeout)
	}
	if response.StatusCode != http.StatusOK {
		return Tokens{}, exchangeError(response, body)
	}
	var tokens Tokens
	// An error of the parser could quote the body.
	if len(body) > maxTokens || json.Unmarshal(body, &tokens) != nil || tokens.Access == "" || tokens.ID == "" {
		return Tokens{}, permanent(errors.New("the response has no access token and ID token"), operator)
	}
	return tokens, nil
}

// exchangeError returns the error for a response of a token endpoint with
// another status than 200. It quotes only the codes of the standard.
//
// Source: RFC 6749, section 5.2.
func exchangeError(response *http.Response, body []byte) error {
	var refusal struct {
		Error string `json:"error"`
	}
	status := response.StatusCode
	if status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests {
		return statusError(response)
	}
	reason := http.StatusText(status)
	if len(body) <= maxTokens && json.Unmarshal(body, &refusal) == nil {
		switch code := refusal.Error; code {
		case "invalid_grant":
			return ErrCode
		case "invalid_client", "unauthorized_client", "invalid_request", "invalid_scope", "unsupported_grant_type":
			reason = code
		}
	}
	return permanent(fmt.Errorf("the response is %d %s", status, reason),
		"Compare login.web in the access settings with the client at the issuer: its id, its secret, and its redirect.")
}
