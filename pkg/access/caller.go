package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Caller is who publishes, as access control has verified him.
type Caller struct {
	// ID is his alone, and the same each time he calls: what he has begun is his by it. A token's is by its digest, so that
	// another of the same name is another caller; others' is by issuer and subject, which for a CI service is all jobs of
	// one repository and ref, or environment. It is short, and a segment of a path.
	ID string
	// Publisher identifies the caller in records, in the audit trail and in the log. It
	// is bounded and printable, and no decision may rest on it.
	Publisher registry.Publisher

	scopes [][]Scope
}

type callerKey struct{}

// CallerOf returns the caller of a request that RequirePublish has let through,
// and reports whether there is one.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return Caller{}, false
	}
	return *c, true
}

// NamesNamespace says whether one of the scopes that let the caller publish a thing, such as modules/acme/vpc/aws, names
// its namespace: publish:modules/acme/** and publish:*/acme do, and publish:** and publish:modules/*/vpc/aws do not. A
// namespace's first publish needs one that does, so that none comes to be by a mistake in typing, or is made up to look
// like another.
func (c Caller) NamesNamespace(path string) bool {
	thing := strings.Split(path, "/")
	for _, some := range c.scopes {
		if slices.ContainsFunc(some, func(s Scope) bool {
			p := s.Pattern
			// Behind a ** it could be any segment that has the namespace's name.
			return s.Verb == Publish && len(p) > 1 && p[0] != "**" && len(thing) > 1 && p[1] == thing[1] && matches(p, thing, true)
		}) {
			return true
		}
	}
	return false
}

// publishes says whether a caller may publish anything.
func (c caller) publishes() bool {
	return slices.ContainsFunc(c.scopes, func(some []Scope) bool {
		return slices.ContainsFunc(some, func(s Scope) bool { return s.Verb == Publish })
	})
}

func tokenCaller(digest, name string, scopes [][]Scope) *Caller {
	return &Caller{ID: "token-" + registry.TokenID(digest), Publisher: tokenPublisher(name), scopes: scopes}
}

// caller is who publishes by a JWT; nil where it has no subject, and could be anybody's.
func (i *issuer) caller(c claims, all map[string]any, scopes [][]Scope) *Caller {
	if c.Subject == "" {
		return nil
	}
	// An issuer is a URL, in which there is no NUL, so that no other two are as one.
	sum := sha256.Sum256([]byte(i.Issuer.Issuer + "\x00" + c.Subject))
	return &Caller{ID: "jwt-" + hex.EncodeToString(sum[:]), Publisher: i.publisher(c, all), scopes: scopes}
}
