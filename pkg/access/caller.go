package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// Caller is who publishes, as access control has verified him.
type Caller struct {
	// ID is his alone, and the same each time he calls: what he has begun is his by it. A token's is by its digest, so that
	// another of the same name is another caller; others' is by issuer and subject, which for a CI service is all jobs of
	// one repository and ref, or environment. It is short, and a segment of a path.
	ID string
	// Name is what records and the log call him: a token by its name; others by issuer and subject with the claim that the
	// issuer's settings say names them and, of a CI job, its repository and ref. It is bounded and printable, and no
	// decision may rest on it.
	Name string

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

// maxPart bounds each part of a caller's name, in bytes.
const maxPart = 256

func tokenCaller(digest, name string, scopes [][]Scope) *Caller {
	return &Caller{ID: "token-" + registry.TokenID(digest), Name: httpapi.Printable("token "+name, maxPart), scopes: scopes}
}

// jobClaims say which job of a CI service a token is of: GitHub's, Forgejo's and Gitea's by repository, GitLab's by
// project_path.
var jobClaims = []string{"repository", "project_path", "ref"}

// caller is who publishes by a JWT; nil where it has no subject, and could be anybody's.
func (i *issuer) caller(c claims, all map[string]any, scopes [][]Scope) *Caller {
	if c.Subject == "" {
		return nil
	}
	// An issuer is a URL, in which there is no NUL, so that no other two are as one.
	sum := sha256.Sum256([]byte(i.Issuer.Issuer + "\x00" + c.Subject))
	var more []string
	add := func(claim string) {
		if value, _ := all[claim].(string); value != "" {
			more = append(more, httpapi.Printable(claim+" "+value, maxPart))
		}
	}
	if i.Name != "" && i.Name != "sub" && !slices.Contains(jobClaims, i.Name) {
		add(i.Name)
	}
	for _, claim := range jobClaims {
		add(claim)
	}
	name := httpapi.Printable(i.Issuer.Issuer, maxPart) + " " + httpapi.Printable(c.Subject, maxPart)
	if len(more) > 0 {
		name += " (" + strings.Join(more, ", ") + ")"
	}
	return &Caller{ID: "jwt-" + hex.EncodeToString(sum[:]), Name: name, scopes: scopes}
}
