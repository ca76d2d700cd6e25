package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/registry"
)

// Destroy deletes the resources of a rehearsal: its table and its bucket, which
// the stack retains, with their content, and then its stack. The CDK's own
// stack stays, since others may use it. Destroy can be run again.
func (r *Rehearsal) Destroy(ctx context.Context) error {
	id, err := r.caller(ctx)
	if err != nil {
		return err
	}
	if r.Endpoint == "" && !r.Confirm(fmt.Sprintf(
		"This deletes the stack %s in account %s, region %s, with its table and its bucket. Continue?",
		StackName, id, r.Account.Region)) {
		return ErrNotWanted
	}
	if err := r.removeRoles(ctx); err != nil { // left by a killed rehearsal
		return err
	}
	found, err := signedcall.DescribeStack(ctx, r.Account, StackName)
	if errors.Is(err, registry.ErrNotFound) {
		fmt.Fprintf(r.Out, "there is no stack %s\n", StackName)
		return nil
	}
	if err != nil {
		return err
	}
	// These are only the resources that the stack itself created, without
	// adopted tables and buckets. The stack goes last, since it has the list of
	// them.
	resources, err := signedcall.ListStackResources(ctx, r.Account, StackName)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		name := resource.Physical
		var err error
		switch {
		case name == "":
		case resource.Type == "AWS::DynamoDB::Table":
			err = r.step("deleting table "+name, func() error { return r.deleteTable(ctx, name) })
		case resource.Type == "AWS::S3::Bucket":
			err = r.step("deleting bucket "+name, func() error { return r.deleteBucket(ctx, name) })
		}
		if err != nil {
			return err
		}
	}
	return r.step("deleting stack "+StackName, func() error {
		return r.deleteStack(ctx, found.ID) // a deleted stack can be described only by its id
	})
}

// deleteStack deletes a stack, and waits until it is deleted.
func (r *Rehearsal) deleteStack(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in := url.Values{"StackName": {id}}
	if err := signedcall.Query(ctx, r.Account, signedcall.CloudFormation, "DeleteStack", in, nil); err != nil {
		return err
	}
	for {
		stack, err := signedcall.DescribeStack(ctx, r.Account, id)
		switch {
		case errors.Is(err, registry.ErrNotFound), err == nil && stack.Status == "DELETE_COMPLETE":
			return nil
		case err != nil:
			return err
		case strings.HasSuffix(stack.Status, "_FAILED"):
			return fmt.Errorf("the status of the stack is %s", stack.Status)
		}
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// timeout is the maximum time for one operation of AWS.
const timeout = 30 * time.Minute

func (r *Rehearsal) deleteTable(ctx context.Context, name string) error {
	client := dynamodb.NewFromConfig(r.Account)
	table := &dynamodb.DescribeTableInput{TableName: &name}
	described, err := client.DescribeTable(ctx, table)
	var missing *dynamodbtypes.ResourceNotFoundException
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil && described.Table.TableStatus != dynamodbtypes.TableStatusDeleting {
		if _, err = client.UpdateTable(ctx,
			&dynamodb.UpdateTableInput{TableName: &name, DeletionProtectionEnabled: aws.Bool(false)}); err == nil {
			err = dynamodb.NewTableExistsWaiter(client).Wait(ctx, table, timeout)
		}
		if err == nil {
			_, err = client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name})
		}
	}
	if err != nil {
		return err
	}
	return dynamodb.NewTableNotExistsWaiter(client).Wait(ctx, table, timeout)
}

// deleteBucket deletes a bucket with all versions of its objects.
func (r *Rehearsal) deleteBucket(ctx context.Context, name string) error {
	client := s3.NewFromConfig(r.Account, func(o *s3.Options) { o.UsePathStyle = r.Endpoint != "" })
	err := emptyBucket(ctx, client, name)
	if err == nil {
		_, err = client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	}
	if isNoBucket(err) {
		return nil
	}
	return err
}

// emptyBucket deletes all versions of all objects in a bucket.
func emptyBucket(ctx context.Context, client *s3.Client, name string) error {
	for pages := s3.NewListObjectVersionsPaginator(client,
		&s3.ListObjectVersionsInput{Bucket: &name}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
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
		deleted, err := client.DeleteObjects(ctx,
			&s3.DeleteObjectsInput{Bucket: &name, Delete: &s3types.Delete{Objects: all, Quiet: aws.Bool(true)}})
		if err != nil {
			return err
		}
		if len(deleted.Errors) > 0 {
			return fmt.Errorf("%s: %s", aws.ToString(deleted.Errors[0].Key), aws.ToString(deleted.Errors[0].Message))
		}
	}
	return nil
}

func isNoBucket(err error) bool {
	var failed smithy.APIError
	return errors.As(err, &failed) && failed.ErrorCode() == "NoSuchBucket"
}
