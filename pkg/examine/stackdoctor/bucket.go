package stackdoctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/cloud/resourcepolicy"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// restoring refers to the page with the commands for the bucket's settings.
const seeRestore = "docs/restore-aws.md has the commands"

// bucket examines the bucket that the stack names. The stack may have created
// or adopted it.
func (e *examination) bucket(ctx context.Context) {
	name := e.outputs[settings.OutputBucket]
	c := call{"bucket", "s3:GetBucketVersioning", name}
	out, err := e.Services.Buckets.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &name})
	switch {
	case code(err) == "NoSuchBucket":
		e.wrong(c.step, c.String(), "the bucket "+name+" does not exist",
			"restore it, and let the stack adopt it; see docs/restore-aws.md")
		return
	case err != nil:
		e.failed(c, err)
	case out.Status != types.BucketVersioningStatusEnabled:
		e.wrong("bucket versions", c.String(), "versioning is off, so a deleted archive cannot be restored",
			"aws s3api put-bucket-versioning --bucket "+name+" --versioning-configuration Status=Enabled")
	default:
		e.ok("bucket versions", "deleted archives can be restored")
	}
	e.bucketPolicy(ctx, name)
	e.publicAccess(ctx, name)
	e.lifecycle(ctx, name)
	e.encryption(ctx, name)
}

// The conditions of the statements that every registry's bucket needs. A PUT
// without If-None-Match could replace an object.
var (
	putOnce = []resourcepolicy.Condition{
		{Operator: "Null", Key: "s3:if-none-match", Value: "true"},
		{Operator: "Bool", Key: "s3:ObjectCreationOperation", Value: "true"},
	}
	tlsOnly = resourcepolicy.Condition{Operator: "Bool", Key: "aws:SecureTransport", Value: "false"}
)

func (e *examination) bucketPolicy(ctx context.Context, bucket string) {
	c := call{"bucket policy", "s3:GetBucketPolicy", bucket}
	out, err := e.Services.Buckets.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &bucket})
	var text string
	switch {
	case code(err) == "NoSuchBucketPolicy":
	case err != nil:
		e.failed(c, err)
		return
	default:
		text = aws.ToString(out.Policy)
	}
	p, err := resourcepolicy.Parse(text)
	if err != nil {
		e.wrong(c.step, c.String(), "it is not valid: "+err.Error(), seeRestore)
		return
	}
	var problems []string
	if !p.Denies("s3:PutObject", bucket, putOnce...) {
		problems = append(problems, "archives can be replaced")
	}
	if !p.Denies("s3:GetObject", bucket, tlsOnly) || !p.Denies("s3:PutObject", bucket, tlsOnly) {
		problems = append(problems, "requests do not need TLS")
	}
	if len(problems) > 0 {
		e.wrong(c.step, c.String(), strings.Join(problems, ", and "),
			"set the policy that a stack gives its own bucket; "+seeRestore)
		return
	}
	e.ok(c.step, "no one can replace an archive, and requests need TLS")
}

func (e *examination) publicAccess(ctx context.Context, bucket string) {
	c := call{"bucket public access", "s3:GetBucketPublicAccessBlock", bucket}
	out, err := e.Services.Buckets.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: &bucket})
	if err != nil && code(err) != "NoSuchPublicAccessBlockConfiguration" {
		e.failed(c, err)
		return
	}
	var b types.PublicAccessBlockConfiguration
	if err == nil && out.PublicAccessBlockConfiguration != nil {
		b = *out.PublicAccessBlockConfiguration
	}
	if aws.ToBool(b.BlockPublicAcls) && aws.ToBool(b.BlockPublicPolicy) && aws.ToBool(b.IgnorePublicAcls) &&
		aws.ToBool(b.RestrictPublicBuckets) {
		e.ok(c.step, "all public access is blocked")
		return
	}
	e.wrong(c.step, c.String(), "not all public access is blocked",
		"aws s3api put-public-access-block --bucket "+bucket+
			" --public-access-block-configuration BlockPublicAcls=true,IgnorePublicAcls=true,"+
			"BlockPublicPolicy=true,RestrictPublicBuckets=true")
}

func (e *examination) lifecycle(ctx context.Context, bucket string) {
	c := call{"bucket lifecycle", "s3:GetLifecycleConfiguration", bucket}
	out, err := e.Services.Buckets.GetBucketLifecycleConfiguration(ctx,
		&s3.GetBucketLifecycleConfigurationInput{Bucket: &bucket})
	var rules []types.LifecycleRule
	switch {
	case code(err) == "NoSuchLifecycleConfiguration":
	case err != nil:
		e.failed(c, err)
		return
	default:
		rules = out.Rules
	}
	days := int32(objects.StagedFor.Hours() / 24)
	staged, leftovers := false, false
	otherDays := int32(0) // after which another rule removes staged objects
	for _, r := range rules {
		if r.Status != types.ExpirationStatusEnabled {
			continue
		}
		if ofStaged(r) {
			if x := r.Expiration; x != nil && aws.ToInt32(x.Days) == days {
				staged = true
			} else if x != nil {
				otherDays = aws.ToInt32(x.Days)
			}
			continue
		}
		if what := effect(r); what != "" && reachesArchives(r) {
			e.wrong(c.step, c.String(), fmt.Sprintf("the rule %s %s published objects", aws.ToString(r.ID), what),
				"remove the rule, or limit it to other objects")
			return
		}
		leftovers = leftovers || r.AbortIncompleteMultipartUpload != nil && aws.ToString(prefix(r)) == ""
	}
	switch {
	case !staged && otherDays > 0:
		e.wrong(c.step, c.String(),
			fmt.Sprintf("unpublished uploads are removed after %s instead of %s",
				english.Plural(int(otherDays), "day", ""), english.Plural(int(days), "day", "")), seeRestore)
	case !staged:
		e.wrong(c.step, c.String(),
			fmt.Sprintf("no rule removes unpublished uploads, which have the tag %s=%s, after %d days", objects.Tag,
				objects.TagStaged, days), seeRestore)
	case !leftovers:
		e.warn(c.step, c.String(), "no rule removes the parts of unfinished uploads, so you pay for their storage",
			seeRestore)
	default:
		e.ok(c.step, "unpublished uploads are removed")
	}
}

// ofStaged reports whether a rule applies only to staged objects.
func ofStaged(r types.LifecycleRule) bool {
	is := func(t types.Tag) bool {
		return aws.ToString(t.Key) == objects.Tag && aws.ToString(t.Value) == objects.TagStaged
	}
	switch f := r.Filter; {
	case f == nil:
		return false
	case f.Tag != nil:
		return is(*f.Tag)
	case f.And != nil && aws.ToString(f.And.Prefix) == "" && len(f.And.Tags) == 1:
		return is(f.And.Tags[0])
	}
	return false
}

// takes returns how a rule makes objects unreadable for clients, or "".
func effect(r types.LifecycleRule) string {
	if r.Expiration != nil && (aws.ToInt32(r.Expiration.Days) > 0 || r.Expiration.Date != nil) {
		return "deletes"
	}
	for _, t := range r.Transitions {
		if t.StorageClass == types.TransitionStorageClassGlacier ||
			t.StorageClass == types.TransitionStorageClassDeepArchive {
			return "archives"
		}
	}
	return ""
}

// prefix returns the key prefix of a rule, or nil.
func prefix(r types.LifecycleRule) *string {
	switch f := r.Filter; {
	case f == nil:
		return r.Prefix //nolint:staticcheck // old rules use it
	case f.And != nil:
		return f.And.Prefix
	default:
		return f.Prefix
	}
}

// reachesArchives reports whether a rule can apply to published objects. Their
// only tag is [objects.TagKept], so a rule for another tag cannot.
func reachesArchives(r types.LifecycleRule) bool {
	tags := []types.Tag(nil)
	if f := r.Filter; f != nil && f.Tag != nil {
		tags = append(tags, *f.Tag)
	} else if f != nil && f.And != nil {
		tags = f.And.Tags
	}
	for _, t := range tags {
		if aws.ToString(t.Key) != objects.Tag || aws.ToString(t.Value) != objects.TagKept {
			return false
		}
	}
	for _, root := range []string{"modules/", "providers/", registry.MirrorPrefix, registry.MirrorModulePrefix} {
		p := aws.ToString(prefix(r))
		if strings.HasPrefix(root, p) || strings.HasPrefix(p, root) {
			return true
		}
	}
	return false
}

func (e *examination) encryption(ctx context.Context, bucket string) {
	c := call{"bucket encryption", "s3:GetEncryptionConfiguration", bucket}
	out, err := e.Services.Buckets.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &bucket})
	if err != nil && code(err) != "ServerSideEncryptionConfigurationNotFoundError" {
		e.failed(c, err)
		return
	}
	var key string
	var cheap bool // whether S3 sends few requests to KMS
	if err == nil && out.ServerSideEncryptionConfiguration != nil {
		for _, r := range out.ServerSideEncryptionConfiguration.Rules {
			if d := r.ApplyServerSideEncryptionByDefault; d != nil {
				key = aws.ToString(d.KMSMasterKeyID)
			}
			cheap = cheap || aws.ToBool(r.BucketKeyEnabled)
		}
	}
	if strings.HasSuffix(key, "alias/aws/s3") {
		key = "" // AWS manages it
	}
	if !e.encryptedWith(ctx, c, key,
		"encrypt the bucket with S3's own keys (SSE-S3), and copy the objects that use the key",
		"set the default encryption of the bucket to SSE-KMS with a bucket key, and the key ") {
		return
	}
	switch {
	case e.outputs[settings.OutputKey] == "":
		e.ok(c.step, "it needs no permission for a key")
	case !cheap:
		e.warn(c.step, c.String(), "without a bucket key, each download needs a request to KMS, which costs $3 per million",
			"turn on the bucket key in the bucket's default encryption")
	default:
		e.ok(c.step, "new objects are encrypted with the stack's key")
	}
}
