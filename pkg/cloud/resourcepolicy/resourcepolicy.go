// Package resourcepolicy reads the policies of buckets and keys. It decides what they
// deny or permit for sure, and leaves the rest open.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html.
package resourcepolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Policy is the policy of a bucket or a key.
type Policy struct {
	statements []statement
	// unread reports whether there are statements that were not understood.
	unread bool
}

type statement struct {
	Effect                  string
	Principal, NotPrincipal json.RawMessage
	Action, NotAction       list
	Resource, NotResource   list
	Condition               map[string]map[string]list
}

// list is one or more values. A number or boolean is stored as its JSON text,
// which IAM compares too.
type list []string

func (l *list) UnmarshalJSON(data []byte) error {
	var several []json.RawMessage
	if json.Unmarshal(data, &several) != nil {
		several = []json.RawMessage{data}
	}
	all := make(list, 0, len(several))
	for _, one := range several {
		var text string
		if json.Unmarshal(one, &text) != nil {
			if text = string(one); strings.ContainsAny(text[:1], "{[") {
				return fmt.Errorf("%s is not a string, number or boolean", text)
			}
		}
		all = append(all, text)
	}
	*l = all
	return nil
}

// Condition is a part of a statement's condition. The key must have the value
// under the operator.
type Condition struct{ Operator, Key, Value string }

// Parse parses a policy, which is JSON. An empty text is a policy without
// statements.
func Parse(text string) (Policy, error) {
	if text == "" {
		return Policy{}, nil
	}
	var document struct{ Statement json.RawMessage }
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return Policy{}, fmt.Errorf("invalid JSON: %w", err)
	}
	var all []json.RawMessage
	if json.Unmarshal(document.Statement, &all) != nil {
		all = []json.RawMessage{document.Statement}
	}
	var p Policy
	for _, one := range all {
		var s statement
		if json.Unmarshal(one, &s) != nil {
			p.unread = true
			continue
		}
		p.statements = append(p.statements, s)
	}
	return p, nil
}

// Denies reports whether a statement denies everyone an action on all objects
// of a bucket under no other conditions than these. A statement with fewer
// conditions denies more.
func (p Policy) Denies(action, bucket string, under ...Condition) bool {
	return slices.ContainsFunc(p.statements, func(s statement) bool {
		objects := slices.ContainsFunc(s.Resource, func(r string) bool {
			return r == "*" || strings.HasSuffix(r, ":::"+bucket+"/*")
		})
		return s.Effect == "Deny" && s.everyone() && containsAction(s.Action, action) && objects && s.only(under)
	})
}

func (s statement) everyone() bool {
	var text string
	if json.Unmarshal(s.Principal, &text) == nil {
		return text == "*"
	}
	var named map[string]list
	return json.Unmarshal(s.Principal, &named) == nil && slices.Contains(named["AWS"], "*")
}

// containsAction reports whether a pattern of a list matches an action, in any case.
func containsAction(patterns list, action string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return matches(strings.ToLower(p), strings.ToLower(action))
	})
}

// only reports whether a statement has no other conditions than these.
func (s statement) only(under []Condition) bool {
	for operator, keys := range s.Condition {
		for key := range maps.Keys(keys) {
			if !slices.ContainsFunc(under, func(c Condition) bool {
				return operator == c.Operator && strings.EqualFold(key, c.Key) && slices.Equal(keys[key], list{c.Value})
			}) {
				return false
			}
		}
	}
	return true
}

// Request is a request for a key, in IAM's terms.
type Request struct {
	// Action is an action such as kms:Decrypt, and Resource the ARN of the key.
	Action, Resource string
	// Principals are the values by which a policy can name an AWS principal: its
	// account, in both forms, and its ARN. Service is the host of a service that
	// sends the request for itself.
	Principals []string
	Service    string
	// Keys are the request's condition keys. If a policy requires another one, the
	// answer can be Unknown.
	Keys map[string]string
}

// Answer is whether a policy permits a request.
type Answer int

// The answers. A policy that permits an account leaves the decision to the policies
// of that account's principals.
const (
	No Answer = iota
	Unknown
	Yes
)

// Permits returns whether the policy of a key permits a request.
func (p Policy) Permits(r Request) Answer {
	allowed, denied := No, No
	for _, s := range p.statements {
		applies := s.applies(r)
		if s.Effect == "Deny" {
			denied = max(denied, applies)
		} else {
			allowed = max(allowed, applies)
		}
	}
	switch {
	case denied == Yes:
		return No
	case p.unread, denied == Unknown && allowed != No:
		return Unknown
	}
	return allowed
}

// applies returns whether a statement is about a request.
func (s statement) applies(r Request) Answer {
	acts := containsAction(s.Action, r.Action) || s.NotAction != nil && !containsAction(s.NotAction, r.Action)
	of := func(patterns list) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, r.Resource) })
	}
	about := of(s.Resource) || s.NotResource != nil && !of(s.NotResource)
	if !acts || !about || s.NotPrincipal == nil && !s.names(r) {
		return No
	}
	answer := Yes
	if s.NotPrincipal != nil {
		answer = Unknown
	}
	for operator, keys := range s.Condition {
		for key, want := range keys {
			switch met(operator, key, want, r.Keys) {
			case No:
				return No
			case Unknown:
				answer = Unknown
			}
		}
	}
	return answer
}

// names reports whether the principal of a statement is that of a request.
func (s statement) names(r Request) bool {
	if s.everyone() {
		return true
	}
	var named map[string]list
	if json.Unmarshal(s.Principal, &named) != nil {
		return false
	}
	return r.Service != "" && slices.Contains(named["Service"], r.Service) ||
		slices.ContainsFunc(r.Principals, func(principal string) bool { return slices.Contains(named["AWS"], principal) })
}

// met returns whether a part of a condition is met.
func met(operator, key string, want list, keys map[string]string) Answer {
	got, known := "", false
	for name, value := range keys {
		if strings.EqualFold(name, key) {
			got, known = value, true
		}
	}
	variable := slices.ContainsFunc(want, func(value string) bool { return strings.Contains(value, "${") })
	if !known || variable {
		return Unknown
	}
	equal := map[string]func(want string) bool{
		"StringEquals":           func(want string) bool { return want == got },
		"StringEqualsIgnoreCase": func(want string) bool { return strings.EqualFold(want, got) },
		"Bool":                   func(want string) bool { return strings.EqualFold(want, got) },
		"StringLike":             func(want string) bool { return matches(want, got) },
		"ArnLike":                func(want string) bool { return matches(want, got) },
		"ArnEquals":              func(want string) bool { return matches(want, got) },
	}
	operator = strings.TrimSuffix(operator, "IfExists")
	compare, plain := equal[operator]
	negated := false
	if !plain {
		// StringNotEquals is the negation of StringEquals.
		compare, negated = equal[strings.Replace(operator, "Not", "", 1)]
	}
	if compare == nil {
		return Unknown
	}
	if slices.ContainsFunc(want, compare) == negated {
		return No
	}
	return Yes
}

// matches reports whether a value matches a pattern, in which * is any text and ?
// any character.
func matches(pattern, value string) bool {
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	matched, err := regexp.MatchString("^(?s:"+quoted+")$", value)
	return err == nil && matched
}
