package access

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// refuse returns the error for a path that no scope of a verified credential
// covers. Decisions that are cached have no claims, so it reads the claims again.
func (c *Control) refuse(credential string, verb Verb, what []string) error {
	var all map[string]any
	token, err := jwt.ParseSigned(credential, algorithms)
	if err != nil || token.UnsafeClaimsWithoutVerification(&all) != nil {
		return errNoScope // a token of the registry
	}
	issuer, _ := all["iss"].(string)
	return c.refuseIdentity(Identity{Issuer: issuer, Claims: all}, verb, what)
}

// refuseIdentity is like [Control.refuse] for a verified identity. The response
// has the claims of the caller's own token, and only the log has the rules.
func (c *Control) refuseIdentity(id Identity, verb Verb, what []string) error {
	i := c.rules.Load().issuers[id.Issuer]
	if i == nil {
		return errNoScope
	}
	err := fmt.Errorf("%w: issuer %s: %s", errNoScope, id.Issuer, i.nearest(id.Claims, verb, what))
	return httpapi.Suggest(err, "The token has the claims "+registry.DescribeClaims(id.Claims)+
		". The registry's operator can find the nearest rule in the log.")
}

// nearest describes the rule that almost allows a verb on a path to the holder
// of claims. It names the first claim that does not match. A rule with a scope
// for the path takes precedence, and then the one with the most claims that match.
func (i *issuer) nearest(all map[string]any, verb Verb, what []string) string {
	best, isBestFor, most, wrong := -1, false, 0, ""
	for n, r := range i.Rules {
		isFor := allows([][]Scope{r.Scopes}, verb, what)
		count, first := r.compare(all)
		if best < 0 || isFor && !isBestFor || isFor == isBestFor && count > most {
			best, isBestFor, most, wrong = n, isFor, count, first
		}
	}
	text := fmt.Sprintf("rule %d is the nearest: ", best+1)
	if !isBestFor {
		text = fmt.Sprintf("no rule has a scope for it, and rule %d is the nearest: ", best+1)
	}
	if wrong == "" {
		return text + "all its claims match"
	}
	got, want := "is missing", i.Rules[best].Claims[wrong]
	if value := registry.Claim(all, wrong); value != nil {
		got = fmt.Sprintf("is %.100q", registry.ClaimText(value))
	}
	return text + fmt.Sprintf("claim %s %s, and must match %.100q", wrong, got, want)
}

// compare returns how many claims of a rule match, and the first one in
// alphabetical order that does not.
func (r Rule) compare(all map[string]any) (count int, wrong string) {
	for _, name := range slices.Sorted(maps.Keys(r.Claims)) {
		if isMatch(all, name, r.Claims[name]) {
			count++
		} else if wrong == "" {
			wrong = name
		}
	}
	return count, wrong
}
