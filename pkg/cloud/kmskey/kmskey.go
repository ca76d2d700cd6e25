// Package kmskey finds out why a registry cannot use a KMS key, before a request
// fails. KMS decides by the key's state and policy, and by the policies of IAM.
//
// Source: https://docs.aws.amazon.com/kms/latest/developerguide/policy-evaluation.html.
package kmskey

import (
	"context"
	"fmt"
	"maps"
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
	// State is its state in KMS, such as Enabled or PendingDeletion.
	State string

	usage, spec string
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
	case k.State != "Enabled":
		return "its state is " + k.State
	case k.usage != "ENCRYPT_DECRYPT" || k.spec != "SYMMETRIC_DEFAULT":
		return fmt.Sprintf("it is a key for %s with the spec %s, and not a symmetric one for encryption", k.usage, k.spec)
	}
	return ""
}

// Use is how a registry uses a key.
type Use struct {
	// Key is the ARN of the key. Account and Region are those of the registry.
	Key, Account, Region string
	// Roles are the roles of its functions. They can be missing for a stack that
	// does not exist yet.
	Roles []Role
	// Existing means that the roles exist, so that the policy can name roles which
	// are not given here.
	Existing bool
	// Deployer is the ARN of the role that creates the table. It is empty if no
	// table is created.
	Deployer string
	// LogGroups are the ARNs of its log groups.
	LogGroups []string
	// Alarms means that CloudWatch publishes to a topic with the key.
	Alarms bool
}

// Role is a role of a function. Writes means that it writes objects.
type Role struct {
	ARN    string
	Writes bool
}

// need is an action that someone needs, by a request of a service.
type need struct{ service, action string }

// What each use needs.
//
// Sources: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html,
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html,
// https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html.
var (
	reading  = []need{{"dynamodb", "kms:Decrypt"}, {"s3", "kms:Decrypt"}}
	writing  = append(reading[:2:2], need{"s3", "kms:GenerateDataKey"})
	creating = []need{
		{"dynamodb", "kms:CreateGrant"}, {"dynamodb", "kms:Encrypt"}, {"dynamodb", "kms:Decrypt"},
		{"dynamodb", "kms:GenerateDataKey"}, {"", "kms:DescribeKey"},
	}
	logging = []need{
		{"", "kms:Encrypt"}, {"", "kms:Decrypt"}, {"", "kms:ReEncryptFrom"}, {"", "kms:GenerateDataKey"},
		{"", "kms:DescribeKey"},
	}
	alarming = []need{{"", "kms:Decrypt"}, {"", "kms:GenerateDataKey"}}
)

// Refused returns the users that the policy of a key refuses, and those for which
// conditions decide that cannot be evaluated here.
func (u Use) Refused(p resourcepolicy.Policy) (refused, undecided []string) {
	add := func(whom string, answer resourcepolicy.Answer) {
		switch answer {
		case resourcepolicy.No:
			refused = append(refused, whom)
		case resourcepolicy.Unknown:
			undecided = append(undecided, whom)
		}
	}
	if len(u.Roles) == 0 {
		add("the roles of the functions", u.orNamed(u.role(p, "", writing)))
	}
	for _, role := range u.Roles {
		needs := reading
		if role.Writes {
			needs = writing
		}
		add("the role "+role.ARN[strings.LastIndex(role.ARN, "/")+1:], u.role(p, role.ARN, needs))
	}
	if u.Deployer != "" {
		add("the deploy of the table", u.orNamed(u.role(p, u.Deployer, creating)))
	}
	logs := resourcepolicy.Yes
	for _, group := range u.LogGroups {
		keys := map[string]string{"kms:EncryptionContext:aws:logs:arn": group, "aws:SourceArn": group}
		answer := u.service(p, partition.Host("logs", u.Region), keys, logging)
		if answer == resourcepolicy.No && u.service(p, "logs.amazonaws.com", keys, logging) == resourcepolicy.Yes {
			answer = resourcepolicy.Unknown // AWS documents only the name with the region
		}
		logs = min(logs, answer)
	}
	add("CloudWatch Logs", logs)
	if u.Alarms {
		add("alarms of CloudWatch", u.service(p, "cloudwatch.amazonaws.com", nil, alarming))
	}
	return refused, undecided
}

// orNamed returns Unknown for No if the policy can name other roles.
func (u Use) orNamed(answer resourcepolicy.Answer) resourcepolicy.Answer {
	if u.Existing {
		return max(answer, resourcepolicy.Unknown)
	}
	return answer
}

// role returns whether a role of the account can do all that it needs, as far as the
// policy decides. The ARN of the role can be empty.
func (u Use) role(p resourcepolicy.Policy, arn string, needs []need) resourcepolicy.Answer {
	root := awsarn.ARN{
		Partition: partition.Of(u.Region).ID, Service: "iam", AccountID: u.Account, Resource: "root",
	}.String()
	r := resourcepolicy.Request{
		Principals: []string{u.Account, root},
		Keys: map[string]string{
			"kms:CallerAccount": u.Account, "aws:PrincipalAccount": u.Account,
			"aws:PrincipalIsAWSService": "false", "kms:GrantIsForAWSResource": "true",
		},
	}
	if arn != "" {
		r.Principals = append(r.Principals, arn)
		r.Keys["aws:PrincipalArn"] = arn
	}
	return u.permits(p, r, needs)
}

// service returns whether a service can do all that it needs. more are condition
// keys of its requests.
func (u Use) service(p resourcepolicy.Policy, host string, more map[string]string, needs []need) resourcepolicy.Answer {
	keys := map[string]string{"aws:SourceAccount": u.Account, "aws:PrincipalIsAWSService": "true"}
	maps.Copy(keys, more)
	return u.permits(p, resourcepolicy.Request{Service: host, Keys: keys}, needs)
}

// permits returns the worst answer to a request with each of the needs.
func (u Use) permits(p resourcepolicy.Policy, r resourcepolicy.Request, needs []need) resourcepolicy.Answer {
	worst := resourcepolicy.Yes
	r.Resource, r.Keys["aws:SecureTransport"] = u.Key, "true"
	for _, n := range needs {
		delete(r.Keys, "kms:ViaService")
		if n.service != "" {
			r.Keys["kms:ViaService"] = partition.Host(n.service, u.Region)
		}
		r.Action = n.action
		worst = min(worst, p.Permits(r))
	}
	return worst
}
