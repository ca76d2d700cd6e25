package place

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/usage/logged"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// openStack opens the table and the bucket of a deployed registry. The stack's
// outputs name both. It uses the AWS credentials and the region that the AWS
// command line would use.
func openStack(ctx context.Context, name string) (*Store, error) {
	configuration, pathStyle, err := AWSConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	outputs, err := stackOutputs(ctx, configuration, name)
	if err != nil {
		return nil, err
	}
	var table catalog.Table = dynamodb.New(configuration, outputs[settings.OutputTable])
	archives := s3.New(configuration, outputs[settings.OutputBucket], s3.Options{PathStyle: pathStyle})
	var stored objects.Store = archives
	if outputs[settings.OutputReadOnly] == "true" {
		table, stored = readOnlyTable{table}, readOnlyObjects{stored}
	}
	published := catalog.New(table)
	if err := published.CheckSchema(ctx); err != nil {
		return nil, fmt.Errorf("cannot open stack %s: %w", name, err)
	}
	// CloudFormation returns only ASCII.
	host := registry.CanonicalHost(outputs[settings.OutputHost]).Display()
	return &Store{
		Host:           host,
		Catalog:        published,
		Objects:        stored,
		Remover:        archives,
		Downloads:      logged.NewReader(published),
		WithdrawPolicy: outputs[settings.OutputWithdrawPolicy],
		By: func(ctx context.Context) (registry.Publisher, error) {
			caller, err := sts.NewFromConfig(configuration).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
			if err != nil {
				return registry.Publisher{}, fmt.Errorf("cannot get the caller identity from AWS: %w", err)
			}
			return registry.Publisher{Kind: registry.PublisherAWS, Name: aws.ToString(caller.Arn)}, nil
		},
		Close: func() error { return nil },
	}, nil
}

// AWSConfiguration returns the configuration that the AWS command line would
// use, with a region and credentials. pathStyle reports whether S3 URLs have
// the bucket's name in the path.
func AWSConfiguration(ctx context.Context) (configuration aws.Config, pathStyle bool, err error) {
	if configuration, err = config.LoadDefaultConfig(ctx); err != nil {
		return aws.Config{}, false, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	if configuration.Region == "" {
		return aws.Config{}, false, registry.WithHint(arguments.Errorf("there is no AWS region"),
			"Set AWS_REGION to the region of the stack.")
	}
	if _, err := configuration.Credentials.Retrieve(ctx); CredentialsProblem(err) != "" {
		return aws.Config{}, false, err
	} else if err != nil {
		return aws.Config{}, false, registry.WithHint(fmt.Errorf("cannot use AWS credentials: %w", err),
			"Configure credentials as for the AWS command line, for example with AWS_PROFILE.")
	}
	if pathStyle, err = settings.PathStyle(os.Getenv); err != nil {
		return aws.Config{}, false, arguments.Wrong(err)
	}
	return configuration, pathStyle, nil
}

// stackOutputs returns the outputs of a stack. It returns
// [registry.ErrNotFound] if the stack does not exist.
func stackOutputs(ctx context.Context, configuration aws.Config, name string) (map[string]string, error) {
	stack, err := signedcall.DescribeStack(ctx, configuration, name)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, registry.WithHint(
			fmt.Errorf("cannot open stack %s in region %s: %w", name, configuration.Region, registry.ErrNotFound),
			"Check the name, the region and the account. AWS_REGION and AWS_PROFILE select the region and the account.")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open stack %s: %w", name, err)
	}
	for _, wanted := range []string{settings.OutputTable, settings.OutputBucket} {
		if stack.Outputs[wanted] == "" {
			return nil, registry.WithHint(fmt.Errorf("cannot open stack %s: it has no output %s", name, wanted),
				"Check that the stack is a registry, and that its deployment has finished.")
		}
	}
	return stack.Outputs, nil
}
