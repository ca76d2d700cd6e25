// Package iam evaluates AWS requests with a role's policy statements, like IAM.
// It records which parts of the statements no request needed. It supports the
// elements and operators of the stack's policies, and returns errors for
// others.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html.
package iam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Call is an AWS request in IAM's terms.
type Call struct {
	// Action is an action such as dynamodb:GetItem.
	Action string
	// Resource is an ARN.
	Resource string
	// Keys are the request's condition keys, such as dynamodb:LeadingKeys.
	Keys map[string][]string
}

func (c Call) String() string {
	text := c.Action + " of " + c.Resource
	for _, key := range slices.Sorted(maps.Keys(c.Keys)) {
		text += fmt.Sprintf(" (%s %s)", key, strings.Join(c.Keys[key], ", "))
	}
	return text
}

// ErrDenied means that no statement allows a call, or that one denies it.
var ErrDenied = errors.New("not allowed")

// Role is a principal with its statements. Its methods may be called from
// several goroutines.
type Role struct {
	statements []statement
	boundary   *Role

	mu   sync.Mutex
	used map[part]bool
}

// part is a part of a statement: an action, a resource or a value of a
// condition.
type part struct {
	statement int
	kind      string
	value     string
}

type statement struct {
	Sid         string
	Effect      string
	Action      list
	Resource    list
	NotResource list
	Condition   map[string]map[string]list
}

// list is a JSON string or a list of strings.
type list []string

func (l *list) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// NewRole returns the role with the given policy documents, which are JSON.
func NewRole(documents ...string) (*Role, error) {
	r := &Role{used: make(map[part]bool)}
	for _, document := range documents {
		var policy struct {
			Version   string
			Statement []statement
		}
		decoder := json.NewDecoder(bytes.NewReader([]byte(document)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&policy); err != nil {
			return nil, fmt.Errorf("cannot parse the policy document: %w", err)
		}
		for i, s := range policy.Statement {
			if s.Sid == "" {
				s.Sid = fmt.Sprintf("number %d", i+1)
			}
			if err := s.check(); err != nil {
				return nil, fmt.Errorf("statement %s: %w", s.Sid, err)
			}
			r.statements = append(r.statements, s)
		}
	}
	return r, nil
}

func (s statement) check() error {
	if s.Effect != "Allow" && s.Effect != "Deny" {
		return fmt.Errorf("its effect %q is not supported", s.Effect)
	}
	if len(s.Action) == 0 || (len(s.Resource) == 0) == (len(s.NotResource) == 0) {
		return errors.New("the action or the resource is missing")
	}
	for _, pattern := range slices.Concat(s.Action, s.Resource, s.NotResource) {
		if strings.Contains(pattern, "${") {
			return fmt.Errorf("the variable in %s is not supported", pattern)
		}
	}
	for operator, conditions := range s.Condition {
		if operators[operator] == nil {
			return fmt.Errorf("the condition operator %s is not supported", operator)
		}
		for key, values := range conditions {
			if strings.Contains(strings.Join(values, " "), "${") {
				return fmt.Errorf("the variable in the condition on %s is not supported", key)
			}
		}
	}
	return nil
}

// operators return the values of a condition that the values of a call's key
// match, and report whether the condition is met.
var operators = map[string]func(want, got list) (matched list, holds bool){
	"StringEquals": func(want, got list) (list, bool) {
		if len(got) != 1 || !slices.Contains(want, got[0]) {
			return nil, false
		}
		return got, true
	},
	// A key without a value equals nothing.
	"StringNotEquals": func(want, got list) (list, bool) {
		return want, len(got) == 0 || len(got) == 1 && !slices.Contains(want, got[0])
	},
	"StringLike": func(want, got list) (list, bool) {
		if len(got) != 1 {
			return nil, false
		}
		matched := matching(want, got[0])
		return matched, len(matched) > 0
	},
	// A key without values has no value that does not match.
	"ForAllValues:StringLike": func(want, got list) (all list, holds bool) {
		for _, value := range got {
			matched := matching(want, value)
			if len(matched) == 0 {
				return nil, false
			}
			all = append(all, matched...)
		}
		return all, true
	},
	"Null": func(want, got list) (list, bool) {
		absent := "false"
		if len(got) == 0 {
			absent = "true"
		}
		return want, slices.Equal(want, list{absent})
	},
}

// Bound sets the permissions boundary of the role: a call must also be allowed
// by the boundary's statements. Call it before the first call of Judge.
func (r *Role) Bound(boundary *Role) { r.boundary = boundary }

// Judge returns nil if the statements allow a call, and [ErrDenied] otherwise.
// It records the parts of statements that allowed the call, and of those that
// could have denied it, as used.
func (r *Role) Judge(c Call) error {
	var needed []part
	var denied error
	allowed := false
	for i, s := range r.statements {
		parts, applies := s.applies(i, c)
		switch {
		case s.Effect == "Deny":
			needed = append(needed, s.considers(i, c)...)
			if applies && denied == nil {
				denied = fmt.Errorf("%s: %w: statement %s denies it", c, ErrDenied, s.Sid)
			}
		case applies:
			allowed = true
			needed = append(needed, parts...)
		}
	}
	if denied != nil {
		return denied
	}
	if !allowed {
		return fmt.Errorf("%s: %w: no statement allows it", c, ErrDenied)
	}
	if r.boundary != nil {
		if err := r.boundary.Judge(c); err != nil {
			return fmt.Errorf("permissions boundary: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range needed {
		r.used[p] = true
	}
	return nil
}

func (s statement) applies(index int, c Call) (parts []part, applies bool) {
	parts = s.names(index, c)
	if parts == nil {
		return nil, false
	}
	for operator, conditions := range s.Condition {
		for key, want := range conditions {
			matched, holds := operators[operator](want, c.Keys[key])
			if !holds {
				return nil, false
			}
			for _, m := range matched {
				parts = append(parts, part{index, key, m})
			}
		}
	}
	return parts, true
}

// names returns the actions and resources that match a call, if both do.
func (s statement) names(index int, c Call) (parts []part) {
	actions, resources := matching(s.Action, c.Action), matching(s.Resource, c.Resource)
	if s.NotResource != nil && len(matching(s.NotResource, c.Resource)) == 0 {
		resources = s.NotResource
	}
	if len(actions) == 0 || len(resources) == 0 {
		return nil
	}
	for _, a := range actions {
		parts = append(parts, part{index, "action", a})
	}
	for _, r := range resources {
		parts = append(parts, part{index, "resource", r})
	}
	return parts
}

// considers returns the parts of a denying statement that the call evaluates,
// whether it is denied or not. A key is evaluated if the call has it.
func (s statement) considers(index int, c Call) []part {
	parts := s.names(index, c)
	if parts == nil {
		return nil
	}
	for _, conditions := range s.Condition {
		for key := range conditions {
			if len(c.Keys[key]) > 0 {
				parts = append(parts, part{index, "key", key})
			}
		}
	}
	return parts
}

// Unused returns the parts of statements that no call needed. For allowing
// statements, these are superfluous permissions. For denying statements, these
// are parts without any effect, such as a condition on a key that no call has.
// It does not check that the statements deny; tests have to do that.
func (r *Role) Unused() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var unused []string
	for i, s := range r.statements {
		of := map[string]list{"action": s.Action, "resource": slices.Concat(s.Resource, s.NotResource)}
		for _, conditions := range s.Condition {
			for key, values := range conditions {
				if s.Effect == "Deny" {
					of["key"] = append(of["key"], key)
				} else {
					of[key] = append(of[key], values...)
				}
			}
		}
		slices.Sort(of["key"])
		for _, kind := range slices.Sorted(maps.Keys(of)) {
			for _, value := range of[kind] {
				if !r.used[part{i, kind, value}] {
					unused = append(unused, fmt.Sprintf("statement %s: no call needs %s %s", s.Sid, kind, value))
				}
			}
		}
	}
	return unused
}

// matching returns the patterns that a value matches. In a pattern, * matches
// any text and ? one character.
func matching(patterns list, value string) list {
	var out list
	for _, p := range patterns {
		if matches(p, value) {
			out = append(out, p)
		}
	}
	return out
}

func matches(pattern, value string) bool {
	for pattern != "" {
		switch {
		case pattern[0] == '*':
			for pattern != "" && pattern[0] == '*' {
				pattern = pattern[1:]
			}
			for i := range len(value) + 1 {
				if matches(pattern, value[i:]) {
					return true
				}
			}
			return false
		case value == "" || pattern[0] != '?' && pattern[0] != value[0]:
			return false
		}
		pattern, value = pattern[1:], value[1:]
	}
	return value == ""
}
