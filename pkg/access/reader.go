package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
)

// reader is a caller who may read some resources.
type reader struct {
	everything bool
	public     []Pattern
	scopes     [][]Scope
	// refuse returns the error for a resource that the caller may not read. It
	// is nil for a caller without a credential.
	refuse func(what []string) error
}

type readerKey struct{}

// Identify returns a handler that passes each request to next, except one with
// a bad credential. If nothing is public, it also rejects a request without a
// credential. It checks no permission to read. next must do so for each
// resource in its response, with [CanRead] or [CheckRead].
func (c *Control) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, _, err := c.WithBearer(r)
		if err != nil {
			httpapi.Error(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// WithBearer returns the context of the caller whom the Authorization header of
// a request identifies, and the caller's name. Without a credential, it returns
// what [Control.WithoutIdentity] does, and no name.
func (c *Control) WithBearer(r *http.Request) (_ context.Context, name string, _ error) {
	credential, err := bearer(r)
	if err != nil {
		return nil, "", err
	}
	if credential == "" {
		ctx, err := c.WithoutIdentity(r.Context())
		return ctx, "", err
	}
	who, err := c.authenticate(r.Context(), credential)
	if err != nil {
		return nil, "", err
	}
	return c.with(r.Context(), who, func(what []string) error {
		return c.refuse(credential, Read, what)
	}), who.label, nil
}

// WithoutIdentity returns the context of a caller without a credential, who may
// read what is public. If nothing is public, it returns
// registry.ErrUnauthenticated.
func (c *Control) WithoutIdentity(ctx context.Context) (context.Context, error) {
	public := c.rules.Load().public
	if len(public) == 0 {
		return nil, errNoCredential
	}
	return context.WithValue(ctx, readerKey{}, &reader{public: public}), nil
}

// with returns the context of an authenticated caller, whom the log names.
func (c *Control) with(ctx context.Context, who caller, refuse func(what []string) error) context.Context {
	c.record(ctx, who, who.name)
	everyone := c.rules.Load().public
	return context.WithValue(ctx, readerKey{}, &reader{public: everyone, scopes: who.scopes, refuse: refuse})
}

// Everyone is like [Control.Identify] for a registry that everyone may read
// completely. It ignores credentials.
func Everyone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(WithEveryone(r.Context())))
	})
}

// WithEveryone returns the context of a caller who may read everything.
func WithEveryone(ctx context.Context) context.Context {
	return context.WithValue(ctx, readerKey{}, &reader{everything: true})
}

// CanRead reports whether the caller of a request may read a resource, such as
// modules/acme/vpc/aws. It returns false unless [Control.Identify] or
// [Everyone] has let the request through.
func CanRead(ctx context.Context, path string) bool {
	who, ok := ctx.Value(readerKey{}).(*reader)
	if !ok {
		return false
	}
	what := resource(path)
	return who.everything || covers(who.public, what) || allows(who.scopes, Read, what)
}

// Readable returns [CanRead] for things that have a path.
func Readable[T interface{ Path() string }](ctx context.Context) func(T) bool {
	return func(one T) bool { return CanRead(ctx, one.Path()) }
}

// CanReadBelow reports whether the caller of a request may be able to read a
// resource below a path, such as modules or modules/acme. It depends only on
// the patterns of the caller and of public resources, so the result reveals
// nothing about what exists. If it returns false, [CanRead] does too for
// everything below.
func CanReadBelow(ctx context.Context, path string) bool {
	who, ok := ctx.Value(readerKey{}).(*reader)
	if !ok {
		return false
	}
	if who.everything {
		return true
	}
	segments := strings.Split(path, "/")
	for _, s := range slices.Concat(who.scopes...) {
		if s.Verb == Read && s.Pattern.reaches(segments) {
			return true
		}
	}
	return slices.ContainsFunc(who.public, func(p Pattern) bool { return p.reaches(segments) })
}

// CanReadAll reports whether the caller of a request may read every module and
// every provider, including those that are not published yet. Like
// [CanReadBelow], it depends only on patterns. It may return false for unusual
// ones.
func CanReadAll(ctx context.Context) bool {
	who, ok := ctx.Value(readerKey{}).(*reader)
	if !ok {
		return false
	}
	return who.everything || who.readsAll(who.public)
}

// CredentialReadsAll is like [CanReadAll] without what everyone may read. So it
// returns false for a caller without a credential.
func CredentialReadsAll(ctx context.Context) bool {
	who, ok := ctx.Value(readerKey{}).(*reader)
	return ok && who.readsAll(nil)
}

// readsAll reports whether the scopes and some patterns permit to read everything.
func (r *reader) readsAll(patterns []Pattern) bool {
	patterns = slices.Clone(patterns)
	for _, s := range slices.Concat(r.scopes...) {
		if s.Verb == Read {
			patterns = append(patterns, s.Pattern)
		}
	}
	for kind := range depths {
		every := Pattern{kind, "*"}
		if !slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Covers(every) }) {
			return false
		}
	}
	return true
}

// CheckRead returns nil if [CanRead] returns true. Otherwise the error is
// registry.ErrUnauthenticated for a caller without a credential, and
// registry.ErrForbidden for any other. Call it before any lookup, so that the
// error does not depend on what exists.
func CheckRead(ctx context.Context, path string) error {
	if CanRead(ctx, path) {
		return nil
	}
	if who, ok := ctx.Value(readerKey{}).(*reader); ok && who.refuse != nil {
		return who.refuse(resource(path))
	}
	return errNoCredential
}
