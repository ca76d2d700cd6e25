package access

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// Change is a difference between two settings, for the log.
type Change struct {
	// What names the change, such as "rule removed".
	What string
	// Issuer is the identifier of the issuer that it is about, if there is one.
	Issuer string
	// Claims and Scopes are those of a rule, such as "repository=acme/vpc" and
	// "publish:modules/acme/vpc/aws".
	Claims, Scopes string
	// Pattern is that of public resources.
	Pattern string
}

// Attrs returns the change for a log record.
func (c Change) Attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("change", c.What)}
	for _, a := range []slog.Attr{
		slog.String("issuer", c.Issuer), slog.String("claims", c.Claims), slog.String("scopes", c.Scopes),
		slog.String("pattern", c.Pattern),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	return attrs
}

// Changes returns how settings differ from earlier ones. The order of issuers
// and rules does not matter.
func (s Settings) Changes(earlier Settings) []Change {
	var all []Change
	add := func(what string, changes []Change) {
		for _, c := range changes {
			c.What += what
			all = append(all, c)
		}
	}
	was, is := earlier.parts(), s.parts()
	add(" removed", without(was, is))
	add(" added", without(is, was))
	for _, i := range s.Issuers {
		n := slices.IndexFunc(earlier.Issuers, func(o Issuer) bool { return o.Issuer == i.Issuer })
		if n >= 0 && encoded(i.withoutRules()) != encoded(earlier.Issuers[n].withoutRules()) {
			all = append(all, Change{What: "issuer changed", Issuer: i.Issuer})
		}
	}
	if encoded(s.Login) != encoded(earlier.Login) {
		all = append(all, Change{What: "login changed"})
	}
	return all
}

func (i Issuer) withoutRules() Issuer {
	i.Rules = nil
	return i
}

// parts returns what can be added or removed: public patterns, issuers and
// their rules.
func (s Settings) parts() (all []Change) {
	for _, p := range s.Public {
		all = append(all, Change{What: "public pattern", Pattern: strings.Join(p, "/")})
	}
	for _, i := range s.Issuers {
		all = append(all, Change{What: "issuer", Issuer: i.Issuer})
		for _, r := range i.Rules {
			rule := Change{What: "rule", Issuer: i.Issuer}
			for _, claim := range slices.Sorted(maps.Keys(r.Claims)) {
				rule.Claims = strings.TrimPrefix(rule.Claims+" "+claim+"="+r.Claims[claim], " ")
			}
			for _, scope := range r.Scopes {
				text, _ := scope.MarshalText() // it never fails
				rule.Scopes = strings.TrimPrefix(rule.Scopes+" "+string(text), " ")
			}
			all = append(all, rule)
		}
	}
	return all
}

// without returns the changes that others lacks.
func without(all, others []Change) []Change {
	return slices.DeleteFunc(slices.Clone(all), func(c Change) bool { return slices.Contains(others, c) })
}

// encoded returns settings as JSON, to compare them.
func encoded(v any) string {
	text, _ := json.Marshal(v) // settings always encode
	return string(text)
}
