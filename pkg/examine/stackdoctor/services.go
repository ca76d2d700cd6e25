package stackdoctor

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Services contains what an examination needs to reach AWS. It reads only
// configuration.
type Services struct {
	Tables  tables
	Buckets buckets
	// Config is the configuration of the requests to all other services.
	Config aws.Config
}

// NewServices returns the services for an account and a region. If pathStyle is
// set, S3 URLs contain the bucket in their path, as emulators expect.
func NewServices(config aws.Config, pathStyle bool) Services {
	return Services{
		Tables:  dynamodb.NewFromConfig(config),
		Buckets: s3.NewFromConfig(config, func(o *s3.Options) { o.UsePathStyle = pathStyle }),
		Config:  config,
	}
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
