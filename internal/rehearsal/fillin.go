package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	tabletypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// fillIn sets the properties of resources that moto's CloudFormation ignores.
// For a bucket, these are versioning, the public access block, lifecycle rules,
// the bucket key and the policy. For a table, they are expiry and recovery. It also
// subscribes to topics.
func (d *deployment) fillIn(ctx context.Context) error {
	t, err := d.template(ctx)
	if err != nil {
		return err
	}
	for logical, r := range t.Resources {
		switch r.Type {
		case "AWS::S3::Bucket":
			err = d.fillInBucket(ctx, t.Physical[logical], r.Properties)
		case "AWS::S3::BucketPolicy":
			err = d.fillInBucketPolicy(t, r.Properties)
		case "AWS::DynamoDB::Table":
			err = d.fillInTable(ctx, t.Physical[logical], r.Properties)
		case "AWS::SNS::Subscription":
			err = d.fillInSubscription(ctx, t, r.Properties)
		}
		if err != nil {
			return fmt.Errorf("cannot set the missing properties of %s: %w", logical, err)
		}
	}
	return nil
}

// decode decodes a property of a template into a type of the API. It rejects
// unknown fields.
func decode(property, into any) error {
	text, err := json.Marshal(property)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// lifecycleRule is a lifecycle rule in CloudFormation's form.
type lifecycleRule struct {
	ID                             string `json:"Id"`
	Status                         s3types.ExpirationStatus
	AbortIncompleteMultipartUpload *s3types.AbortIncompleteMultipartUpload
	NoncurrentVersionExpiration    *s3types.NoncurrentVersionExpiration
	ExpirationInDays               *int32
	ExpiredObjectDeleteMarker      *bool
	TagFilters                     []s3types.Tag
}

func (d *deployment) fillInBucket(ctx context.Context, name string, properties map[string]any) error {
	client := d.buckets()
	var versions s3types.VersioningConfiguration
	var public s3types.PublicAccessBlockConfiguration
	var lifecycle struct{ Rules []lifecycleRule }
	var encryption struct {
		ServerSideEncryptionConfiguration []struct {
			BucketKeyEnabled              *bool
			ServerSideEncryptionByDefault s3types.ServerSideEncryptionByDefault
		}
	}
	for property, into := range map[string]any{
		"VersioningConfiguration":        &versions,
		"PublicAccessBlockConfiguration": &public,
		"LifecycleConfiguration":         &lifecycle,
		"BucketEncryption":               &encryption,
	} {
		if err := decode(properties[property], into); err != nil {
			return fmt.Errorf("%s: %w", property, err)
		}
	}
	if _, err := client.PutBucketVersioning(
		ctx,
		&s3.PutBucketVersioningInput{Bucket: &name, VersioningConfiguration: &versions},
	); err != nil {
		return err
	}
	if _, err := client.PutPublicAccessBlock(
		ctx,
		&s3.PutPublicAccessBlockInput{Bucket: &name, PublicAccessBlockConfiguration: &public},
	); err != nil {
		return err
	}
	by := new(s3types.ServerSideEncryptionConfiguration)
	for _, rule := range encryption.ServerSideEncryptionConfiguration {
		by.Rules = append(by.Rules, s3types.ServerSideEncryptionRule{
			BucketKeyEnabled: rule.BucketKeyEnabled, ApplyServerSideEncryptionByDefault: &rule.ServerSideEncryptionByDefault,
		})
	}
	if _, err := client.PutBucketEncryption(ctx,
		&s3.PutBucketEncryptionInput{Bucket: &name, ServerSideEncryptionConfiguration: by}); err != nil {
		return err
	}
	var rules []s3types.LifecycleRule
	for _, r := range lifecycle.Rules {
		rule := s3types.LifecycleRule{
			ID:                             &r.ID,
			Status:                         r.Status,
			AbortIncompleteMultipartUpload: r.AbortIncompleteMultipartUpload,
			NoncurrentVersionExpiration:    r.NoncurrentVersionExpiration,
			Filter:                         &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
		}
		if r.ExpirationInDays != nil || r.ExpiredObjectDeleteMarker != nil {
			rule.Expiration = &s3types.LifecycleExpiration{
				Days:                      r.ExpirationInDays,
				ExpiredObjectDeleteMarker: r.ExpiredObjectDeleteMarker,
			}
		}
		if len(r.TagFilters) == 1 {
			rule.Filter = &s3types.LifecycleRuleFilter{Tag: &r.TagFilters[0]}
		}
		rules = append(rules, rule)
	}
	_, err := client.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
		Bucket: &name, LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: rules},
	})
	return err
}

// fillInBucketPolicy stores the policy of a bucket for
// [Account.BucketPolicies].
func (d *deployment) fillInBucketPolicy(t template, properties map[string]any) error {
	document, err := t.document(properties["PolicyDocument"])
	if err != nil {
		return err
	}
	d.policies[fmt.Sprint(t.Resolve(properties["Bucket"]))] = document
	return nil
}

func (d *deployment) fillInTable(ctx context.Context, name string, properties map[string]any) error {
	client := dynamodb.NewFromConfig(d.Account)
	var expiry tabletypes.TimeToLiveSpecification
	var recovery tabletypes.PointInTimeRecoverySpecification
	for property, into := range map[string]any{
		"TimeToLiveSpecification":          &expiry,
		"PointInTimeRecoverySpecification": &recovery,
	} {
		if err := decode(properties[property], into); err != nil {
			return fmt.Errorf("%s: %w", property, err)
		}
	}
	is, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	if err != nil {
		return err
	}
	update := &dynamodb.UpdateTimeToLiveInput{TableName: &name, TimeToLiveSpecification: &expiry}
	// DynamoDB rejects an update that changes nothing.
	if aws.ToString(is.TimeToLiveDescription.AttributeName) != aws.ToString(expiry.AttributeName) {
		if _, err := client.UpdateTimeToLive(ctx, update); err != nil {
			return err
		}
	}
	_, err = client.UpdateContinuousBackups(
		ctx,
		&dynamodb.UpdateContinuousBackupsInput{TableName: &name, PointInTimeRecoverySpecification: &recovery},
	)
	return err
}

func (d *deployment) fillInSubscription(ctx context.Context, t template, properties map[string]any) error {
	var s struct{ TopicArn, Protocol, Endpoint string }
	if err := decode(t.Resolve(properties), &s); err != nil {
		return err
	}
	return signedcall.Query(ctx, d.Account, signedcall.SNS, "Subscribe", url.Values{
		"TopicArn": {s.TopicArn}, "Protocol": {s.Protocol}, "Endpoint": {s.Endpoint},
	}, nil)
}
