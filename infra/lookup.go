package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	formation "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamo "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/settings"
)

// lookupTimeout bounds all requests of a lookup together.
const lookupTimeout = 15 * time.Second

// found is what a lookup finds in the account of a deploy.
type found struct {
	// stack is the deployed stack. It is nil if there is none, if it could not be
	// read, or if there are no credentials.
	stack *deployed
	// unread is why the deployed stack could not be read although the deploy has
	// credentials.
	unread error
	// refused are the reasons why the stack cannot adopt a table or a bucket.
	refused []string
	// warnings are lines about what was not checked.
	warnings []string
}

// errNoCredentials means that neither the CDK nor the app has credentials, so
// that nothing can be deployed.
var errNoCredentials = errors.New("there are no AWS credentials")

// account is the AWS account to which a deploy goes.
type account struct {
	config aws.Config
	// lookup is the role by which the CDK itself reads an account. It is used if
	// the credentials may not read.
	lookup string
	s3     func(*s3.Options)
}

// lookUp reads the deployed stack, and checks the table and the bucket that the
// settings adopt, in the account to which the CDK deploys.
func lookUp(ctx context.Context, s Settings, qualifier string, getenv func(string) string) found {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	adopts := strings.TrimSpace(s.TableName + " " + s.BucketName)
	var f found
	a, err := openAccount(ctx, qualifier, getenv)
	if err != nil {
		if errors.Is(err, errNoCredentials) {
			f.warnings = append(f.warnings, notCompared(err))
		} else {
			f.unread = err
		}
		if adopts != "" {
			f.warnings = append(f.warnings, fmt.Sprintf("cannot check %s: %v", adopts, err))
		}
		return f
	}
	err = a.read(ctx, func(config aws.Config) (err error) {
		f.stack, err = stackOf(ctx, config, s.StackName)
		return err
	})
	f.unread = reason(err)
	for _, store := range []struct {
		name  string
		check func(context.Context, aws.Config, string) (string, error)
	}{{s.TableName, checkTable}, {s.BucketName, a.checkBucket}} {
		if store.name == "" {
			continue
		}
		var why string
		err := a.read(ctx, func(config aws.Config) (err error) {
			why, err = store.check(ctx, config, store.name)
			return err
		})
		switch {
		case err != nil:
			f.warnings = append(f.warnings, fmt.Sprintf("cannot check %s: %v", store.name, reason(err)))
		case why != "":
			f.refused = append(f.refused, fmt.Sprintf("cannot adopt %s: %s", store.name, why))
		}
	}
	return f
}

// useEnvironment is a hint for whoever uses --profile, which the CDK does not
// pass to an app.
const useEnvironment = "If you use --profile, set AWS_PROFILE instead"

// openAccount returns the account to which the CDK deploys. Its error is
// errNoCredentials if neither the CDK nor the environment has credentials.
func openAccount(ctx context.Context, qualifier string, getenv func(string) string) (*account, error) {
	id := getenv("CDK_DEFAULT_ACCOUNT") // which is set if the CDK has credentials
	cfg, err := config.LoadDefaultConfig(ctx)
	if err == nil {
		_, err = cfg.Credentials.Retrieve(ctx)
	}
	if err != nil && id == "" {
		return nil, errNoCredentials
	}
	if err != nil {
		return nil, fmt.Errorf("there are no AWS credentials in the environment. %s", useEnvironment)
	}
	if region := getenv("CDK_DEFAULT_REGION"); region != "" {
		cfg.Region = region
	}
	caller, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("cannot use the environment's AWS credentials: %w", reason(err))
	}
	got := aws.ToString(caller.Account)
	if id = cmp.Or(id, got); got != id {
		return nil, fmt.Errorf("the environment's AWS credentials are for account %s, "+
			"and the deploy goes to %s. %s", got, id, useEnvironment)
	}
	partition := "aws"
	if who, err := arn.Parse(aws.ToString(caller.Arn)); err == nil {
		partition = who.Partition
	}
	pathStyle, err := settings.PathStyle(getenv)
	if err != nil {
		return nil, err
	}
	return &account{
		config: cfg,
		lookup: fmt.Sprintf("arn:%s:iam::%s:role/cdk-%s-lookup-role-%s-%s", partition, id, qualifier, id, cfg.Region),
		s3:     func(o *s3.Options) { o.UsePathStyle = pathStyle },
	}, nil
}

// read does something with the credentials of the environment, and once more with
// the CDK's own role if they may not. A pipeline often may do nothing but assume
// the CDK's roles.
func (a *account) read(ctx context.Context, do func(aws.Config) error) error {
	err := do(a.config)
	if !denied(err) {
		return err
	}
	assumed := a.config.Copy()
	provider := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(a.config), a.lookup)
	assumed.Credentials = aws.NewCredentialsCache(provider)
	if _, failed := assumed.Credentials.Retrieve(ctx); failed != nil {
		return err
	}
	return do(assumed)
}

func denied(err error) bool {
	failed, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains([]string{"AccessDenied", "AccessDeniedException", "Forbidden"}, failed.ErrorCode())
}

// reason returns an error of the SDK without what only its developers need. It
// is one line.
func reason(err error) error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[smithy.APIError](err); ok && failed.ErrorMessage() != "" {
		return fmt.Errorf("%s: %s", failed.ErrorCode(), failed.ErrorMessage())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("AWS does not answer")
	}
	if first, _, more := strings.Cut(err.Error(), "\n"); more {
		return errors.New(first)
	}
	return err
}

// stackOf returns a deployed stack; nil if there is none, or if it was never
// completely created.
func stackOf(ctx context.Context, cfg aws.Config, name string) (*deployed, error) {
	client := cloudformation.NewFromConfig(cfg)
	out, err := client.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
	if failed, ok := errors.AsType[smithy.APIError](err); ok && failed.ErrorCode() == "ValidationError" &&
		strings.Contains(failed.ErrorMessage(), "does not exist") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := &deployed{Outputs: make(map[string]string)}
	for _, s := range out.Stacks {
		switch s.StackStatus {
		case formation.StackStatusReviewInProgress, formation.StackStatusCreateFailed,
			formation.StackStatusRollbackComplete,
			formation.StackStatusRollbackFailed, formation.StackStatusDeleteComplete:
			return nil, nil
		}
		for _, o := range s.Outputs {
			d.Outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
		}
	}
	template, err := client.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: &name})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(aws.ToString(template.TemplateBody)), d); err != nil {
		return nil, fmt.Errorf("cannot read the template of stack %s: %w", name, err)
	}
	return d, nil
}

// checkTable returns the reason why the stack cannot adopt a table.
func checkTable(ctx context.Context, cfg aws.Config, name string) (string, error) {
	out, err := dynamodb.NewFromConfig(cfg).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if _, ok := errors.AsType[*dynamo.ResourceNotFoundException](err); ok {
		return fmt.Sprintf("there is no such table in %s", cfg.Region), nil
	}
	if err != nil {
		return "", err
	}
	var keys []string
	for _, k := range out.Table.KeySchema {
		kind := ""
		for _, a := range out.Table.AttributeDefinitions {
			if aws.ToString(a.AttributeName) == aws.ToString(k.AttributeName) {
				kind = string(a.AttributeType)
			}
		}
		keys = append(keys, fmt.Sprintf("%s %s %s", aws.ToString(k.AttributeName), k.KeyType, kind))
	}
	if got := strings.Join(keys, ", "); got != "pk HASH S, sk RANGE S" {
		return fmt.Sprintf("its key is %s, and the registry's is pk HASH S, sk RANGE S", got), nil
	}
	if sse := out.Table.SSEDescription; sse != nil && sse.KMSMasterKeyArn != nil {
		return checkKey(ctx, cfg, *sse.KMSMasterKeyArn)
	}
	return "", nil
}

// checkBucket returns the reason why the stack cannot adopt a bucket.
func (a *account) checkBucket(ctx context.Context, cfg aws.Config, name string) (string, error) {
	client := s3.NewFromConfig(cfg, a.s3)
	head, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
	region := ""
	if head != nil {
		region = aws.ToString(head.BucketRegion)
	}
	if failed, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		region = failed.Response.Header.Get("X-Amz-Bucket-Region")
		if failed.HTTPStatusCode() == http.StatusNotFound {
			return "there is no such bucket", nil
		}
	}
	if region != "" && region != cfg.Region {
		return fmt.Sprintf("the bucket is in %s, and the stack goes to %s", region, cfg.Region), nil
	}
	if err != nil {
		return "", err
	}
	encryption, err := client.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &name})
	if failed, ok := errors.AsType[smithy.APIError](err); ok &&
		failed.ErrorCode() == "ServerSideEncryptionConfigurationNotFoundError" {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, rule := range encryption.ServerSideEncryptionConfiguration.Rules {
		if by := rule.ApplyServerSideEncryptionByDefault; by != nil && by.KMSMasterKeyID != nil {
			return checkKey(ctx, cfg, *by.KMSMasterKeyID)
		}
	}
	return "", nil
}

// checkKey returns the reason why the stack cannot use what a key of KMS
// encrypts. AWS's own keys need no permission.
func checkKey(ctx context.Context, cfg aws.Config, id string) (string, error) {
	out, err := kms.NewFromConfig(cfg).DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &id})
	if err != nil {
		return "", err
	}
	if out.KeyMetadata.KeyManager == kmstypes.KeyManagerTypeAws {
		return "", nil
	}
	return fmt.Sprintf("it is encrypted with your KMS key %s, for which the stack's roles have no permission. "+
		"Use a key that AWS owns or manages", aws.ToString(out.KeyMetadata.Arn)), nil
}
