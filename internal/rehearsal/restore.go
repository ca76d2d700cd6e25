package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/settings"
)

// restoredName is that of the table and of the bucket that a stack adopts after its own are lost.
const restoredName = "larder-restored"

// restore fills the deployed registry, loses what is in its table and then its bucket, and has the stack adopt restored
// ones, as docs/verify-and-restore.md tells owners to. It returns the stack that is there then.
//
// moto is not all of AWS. Its restore to a point in time gives what the table has now, so that a backup on demand is
// restored. Its CloudFormation makes buckets without versions and without a policy, and cannot take a policy out of a stack
// that it has not made: the stack that adopts a bucket is a new one, as after cdk destroy.
func (d *deployment) restore(ctx context.Context, stack *Stack) (*Stack, error) {
	if err := d.keepVersions(ctx, stack.Outputs[settings.OutputBucket]); err != nil {
		return nil, err
	}
	stack, err := d.loseRecord(ctx, stack)
	if err != nil {
		return nil, err
	}
	return d.loseBucket(ctx, stack)
}

// loseRecord fills the registry, loses an archive and then a version's record, and gets both back.
func (d *deployment) loseRecord(ctx context.Context, stack *Stack) (*Stack, error) {
	tables, table := dynamodb.NewFromConfig(d.Account), stack.Outputs[settings.OutputTable]
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return nil, err
	}
	defer done()
	kept := d.kept(registry)
	var backup *string
	err = d.steps(running, []task{
		{"a module, a provider and a mirrored one, to be restored", func() error {
			if err := kept.fill(ctx); err != nil {
				return err
			}
			return kept.verify(ctx, true)
		}},
		{"an archive that somebody deleted: its delete marker is deleted", func() error { return d.undelete(ctx, kept, stack.Outputs[settings.OutputBucket]) }},
		{"a backup of the table, and a version's record that is lost", func() error {
			made, err := tables.CreateBackup(ctx, &dynamodb.CreateBackupInput{TableName: &table, BackupName: aws.String(restoredName)})
			if err != nil {
				return err
			}
			backup = made.BackupDetails.BackupArn
			if _, err := tables.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table, Key: map[string]dynamodbtypes.AttributeValue{
				"pk": &dynamodbtypes.AttributeValueMemberS{Value: "modules/" + kept.Namespace + "/hello/null"}, "sk": &dynamodbtypes.AttributeValueMemberS{Value: "version/1.0.0"},
			}}); err != nil {
				return err
			}
			return kept.verify(ctx, false)
		}},
		{"the backup is restored as another table", func() error { return restoreTable(ctx, tables, backup) }},
		{"cdk deploy with the restored table", func() error {
			// What a stack retains as it lets go of it, moto deletes, or fails over where it is protected.
			if _, err := tables.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: aws.Bool(false)}); err != nil {
				return err
			}
			d.adopted = map[string]any{"tableName": restoredName}
			return d.deploySource(ctx, "table")
		}},
	})
	if err != nil {
		return nil, err
	}
	return d.adopting(ctx, settings.OutputTable)
}

// loseBucket copies the bucket, loses all that is in it, and the stack too, and gets both back.
func (d *deployment) loseBucket(ctx context.Context, stack *Stack) (*Stack, error) {
	buckets, bucket := d.buckets(), stack.Outputs[settings.OutputBucket]
	registry, running, done, err := d.open(ctx, stack)
	if err != nil {
		return nil, err
	}
	defer done()
	kept := d.kept(registry)
	err = d.steps(running, []task{
		{"what the restored table has: verify", func() error { return kept.verify(ctx, true) }},
		{"a copy of the bucket, whose objects are all lost", func() error {
			made := &s3.CreateBucketInput{Bucket: aws.String(restoredName)}
			if region := d.Account.Region; region != "us-east-1" {
				made.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraint(region)}
			}
			if _, err := buckets.CreateBucket(ctx, made); err != nil {
				return err
			}
			if err := d.keepVersions(ctx, restoredName); err != nil {
				return err
			}
			if err := copyBucket(ctx, buckets, bucket, restoredName); err != nil {
				return err
			}
			if err := d.copySettings(ctx, buckets, bucket, restoredName); err != nil {
				return err
			}
			if err := emptyBucket(ctx, buckets, bucket); err != nil {
				return err
			}
			return kept.verify(ctx, false)
		}},
		{"the stack is deleted; cdk deploy with the restored table and bucket", func() error {
			if err := d.removeRoles(ctx); err != nil { // which have the stack's policies
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
	return d.adopting(ctx, settings.OutputTable, settings.OutputBucket)
}

// task is a thing that is done, by its name.
type task struct {
	name string
	do   func() error
}

// steps does one thing after another, until one fails.
func (d *deployment) steps(running *Running, tasks []task) error {
	for _, t := range tasks {
		if err := d.step(t.name, t.do); err != nil {
			return errors.Join(err, running.Wrong())
		}
	}
	return running.Wrong()
}

// adopting returns the deployed stack, which must have what was restored by these outputs.
func (d *deployment) adopting(ctx context.Context, outputs ...string) (*Stack, error) {
	stack, err := Inspect(ctx, d.Account, StackName)
	if err != nil {
		return nil, err
	}
	for _, output := range outputs {
		if stack.Outputs[output] != restoredName {
			return nil, fmt.Errorf("the stack's %s is %s, and not the restored one", output, stack.Outputs[output])
		}
	}
	return stack, nil
}

// keepVersions makes a bucket one with versions, as the stack's are in AWS.
func (d *deployment) keepVersions(ctx context.Context, bucket string) error {
	_, err := d.buckets().PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &bucket, VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled},
	})
	return err
}

// restored is what is to be seen of a registry that was restored, before anything else is published to it.
func (d *deployment) restored(ctx context.Context, r *Registry) error {
	kept := d.kept(r)
	return errors.Join(kept.verify(ctx, true), kept.install(ctx))
}

// kept is a registry with a namespace of its own, of which no scenario takes the keys.
func (d *deployment) kept(r *Registry) *Registry {
	kept := *r
	kept.Namespace = d.namespace + "-kept"
	return &kept
}

// fill publishes a module and a provider, and mirrors one.
func (r *Registry) fill(ctx context.Context) error {
	if err := r.publishModule(ctx, r.Namespace+"/hello/null", "1.0.0", "hello"); err != nil {
		return err
	}
	return r.fillProviders(ctx, r.Namespace, r.mirrored())
}

// fillProviders publishes a provider of a namespace, NAMESPACE/note, whose key it adds, and mirrors the same one under an address.
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
	for _, args := range [][]string{{"key", "add", namespace, public}, {"publish", "provider", release, namespace + "/note"}, {"mirror", "import", folder}} {
		if _, err := r.Larder(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// mirrored is the address of the provider that fill mirrors.
func (r *Registry) mirrored() string { return "kept.example.com/" + r.Namespace + "/note" }

// install has each client install what fill has published, in one init.
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

// verify reads the whole registry, and fails where it does not hold though it should, with nothing found, or where it does
// though it should not.
func (r *Registry) verify(ctx context.Context, holds bool) error {
	text, err := r.Larder(ctx, "verify", "--at-rest", "--json")
	if !holds {
		if err == nil || !strings.Contains(err.Error(), `"kind": "`) { // what a failed run printed is in its error
			return fmt.Errorf("larder verify finds no fault: %w\n%s", err, text)
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
		err = fmt.Errorf("larder verify finds:\n%s", text)
	}
	return err
}

// buckets is S3, as the account's owner has it.
func (d *deployment) buckets() *s3.Client {
	return s3.NewFromConfig(d.Account, func(o *s3.Options) { o.UsePathStyle = d.Endpoint != "" })
}

// undelete deletes the archive of a module, and then the marker that this leaves.
func (d *deployment) undelete(ctx context.Context, r *Registry, bucket string) error {
	buckets := d.buckets()
	listed, err := buckets.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String("modules/" + r.Namespace + "/")})
	if err != nil || len(listed.Contents) != 1 {
		return fmt.Errorf("there is not one archive: %w", err)
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
		return fmt.Errorf("there is not one delete marker: %w", err)
	}
	if _, err := buckets.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: key, VersionId: versions.DeleteMarkers[0].VersionId}); err != nil {
		return err
	}
	return r.verify(ctx, true)
}

// copyBucket copies all objects with their tags, as `aws s3 sync` does.
func copyBucket(ctx context.Context, buckets *s3.Client, from, to string) error {
	for pages := s3.NewListObjectsV2Paginator(buckets, &s3.ListObjectsV2Input{Bucket: &from}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, object := range page.Contents {
			source := (&url.URL{Path: from + "/" + *object.Key}).EscapedPath()
			if _, err := buckets.CopyObject(ctx, &s3.CopyObjectInput{Bucket: &to, Key: object.Key, CopySource: &source}); err != nil {
				return fmt.Errorf("copying %s: %w", *object.Key, err)
			}
		}
	}
	return nil
}

// copySettings copies the lifecycle rules and the policy of a bucket. AWS blocks
// public access to a new bucket by itself.
func (d *deployment) copySettings(ctx context.Context, buckets *s3.Client, from, to string) error {
	rules, err := buckets.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &from})
	if err != nil {
		return err
	}
	if _, err := buckets.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
		Bucket: &to, LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: rules.Rules},
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

// restoreTable makes the table anew from a backup, with what a backup does not have.
func restoreTable(ctx context.Context, tables *dynamodb.Client, backup *string) error {
	name := aws.String(restoredName)
	if _, err := tables.RestoreTableFromBackup(ctx, &dynamodb.RestoreTableFromBackupInput{TargetTableName: name, BackupArn: backup}); err != nil {
		return err
	}
	if err := dynamodb.NewTableExistsWaiter(tables).Wait(ctx, &dynamodb.DescribeTableInput{TableName: name}, patience); err != nil {
		return err
	}
	if _, err := tables.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
		TableName: name, PointInTimeRecoverySpecification: &dynamodbtypes.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
	}); err != nil {
		return err
	}
	if _, err := tables.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: name, TimeToLiveSpecification: &dynamodbtypes.TimeToLiveSpecification{Enabled: aws.Bool(true), AttributeName: aws.String(settings.TTLAttribute)},
	}); err != nil {
		return err
	}
	_, err := tables.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: name, DeletionProtectionEnabled: aws.Bool(true)})
	return err
}
