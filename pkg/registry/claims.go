package registry

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// RuleClaims are the claims that identify a token, and those that documented
// rules of access use. A path of an object begins with a slash.
var RuleClaims = []string{
	"iss", "aud", "sub",
	"repository", "repository_id", "repository_owner_id", "event_name", "workflow_ref", "job_workflow_ref", // GitHub
	"project_path", "project_id", "namespace_id", // GitLab
	"ref", "ref_type", "ref_path", "ref_protected", "environment", // both
	"groups", "roles", "cognito:groups", "/realm_access/roles", // people
}

// maxClaim bounds the shown value of a claim in characters. maxClaims bounds all
// of them in bytes.
const (
	maxClaim  = 200
	maxClaims = 2 << 10
)

// DescribeClaims returns the RuleClaims that a token has, with their values, in
// one bounded and printable line. It is empty if there are none.
func DescribeClaims(all map[string]any) string {
	var texts []string
	for _, name := range RuleClaims {
		if value := Claim(all, name); value != nil {
			texts = append(texts, name+" "+ClaimText(value))
		}
	}
	return printable.Line(strings.Join(texts, ", "), maxClaims)
}

// Claim returns the value of a claim, or nil. A name that begins with a slash is
// a path into objects.
func Claim(all map[string]any, name string) any {
	path, nested := strings.CutPrefix(name, "/")
	if !nested {
		return all[name]
	}
	var value any = all
	for part := range strings.SplitSeq(path, "/") {
		object, _ := value.(map[string]any)
		value = object[part]
	}
	return value
}

// ClaimText returns the value of a claim in a bounded and printable form.
func ClaimText(value any) string {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	var texts []string
	for _, one := range list {
		if number, isNumber := one.(float64); isNumber {
			one = strconv.FormatFloat(number, 'f', -1, 64) // an id, without an exponent
		}
		texts = append(texts, fmt.Sprint(one))
	}
	return printable.Mark(strings.Join(texts, " and "), maxClaim)
}
