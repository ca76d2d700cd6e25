package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/settings"
)

// Destroy takes down what a rehearsal has made: its table and its bucket with all that is in them, which a stack keeps
// otherwise, and then its stack. CDK's own stack stays, since others may use it. It can be run again.
func (r *Rehearsal) Destroy(ctx context.Context) error {
	id, err := r.caller(ctx)
	if err != nil {
		return err
	}
	if r.Endpoint == "" && !r.Ask(fmt.Sprintf("This deletes the stack %s in account %s, region %s, with its table and its bucket. Go on?", StackName, id, r.Account.Region)) {
		return ErrNotWanted
	}
	formation := cloudformation.NewFromConfig(r.Account)
	found, err := formation.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String(StackName)})
	if err != nil && strings.Contains(err.Error(), "does not exist") {
		fmt.Fprintf(r.Out, "there is no stack %s\n", StackName)
		return nil
	}
	if err != nil {
		return err
	}
	outputs := make(map[string]string)
	for _, o := range found.Stacks[0].Outputs {
		outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	// The stack goes last: with it goes the knowledge of what else there is.
	if table := outputs[settings.OutputTable]; table != "" {
		if err := r.step("deleting table "+table, func() error { return r.deleteTable(ctx, table) }); err != nil {
			return err
		}
	}
	if bucket := outputs[settings.OutputBucket]; bucket != "" {
		if err := r.step("deleting bucket "+bucket, func() error { return r.deleteBucket(ctx, bucket) }); err != nil {
			return err
		}
	}
	return r.step("deleting stack "+StackName, func() error {
		stack := found.Stacks[0].StackId // by its name it could not be seen to be gone
		if _, err := formation.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: stack}); err != nil {
			return err
		}
		return cloudformation.NewStackDeleteCompleteWaiter(formation).Wait(ctx, &cloudformation.DescribeStacksInput{StackName: stack}, 30*time.Minute)
	})
}

func (r *Rehearsal) deleteTable(ctx context.Context, name string) error {
	client := dynamodb.NewFromConfig(r.Account)
	_, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &name, DeletionProtectionEnabled: aws.Bool(false)})
	if err == nil {
		_, err = client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name})
	}
	var missing *dynamodbtypes.ResourceNotFoundException
	if errors.As(err, &missing) {
		return nil
	}
	return err
}

// deleteBucket deletes a bucket with every version of every object in it.
func (r *Rehearsal) deleteBucket(ctx context.Context, name string) error {
	client := s3.NewFromConfig(r.Account, func(o *s3.Options) { o.UsePathStyle = r.Endpoint != "" })
	for pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &name}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if isNoBucket(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var all []s3types.ObjectIdentifier
		for _, v := range page.Versions {
			all = append(all, s3types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			all = append(all, s3types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(all) == 0 {
			continue
		}
		deleted, err := client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &name, Delete: &s3types.Delete{Objects: all, Quiet: aws.Bool(true)}})
		if err != nil {
			return err
		}
		if len(deleted.Errors) > 0 {
			return fmt.Errorf("%s: %s", aws.ToString(deleted.Errors[0].Key), aws.ToString(deleted.Errors[0].Message))
		}
	}
	_, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	if isNoBucket(err) {
		return nil
	}
	return err
}

func isNoBucket(err error) bool {
	var failed smithy.APIError
	return errors.As(err, &failed) && failed.ErrorCode() == "NoSuchBucket"
}
