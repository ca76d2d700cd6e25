// Package access decides who may read and who may publish what. It knows callers by bearer credentials: tokens of the
// registry itself, and JWTs of OpenID Connect issuers, several at once, whose claims rules turn into scopes.
//
// It promises that nothing is looked up for a caller who may not see it, so that a refusal never tells whether something
// is there: 401 for a credential that is missing or bad, 403 where a good one's scopes do not reach. A decision about a
// credential is kept for a minute, a bad one's too, so that a revoked token is refused within a minute. No credential is
// ever logged or kept; tokens are found by their SHA-256.
//
// Who may publish is told to what serves it as a Caller, and may not read thereby. What is public can be read by anyone
// and published by nobody.
package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/requestlog"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

// Tokens finds the record of a token by its digest, which is hexadecimal, or fails with registry.ErrNotFound.
type Tokens interface {
	Token(ctx context.Context, digest string) (registry.Token, error)
}

// Control decides who may read and publish what.
type Control struct {
	public  []Pattern
	tokens  Tokens
	issuers map[string]*issuer
	now     func() time.Time

	// Good and bad ones apart, so that a flood of bad ones drives out no good one. One without any scope is as a bad one.
	good, bad *ttlcache.Cache[digest, decision]
}

type digest [sha256.Size]byte

// decision is what was found out about a credential.
type decision struct {
	caller caller
	err    error
}

// caller is who a credential stands for.
type caller struct {
	name   string    // for the log
	scopes [][]Scope // a token's, or those of each rule that holds, which all callers of the rule share
	// as is who publishes; nil where no scope lets him publish anything, so that readers do not pay for it.
	as *Caller
}

const (
	// keep is how long a decision holds.
	keep = time.Minute
	// remembered bounds the decisions of each kind. Most are below a kilobyte: a caller of an issuer is his name and which
	// rules hold, and a refusal is its reason, cut short. One who may publish has a registry.Publisher too. A token
	// has its own scopes, as many as it was made with.
	remembered = 4096
	// longest bounds a credential, in bytes. API Gateway has less room for all headers together.
	longest = 16 << 10
)

// New returns the access control that settings describe.
func New(s Settings, tokens Tokens) *Control {
	c := &Control{
		public: s.Public, tokens: tokens, issuers: make(map[string]*issuer), now: openid.Now,
		good: ttlcache.New[digest, decision](remembered, keep), bad: ttlcache.New[digest, decision](remembered, keep),
	}
	for _, i := range s.Issuers {
		c.issuers[i.Issuer] = newIssuer(i)
	}
	return c
}

// RequireRead returns a handler that passes a request to next if the caller may
// read what its path names. Paths are below /v1/.
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
// may publish what its path names. Paths begin with /v1/publish/ and then
// modules/NAMESPACE/NAME/SYSTEM or providers/NAMESPACE/TYPE, and every method on
// them needs a scope to publish that. next gets the caller with [CallerOf]. It
// must take what is published from the path, because nothing else is checked.
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

// depths are how many segments name what can be read, by the first of them. Whatever else a path has behind these is a
// version or a document of the same thing.
var depths = map[string]int{"modules": 4, "providers": 3, "mirror": 4}

// resource returns what a path is about: what scopes are matched with. A path of no known kind is about itself, whole.
func resource(path string) []string {
	segments := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")
	if depth := depths[segments[0]]; depth > 0 && len(segments) > depth {
		segments = segments[:depth]
	}
	return segments
}

// published returns what a path below /v1/publish/ is about. A path of another shape is about nothing, which the pattern
// ** alone covers.
func published(path string) []string {
	below, found := strings.CutPrefix(path, "/v1/publish/")
	segments := strings.Split(below, "/")
	depth := depths[segments[0]]
	if !found || segments[0] == "mirror" || depth == 0 || len(segments) < depth || slices.Contains(segments[:depth], "") {
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
	public := covers(c.public, what)
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
	requestlog.From(r.Context()).Caller = who.name
	if public || allows(who.scopes, Read, what) {
		return nil
	}
	return errReach
}

var (
	errNoCredential = fmt.Errorf("%w: there is no credential", registry.ErrUnauthenticated)
	errReach        = fmt.Errorf("%w: no scope of the caller reaches it", registry.ErrForbidden)
	errNobody       = fmt.Errorf("%w: what the caller publishes would be nobody's, since his token has no subject", registry.ErrForbidden)
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
		// The hint of err is for the operator alone.
		err = httpapi.Explain(err, "the registry cannot check this identity, because it cannot use its issuer")
		return nil, registry.WithHint(err, "The registry's operator finds the reason in its log.")
	}
	if err != nil {
		return nil, err
	}
	name := who.name
	if who.as != nil {
		name = who.as.Publisher.String()
	}
	requestlog.From(r.Context()).Caller = name
	switch {
	case !allows(who.scopes, Publish, published(r.URL.Path)):
		return nil, errReach
	case who.as == nil:
		return nil, errNobody
	}
	return who.as, nil
}

// bearer returns a request's credential, which is empty if there is none: clients send an empty one where a variable is
// set and empty.
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
		return "", fmt.Errorf("%w: there are %d Authorization headers", registry.ErrBadCredential, len(headers))
	case !strings.EqualFold(scheme, "Bearer"):
		return "", fmt.Errorf("%w: it is no bearer credential", registry.ErrBadCredential)
	case len(credential) > longest:
		return "", fmt.Errorf("%w: it has more than %d bytes", registry.ErrBadCredential, longest)
	case strings.ContainsFunc(credential, notToken68):
		return "", fmt.Errorf("%w: it has characters that no credential has", registry.ErrBadCredential)
	}
	return credential, nil
}

func notToken68(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("-._~+/=", r)
}

// authenticate finds out who a credential stands for. Errors are registry.ErrBadCredential, or registry.ErrUnavailable
// where it cannot be found out at present.
func (c *Control) authenticate(ctx context.Context, credential string) (caller, error) {
	sum := digest(sha256.Sum256([]byte(credential)))
	now := c.now()
	for _, known := range []*ttlcache.Cache[digest, decision]{c.good, c.bad} {
		if d, found := known.Get(sum, now); found {
			return d.caller, d.err
		}
	}
	var d decision
	var changes time.Time
	d.caller, changes, d.err = c.decide(ctx, credential, sum)
	switch {
	case d.err == nil && len(d.caller.scopes) > 0:
		c.good.Add(sum, d, now, changes)
	// Whoever runs a job at a CI service has its issuer's tokens, for any audience, which no rule need hold for.
	case d.err == nil, errors.Is(d.err, registry.ErrBadCredential) && !errors.Is(d.err, errUnknownKey):
		c.bad.Add(sum, d, now, changes)
	}
	return d.caller, d.err
}

// decide looks at a credential. changes is when it will be decided otherwise, such as when it ends; the zero time is never.
func (c *Control) decide(ctx context.Context, credential string, sum digest) (who caller, changes time.Time, err error) {
	switch {
	case strings.HasPrefix(credential, tokenPrefix):
		if !wellFormed(credential) {
			return caller{}, time.Time{}, fmt.Errorf("%w: it begins as a token of the registry, and is mistyped or cut", registry.ErrBadCredential)
		}
		return c.token(ctx, hex.EncodeToString(sum[:]))
	case strings.Count(credential, ".") == 2:
		return c.jwt(ctx, credential)
	}
	return caller{}, time.Time{}, fmt.Errorf("%w: it is neither a token of the registry nor a JWT; an issuer that gives opaque access tokens may need to be asked for an audience, by the login's authorize parameters", registry.ErrBadCredential)
}

func (c *Control) token(ctx context.Context, digest string) (caller, time.Time, error) {
	record, err := c.tokens.Token(ctx, digest)
	if errors.Is(err, registry.ErrNotFound) {
		return caller{}, time.Time{}, fmt.Errorf("%w: there is no such token: it was revoked, has expired, or is another registry's", registry.ErrBadCredential)
	}
	if err != nil {
		return caller{}, time.Time{}, fmt.Errorf("looking for a token: %w", err)
	}
	if record.IsExpired(c.now()) {
		return caller{}, time.Time{}, fmt.Errorf("%w: token %q has expired", registry.ErrBadCredential, record.Name)
	}
	scopes, err := ParseScopes(record.Scopes)
	if err != nil {
		return caller{}, time.Time{}, fmt.Errorf("token %q: %w: %s", record.Name, errRecord, err.Error()) // no caller's fault, as registry.ErrInvalid would be
	}
	who := caller{name: "token " + record.Name, scopes: [][]Scope{scopes}}
	if who.publishes() {
		who.as = tokenCaller(digest, record.Name, who.scopes)
	}
	return who, record.ExpiresAt, nil
}

// errRecord is a record that no release has written.
var errRecord = errors.New("its record cannot be read")
