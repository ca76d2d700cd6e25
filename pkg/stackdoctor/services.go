package stackdoctor

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sns"
)

// Services contains the AWS clients that an examination uses. They read only
// configuration.
type Services struct {
	Stacks       stacks
	Tables       tables
	Buckets      buckets
	Functions    lambdas
	Gateways     gateways
	Alarms       alarms
	Topics       topics
	Certificates certificates
}

// NewServices returns the clients for an account and a region. If pathStyle is
// set, S3 URLs contain the bucket in their path, as emulators expect.
func NewServices(config aws.Config, pathStyle bool) Services {
	return Services{
		Stacks:       cloudformation.NewFromConfig(config),
		Tables:       dynamodb.NewFromConfig(config),
		Buckets:      s3.NewFromConfig(config, func(o *s3.Options) { o.UsePathStyle = pathStyle }),
		Functions:    lambda.NewFromConfig(config),
		Gateways:     gateway{config},
		Alarms:       cloudwatch.NewFromConfig(config),
		Topics:       sns.NewFromConfig(config),
		Certificates: acm.NewFromConfig(config),
	}
}

type stacks interface {
	DescribeStacks(
		context.Context,
		*cloudformation.DescribeStacksInput,
		...func(*cloudformation.Options),
	) (*cloudformation.DescribeStacksOutput, error)
	GetTemplate(
		context.Context,
		*cloudformation.GetTemplateInput,
		...func(*cloudformation.Options),
	) (*cloudformation.GetTemplateOutput, error)
	ListStackResources(
		context.Context,
		*cloudformation.ListStackResourcesInput,
		...func(*cloudformation.Options),
	) (*cloudformation.ListStackResourcesOutput, error)
}

type tables interface {
	DescribeTable(
		context.Context,
		*dynamodb.DescribeTableInput,
		...func(*dynamodb.Options),
	) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(
		context.Context,
		*dynamodb.DescribeTimeToLiveInput,
		...func(*dynamodb.Options),
	) (*dynamodb.DescribeTimeToLiveOutput, error)
	DescribeContinuousBackups(
		context.Context,
		*dynamodb.DescribeContinuousBackupsInput,
		...func(*dynamodb.Options),
	) (*dynamodb.DescribeContinuousBackupsOutput, error)
}

type buckets interface {
	GetBucketVersioning(
		context.Context,
		*s3.GetBucketVersioningInput,
		...func(*s3.Options),
	) (*s3.GetBucketVersioningOutput, error)
	GetBucketPolicy(context.Context, *s3.GetBucketPolicyInput, ...func(*s3.Options)) (*s3.GetBucketPolicyOutput, error)
	GetPublicAccessBlock(
		context.Context,
		*s3.GetPublicAccessBlockInput,
		...func(*s3.Options),
	) (*s3.GetPublicAccessBlockOutput, error)
	GetBucketLifecycleConfiguration(
		context.Context,
		*s3.GetBucketLifecycleConfigurationInput,
		...func(*s3.Options),
	) (*s3.GetBucketLifecycleConfigurationOutput, error)
	GetBucketEncryption(
		context.Context,
		*s3.GetBucketEncryptionInput,
		...func(*s3.Options),
	) (*s3.GetBucketEncryptionOutput, error)
}

type lambdas interface {
	GetFunctionConfiguration(
		context.Context,
		*lambda.GetFunctionConfigurationInput,
		...func(*lambda.Options),
	) (*lambda.GetFunctionConfigurationOutput, error)
	GetFunctionConcurrency(
		context.Context,
		*lambda.GetFunctionConcurrencyInput,
		...func(*lambda.Options),
	) (*lambda.GetFunctionConcurrencyOutput, error)
	GetAccountSettings(
		context.Context,
		*lambda.GetAccountSettingsInput,
		...func(*lambda.Options),
	) (*lambda.GetAccountSettingsOutput, error)
}

type alarms interface {
	DescribeAlarms(
		context.Context,
		*cloudwatch.DescribeAlarmsInput,
		...func(*cloudwatch.Options),
	) (*cloudwatch.DescribeAlarmsOutput, error)
}

type topics interface {
	ListSubscriptionsByTopic(
		context.Context,
		*sns.ListSubscriptionsByTopicInput,
		...func(*sns.Options),
	) (*sns.ListSubscriptionsByTopicOutput, error)
}

type certificates interface {
	DescribeCertificate(
		context.Context,
		*acm.DescribeCertificateInput,
		...func(*acm.Options),
	) (*acm.DescribeCertificateOutput, error)
}
