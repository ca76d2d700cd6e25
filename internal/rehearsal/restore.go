package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/settings"
)

// restoredName is the name of the restored table and of the restored bucket.
const restoredName = StackName + "-restored"

// restore fills the deployed registry, and loses the content of its table and
// then of its bucket. The stack then adopts restored ones, as described in
// docs/restore-aws.md. restore returns the new stack.
//
// moto differs from AWS. A restore to a point in time returns the table's
// current content, so the test restores an on-demand backup. Buckets of its
// CloudFormation have no versions and no policy. It cannot remove a policy that
// it did not create from a stack. Therefore the stack that adopts the bucket is
// a new one, as after cdk destroy.
func (d *deployment) restore(ctx context.Context, stack *Stack) (*Stack, error) {
	if err := d.enableVersions(ctx, stack.Outputs[settings.OutputBucket]); err != nil {
		return nil, err
	}
	stack, err := d.loseRecord(ctx, stack)
	if err != nil {
		return nil, err
	}
	return d.loseBucket(ctx, stack)
}

// loseRecord fills the registry, loses an archive and then a version's record,
// and restores both.
func (d *deployment) loseRecord(ctx context.Context, stack *Stack) (*Stack, error) {
	tables, table := dynamodb.NewFromConfig(d.Account), stack.Outputs[settings.OutputTable]
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return nil, err
	}
	defer done()
	reserved := d.reserved(registry)
	var backup *string
	err = d.steps(running, []task{
		{"publishing a module, a provider and a mirrored provider", func() error {
			if err := reserved.fill(ctx); err != nil {
				return err
			}
			return reserved.verify(ctx, true)
		}},
		{"deleting an archive, and then its delete marker",
			func() error { return d.undelete(ctx, reserved, stack.Outputs[settings.OutputBucket]) }},
		{"backing up the table, and losing a version's record", func() error {
			made, err := tables.CreateBackup(ctx,
				&dynamodb.CreateBackupInput{TableName: &table, BackupName: aws.String(restoredName)})
			if err != nil {
				return err
			}
			backup = made.BackupDetails.BackupArn
			if _, err := tables.DeleteItem(ctx,
				&dynamodb.DeleteItemInput{TableName: &table, Key: map[string]dynamodbtypes.AttributeValue{
					"pk": &dynamodbtypes.AttributeValueMemberS{Value: "modules/" + reserved.Namespace +
						"/hello/null"}, "sk": &dynamodbtypes.AttributeValueMemberS{Value: "version/1.0.0"},
				}}); err != nil {
				return err
			}
			return reserved.verify(ctx, false)
		}},
		{"restoring the backup as another table", func() error { return restoreTable(ctx, tables, backup) }},
		{"cdk deploy with the restored table", func() error {
			// When a stack releases a retained table, moto deletes it, or fails
			// if the table is protected.
			if _, err := tables.UpdateTable(ctx,
				&dynamodb.UpdateTableInput{TableName: &table,
					DeletionProtectionEnabled: aws.Bool(false)}); err != nil {
				return err
			}
			d.adopted = map[string]any{"tableName": restoredName}
			return d.deploySource(ctx, "table")
		}},
	})
	if err != nil {
		return nil, err
	}
	return d.adopting(ctx)
}

// loseBucket copies the bucket, loses all its objects and the stack, and
// restores both.
func (d *deployment) loseBucket(ctx context.Context, stack *Stack) (*Stack, error) {
	buckets, bucket := d.buckets(), stack.Outputs[settings.OutputBucket]
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return nil, err
	}
	defer done()
	reserved := d.reserved(registry)
	err = d.steps(running, []task{
		{"the restored table: verify", func() error { return reserved.verify(ctx, true) }},
		{"copying the bucket, and losing its objects", func() error {
			if err := d.copyBucket(ctx, bucket, restoredName); err != nil {
				return err
			}
			if err := emptyBucket(ctx, buckets, bucket); err != nil {
				return err
			}
			return reserved.verify(ctx, false)
		}},
		{"deleting the stack, and cdk deploy with the restored table and bucket", func() error {
			if err := d.removeRoles(ctx); err != nil { // the stack's policies are attached to them
				return err
			}
			if err := d.deleteStack(ctx, StackName); err != nil {
				return err
			}
			d.adopted["bucketName"] = restoredName
			return d.deploySource(ctx)
		}},
	})
	if err != nil {
		return nil, err
	}
	return d.adopting(ctx)
}

// task is a named step.
type task struct {
	name string
	do   func() error
}

// steps runs the tasks in order, until one fails.
func (d *deployment) steps(running *Running, tasks []task) error {
	for _, t := range tasks {
		if err := d.step(t.name, t.do); err != nil {
			return errors.Join(err, running.Wrong())
		}
	}
	return running.Wrong()
}

// adopting returns the deployed stack. It returns an error unless its outputs name
// the adopted resources.
func (d *deployment) adopting(ctx context.Context) (*Stack, error) {
	stack, err := Inspect(ctx, d.Account, StackName)
	if err != nil {
		return nil, err
	}
	for output, setting := range map[string]string{settings.OutputTable: "tableName", settings.OutputBucket: "bucketName"} {
		if want, adopted := d.adopted[setting]; adopted && stack.Outputs[output] != want {
			return nil, fmt.Errorf("the stack's %s is %s, want %s", output, stack.Outputs[output], want)
		}
	}
	return stack, nil
}

// enableVersions enables versioning for a bucket, like the stack does in AWS.
func (d *deployment) enableVersions(ctx context.Context, bucket string) error {
	_, err := d.buckets().PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket:                  &bucket,
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled},
	})
	return err
}

// restored verifies a restored registry and installs from it, before anything
// else is published.
func (d *deployment) restored(ctx context.Context, r *Registry) error {
	reserved := d.reserved(r)
	return errors.Join(reserved.verify(ctx, true), reserved.install(ctx))
}

// reserved returns the registry with another namespace, whose keys no scenario
// removes.
func (d *deployment) reserved(r *Registry) *Registry {
	reserved := *r
	reserved.Namespace = d.namespace + "-kept"
	return &reserved
}

func (r *Registry) fill(ctx context.Context) error {
	if err := r.publishModule(ctx, r.Namespace+"/hello/null", "1.0.0", "hello"); err != nil {
		return err
	}
	return r.fillProviders(ctx, r.Namespace, r.mirrored())
}

// fillProviders adds a key to a namespace, publishes the provider
// NAMESPACE/note, and mirrors the same provider under an address.
func (r *Registry) fillProviders(ctx context.Context, namespace, mirrored string) error {
	release, public, err := r.signedRelease(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp(r.Scratch, "folder")
	if err != nil {
		return err
	}
	if err := clients.WriteMirrorFolder(release, filepath.Join(folder, mirrored)); err != nil {
		return err
	}
	for _, args := range [][]string{{"key", "add", namespace, public},
		{"publish", "provider", release, namespace + "/note"}, {"mirror", "import", folder}} {
		if _, err := r.Larder(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) mirrored() string { return "kept.example.com/" + r.Namespace + "/note" }

// install installs everything that fill has published with each client, in one
// init.
func (r *Registry) install(ctx context.Context) error {
	r = r.with(fmt.Sprintf(`provider_installation {
  network_mirror {
    url     = "https://%s/v1/mirror/"
    include = ["kept.example.com/*/*"]
  }
  direct {
    exclude = ["kept.example.com/*/*"]
  }
}
`, r.Host))
	return r.eachClient(ctx, fmt.Sprintf(`terraform {
  required_providers {
    note = {
      source = "%[1]s/%[2]s/note"
    }
    mirrored = {
      source = %[3]q
    }
  }
}

module "hello" {
  source  = "%[1]s/%[2]s/hello/null"
  version = "1.0.0"
}
`, r.Host, r.Namespace, r.mirrored()), func(run func(args ...string) (string, error)) error {
		_, err := run("init", "-no-color")
		return err
	})
}

// verify runs `larder verify`. It must find no fault if healthy is true, and at
// least one otherwise.
func (r *Registry) verify(ctx context.Context, healthy bool) error {
	text, err := r.Larder(ctx, "verify", "--at-rest", "--json")
	if !healthy {
		if err == nil || !strings.Contains(err.Error(), `"kind": "`) { // the error has the output
			return fmt.Errorf("larder verify found no fault: %w\n%s", err, text)
		}
		return nil
	}
	var report struct {
		OK       bool
		Versions int
		Findings []json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &report)
	}
	if err == nil && (!report.OK || report.Versions < 3 || len(report.Findings) > 0) {
		err = fmt.Errorf("larder verify found faults:\n%s", text)
	}
	return err
}

// buckets returns an S3 client with the account owner's permissions.
func (d *deployment) buckets() *s3.Client {
	return s3.NewFromConfig(d.Account, func(o *s3.Options) { o.UsePathStyle = d.Endpoint != "" })
}

// undelete deletes the archive of a module, and then its delete marker.
func (d *deployment) undelete(ctx context.Context, r *Registry, bucket string) error {
	buckets := d.buckets()
	listed, err := buckets.ListObjectsV2(ctx,
		&s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String("modules/" + r.Namespace + "/")})
	if err != nil {
		return err
	}
	listed.Contents = slices.DeleteFunc(listed.Contents, func(o s3types.Object) bool {
		return !strings.HasSuffix(aws.ToString(o.Key), ".tar.gz")
	})
	if len(listed.Contents) != 1 {
		return fmt.Errorf("the module has %d archives instead of one", len(listed.Contents))
	}
	key := listed.Contents[0].Key
	if err := r.Lose(ctx, *key); err != nil {
		return err
	}
	if err := r.verify(ctx, false); err != nil {
		return err
	}
	versions, err := buckets.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: key})
	if err != nil || len(versions.DeleteMarkers) != 1 {
		return fmt.Errorf("the archive does not have exactly one delete marker: %w", err)
	}
	if _, err := buckets.DeleteObject(ctx,
		&s3.DeleteObjectInput{Bucket: &bucket, Key: key,
			VersionId: versions.DeleteMarkers[0].VersionId}); err != nil {
		return err
	}
	return r.verify(ctx, true)
}

// copyBucket copies a bucket with its settings to a new one.
func (d *deployment) copyBucket(ctx context.Context, from, to string) error {
	buckets := d.buckets()
	made := &s3.CreateBucketInput{Bucket: &to}
	if region := d.Account.Region; region != "us-east-1" {
		made.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{
			LocationConstraint: s3types.BucketLocationConstraint(region),
		}
	}
	if _, err := buckets.CreateBucket(ctx, made); err != nil {
		return err
	}
	if err := d.enableVersions(ctx, to); err != nil {
		return err
	}
	if err := copyObjects(ctx, buckets, from, to); err != nil {
		return err
	}
	return d.copySettings(ctx, buckets, from, to)
}

// copyObjects copies all objects with their tags, like `aws s3 sync`.
func copyObjects(ctx context.Context, buckets *s3.Client, from, to string) error {
	for pages := s3.NewListObjectsV2Paginator(buckets, &s3.ListObjectsV2Input{Bucket: &from}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, object := range page.Contents {
			source := (&url.URL{Path: from + "/" + *object.Key}).EscapedPath()
			if _, err := buckets.CopyObject(ctx,
				&s3.CopyObjectInput{Bucket: &to, Key: object.Key, CopySource: &source}); err != nil {
				return fmt.Errorf("cannot copy %s: %w", *object.Key, err)
			}
		}
	}
	return nil
}

// copySettings copies the lifecycle rules, the key and the policy of a bucket. It
// also blocks public access, like AWS does for each new bucket.
func (d *deployment) copySettings(ctx context.Context, buckets *s3.Client, from, to string) error {
	rules, err := buckets.GetBucketLifecycleConfiguration(ctx,
		&s3.GetBucketLifecycleConfigurationInput{Bucket: &from})
	if err != nil {
		return err
	}
	if _, err := buckets.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
		Bucket: &to, LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: rules.Rules},
	}); err != nil {
		return err
	}
	encryption, err := buckets.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &from})
	if err != nil {
		return err
	}
	if d.key != "" { // that of another region
		encryption.ServerSideEncryptionConfiguration.Rules = []s3types.ServerSideEncryptionRule{{
			BucketKeyEnabled: aws.Bool(true),
			ApplyServerSideEncryptionByDefault: &s3types.ServerSideEncryptionByDefault{
				SSEAlgorithm: s3types.ServerSideEncryptionAwsKms, KMSMasterKeyID: &d.key,
			},
		}}
	}
	if _, err := buckets.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{
		Bucket: &to, ServerSideEncryptionConfiguration: encryption.ServerSideEncryptionConfiguration,
	}); err != nil {
		return err
	}
	d.policies[to] = strings.ReplaceAll(d.policies[from], from, to)
	_, err = buckets.PutPublicAccessBlock(
		ctx,
		&s3.PutPublicAccessBlockInput{
			Bucket: &to,
			PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
				BlockPublicAcls: aws.Bool(
					true,
				),
				BlockPublicPolicy:     aws.Bool(true),
				IgnorePublicAcls:      aws.Bool(true),
				RestrictPublicBuckets: aws.Bool(true),
			},
		},
	)
	return err
}

// restoreTable creates a table from a backup, and sets the settings that a
// backup does not contain.
func restoreTable(ctx context.Context, tables *dynamodb.Client, backup *string) error {
	name := aws.String(restoredName)
	if _, err := tables.RestoreTableFromBackup(ctx,
		&dynamodb.RestoreTableFromBackupInput{TargetTableName: name, BackupArn: backup}); err != nil {
		return err
	}
	if err := dynamodb.NewTableExistsWaiter(tables).Wait(ctx, &dynamodb.DescribeTableInput{TableName: name},
		timeout); err != nil {
		return err
	}
	return protectTable(ctx, tables, name)
}

// protectTable sets the settings that neither a backup nor a copy contains.
func protectTable(ctx context.Context, tables *dynamodb.Client, name *string) error {
	if _, err := tables.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
		TableName: name,
		PointInTimeRecoverySpecification: &dynamodbtypes.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: aws.Bool(true),
		},
	}); err != nil {
		return err
	}
	if _, err := tables.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: name, TimeToLiveSpecification: &dynamodbtypes.TimeToLiveSpecification{Enabled: aws.Bool(true),
			AttributeName: aws.String(settings.TTLAttribute)},
	}); err != nil {
		return err
	}
	_, err := tables.UpdateTable(ctx,
		&dynamodb.UpdateTableInput{TableName: name, DeletionProtectionEnabled: aws.Bool(true)})
	return err
}
