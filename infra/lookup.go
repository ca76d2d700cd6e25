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
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamo "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/cloud/kmskey"
	"github.com/larder-registry/larder/pkg/cloud/partition"
	"github.com/larder-registry/larder/pkg/cloud/resourcepolicy"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// lookupTimeout is the timeout of all requests of a lookup together.
const lookupTimeout = 15 * time.Second

// found is the result of a lookup in the account of a deploy.
type found struct {
	// stack is the deployed stack. It is nil if there is none, if it could not
	// be read, or if there are no credentials.
	stack *deployed
	// unread is the reason why the deployed stack could not be read, although
	// the deploy has credentials.
	unread error
	// refused are the errors with which the CDK rejects the deploy.
	refused []string
	// warnings are the checks that could not be made, and what may surprise.
	warnings []string
	// quota is the account's quota of requests to API Gateway in the region. It is
	// 0 if it could not be read.
	quota throttle
}

// errNoCredentials means that neither the CDK nor the app has credentials. The
// deploy cannot happen then.
var errNoCredentials = errors.New("there are no AWS credentials")

// account is the AWS account that the CDK deploys to.
type account struct {
	config aws.Config
	id     string
	// qualifier is that of the CDK bootstrap.
	qualifier string
	s3        func(*s3.Options)
}

// role returns the ARN of one of the roles of the CDK, such as lookup.
func (a *account) role(kind string) string {
	return fmt.Sprintf("arn:%s:iam::%s:role/cdk-%s-%s-role-%s-%s", partition.Of(a.config.Region).ID, a.id, a.qualifier,
		kind, a.id, a.config.Region)
}

// lookUp reads the deployed stack in the account that the CDK deploys to. It
// also checks the table and the bucket that the settings adopt.
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
	boundary, _ := arn.Parse(s.PermissionsBoundary) // it may be empty
	if of := boundary.AccountID; of != "" && of != "aws" && of != a.id {
		f.refused = append(f.refused, fmt.Sprintf("cannot deploy: permissionsBoundary: the policy is in account %s, but the "+
			"stack is in %s", of, a.id))
	}
	err = a.read(ctx, func(config aws.Config) (err error) {
		f.stack, err = stackOf(ctx, config, s.StackName)
		return err
	})
	f.unread = reason(err)
	if f.unread == nil {
		f.readQuotas(ctx, a)
	}
	if f.stack == nil && f.unread == nil && !s.NamesStack {
		f.checkOthers(ctx, a, s)
	}
	for _, store := range []struct {
		name, output string
		check        func(context.Context, aws.Config, string) (store, error)
	}{
		{s.TableName, settings.OutputTable, checkTable},
		{s.BucketName, settings.OutputBucket, a.checkBucket},
	} {
		if store.name == "" {
			continue
		}
		inUse := f.stack != nil && f.stack.Outputs[store.output] == store.name
		f.adopt(ctx, a, store.name, s.KMSKeyARN, inUse, store.check)
	}
	if s.KMSKeyARN != "" {
		f.checkKey(ctx, a, s)
	}
	return f
}

// checkKey checks whether the key of the settings can encrypt what the stack
// stores. CloudFormation would fail in the middle of a deploy, or clients later.
func (f *found) checkKey(ctx context.Context, a *account, s Settings) {
	var key kmskey.Key
	err := a.read(ctx, func(config aws.Config) (err error) {
		key, err = kmskey.Describe(ctx, config, s.KMSKeyARN)
		return err
	})
	if failed, ok := errors.AsType[smithy.APIError](err); ok && failed.ErrorCode() == "NotFoundException" {
		f.refused = append(f.refused, fmt.Sprintf("cannot deploy: kmsKeyArn: there is no key %s", s.KMSKeyARN))
		return
	}
	if err == nil && key.Unusable() != "" {
		f.refused = append(f.refused, fmt.Sprintf("cannot deploy: kmsKeyArn: the key %s cannot be used: %s",
			s.KMSKeyARN, key.Unusable()))
		return
	}
	var policy resourcepolicy.Policy
	if err == nil {
		err = a.read(ctx, func(config aws.Config) (err error) {
			policy, err = kmskey.Policy(ctx, config, s.KMSKeyARN)
			return err
		})
	}
	if err != nil {
		f.warnings = append(f.warnings, fmt.Sprintf("cannot check the key %s: %v", s.KMSKeyARN, reason(err)))
		return
	}
	use := a.use(s)
	use.Existing = f.stack != nil || f.unread != nil
	refused, undecided := use.Refused(policy)
	const docs = "docs/encryption.md has the statements that the policy of a key needs"
	switch {
	case len(refused) > 0:
		f.refused = append(f.refused, fmt.Sprintf("cannot deploy: kmsKeyArn: the policy of the key %s does not permit these "+
			"to use it: %s. %s", s.KMSKeyARN, strings.Join(refused, ", "), docs))
	case len(undecided) > 0:
		// It can name roles of a stack that exists, or have other conditions.
		f.warnings = append(f.warnings, fmt.Sprintf("the policy of the key %s may not permit these to use it: %s. %s",
			s.KMSKeyARN, strings.Join(undecided, ", "), docs))
	}
}

// use returns how a stack with these settings will use its key.
func (a *account) use(s Settings) kmskey.Use {
	use := kmskey.Use{
		Key: s.KMSKeyARN, Account: a.id, Region: a.config.Region, Alarms: s.Alarms && s.AlarmTopicARN == "",
	}
	if s.TableName == "" {
		use.Deployer = a.role("cfn-exec")
	}
	groups := []string{s.LogGroupPrefix + s.StackName + "/modules", s.LogGroupPrefix + s.StackName + "/gateway"}
	if s.LogGroupPrefix == "" {
		// CloudFormation appends to the first one.
		groups = []string{s.StackName + "-moduleslogs", accessLogs + s.StackName}
	}
	if !s.AccessLog {
		groups = groups[:1]
	}
	for _, group := range groups {
		use.LogGroups = append(use.LogGroups, arn.ARN{
			Partition: partition.Of(use.Region).ID, Service: "logs", Region: use.Region, AccountID: a.id,
			Resource: "log-group:" + group,
		}.String())
	}
	return use
}

// readQuotas reads the account's quotas of API Gateway and Lambda in the region.
func (f *found) readQuotas(ctx context.Context, a *account) {
	var concurrency int
	for _, quota := range []struct {
		of   string
		read func(aws.Config) error
	}{
		{"API Gateway", func(config aws.Config) error {
			got, err := signedcall.GetAccountThrottle(ctx, config)
			f.quota = throttle{int(got.RateLimit), got.BurstLimit}
			return err
		}},
		{"Lambda", func(config aws.Config) (err error) {
			concurrency, err = signedcall.GetAccountConcurrency(ctx, config)
			return err
		}},
	} {
		if err := a.read(ctx, quota.read); err != nil {
			f.warnings = append(f.warnings, fmt.Sprintf("cannot read the account's quota of %s: %v", quota.of, reason(err)))
		}
	}
	if concurrency > 0 && concurrency < settings.EnoughConcurrency {
		f.warnings = append(f.warnings, fmt.Sprintf("Lambda runs at most %d functions at once for this account in %s, so "+
			"requests can fail when many clients come at once. Raise it, free of charge: aws service-quotas "+
			"request-service-quota-increase --service-code lambda --quota-code L-B99A9384 --desired-value 1000",
			concurrency, a.config.Region))
	}
}

// store is the result of checking a table or a bucket.
type store struct {
	// unfit is the reason why the stack cannot adopt it. It is empty if it can.
	unfit string
	// key is the ARN of the customer's KMS key that encrypts it. It is empty if
	// AWS owns or manages the key.
	key string
}

// adopt checks a table or a bucket that the settings adopt. own is the key of the
// settings. inUse means that the deployed stack already uses it.
func (f *found) adopt(ctx context.Context, a *account, name, own string, inUse bool,
	check func(context.Context, aws.Config, string) (store, error),
) {
	var got store
	why := "for which the stack's roles have no permission. Set kmsKeyArn to it"
	if own != "" {
		why = fmt.Sprintf("but kmsKeyArn is %s. All stores of a stack need one key", own)
	}
	err := a.read(ctx, func(config aws.Config) (err error) {
		got, err = check(ctx, config, name)
		return err
	})
	switch {
	case err != nil:
		f.warnings = append(f.warnings, fmt.Sprintf("cannot check %s: %v", name, reason(err)))
	case got.unfit != "":
		f.refused = append(f.refused, fmt.Sprintf("cannot adopt %s: %s", name, got.unfit))
	case got.key == own:
	case got.key == "":
		f.warnings = append(f.warnings, fmt.Sprintf("a key of AWS encrypts %s, and not kmsKeyArn. That works. "+
			"To change it, set its encryption to that key", name))
	case inUse || f.unread != nil:
		f.warnings = append(f.warnings, fmt.Sprintf("%s is encrypted with your KMS key %s, %s", name, got.key, why))
	default:
		f.refused = append(f.refused,
			fmt.Sprintf("cannot adopt %s: it is encrypted with your KMS key %s, %s", name, got.key, why))
	}
}

// checkOthers rejects the deploy of a new stack if the region has other Larder
// stacks, for which the settings may have been meant.
func (f *found) checkOthers(ctx context.Context, a *account, s Settings) {
	var others []string
	err := a.read(ctx, func(config aws.Config) (err error) {
		others, err = stacksOfLarder(ctx, config)
		return err
	})
	switch {
	case denied(err):
		f.warnings = append(f.warnings, fmt.Sprintf("cannot check whether %s has other stacks of Larder: %v",
			a.config.Region, reason(err)))
	case err != nil:
		f.unread = reason(err)
	case len(others) > 0:
		f.refused = append(f.refused, fmt.Sprintf("cannot deploy: there is no stack %s, but %s has %s. "+
			"Set stackName in the settings, to update one of these or to create a second registry",
			s.StackName, a.config.Region, strings.Join(others, ", ")))
	}
}

// useEnvironment is a hint about --profile, which the CDK does not pass to an
// app.
const useEnvironment = "If you use --profile, set AWS_PROFILE instead"

// openAccount returns the account that the CDK deploys to. It returns
// errNoCredentials if neither the CDK nor the environment has credentials.
func openAccount(ctx context.Context, qualifier string, getenv func(string) string) (*account, error) {
	id := getenv("CDK_DEFAULT_ACCOUNT") // set if the CDK has credentials
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
			"but the deploy is to %s. %s", got, id, useEnvironment)
	}
	pathStyle, err := settings.PathStyle(getenv)
	if err != nil {
		return nil, err
	}
	return &account{
		config: cfg, id: id, qualifier: qualifier, s3: func(o *s3.Options) { o.UsePathStyle = pathStyle },
	}, nil
}

// read calls do with the environment's credentials. If they are denied, it
// calls do again with the CDK's lookup role. Pipelines often have permission
// only to assume the CDK's roles.
func (a *account) read(ctx context.Context, do func(aws.Config) error) error {
	err := do(a.config)
	if !denied(err) {
		return err
	}
	assumed := a.config.Copy()
	provider := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(a.config), a.role("lookup"))
	assumed.Credentials = aws.NewCredentialsCache(provider)
	if _, failed := assumed.Credentials.Retrieve(ctx); failed != nil {
		return err
	}
	return do(assumed)
}

// denied reports whether AWS denied a request for lack of permission.
func denied(err error) bool {
	failed, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains([]string{"AccessDenied", "AccessDeniedException", "Forbidden"}, failed.ErrorCode())
}

// reason returns an SDK error as one line, without request IDs and operation
// names.
func reason(err error) error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[smithy.APIError](err); ok && failed.ErrorMessage() != "" {
		return fmt.Errorf("%s: %s", failed.ErrorCode(), failed.ErrorMessage())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("AWS did not respond in time")
	}
	if _, ok := errors.AsType[*smithy.DeserializationError](err); ok {
		return errors.New("AWS did not respond in its own format")
	}
	if first, _, more := strings.Cut(err.Error(), "\n"); more {
		return errors.New(first)
	}
	return err
}

// withoutStack are the states of stacks that were deleted or never completely
// created.
var withoutStack = []string{
	"REVIEW_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_COMPLETE",
}

// withStack are all other states. ListStacks would also return the stacks that
// were deleted in the last 90 days.
var withStack = []string{
	"CREATE_IN_PROGRESS", "CREATE_COMPLETE", "ROLLBACK_IN_PROGRESS", "DELETE_IN_PROGRESS", "DELETE_FAILED",
	"UPDATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_COMPLETE", "UPDATE_FAILED",
	"UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_FAILED", "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
	"UPDATE_ROLLBACK_COMPLETE", "IMPORT_IN_PROGRESS", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_IN_PROGRESS",
	"IMPORT_ROLLBACK_FAILED", "IMPORT_ROLLBACK_COMPLETE",
}

func stacksOfLarder(ctx context.Context, cfg aws.Config) ([]string, error) {
	all, err := signedcall.ListStacks(ctx, cfg, withStack...)
	var names []string
	for _, s := range all {
		if s.Description == stackDescription {
			names = append(names, s.Name)
		}
	}
	return names, err
}

// stackOf returns a deployed stack. It returns nil if there is none, or if it
// was never completely created.
func stackOf(ctx context.Context, cfg aws.Config, name string) (*deployed, error) {
	stack, err := signedcall.DescribeStack(ctx, cfg, name)
	if errors.Is(err, registry.ErrNotFound) || err == nil && slices.Contains(withoutStack, stack.Status) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	template, err := signedcall.GetTemplate(ctx, cfg, name)
	if err != nil {
		return nil, err
	}
	d := &deployed{Outputs: stack.Outputs}
	if err := json.Unmarshal(template, d); err != nil {
		return nil, fmt.Errorf("cannot read the template of stack %s: %w", name, err)
	}
	return d, nil
}

// checkTable checks whether the stack can adopt a table.
func checkTable(ctx context.Context, cfg aws.Config, name string) (store, error) {
	out, err := dynamodb.NewFromConfig(cfg).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if _, ok := errors.AsType[*dynamo.ResourceNotFoundException](err); ok {
		return store{unfit: "there is no such table in " + cfg.Region}, nil
	}
	if err != nil {
		return store{}, err
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
		return store{unfit: fmt.Sprintf("its key is %s, but the registry needs pk HASH S, sk RANGE S", got)}, nil
	}
	if sse := out.Table.SSEDescription; sse != nil && sse.KMSMasterKeyArn != nil {
		return keyOf(ctx, cfg, *sse.KMSMasterKeyArn)
	}
	return store{}, nil
}

// checkBucket checks whether the stack can adopt a bucket.
func (a *account) checkBucket(ctx context.Context, cfg aws.Config, name string) (store, error) {
	client := s3.NewFromConfig(cfg, a.s3)
	head, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
	region := ""
	if head != nil {
		region = aws.ToString(head.BucketRegion)
	}
	if failed, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		region = failed.Response.Header.Get("X-Amz-Bucket-Region")
		if failed.HTTPStatusCode() == http.StatusNotFound {
			return store{unfit: "there is no such bucket"}, nil
		}
	}
	if region != "" && region != cfg.Region {
		return store{unfit: fmt.Sprintf("the bucket is in %s, but the stack is in %s", region, cfg.Region)}, nil
	}
	if err != nil {
		return store{}, err
	}
	encryption, err := client.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &name})
	if failed, ok := errors.AsType[smithy.APIError](err); ok &&
		failed.ErrorCode() == "ServerSideEncryptionConfigurationNotFoundError" {
		return store{}, nil
	}
	if err != nil {
		return store{}, err
	}
	for _, rule := range encryption.ServerSideEncryptionConfiguration.Rules {
		if by := rule.ApplyServerSideEncryptionByDefault; by != nil && by.KMSMasterKeyID != nil {
			return keyOf(ctx, cfg, *by.KMSMasterKeyID)
		}
	}
	return store{}, nil
}

// keyOf returns the KMS key that encrypts a store, if it is a customer's. AWS's own
// keys need no permission.
func keyOf(ctx context.Context, cfg aws.Config, id string) (store, error) {
	key, err := kmskey.Describe(ctx, cfg, id)
	if err != nil || key.OfAWS {
		return store{}, err
	}
	return store{key: key.ARN}, nil
}
