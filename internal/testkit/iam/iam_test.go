package iam_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/iam"
)

const document = `{"Version": "2012-10-17", "Statement": [
	{"Sid": "Items", "Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:Query"], "Resource":
	"arn:aws:dynamodb:r:1:table/t",
	 "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["modules/*", "tokens"]}, "Null":
	{"dynamodb:LeadingKeys": "false"}}},
	{"Sid": "Objects", "Effect": "Allow", "Action": "s3:GetObject", "Resource": ["arn:aws:s3:::b/modules/*"]},
	{"Sid": "List", "Effect": "Allow", "Action": "s3:List*", "Resource": "arn:aws:s3:::b", "Condition": {"StringLike":
	{"s3:prefix": "modules/*"}}},
	{"Sid": "Tags", "Effect": "Allow", "Action": "s3:PutObjectTagging", "Resource": "arn:aws:s3:::b/*",
	 "Condition": {"StringEquals": {"s3:RequestObjectTag/larder": ["staged", "kept", "*"]}}},
	{"Sid": "Kept", "Effect": "Deny", "Action": "s3:PutObjectTagging", "Resource": ["arn:aws:s3:::b/modules/*",
	"arn:aws:s3:::b/providers/*"],
	 "Condition": {"StringEquals": {"s3:ExistingObjectTag/larder": "kept"}}},
	{"Effect": "Deny", "Action": "*", "Resource": "arn:aws:s3:::b/modules/secret?"}
]}`

// limits has the elements of the CDK's policies and of a pipeline's.
const limits = `{"Version": "2012-10-17", "Statement": [
	{"Effect": "Allow", "Action": "cloudformation:*", "Resource": "*"},
	{"Effect": "Deny", "Action": "cloudformation:UpdateStack", "NotResource": "arn:s:stack/larder/*"},
	{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", "Condition": {"StringNotEquals":
	{"s3:ResourceAccount": "1"}}}
]}`

// Deny statements can exclude resources, and conditions values. A boundary limits
// what a role may do, and allows nothing itself.
func TestLimits(t *testing.T) {
	t.Parallel()
	within := func(boundary string) *iam.Role {
		role, err := iam.NewRole(limits)
		if err != nil {
			t.Fatal(err)
		}
		if boundary != "" {
			bound, err := iam.NewRole(boundary)
			if err != nil {
				t.Fatal(err)
			}
			role.Bound(bound)
		}
		return role
	}
	const read = `{"Statement": [{"Effect": "Allow", "Action": ["cloudformation:Describe*", "s3:PutObject"], "Resource": "*"}]}`
	for _, test := range []struct {
		boundary string
		call     iam.Call
		allowed  bool
	}{
		{"", call("cloudformation:UpdateStack", "arn:s:stack/larder/1"), true},
		{"", call("cloudformation:UpdateStack", "arn:s:stack/other/1"), false},
		{"", call("cloudformation:DescribeStacks", "arn:s:stack/other/1"), true},
		{"", call("s3:GetObject", "arn:o", "s3:ResourceAccount", "2"), true},
		{"", call("s3:GetObject", "arn:o", "s3:ResourceAccount", "1"), false},
		{"", call("s3:GetObject", "arn:o"), true},
		{read, call("cloudformation:DescribeStacks", "arn:s:stack/larder/1"), true},
		{read, call("cloudformation:UpdateStack", "arn:s:stack/larder/1"), false},
		{read, call("s3:PutObject", "arn:o"), false},
	} {
		if err := within(test.boundary).Judge(test.call); (err == nil) != test.allowed {
			t.Errorf("%s within %q: %v, and should be allowed: %v", test.call, test.boundary, err, test.allowed)
		}
	}
}

func call(action, resource string, keys ...string) iam.Call {
	c := iam.Call{Action: action, Resource: resource}
	if len(keys) > 0 {
		c.Keys = map[string][]string{keys[0]: keys[1:]}
	}
	return c
}

// tagging returns a call that changes a tag of an object from one value to
// another. existing may be empty.
func tagging(resource, existing, requested string) iam.Call {
	c := call("s3:PutObjectTagging", "arn:aws:s3:::b/"+resource, "s3:RequestObjectTag/larder", requested)
	if existing != "" {
		c.Keys["s3:ExistingObjectTag/larder"] = []string{existing}
	}
	return c
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const table = "arn:aws:dynamodb:r:1:table/t"
	for _, test := range []struct {
		call    iam.Call
		allowed bool
	}{
		{call("dynamodb:GetItem", table, "dynamodb:LeadingKeys", "modules/acme/vpc/aws"), true},
		{call("dynamodb:Query", table, "dynamodb:LeadingKeys", "tokens"), true},
		{call("dynamodb:Query", table, "dynamodb:LeadingKeys", "tokens", "keys/acme"), false},
		{call("dynamodb:GetItem", table, "dynamodb:LeadingKeys", "providers/acme/x"), false},
		{call("dynamodb:GetItem", table), false}, // without keys, only the first condition is met
		{call("dynamodb:GetItem", table+"2", "dynamodb:LeadingKeys", "tokens"), false},
		{call("dynamodb:PutItem", table, "dynamodb:LeadingKeys", "tokens"), false},
		{call("s3:GetObject", "arn:aws:s3:::b/modules/a/b"), true},
		{call("s3:GetObject", "arn:aws:s3:::b/modules/secret1"), false},
		{call("s3:GetObject", "arn:aws:s3:::b/modules/secret12"), true},
		{call("s3:GetObject", "arn:aws:s3:::b/providers/a"), false},
		{call("s3:ListBucket", "arn:aws:s3:::b", "s3:prefix", "modules/a"), true},
		{call("s3:ListBucket", "arn:aws:s3:::b"), false},
		{tagging("modules/a", "", "staged"), true},
		{tagging("modules/a", "staged", "kept"), true},
		{tagging("modules/a", "kept", "kept"), false},
		{tagging("modules/a", "kept", "staged"), false},
		{tagging("other/a", "kept", "staged"), true},
		{tagging("modules/a", "staged", "other"), false}, // a star in the value is not a pattern
		{tagging("modules/a", "staged", "*"), true},
		{call("s3:PutObjectTagging", "arn:aws:s3:::b/modules/a"), false},
		{call("s3:PutObjectTagging", "arn:aws:s3:::b/modules/a", "s3:RequestObjectTag/larder", "staged", "kept"),
			false},
	} {
		role, err := iam.NewRole(document)
		if err != nil {
			t.Fatal(err)
		}
		switch err := role.Judge(test.call); {
		case test.allowed && err != nil:
			t.Error(err)
		case !test.allowed && !errors.Is(err, iam.ErrDenied):
			t.Errorf("%s is allowed", test.call)
		case !test.allowed && !strings.Contains(err.Error(), test.call.String()):
			t.Errorf("%v does not name %s", err, test.call)
		}
	}
}

func TestUnused(t *testing.T) {
	t.Parallel()
	role, err := iam.NewRole(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []iam.Call{
		call("dynamodb:GetItem", "arn:aws:dynamodb:r:1:table/t", "dynamodb:LeadingKeys", "tokens"),
		call("s3:GetObject", "arn:aws:s3:::b/modules/a"),
		tagging("modules/a", "", "staged"),
	} {
		if err := role.Judge(c); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"statement Items: no call needs action dynamodb:Query",
		"statement Items: no call needs dynamodb:LeadingKeys modules/*",
		"statement List: no call needs action s3:List*",
		"statement List: no call needs resource arn:aws:s3:::b",
		"statement List: no call needs s3:prefix modules/*",
		"statement Tags: no call needs s3:RequestObjectTag/larder kept",
		"statement Tags: no call needs s3:RequestObjectTag/larder *",
		"statement Kept: no call needs key s3:ExistingObjectTag/larder",
		"statement Kept: no call needs resource arn:aws:s3:::b/providers/*",
		"statement number 6: no call needs action *",
		"statement number 6: no call needs resource arn:aws:s3:::b/modules/secret?",
	}
	if got := role.Unused(); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	// A denying statement is used if it could deny. A denied call does not make
	// other statements used.
	if err := role.Judge(tagging("providers/a", "kept", "kept")); !errors.Is(err, iam.ErrDenied) {
		t.Fatal(err)
	}
	if err := role.Judge(tagging("providers/a", "staged", "kept")); err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(s string) bool {
		return strings.HasPrefix(s, "statement Kept") ||
			s == "statement Tags: no call needs s3:RequestObjectTag/larder kept"
	})
	if got := role.Unused(); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

func TestNewRoleRefuses(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		`{"Effect": "Allow", "NotAction": "s3:GetObject", "Resource": "*"}`,
		`{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}`,
		`{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/${aws:username}"}`,
		`{"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": {"StringLike": {"s3:prefix": ["a",
			"${aws:username}/*"]}}}`,
		`{"Effect": "Permit", "Action": "*", "Resource": "*"}`,
		`{"Effect": "Allow", "Action": [], "Resource": "*"}`,
		`{"Effect": "Allow", "Action": "*"}`,
		`{"Effect": "Allow", "Action": "*", "Resource": "a", "NotResource": "b"}`,
		`{"Effect": "Allow", "Action": {"a": 1}, "Resource": "*"}`,
		`]`,
	} {
		if _, err := iam.NewRole(`{"Version": "2012-10-17", "Statement": [` + statement + `]}`); err == nil {
			t.Errorf("%s is accepted", statement)
		}
	}
}
