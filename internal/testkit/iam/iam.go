// Package iam judges calls of AWS by a role's statements, as IAM does, and knows which parts of a statement no call has
// needed. It knows the elements and operators that the stack's policies have; any other is an error, never a guess.
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

// Call is one call of AWS, as IAM sees it.
type Call struct {
	// Action is such as dynamodb:GetItem.
	Action string
	// Resource is an ARN.
	Resource string
	// Keys are the condition keys that the call has, such as dynamodb:LeadingKeys.
	Keys map[string][]string
}

func (c Call) String() string {
	text := c.Action + " of " + c.Resource
	for _, key := range slices.Sorted(maps.Keys(c.Keys)) {
		text += fmt.Sprintf(" (%s %s)", key, strings.Join(c.Keys[key], ", "))
	}
	return text
}

// ErrDenied is a call that no statement allows, or one denies.
var ErrDenied = errors.New("not allowed")

// Role is a principal with its statements. It is safe for use by several at once.
type Role struct {
	statements []statement

	mu   sync.Mutex
	used map[part]bool
}

// part is a piece of a statement: an action, a resource or a value of a condition.
type part struct {
	statement int
	kind      string
	value     string
}

type statement struct {
	Sid       string
	Effect    string
	Action    list
	Resource  list
	Condition map[string]map[string]list
}

// list is a string or several.
type list []string

func (l *list) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// NewRole returns the role that policy documents make, which are JSON.
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
			return nil, fmt.Errorf("policy document: %w", err)
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
		return fmt.Errorf("its effect is %q", s.Effect)
	}
	if len(s.Action) == 0 || len(s.Resource) == 0 {
		return errors.New("it has no action or no resource")
	}
	for _, pattern := range slices.Concat(s.Action, s.Resource) {
		if strings.Contains(pattern, "${") {
			return fmt.Errorf("the variable in %s is not known here", pattern)
		}
	}
	for operator, conditions := range s.Condition {
		if operators[operator] == nil {
			return fmt.Errorf("the condition operator %s is not known here", operator)
		}
		for key, values := range conditions {
			if strings.Contains(strings.Join(values, " "), "${") {
				return fmt.Errorf("the variable in the condition on %s is not known here", key)
			}
		}
	}
	return nil
}

// operators say which of a condition's values the values of a call's key match, and whether the condition holds.
var operators = map[string]func(want, got list) (matched list, holds bool){
	"StringEquals": func(want, got list) (list, bool) {
		if len(got) != 1 || !slices.Contains(want, got[0]) {
			return nil, false
		}
		return got, true
	},
	"StringLike": func(want, got list) (list, bool) {
		if len(got) != 1 {
			return nil, false
		}
		matched := matching(want, got[0])
		return matched, len(matched) > 0
	},
	// A key that a call does not have has no value that does not match.
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

// Judge allows a call, or says that it is ErrDenied. What of the statements allowed it has been of use, and so has what of
// those that could have denied it looked at it.
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

// names returns the actions and resources that are a call's, if both are.
func (s statement) names(index int, c Call) (parts []part) {
	actions, resources := matching(s.Action, c.Action), matching(s.Resource, c.Resource)
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

// considers returns what of a statement that denies looks at a call, whether it denies that one or not: a key counts as
// soon as the call has it.
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

// Unused names what no call has needed: of the statements that allow, more than the role must have; of those that deny,
// what can deny nothing, such as a condition on a key that no call has. That they do deny is for tests to show.
func (r *Role) Unused() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var unused []string
	for i, s := range r.statements {
		of := map[string]list{"action": s.Action, "resource": s.Resource}
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

// matching returns the patterns that a value matches, in which * stands for anything and ? for one character.
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
