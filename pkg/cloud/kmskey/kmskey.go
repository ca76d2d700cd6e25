// Package kmskey finds out why a registry cannot use a KMS key, before a request
// fails. KMS decides by the key's state and policy, and by the policies of IAM.
//
// Source: https://docs.aws.amazon.com/kms/latest/developerguide/policy-evaluation.html.
package kmskey

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/cloud/resourcepolicy"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// Key describes a key.
type Key struct {
	// ARN is its ARN, also if it was read by another name.
	ARN string
	// OfAWS means that AWS manages it, so that no principal needs a permission.
	OfAWS bool

	state, usage, spec string
}

// Describe reads a key by its id, ARN or alias. It needs kms:DescribeKey.
func Describe(ctx context.Context, config aws.Config, id string) (Key, error) {
	var out struct {
		KeyMetadata struct{ Arn, KeyManager, KeyState, KeyUsage, KeySpec string }
	}
	err := signedcall.JSON(ctx, config, signedcall.KMS, "DescribeKey", map[string]string{"KeyId": id}, &out)
	if err != nil {
		return Key{}, err
	}
	m := out.KeyMetadata
	return Key{m.Arn, m.KeyManager == "AWS", m.KeyState, m.KeyUsage, m.KeySpec}, nil
}

// Policy reads the policy of a key. It needs kms:GetKeyPolicy, which a key of
// another account does not permit.
func Policy(ctx context.Context, config aws.Config, arn string) (resourcepolicy.Policy, error) {
	var out struct{ Policy string }
	err := signedcall.JSON(ctx, config, signedcall.KMS, "GetKeyPolicy",
		map[string]string{"KeyId": arn, "PolicyName": "default"}, &out)
	if err != nil {
		return resourcepolicy.Policy{}, err
	}
	return resourcepolicy.Parse(out.Policy)
}

// Unusable returns why nobody can use a key to encrypt, or "".
func (k Key) Unusable() string {
	switch {
	case k.state != "Enabled":
		return "its state is " + k.state
	case k.usage != "ENCRYPT_DECRYPT" || k.spec != "SYMMETRIC_DEFAULT":
		return fmt.Sprintf("it is a key for %s with the spec %s, and not a symmetric one for encryption", k.usage, k.spec)
	}
	return ""
}

// Use is how a registry uses a key.
type Use struct {
	// Account and Region are those of the registry.
	Account, Region string
	// Roles are the roles of its functions. They can be missing for a stack that
	// does not exist yet.
	Roles []Role
	// LogGroup is the ARN of one of its log groups.
	LogGroup string
	// Alarms means that CloudWatch publishes to a topic with the key.
	Alarms bool
}

// Role is a role of a function. Writes means that it writes objects.
type Role struct {
	ARN    string
	Writes bool
}

// Refused returns for whom the policy of a key does not permit a use, and for whom
// that cannot be decided.
func (u Use) Refused(p resourcepolicy.Policy) (refused, undecided []string) {
	where := partition.Of(u.Region)
	root := awsarn.ARN{Partition: where.ID, Service: "iam", AccountID: u.Account, Resource: "root"}.String()
	judge := func(whom string, answers ...resourcepolicy.Answer) {
		worst := resourcepolicy.Yes
		for _, a := range answers {
			if a == resourcepolicy.No || worst == resourcepolicy.Yes {
				worst = a
			}
		}
		switch worst {
		case resourcepolicy.No:
			refused = append(refused, whom)
		case resourcepolicy.Unknown:
			undecided = append(undecided, whom)
		}
	}
	through := func(service string) string { return partition.Host(service, u.Region) }
	answers := func(role Role) []resourcepolicy.Answer {
		var answers []resourcepolicy.Answer
		needs := []struct{ action, service string }{{"kms:Decrypt", "dynamodb"}, {"kms:Decrypt", "s3"}}
		if role.Writes {
			needs = append(needs, struct{ action, service string }{"kms:GenerateDataKey", "s3"})
		}
		for _, need := range needs {
			r := resourcepolicy.Request{
				Action: need.action, Principals: []string{u.Account, root},
				Keys: map[string]string{
					"kms:ViaService": through(need.service), "kms:CallerAccount": u.Account, "aws:PrincipalAccount": u.Account,
				},
			}
			if role.ARN != "" {
				r.Principals = append(r.Principals, role.ARN)
				r.Keys["aws:PrincipalArn"] = role.ARN
			}
			answers = append(answers, p.Permits(r))
		}
		return answers
	}
	if len(u.Roles) == 0 {
		judge("the roles of the functions", answers(Role{Writes: true})...)
	}
	for _, role := range u.Roles {
		judge("the role "+role.ARN[strings.LastIndex(role.ARN, "/")+1:], answers(role)...)
	}
	judge("CloudWatch Logs", p.Permits(resourcepolicy.Request{
		Action: "kms:GenerateDataKey", Service: through("logs"),
		Keys: map[string]string{
			"kms:EncryptionContext:aws:logs:arn": u.LogGroup, "aws:SourceArn": u.LogGroup, "aws:SourceAccount": u.Account,
		},
	}))
	if u.Alarms {
		judge("alarms of CloudWatch", p.Permits(resourcepolicy.Request{
			Action: "kms:GenerateDataKey", Service: "cloudwatch.amazonaws.com",
			Keys: map[string]string{"aws:SourceAccount": u.Account},
		}))
	}
	return refused, undecided
}
