package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Caller is a verified caller who may publish.
type Caller struct {
	// ID identifies the caller, and is the same for each request. It decides
	// which uploads belong to the caller. It is short, and a valid path
	// segment.
	//
	// The ID of a registry token derives from its digest, so another token with
	// the same name is another caller. The ID of a JWT derives from its issuer
	// and subject. For a CI service, all jobs of one repository and ref or
	// environment have the same subject.
	ID string
	// Publisher identifies the caller in records, in the audit trail and in the
	// log. It is bounded and printable. Never base a decision on it.
	Publisher registry.Publisher

	scopes [][]Scope
	public []Pattern
}

type callerKey struct{}

// CallerOf returns the caller of a request that [Control.RequirePublish] has
// let through, and reports whether there is one.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return Caller{}, false
	}
	return *c, true
}

// NamesNamespace reports whether a scope that covers a path, such as
// modules/acme/vpc/aws, names its namespace. For example,
// publish:modules/acme/** and publish:*/acme do, but publish:** and
// publish:modules/*/vpc/aws do not.
//
// The first publish in a namespace needs a scope that names it. Nobody can then
// create a namespace by a typo, or one that looks like another.
func (c Caller) NamesNamespace(path string) bool {
	thing := strings.Split(path, "/")
	for _, some := range c.scopes {
		if slices.ContainsFunc(some, func(s Scope) bool {
			p := s.Pattern
			// After a ** the segment may match something else with the
			// namespace's name.
			return s.Verb == Publish && len(p) > 1 && p[0] != "**" && len(thing) > 1 && p[1] == thing[1] &&
				matches(p, thing, true)
		}) {
			return true
		}
	}
	return false
}

// Recognizes reports whether a response to the caller may name what exists at a
// path, such as modules/acme/vpc/aws, or modules/acme for a namespace. These are
// resources that the caller may read or publish, and namespaces that a scope names.
// A scope for some modules of all namespaces reveals no namespace.
func (c Caller) Recognizes(path string) bool {
	thing := strings.Split(path, "/")
	reveals := func(p Pattern) bool {
		return matches(p, thing, true) ||
			len(thing) == 2 && len(p) > 2 && p[1] == thing[1] && matches(p[:2], thing, false) && p[0] != "**"
	}
	return slices.ContainsFunc(c.public, reveals) || slices.ContainsFunc(c.scopes, func(some []Scope) bool {
		return slices.ContainsFunc(some, func(s Scope) bool { return reveals(s.Pattern) })
	})
}

func (c caller) publishes() bool {
	return slices.ContainsFunc(c.scopes, func(some []Scope) bool {
		return slices.ContainsFunc(some, func(s Scope) bool { return s.Verb == Publish })
	})
}

func tokenCaller(digest, name string, scopes [][]Scope) *Caller {
	return &Caller{ID: "token-" + registry.TokenID(digest), Publisher: tokenPublisher(name), scopes: scopes}
}

// caller returns the caller of a JWT. It returns nil if the token has no
// subject, because such a token may belong to anyone.
func (i *issuer) caller(c claims, all map[string]any, scopes [][]Scope) *Caller {
	if c.Subject == "" {
		return nil
	}
	// An issuer is a URL without NUL characters, so different issuers and
	// subjects cannot have the same digest.
	sum := sha256.Sum256([]byte(i.Issuer.Issuer + "\x00" + c.Subject))
	return &Caller{ID: "jwt-" + hex.EncodeToString(sum[:]), Publisher: i.publisher(c, all), scopes: scopes}
}
