package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// keyPolicy returns the policy of docs/encryption.md for the account. Without IAM, it
// permits no principal of the account to use the key.
func (r *Rehearsal) keyPolicy(account string, iamDecides bool) (string, error) {
	page, err := os.ReadFile(filepath.Join(r.Checkout, "docs", "encryption.md"))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(page), "```json")
	policy, _, _ := strings.Cut(rest, "```")
	policy = strings.NewReplacer("111122223333", account, "eu-central-1", r.Account.Region).Replace(policy)
	if !iamDecides {
		policy = strings.Replace(policy, `"kms:*"`, `"kms:PutKeyPolicy"`, 1)
	}
	return policy, nil
}

// createKey creates a key with the policy that a registry needs, and returns its
// ARN.
func (r *Rehearsal) createKey(ctx context.Context, account string) (string, error) {
	policy, err := r.keyPolicy(account, true)
	if err != nil {
		return "", err
	}
	var out struct{ KeyMetadata struct{ Arn string } }
	err = signedcall.JSON(ctx, r.Account, signedcall.KMS, "CreateKey",
		map[string]string{
			"Description": StackName, "KeyUsage": "ENCRYPT_DECRYPT", // which moto does not set
			"Policy": policy,
		}, &out)
	return out.KeyMetadata.Arn, err
}

// setKeyPolicy replaces the policy of a key by that of [Rehearsal.keyPolicy].
func (r *Rehearsal) setKeyPolicy(ctx context.Context, arn, account string, iamDecides bool) error {
	policy, err := r.keyPolicy(account, iamDecides)
	if err != nil {
		return err
	}
	return signedcall.JSON(ctx, r.Account, signedcall.KMS, "PutKeyPolicy",
		map[string]string{"KeyId": arn, "PolicyName": "default", "Policy": policy}, nil)
}

// encryption decides about the KMS keys of an emulator's stores as KMS does. The
// policy of a key must let the account's own policies decide. Then the caller's must
// permit the request.
type encryption struct {
	config aws.Config // of the emulator
}

func encryptionIn(emulator, region string) encryption {
	config := awstest.Config(emulator)
	config.Region = region
	return encryption{config}
}

// calls returns what a store needs to do with its key for a call, on behalf of the
// caller.
//
// Sources: https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html;
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.howitworks.html.
func (e encryption) calls(ctx context.Context, c iam.Call) ([]iam.Call, error) {
	service, action, _ := strings.Cut(c.Action, ":")
	var key string
	var err error
	switch {
	case action == "GetObject" || action == "PutObject":
		bucket, _, _ := strings.Cut(strings.TrimPrefix(c.Resource, "arn:aws:s3:::"), "/")
		key, err = e.ofBucket(ctx, bucket)
	case service == "dynamodb" && len(c.Keys["dynamodb:LeadingKeys"]) > 0:
		key, err = e.ofTable(ctx, c.Resource[strings.LastIndex(c.Resource, "/")+1:])
	}
	if err != nil || key == "" {
		return nil, err
	}
	use := "kms:Decrypt"
	if action == "PutObject" {
		use = "kms:GenerateDataKey"
	}
	return []iam.Call{{Action: use, Resource: key, Keys: map[string][]string{
		"kms:ViaService": {service + "." + e.config.Region + ".amazonaws.com"},
	}}}, nil
}

func (e encryption) ofBucket(ctx context.Context, bucket string) (string, error) {
	client := s3.NewFromConfig(e.config, func(o *s3.Options) { o.UsePathStyle = true })
	out, err := client.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &bucket})
	if failed, ok := errors.AsType[smithy.APIError](err); ok {
		switch failed.ErrorCode() {
		case "ServerSideEncryptionConfigurationNotFoundError", "NoSuchBucket":
			return "", nil
		}
	}
	if err != nil {
		return "", err
	}
	for _, rule := range out.ServerSideEncryptionConfiguration.Rules {
		if by := rule.ApplyServerSideEncryptionByDefault; by != nil {
			return aws.ToString(by.KMSMasterKeyID), nil
		}
	}
	return "", nil
}

func (e encryption) ofTable(ctx context.Context, table string) (string, error) {
	out, err := dynamodb.NewFromConfig(e.config).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if failed, ok := errors.AsType[smithy.APIError](err); ok && failed.ErrorCode() == "ResourceNotFoundException" {
		return "", nil
	}
	if err != nil || out.Table.SSEDescription == nil {
		return "", err
	}
	return aws.ToString(out.Table.SSEDescription.KMSMasterKeyArn), nil
}

// permits returns an error unless the policy of a key lets the policies of the
// account decide about a call. Statements for services do not count.
func (e encryption) permits(ctx context.Context, c iam.Call) error {
	var out struct{ Policy string }
	if err := signedcall.JSON(ctx, e.config, signedcall.KMS, "GetKeyPolicy",
		map[string]string{"KeyId": c.Resource, "PolicyName": "default"}, &out); err != nil {
		return err
	}
	var policy struct {
		Statement []map[string]any
	}
	if err := json.Unmarshal([]byte(out.Policy), &policy); err != nil {
		return fmt.Errorf("cannot parse the policy of the key %s: %w", c.Resource, err)
	}
	var account []any
	for _, s := range policy.Statement {
		principal, _ := s["Principal"].(map[string]any)
		delete(s, "Principal")
		if who, _ := principal["AWS"].(string); strings.HasSuffix(who, ":root") {
			account = append(account, s)
		} else if principal["Service"] == nil {
			return fmt.Errorf("the rehearsal does not know the principal %v of the key %s", principal, c.Resource)
		}
	}
	text, err := json.Marshal(map[string]any{"Statement": account})
	if err != nil {
		return err
	}
	delegated, err := iam.NewRole(string(text))
	if err == nil {
		err = delegated.Judge(c)
	}
	if err != nil {
		return fmt.Errorf("the policy of the key: %w", err)
	}
	return nil
}

// keyScenario takes the permission to use the key from all roles. The doctor must
// report it, and a read must fail. In AWS, a rehearsal has no key.
func keyScenario(ctx context.Context, r *Registry) error {
	if r.WithoutKey == nil {
		return nil
	}
	denied, err := r.WithoutKey(ctx, func() error {
		_, err := r.Examine(ctx) // its error has the report
		if err == nil || !strings.Contains(err.Error(), `"name": "key"`) {
			return fmt.Errorf("larder doctor --stack does not report a key that may not be used: %w", err)
		}
		if _, err := r.Larder(ctx, "list"); err == nil {
			return errors.New("larder list succeeds with a key that may not be used")
		}
		return nil
	})
	if err == nil && !strings.Contains(strings.Join(denied, "\n"), "the policy of the key") {
		err = fmt.Errorf("the emulator denied nothing because of the key: %q", denied)
	}
	return errors.Join(err, r.examine(ctx))
}
