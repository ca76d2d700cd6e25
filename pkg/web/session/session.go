// Package session logs people in to the web pages, and recognizes their
// browsers. People log in with an OpenID Connect issuer, or with a token of the
// registry.
//
// A session is an item of the table, under the digest of a random id that only
// the browser has. It has the verified identity and no credential. It is never
// cached, so a logout takes effect at once everywhere. The rules for reading
// apply to the identity again for each request. A session ends with its
// credential, or after 12 hours.
//
// Ids, codes, tokens, and what binds a login to a browser never occur in errors.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Store stores sessions. See [catalog.Catalog].
type Store interface {
	AddSession(ctx context.Context, digest string, s registry.Session, login *catalog.UsedLogin) error
	Session(ctx context.Context, digest string) (registry.Session, error)
	EndSession(ctx context.Context, digest string) error
}

// Options are the parts that [New] connects.
type Options struct {
	Control *access.Control
	Store   Store
	// Login is the login of the access settings. If it is nil or has no web
	// client, people log in with a token of the registry only.
	Login *openid.Login
	// Secret returns the secret of the web client. If nil, it has none.
	Secret func(context.Context) (string, error)
	// BaseURL is the URL of the registry, such as https://registry.example.com.
	// If empty, it has the host of each request. This is only safe behind a
	// gateway that routes no other hosts.
	BaseURL string
	// Open means that everyone may read everything, without a session.
	Open bool
}

// Sessions are the sessions of a registry. Create them with [New].
type Sessions struct {
	Options

	flow *openid.CodeFlow
	now  func() time.Time
}

// maxAge is how long a session lasts at most.
const maxAge = 12 * time.Hour

// New returns the sessions of a registry. It sends no request.
func New(o Options) *Sessions {
	return &Sessions{Options: o, flow: o.Login.CodeFlow(), now: openid.Now}
}

// Account describes the caller of a request, for the pages.
type Account struct {
	// Name names the caller. It is empty for an anonymous one.
	Name string
	// LoggedIn reports whether the caller has a session, which can end.
	LoggedIn bool
}

// ErrEnded means that a browser has a session that has expired, ended, or is
// not accepted any more. It is registry.ErrUnauthenticated. The response should
// lead to the login, and call [Forget].
var ErrEnded = fmt.Errorf("%w: the session has ended", registry.ErrUnauthenticated)

// Identify returns the context of the caller of a request, to which
// access.CanRead applies. A request with an Authorization header is identified
// only by that, like for the API. A request with neither is anonymous, and
// gets registry.ErrUnauthenticated if nothing is public. The error is [ErrEnded]
// for a session that is not valid, and registry.ErrUnavailable if a session
// cannot be read at present.
func (s *Sessions) Identify(r *http.Request) (context.Context, Account, error) {
	if s.Open {
		return access.WithEveryone(r.Context()), Account{}, nil
	}
	id := cookie(r, sessionCookie)
	if id == "" || len(r.Header.Values("Authorization")) > 0 {
		ctx, name, err := s.Control.WithBearer(r)
		return ctx, Account{Name: name}, err
	}
	found, err := s.find(r.Context(), id)
	if err != nil {
		return nil, Account{}, err
	}
	ctx, err := s.Control.WithIdentity(r.Context(), found.Identity)
	if errors.Is(err, registry.ErrBadCredential) {
		return nil, Account{}, fmt.Errorf("%w: %s", ErrEnded, err.Error())
	}
	if err != nil {
		return nil, Account{}, err
	}
	return ctx, Account{Name: found.Identity.Name, LoggedIn: true}, nil
}

func (s *Sessions) find(ctx context.Context, id string) (registry.Session, error) {
	if !isID(id) {
		return registry.Session{}, ErrEnded
	}
	found, err := s.Store.Session(ctx, digest(id))
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return found, ErrEnded
	case err != nil:
		return found, fmt.Errorf("cannot read a session: %w", err)
	case !s.now().Before(found.ExpiresAt):
		return found, ErrEnded
	}
	return found, nil
}

// LogInWithToken begins a session with a token of the registry, which can have
// white space around it. The request must be a POST of the registry's own page.
// The error is an [Error] if the caller can do something about it.
func (s *Sessions) LogInWithToken(w http.ResponseWriter, r *http.Request, token string) error {
	if err := CheckPost(r); err != nil {
		return err
	}
	id, err := s.Control.Verify(r.Context(), strings.TrimSpace(token))
	if err == nil && id.Token == "" {
		err = fmt.Errorf("%w: not a token of the registry", registry.ErrBadCredential)
	}
	if err == nil {
		err = s.begin(w, r, id, nil)
	}
	if errors.Is(err, registry.ErrBadCredential) {
		return &Error{"This is not a valid token of the registry. It may be incomplete, expired or revoked.", err}
	}
	return err
}

// LogOut ends the session of a browser, if it has one. The request must be a
// POST of the registry's own page. Every later request with the session's
// cookie gets [ErrEnded].
func (s *Sessions) LogOut(w http.ResponseWriter, r *http.Request) error {
	if err := CheckPost(r); err != nil {
		return err
	}
	if err := s.end(r); err != nil {
		return err
	}
	Forget(w)
	return nil
}

// begin stores a new session with a new id, and ends the browser's previous
// one.
func (s *Sessions) begin(
	w http.ResponseWriter, r *http.Request, identity registry.Identity, login *catalog.UsedLogin,
) error {
	now := s.now()
	expires := now.Add(maxAge)
	if at := identity.ExpiresAt; !at.IsZero() && at.Before(expires) {
		expires = at
	}
	expires = expires.Truncate(time.Second) // as the table does
	if !now.Before(expires) {
		return fmt.Errorf("%w: it expires immediately", registry.ErrBadCredential)
	}
	// So the log names the caller of a login like that of any other request.
	if _, err := s.Control.WithIdentity(r.Context(), identity); err != nil {
		return err
	}
	id := newID()
	session := registry.Session{Identity: identity, CreatedAt: now.UTC(), ExpiresAt: expires.UTC()}
	if err := s.Store.AddSession(r.Context(), digest(id), session, login); err != nil {
		return err
	}
	if err := s.end(r); err != nil {
		return err
	}
	setCookie(w, sessionCookie, id, expires.Sub(now))
	return nil
}

func (s *Sessions) end(r *http.Request) error {
	id := cookie(r, sessionCookie)
	if !isID(id) {
		return nil
	}
	return s.Store.EndSession(r.Context(), digest(id))
}

// Issuer returns the host of the issuer with which people can log in. It is
// empty if there is none.
func (s *Sessions) Issuer() string {
	if s.flow == nil {
		return ""
	}
	u, err := url.Parse(s.flow.Issuer())
	if err != nil {
		return ""
	}
	return u.Host
}

// redirect returns the URL to which the issuer sends the browser back.
func (s *Sessions) redirect(r *http.Request) string {
	return cmp.Or(s.BaseURL, "https://"+r.Host) + CallbackPath
}

// CallbackPath is the path of the redirect that the client at the issuer needs.
const CallbackPath = openid.CallbackPath

// Error is a failed login with a text for the person. It wraps the cause, which
// decides the status.
type Error struct {
	// Text is a complete sentence. It contains nothing from the request.
	Text string
	Err  error
}

func (e *Error) Error() string { return "cannot log in: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

const idBytes = 32

// newID returns a text of 256 random bits.
func newID() string {
	var random [idBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(random[:])
}

func isID(id string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return err == nil && len(raw) == idBytes && len(id) == base64.RawURLEncoding.EncodedLen(idBytes)
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
