package stackdoctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// policy is a bucket policy.
type policy struct{ Statement []statement }

type statement struct {
	Effect    string
	Principal json.RawMessage
	Action    list
	Resource  list
	Condition map[string]map[string]list
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

// condition is a part of a statement's condition. The key must have the value
// under the operator.
type condition struct{ operator, key, value string }

// The conditions of the statements that every registry's bucket needs. A PUT
// without If-None-Match could replace an object.
var (
	putOnce = []condition{{"Null", "s3:if-none-match", "true"}, {"Bool", "s3:ObjectCreationOperation", "true"}}
	tlsOnly = condition{"Bool", "aws:SecureTransport", "false"}
)

// parsePolicy parses a policy. An empty text is a policy without statements. It
// ignores statements that it does not understand.
func parsePolicy(text string) (policy, error) {
	if text == "" {
		return policy{}, nil
	}
	var document struct{ Statement json.RawMessage }
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return policy{}, fmt.Errorf("invalid JSON: %w", err)
	}
	var all []json.RawMessage
	if json.Unmarshal(document.Statement, &all) != nil {
		all = []json.RawMessage{document.Statement}
	}
	var p policy
	for _, one := range all {
		var s statement
		if json.Unmarshal(one, &s) == nil {
			p.Statement = append(p.Statement, s)
		}
	}
	return p, nil
}

// denies reports whether a statement denies everyone an action on all objects
// of a bucket under no other conditions than these. A statement with fewer
// conditions denies more.
func (p policy) denies(action, bucket string, under ...condition) bool {
	return slices.ContainsFunc(p.Statement, func(s statement) bool {
		return s.Effect == "Deny" && s.everyone() && s.covers(action, bucket) && s.only(under)
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

func (s statement) covers(action, bucket string) bool {
	acts := slices.ContainsFunc(s.Action, func(a string) bool {
		return a == "*" || a == "s3:*" || strings.EqualFold(a, action) ||
			strings.HasSuffix(a, "*") && strings.HasPrefix(action, strings.TrimSuffix(a, "*"))
	})
	return acts &&
		slices.ContainsFunc(
			s.Resource,
			func(r string) bool { return r == "*" || strings.HasSuffix(r, ":::"+bucket+"/*") },
		)
}

// only reports whether a statement has no other conditions than these.
func (s statement) only(under []condition) bool {
	for operator, keys := range s.Condition {
		for key := range maps.Keys(keys) {
			if !slices.ContainsFunc(under, func(c condition) bool {
				return operator == c.operator && strings.EqualFold(key, c.key) && slices.Equal(keys[key], list{c.value})
			}) {
				return false
			}
		}
	}
	return true
}
