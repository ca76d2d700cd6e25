// Package access authorizes reading and publishing. It identifies
// callers by bearer credentials: the registry's own tokens, and JWTs of OpenID
// Connect issuers. Several issuers can be used at once. Rules map the claims of
// their tokens to scopes.
//
// Access control runs before any lookup, so a response never reveals whether
// something exists to callers who may not see it. The status is 401 for a
// missing or bad credential, and 403 for a valid one without a matching scope.
//
// Decisions are cached for a minute, including those about bad credentials, so
// a revoked token is rejected within a minute. Credentials are never logged or
// stored. Tokens are found by their SHA-256 digest.
//
// A permission to publish does not include the permission to read. Anyone can
// read public resources, and nobody can publish them without a credential.
package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

// Tokens finds the record of a token by its digest, in hexadecimal. It returns
// registry.ErrNotFound if there is none.
type Tokens interface {
	Token(ctx context.Context, digest string) (registry.Token, error)
}

// Control decides who may read and publish. Create one with [New].
type Control struct {
	tokens Tokens
	now    func() time.Time
	// used are the IDs of the tokens whose use in the present hour is logged.
	used *ttlcache.Cache[string, struct{}]
	// rules are never changed, only replaced.
	rules atomic.Pointer[rules]
}

// rules are settings in use, with the decisions that follow from them.
type rules struct {
	public  []Pattern
	issuers map[string]*issuer

	// Good and bad credentials have separate caches, so that many bad ones
	// cannot evict a good one. A credential without any scope is in the bad
	// cache.
	good, bad *ttlcache.Cache[digest, decision]
}

type digest [sha256.Size]byte

// decision is the result for a credential.
type decision struct {
	caller caller
	err    error
}

// caller is the holder of a credential.
type caller struct {
	name   string    // for the log
	token  string    // the ID of a registry token
	label  string    // for people, without the issuer
	scopes [][]Scope // a token's scopes, or those of each matching rule, which its callers share
	// as is the caller for publishing. It is nil if no scope allows publishing,
	// so that readers do not pay for it.
	as *Caller
	// expires is when the credential expires, or the zero time.
	expires time.Time
}

const (
	// cacheTime is how long a decision is cached.
	cacheTime = time.Minute
	// maxDecisions bounds each cache. Most decisions have less than a kilobyte:
	// a name and the matching rules, or the truncated reason of an error. A
	// caller who may publish has a registry.Publisher too, and a token has its
	// own scopes.
	maxDecisions = 4096
	// maxCredential bounds a credential, in bytes. API Gateway allows less for
	// all headers together.
	maxCredential = 16 << 10
)

// New returns the access control for settings.
func New(s Settings, tokens Tokens) *Control {
	c := &Control{tokens: tokens, now: openid.Now, used: ttlcache.New[string, struct{}](maxDecisions, time.Hour)}
	c.rules.Store(new(rules))
	c.Apply(s)
	return c
}

// Apply replaces the settings. The new ones decide about all requests that come
// later, including those of sessions, and no earlier decision is used. The keys
// of an issuer that stays remain cached. It is safe for concurrent use with all
// other methods.
func (c *Control) Apply(s Settings) {
	next := &rules{
		public: s.Public, issuers: make(map[string]*issuer),
		good: ttlcache.New[digest, decision](maxDecisions, cacheTime),
		bad:  ttlcache.New[digest, decision](maxDecisions, cacheTime),
	}
	for _, i := range s.Issuers {
		if known := c.rules.Load().issuers[i.Issuer]; known != nil {
			next.issuers[i.Issuer] = &issuer{Issuer: i, provider: known.provider, keys: known.keys}
		} else {
			next.issuers[i.Issuer] = newIssuer(i)
		}
	}
	c.rules.Store(next)
}

// RequireRead returns a handler that passes a request to next if the caller may
// read the resource of its path. Paths begin with /v1/.
func (c *Control) RequireRead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.check(r); err != nil {
			httpapi.Error(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// RequirePublish returns a handler that passes a request to next if the caller
// may publish the resource of its path. Paths begin with /v1/publish/, followed
// by modules/NAMESPACE/NAME/SYSTEM or providers/NAMESPACE/TYPE. Every method
// needs a scope for publishing.
//
// next gets the caller with [CallerOf]. It must take the address from the path,
// because nothing else is checked.
func (c *Control) RequirePublish(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as, err := c.checkPublisher(r)
		if err != nil {
			httpapi.Error(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, as)))
	})
}

// depths has the number of segments of a resource, by the first segment. Any
// further segments of a path are a version or a document of that resource.
var depths = map[string]int{"modules": 4, "providers": 3, "mirror": 4, "mirror-modules": 5}

// mirrored has the resources of the paths for host blocks, by the first segment.
// They are those of other registries, and never the registry's own.
var mirrored = map[string]string{"providers-of": "mirror", "modules-of": "mirror-modules"}

// resource returns the resource of a path, which scopes must match. It returns
// the complete path for unknown kinds.
func resource(path string) []string {
	segments := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")
	segments[0] = cmp.Or(mirrored[segments[0]], segments[0])
	if segments[0] == "mirror-modules" { // see registry.ParseMirrorModule
		for i := range segments {
			segments[i] = strings.ToLower(segments[i])
		}
	}
	if depth := depths[segments[0]]; depth > 0 && len(segments) > depth {
		segments = segments[:depth]
	}
	return segments
}

// published returns the resource of a path below /v1/publish/. It returns nil
// for other paths, which only the pattern ** covers.
func published(path string) []string {
	below, found := strings.CutPrefix(path, "/v1/publish/")
	segments := strings.Split(below, "/")
	depth := depths[segments[0]]
	isOwn := segments[0] == "modules" || segments[0] == "providers"
	if !found || !isOwn || len(segments) < depth || slices.Contains(segments[:depth], "") {
		return nil
	}
	return segments[:depth]
}

func (c *Control) check(r *http.Request) error {
	credential, err := bearer(r)
	if err != nil {
		return err
	}
	what := resource(r.URL.Path)
	public := covers(c.rules.Load().public, what)
	if credential == "" {
		if public {
			return nil
		}
		return errNoCredential
	}
	who, err := c.authenticate(r.Context(), credential)
	if err != nil {
		return err
	}
	c.record(r.Context(), who, who.name)
	if public || allows(who.scopes, Read, what) {
		return nil
	}
	return c.refuse(credential, Read, what)
}

var (
	errNoCredential = fmt.Errorf("%w: no credential", registry.ErrUnauthenticated)
	errNoScope      = fmt.Errorf("%w: no scope of the caller covers this path", registry.ErrForbidden)
	errNoSubject    = fmt.Errorf("%w: the token has no subject, which publishing needs", registry.ErrForbidden)
)

func (c *Control) checkPublisher(r *http.Request) (*Caller, error) {
	credential, err := bearer(r)
	if err != nil {
		return nil, err
	}
	if credential == "" {
		return nil, errNoCredential
	}
	who, err := c.authenticate(r.Context(), credential)
	if errors.Is(err, registry.ErrIssuer) {
		// The hint of err is only for the operator.
		requestlog.From(r.Context()).Hint = registry.Hint(err)
		err = httpapi.Explain(err, "the registry cannot check this identity, because it cannot use its issuer")
		return nil, registry.WithHint(err, "The registry's operator can find the reason in the log.")
	}
	if err != nil {
		return nil, err
	}
	name := who.name
	if who.as != nil {
		name = who.as.Publisher.String()
	}
	c.record(r.Context(), who, name)
	what := published(r.URL.Path)
	switch {
	case !allows(who.scopes, Publish, what):
		return nil, c.refuse(credential, Publish, what)
	case who.as == nil:
		return nil, errNoSubject
	}
	as := *who.as
	as.public = c.rules.Load().public
	return &as, nil
}

// record names the caller in the log. The first use of a token in an hour of
// UTC has the token's ID too.
func (c *Control) record(ctx context.Context, who caller, name string) {
	e := requestlog.From(ctx)
	e.Caller = name
	if who.token == "" {
		return
	}
	now := c.now()
	if _, found := c.used.Get(who.token, now); found {
		return
	}
	c.used.Add(who.token, struct{}{}, now, now.Truncate(time.Hour).Add(time.Hour))
	e.Token = who.token
}

// bearer returns the credential of a request, or an empty string if there is
// none. Clients send an empty credential if a variable is set to an empty
// value.
//
// Source: RFC 6750, section 2.1.
func bearer(r *http.Request) (string, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return "", nil
	}
	scheme, credential, _ := strings.Cut(headers[0], " ")
	credential = strings.Trim(credential, " ")
	switch {
	case len(headers) > 1:
		return "", fmt.Errorf("%w: %d Authorization headers", registry.ErrBadCredential, len(headers))
	case !strings.EqualFold(scheme, "Bearer"):
		return "", fmt.Errorf("%w: not a Bearer token", registry.ErrBadCredential)
	}
	return credential, checkCredential(credential)
}

// checkCredential returns registry.ErrBadCredential for a text that cannot be a
// credential of any kind.
func checkCredential(credential string) error {
	switch {
	case len(credential) > maxCredential:
		return fmt.Errorf("%w: more than %d bytes", registry.ErrBadCredential, maxCredential)
	case strings.ContainsFunc(credential, notToken68):
		return fmt.Errorf("%w: invalid characters", registry.ErrBadCredential)
	}
	return nil
}

func notToken68(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("-._~+/=", r)
}

// authenticate returns the holder of a credential. Errors are
// registry.ErrBadCredential, or registry.ErrUnavailable if the credential
// cannot be verified at present.
func (c *Control) authenticate(ctx context.Context, credential string) (caller, error) {
	return c.cached(sha256.Sum256([]byte(credential)), func() (caller, time.Time, error) {
		id, err := c.verify(ctx, credential)
		if err != nil {
			return caller{}, time.Time{}, err
		}
		return c.holder(ctx, id)
	})
}

// cached returns the cached decision about the credential with a digest, or the
// one that decide makes. decide also returns the time at which its decision
// changes, for example because the credential expires. It is the zero time if
// it never changes.
func (c *Control) cached(sum digest, decide func() (caller, time.Time, error)) (caller, error) {
	// A decision by later rules can be cached with these, but not the reverse.
	now, r := c.now(), c.rules.Load()
	for _, cached := range []*ttlcache.Cache[digest, decision]{r.good, r.bad} {
		if d, found := cached.Get(sum, now); found {
			return d.caller, d.err
		}
	}
	var d decision
	var changes time.Time
	d.caller, changes, d.err = decide()
	switch {
	case d.err == nil && len(d.caller.scopes) > 0:
		r.good.Add(sum, d, now, changes)
	// Anyone with a job at a CI service can get its issuer's tokens for any
	// audience, without matching a rule.
	case d.err == nil, errors.Is(d.err, registry.ErrBadCredential) && !errors.Is(d.err, errUnknownKey):
		r.bad.Add(sum, d, now, changes)
	}
	return d.caller, d.err
}

// verify returns the identity that a credential proves, without a name and an
// expiry. It checks the signature of a JWT. [Control.holder] decides whether
// the identity is valid.
func (c *Control) verify(ctx context.Context, credential string) (Identity, error) {
	switch {
	case strings.HasPrefix(credential, registry.TokenPrefix):
		if !registry.IsToken(credential) {
			return Identity{}, fmt.Errorf("%w: a mistyped or truncated registry token", registry.ErrBadCredential)
		}
		sum := sha256.Sum256([]byte(credential))
		return Identity{Token: hex.EncodeToString(sum[:])}, nil
	case strings.Count(credential, ".") == 2:
		issuer, claims, err := c.signed(ctx, credential)
		return Identity{Issuer: issuer, Claims: claims}, err
	}
	return Identity{}, fmt.Errorf("%w: neither a registry token nor a JWT; if the issuer returns opaque "+
		"access tokens, set an audience in the authorize parameters of the login", registry.ErrBadCredential)
}

// holder returns the holder of an identity according to the settings and the
// registry's tokens as they are now. changes is the time at which the result may
// change. Errors are those of authenticate.
func (c *Control) holder(ctx context.Context, id Identity) (who caller, changes time.Time, err error) {
	if id.Token != "" {
		return c.token(ctx, id.Token)
	}
	return c.claimant(id.Issuer, id.Claims)
}

func (c *Control) token(ctx context.Context, digest string) (caller, time.Time, error) {
	record, err := c.tokens.Token(ctx, digest)
	if errors.Is(err, registry.ErrNotFound) {
		return caller{}, time.Time{}, fmt.Errorf("%w: unknown token: it was revoked, has expired, or is for another registry",
			registry.ErrBadCredential)
	}
	if err != nil {
		return caller{}, time.Time{}, fmt.Errorf("cannot look up a token: %w", err)
	}
	if record.IsExpired(c.now()) {
		return caller{}, time.Time{}, fmt.Errorf("%w: token %q has expired", registry.ErrBadCredential, record.Name)
	}
	scopes, err := ParseScopes(record.Scopes)
	if err != nil {
		// not registry.ErrInvalid, because it is not the caller's mistake
		return caller{}, time.Time{}, fmt.Errorf("token %q: %w: %s", record.Name, errRecord, err.Error())
	}
	who := caller{
		name: "token " + record.Name, token: registry.TokenID(digest), label: record.Name,
		scopes: [][]Scope{scopes}, expires: record.ExpiresAt,
	}
	if who.publishes() {
		who.as = tokenCaller(digest, record.Name, who.scopes)
	}
	return who, record.ExpiresAt, nil
}

// errRecord means that no release of Larder has written the record.
var errRecord = errors.New("unreadable record")
