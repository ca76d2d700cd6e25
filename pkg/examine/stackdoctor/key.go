package stackdoctor

import (
	"context"
	"fmt"
	"strings"

	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/larder-registry/larder/pkg/cloud/kmskey"
	"github.com/larder-registry/larder/pkg/settings"
)

// encryptedWith examines the key that encrypts a store, by its id, ARN or alias. It
// is empty if AWS owns the key. The stack's roles may use only the stack's own key.
// encryptedWith returns true if it added no step. aws and own are the commands that
// encrypt the store with a key of AWS and with a key.
func (e *examination) encryptedWith(ctx context.Context, c call, id, aws, own string) bool {
	stacks := e.outputs[settings.OutputKey]
	if id == stacks {
		return true
	}
	if id != "" {
		switch key, err := kmskey.Describe(ctx, e.Services.Config, id); {
		case err != nil && denied.MatchString(code(err)):
			e.warn(c.step, c.String(), fmt.Sprintf("it is encrypted with the key %s, and these credentials may not read it. "+
				"Unless AWS manages the key, requests fail", id), "attach the policy in the stack's output "+
				settings.OutputOperatorPolicy+", from this release; if the key is yours, set kmsKeyArn to its ARN, and deploy")
			return false
		case err != nil:
			e.failed(c, err)
			return false
		case key.ARN == stacks:
			return true
		case !key.OfAWS && stacks != "":
			e.wrong(c.step, c.String(), fmt.Sprintf("it is encrypted with the key %s, but the functions may use only the "+
				"stack's key %s, so requests fail", key.ARN, stacks), own+stacks)
			return false
		case !key.OfAWS:
			e.wrong(c.step, c.String(), fmt.Sprintf("it is encrypted with the key %s, for which the functions have no "+
				"permission, so requests fail", key.ARN), "set kmsKeyArn to that ARN, and deploy; or "+aws)
			return false
		}
	}
	if stacks != "" {
		e.warn(c.step, c.String(), "it is not encrypted with the stack's key "+stacks, own+stacks)
		return false
	}
	return true
}

// key examines the stack's own key: its state, and whether its policy permits what
// the registry needs.
func (e *examination) key(ctx context.Context) {
	arn := e.outputs[settings.OutputKey]
	if arn == "" {
		return
	}
	c := call{"key", "kms:DescribeKey", arn}
	key, err := kmskey.Describe(ctx, e.Services.Config, arn)
	if code(err) == "NotFoundException" {
		e.wrong(c.step, c.String(), "the key "+arn+" does not exist, so nothing that it encrypts can be read",
			"a deleted key cannot be restored; restore a copy that another key encrypts: see docs/restore-aws.md")
		return
	}
	if err != nil {
		e.failed(c, err)
		return
	}
	if why := key.Unusable(); why != "" {
		e.wrong(c.step, c.String(), "requests fail, because the key "+arn+" cannot be used: "+why, revive(key))
		return
	}
	if of, err := awsarn.Parse(arn); err == nil && of.AccountID != e.arn.AccountID {
		e.skip(c.step, "the key belongs to another account, and only that account can read its policy")
		return
	}
	if e.template == nil {
		e.unknown(c.step, c.String(), "cannot check key: its policy must permit roles that are in the template",
			"see the step template")
		return
	}
	c.action = "kms:GetKeyPolicy"
	policy, err := kmskey.Policy(ctx, e.Services.Config, arn)
	if err != nil {
		e.failed(c, err)
		return
	}
	refused, undecided := e.use(arn).Refused(policy)
	switch {
	case len(refused) > 0:
		e.wrong(c.step, c.String(), fmt.Sprintf("the policy of the key %s does not permit these to use it, so their "+
			"requests fail: %s", arn, strings.Join(refused, ", ")),
			"add the statements of docs/encryption.md to it, and remove what denies them: aws kms put-key-policy")
	case len(undecided) > 0:
		e.unknown(c.step, c.String(), fmt.Sprintf("cannot check key: its policy has conditions that decide whether it permits %s",
			strings.Join(undecided, ", ")), "read the policy: aws kms get-key-policy --key-id "+arn+" --output text")
	default:
		e.ok(c.step, "it is enabled, and its policy permits what the registry needs")
	}
}

// revive returns how to make a key usable.
func revive(key kmskey.Key) string {
	enable := "aws kms enable-key --key-id " + key.ARN
	switch key.State {
	case "Disabled":
		return enable
	case "PendingDeletion":
		return "aws kms cancel-key-deletion --key-id " + key.ARN + "; then " + enable
	}
	return "read what is wrong with it: aws kms describe-key --key-id " + key.ARN
}

// use returns how the stack uses its key. It needs the template.
func (e *examination) use(key string) kmskey.Use {
	use := kmskey.Use{
		Key: key, Account: e.arn.AccountID, Region: e.Region,
		Alarms: len(e.template.all("AWS::SNS::Topic")) > 0, // not an owner's topic
	}
	for logical := range e.template.all("AWS::Logs::LogGroup") {
		group := e.arn
		group.Service, group.Resource = "logs", "log-group:"+e.template.names[logical]
		use.LogGroups = append(use.LogGroups, group.String())
	}
	for function := range strings.SplitSeq(e.outputs[settings.OutputFunctions], ",") {
		_, physical, _ := strings.Cut(function, "=")
		f, _ := e.template.function(physical)
		arn, _ := e.template.text(f.at("Role"))
		attribute, _ := f.at("Role", "Fn::GetAtt").([]any) // of the role's logical ID
		if arn == "" || len(attribute) == 0 {
			continue
		}
		// The role's own permissions show what the function needs.
		policies := fmt.Sprint(e.template.Resources[fmt.Sprint(attribute[0])].at("Policies"))
		if strings.Contains(policies, "kms:Decrypt") {
			use.Roles = append(use.Roles, kmskey.Role{ARN: arn, Writes: strings.Contains(policies, "kms:GenerateDataKey")})
		}
	}
	return use
}
