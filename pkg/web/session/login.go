package session

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// login is a login with the issuer in progress. The browser stores it in a
// cookie, so that strangers cannot make the registry write anything. It binds
// the login to the browser.
type login struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	// Next is the path at which the login began.
	Next string `json:"p"`
	// Began is in Unix seconds.
	Began int64 `json:"t"`
}

const (
	// loginAge is how long a person can take to sign in.
	loginAge = 10 * time.Minute
	// maxCode bounds a code, in bytes.
	maxCode = 8 << 10
)

const startAgain = "This login has expired, or it began in another browser. Log in again."

// Begin begins a login with the issuer, and returns the URL of the issuer's page.
// next is the path to return to. Every login has a cookie of its own, and
// replaces the previous one of the browser.
func (s *Sessions) Begin(w http.ResponseWriter, r *http.Request, next string) (string, error) {
	if s.flow == nil {
		return "", fmt.Errorf("there is no issuer to log in with: %w", registry.ErrNotFound)
	}
	l := login{State: newID(), Nonce: newID(), Verifier: newID(), Next: SafeNext(next), Began: s.now().Unix()}
	to, err := s.flow.URL(r.Context(), l.attempt(s.redirect(r)))
	if err != nil {
		return "", &Error{"The registry cannot reach the sign-in service at the moment. Try again.", unavailable(err)}
	}
	text, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	setCookie(w, loginCookie, base64.RawURLEncoding.EncodeToString(text), loginAge)
	return to, nil
}

func (l login) attempt(redirect string) openid.Attempt {
	return openid.Attempt{State: l.State, Nonce: l.Nonce, Verifier: l.Verifier, Redirect: redirect}
}

// unavailable returns err as registry.ErrUnavailable unless it already has a
// kind.
func unavailable(err error) error {
	if errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrIssuer) {
		return err
	}
	return fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
}

// Callback completes a login after the issuer's redirect. It begins a session,
// and returns the path at which the login began. A login can be completed once,
// and only in the browser in which it began. The error is an [Error] if the
// person can do something about it.
func (s *Sessions) Callback(w http.ResponseWriter, r *http.Request) (next string, err error) {
	if s.flow == nil {
		return "", fmt.Errorf("there is no issuer to log in with: %w", registry.ErrNotFound)
	}
	l, err := s.current(r)
	if err != nil {
		return "", &Error{startAgain, err}
	}
	setCookie(w, loginCookie, "", 0)
	code, err := s.code(r)
	if err != nil {
		return "", err
	}
	identity, err := s.signIn(r, l, code)
	if err != nil {
		return "", err
	}
	used := &catalog.UsedLogin{Digest: digest(l.State), Until: time.Unix(l.Began, 0).Add(loginAge + time.Minute)}
	err = s.begin(w, r, identity, used)
	if errors.Is(err, registry.ErrExists) {
		return "", &Error{startAgain, fmt.Errorf("%w: the login was already used", registry.ErrBadCredential)}
	}
	if err != nil {
		return "", untrusted(err)
	}
	return SafeNext(l.Next), nil
}

// current returns the login that a callback belongs to, if it began in the same
// browser a short time ago.
func (s *Sessions) current(r *http.Request) (l login, err error) {
	value := cookie(r, loginCookie)
	if value == "" {
		return l, fmt.Errorf("%w: the browser has no login", registry.ErrBadCredential)
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || json.Unmarshal(text, &l) != nil || !isID(l.State) || !isID(l.Nonce) || !isID(l.Verifier) {
		return l, fmt.Errorf("%w: the browser has an invalid login", registry.ErrBadCredential)
	}
	state, ok := parameter(r, "state")
	if !ok || subtle.ConstantTimeCompare([]byte(state), []byte(l.State)) != 1 {
		return l, fmt.Errorf("%w: the browser has another login", registry.ErrBadCredential)
	}
	age := s.now().Sub(time.Unix(l.Began, 0))
	if age > loginAge || age < -time.Minute {
		return l, fmt.Errorf("%w: the login has expired", registry.ErrBadCredential)
	}
	return l, nil
}

// code returns the code of a callback.
//
// Sources: RFC 6749, section 4.1.2; RFC 9207, section 2.4.
func (s *Sessions) code(r *http.Request) (string, error) {
	if r.URL.Query().Has("iss") {
		if issuer, ok := parameter(r, "iss"); !ok || issuer != s.flow.Issuer() {
			return "", &Error{startAgain, fmt.Errorf("%w: the callback is of another issuer", registry.ErrBadCredential)}
		}
	}
	if r.URL.Query().Has("error") {
		return "", refused(r)
	}
	code, ok := parameter(r, "code")
	if !ok || code == "" || len(code) > maxCode {
		return "", &Error{startAgain, fmt.Errorf("%w: the callback has no code", registry.ErrBadCredential)}
	}
	return code, nil
}

// refused returns the error for a callback in which the issuer reports one. It
// quotes only the codes of the standards.
//
// Sources: RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0, section 3.1.2.6.
func refused(r *http.Request) error {
	code, _ := parameter(r, "error")
	switch code {
	case "access_denied":
		return &Error{
			"You have canceled the login, or the sign-in service does not let you in.",
			fmt.Errorf("%w: the issuer reports access_denied", registry.ErrForbidden),
		}
	case "temporarily_unavailable", "server_error":
		return &Error{
			"The sign-in service cannot log you in at the moment. Try again.",
			fmt.Errorf("%w: the issuer reports %s", registry.ErrUnavailable, code),
		}
	case "invalid_request", "unauthorized_client", "unsupported_response_type", "invalid_scope", "invalid_target",
		"login_required", "consent_required", "interaction_required", "account_selection_required":
	default:
		code = "an unknown error"
	}
	return &Error{
		"The sign-in service has refused the login. The operator of the registry can find the reason in the log.",
		fmt.Errorf("%w: the issuer reports %s", registry.ErrForbidden, code),
	}
}

// parameter returns a parameter of a request's query, and reports whether there
// is exactly one of the name.
func parameter(r *http.Request, name string) (string, bool) {
	values := r.URL.Query()[name]
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// signIn exchanges a code for tokens, and returns the identity of the access
// token. The ID token must belong to the login.
func (s *Sessions) signIn(r *http.Request, l login, code string) (registry.Identity, error) {
	var secret string
	if s.Secret != nil {
		var err error
		if secret, err = s.Secret(r.Context()); err != nil {
			return registry.Identity{}, fmt.Errorf("cannot read the secret of the web client: %w", err)
		}
	}
	tokens, err := s.flow.Exchange(r.Context(), l.attempt(s.redirect(r)), code, secret)
	if errors.Is(err, registry.ErrBadCredential) {
		return registry.Identity{}, &Error{startAgain, err}
	}
	if err != nil {
		return registry.Identity{}, &Error{
			"The registry could not complete the login with the sign-in service. Try again. " +
				"If this continues, the operator of the registry can find the reason in the log.", unavailable(err),
		}
	}
	login := access.Login{Issuer: s.flow.Issuer(), Client: s.flow.ClientID(), Nonce: l.Nonce}
	identity, err := s.Control.VerifyLogin(r.Context(), login, tokens.ID, tokens.Access)
	if err != nil {
		return registry.Identity{}, untrusted(err)
	}
	return identity, nil
}

// untrusted returns the error for a token that the registry does not accept.
func untrusted(err error) error {
	if !errors.Is(err, registry.ErrBadCredential) {
		return err
	}
	return &Error{
		"The registry does not accept this login. The operator of the registry can find the reason in the log.", err,
	}
}
