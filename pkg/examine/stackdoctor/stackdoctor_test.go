package stackdoctor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	tabletypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/examine/stackdoctor"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// account is a fake AWS account with one registry. It returns the same error
// codes as the services.
type account struct {
	stack     signedcall.Stack
	table     *tabletypes.TableDescription
	ttl       *tabletypes.TimeToLiveDescription
	recovery  tabletypes.PointInTimeRecoveryStatus
	bucket    bool
	versions  s3types.BucketVersioningStatus
	policy    string // none if it is empty
	public    *s3types.PublicAccessBlockConfiguration
	rules     []s3types.LifecycleRule
	key       string // of the bucket's encryption
	bucketKey bool
	keys      map[string]object // by id, ARN or alias
	keyPolicy string
	functions map[string]*signedcall.Function
	template  map[string]any // the resources by logical ID
	names     map[string]string
	reserved  map[string]int // by function
	api       *gatewayAPI
	// concurrency is the account's.
	concurrency int
	alarms      map[string]signedcall.Alarm
	topic       []signedcall.Subscription // nil if there is no topic
	cert        *signedcall.Certificate
	// fails contains the errors that actions return.
	fails map[string]error
}

func apiError(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}

const (
	tableName   = "larder-Table"
	bucketName  = "larder-bucket"
	topicARN    = "arn:aws:sns:eu-central-1:000000000000:alarms"
	certificate = "arn:aws:acm:eu-central-1:000000000000:certificate/0"
)

var (
	now      = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	deployed = now.Add(-72 * time.Hour)
)

const goodPolicy = `{"Version": "2012-10-17", "Statement": [
	{"Action": "s3:*", "Condition": {"Bool": {"aws:SecureTransport": "false"}},
	 "Effect": "Deny", "Principal": {"AWS": "*"},
		"Resource": ["arn:aws:s3:::larder-bucket", "arn:aws:s3:::larder-bucket/*"]},
	{"Sid": "PutOnceOnly", "Action": "s3:PutObject", "Condition": {"Bool": {"s3:ObjectCreationOperation": "true"},
	 "Null": {"s3:if-none-match": "true"}},
		"Effect": "Deny", "Principal": {"AWS": "*"}, "Resource": "arn:aws:s3:::larder-bucket/*"}
]}`

const (
	ownKey   = "arn:aws:kms:eu-central-1:000000000000:key/own"
	otherKey = "arn:aws:kms:eu-central-1:000000000000:key/other"
	ofAWS    = "arn:aws:kms:eu-central-1:000000000000:key/of-aws"

	goodKeyPolicy = `{"Statement": [
		{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "kms:*", "Resource": "*"},
		{"Effect": "Allow", "Principal": {"Service": ["logs.eu-central-1.amazonaws.com", "cloudwatch.amazonaws.com"]},
			"Action": ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
			"Resource": "*"}]}`
)

func tableWith(key string) func(*account) {
	return func(a *account) { a.table.SSEDescription = &tabletypes.SSEDescription{KMSMasterKeyArn: &key} }
}

// encrypted gives the stack a key of its own.
func encrypted(a *account) {
	tableWith(ownKey)(a)
	a.key, a.bucketKey, a.stack.Outputs[settings.OutputKey] = ownKey, true, ownKey
}

const accessRules = `{"issuers":[{"issuer":"https://id.example.com","audiences":["c"],` +
	`"rules":[{"claims":{"team":"*"},"scopes":["read:**"]}]}],` +
	`"login":{"issuer":"https://id.example.com","client":"c"}}`

// healthy returns an account whose registry has no problems.
func healthy() *account {
	a := &account{
		stack: signedcall.Stack{
			ID:      "arn:aws:cloudformation:eu-central-1:000000000000:stack/larder/1",
			Status:  "UPDATE_COMPLETE",
			Created: deployed.Add(-time.Hour),
			Updated: &deployed,
			Outputs: map[string]string{
				settings.OutputTable: tableName, settings.OutputBucket: bucketName, settings.OutputRelease: "v1.2.3",
				settings.OutputHost:   "registry.example.com",
				settings.OutputAlarms: "larder-slow,larder-gateway-5xx", settings.OutputAlarmTopic: topicARN,
				settings.OutputCertificate: certificate,
			},
		},
		table: &tabletypes.TableDescription{
			TableName:                 aws.String(tableName),
			TableStatus:               tabletypes.TableStatusActive,
			DeletionProtectionEnabled: aws.Bool(true),
			KeySchema: []tabletypes.KeySchemaElement{
				{AttributeName: aws.String("pk"), KeyType: tabletypes.KeyTypeHash},
				{AttributeName: aws.String("sk"), KeyType: tabletypes.KeyTypeRange},
			},
			AttributeDefinitions: []tabletypes.AttributeDefinition{
				{AttributeName: aws.String("pk"), AttributeType: tabletypes.ScalarAttributeTypeS},
				{AttributeName: aws.String("sk"), AttributeType: tabletypes.ScalarAttributeTypeS},
			},
		},
		ttl: &tabletypes.TimeToLiveDescription{
			AttributeName:    aws.String("expires"),
			TimeToLiveStatus: tabletypes.TimeToLiveStatusEnabled,
		},
		recovery: tabletypes.PointInTimeRecoveryStatusEnabled,
		bucket:   true,
		versions: s3types.BucketVersioningStatusEnabled,
		policy:   goodPolicy,
		public: &s3types.PublicAccessBlockConfiguration{
			BlockPublicAcls:       aws.Bool(true),
			BlockPublicPolicy:     aws.Bool(true),
			IgnorePublicAcls:      aws.Bool(true),
			RestrictPublicBuckets: aws.Bool(true),
		},
		rules: []s3types.LifecycleRule{
			{
				ID:     aws.String("larder-leftovers"),
				Status: s3types.ExpirationStatusEnabled,
				Filter: &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
				AbortIncompleteMultipartUpload: &s3types.AbortIncompleteMultipartUpload{
					DaysAfterInitiation: aws.Int32(7),
				},
				Expiration: &s3types.LifecycleExpiration{ExpiredObjectDeleteMarker: aws.Bool(true)},
			},
			stagedRule(),
		},
		functions:   make(map[string]*signedcall.Function),
		reserved:    make(map[string]int),
		concurrency: 1000,
		alarms:      make(map[string]signedcall.Alarm),
		topic:       []signedcall.Subscription{{ARN: topicARN + ":1", Endpoint: "registry@example.com"}},
		cert: &signedcall.Certificate{
			Status:                  "ISSUED",
			NotAfter:                float64(now.Add(200 * 24 * time.Hour).Unix()),
			DomainName:              "example.com",
			SubjectAlternativeNames: []string{"example.com", "*.example.com"},
		},
		fails: make(map[string]error),
		keys: map[string]object{
			ownKey: {"Arn": ownKey, "KeyManager": "CUSTOMER", "KeyState": "Enabled", "KeyUsage": "ENCRYPT_DECRYPT",
				"KeySpec": "SYMMETRIC_DEFAULT"},
			otherKey: {"Arn": otherKey, "KeyManager": "CUSTOMER"}, ofAWS: {"Arn": ofAWS, "KeyManager": "AWS"},
		},
		keyPolicy: goodKeyPolicy,
	}
	a.deploy(accessRules)
	for _, name := range []string{"larder-slow", "larder-gateway-5xx"} {
		a.alarms[name] = signedcall.Alarm{Name: name, ActionsEnabled: true, Actions: []string{topicARN}}
	}
	return a
}

func stagedRule() s3types.LifecycleRule {
	return s3types.LifecycleRule{
		ID:         aws.String("larder-staged"),
		Status:     s3types.ExpirationStatusEnabled,
		Expiration: &s3types.LifecycleExpiration{Days: aws.Int32(2)},
		Filter: &s3types.LifecycleRuleFilter{
			Tag: &s3types.Tag{Key: aws.String("larder"), Value: aws.String("staged")},
		},
		NoncurrentVersionExpiration: &s3types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(1)},
	}
}

func (a *account) services() stackdoctor.Services {
	return stackdoctor.Services{Tables: a, Buckets: a, Config: aws.Config{
		Region: "eu-central-1", HTTPClient: a, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		Credentials: credentials.NewStaticCredentialsProvider("AKIA", "secret", ""),
	}}
}

func (a *account) tableFails(action string) error {
	if a.table == nil && a.fails[action] == nil {
		return &tabletypes.ResourceNotFoundException{
			Message: aws.String("Requested resource not found: Table: " + tableName + " not found"),
		}
	}
	return a.fails[action]
}

func (a *account) DescribeTable(context.Context, *dynamodb.DescribeTableInput,
	...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return &dynamodb.DescribeTableOutput{Table: a.table}, a.tableFails("dynamodb:DescribeTable")
}

func (a *account) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput,
	...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: a.ttl}, a.tableFails("dynamodb:DescribeTimeToLive")
}

func (a *account) DescribeContinuousBackups(context.Context, *dynamodb.DescribeContinuousBackupsInput,
	...func(*dynamodb.Options)) (*dynamodb.DescribeContinuousBackupsOutput, error) {
	return &dynamodb.DescribeContinuousBackupsOutput{
		ContinuousBackupsDescription: &tabletypes.ContinuousBackupsDescription{
			PointInTimeRecoveryDescription: &tabletypes.PointInTimeRecoveryDescription{
				PointInTimeRecoveryStatus: a.recovery,
			},
		},
	}, a.tableFails("dynamodb:DescribeContinuousBackups")
}

// bucketFails returns the error of an action, of a missing bucket, or of a
// missing setting.
func (a *account) bucketFails(action string, missing bool, code string) error {
	switch {
	case a.fails[action] != nil:
		return a.fails[action]
	case !a.bucket:
		return apiError("NoSuchBucket", "The specified bucket does not exist")
	case missing:
		return apiError(code, "it does not exist")
	}
	return nil
}

func (a *account) GetBucketVersioning(context.Context, *s3.GetBucketVersioningInput,
	...func(*s3.Options)) (*s3.GetBucketVersioningOutput, error) {
	return &s3.GetBucketVersioningOutput{Status: a.versions}, a.bucketFails("s3:GetBucketVersioning", false, "")
}

func (a *account) GetBucketPolicy(context.Context, *s3.GetBucketPolicyInput,
	...func(*s3.Options)) (*s3.GetBucketPolicyOutput, error) {
	if err := a.bucketFails("s3:GetBucketPolicy", a.policy == "", "NoSuchBucketPolicy"); err != nil {
		return nil, err
	}
	return &s3.GetBucketPolicyOutput{Policy: &a.policy}, nil
}

func (a *account) GetPublicAccessBlock(context.Context, *s3.GetPublicAccessBlockInput,
	...func(*s3.Options)) (*s3.GetPublicAccessBlockOutput, error) {
	if err := a.bucketFails("s3:GetBucketPublicAccessBlock", a.public == nil,
		"NoSuchPublicAccessBlockConfiguration"); err != nil {
		return nil, err
	}
	return &s3.GetPublicAccessBlockOutput{PublicAccessBlockConfiguration: a.public}, nil
}

func (a *account) GetBucketLifecycleConfiguration(context.Context, *s3.GetBucketLifecycleConfigurationInput,
	...func(*s3.Options)) (*s3.GetBucketLifecycleConfigurationOutput, error) {
	if err := a.bucketFails("s3:GetLifecycleConfiguration", len(a.rules) == 0,
		"NoSuchLifecycleConfiguration"); err != nil {
		return nil, err
	}
	return &s3.GetBucketLifecycleConfigurationOutput{Rules: a.rules}, nil
}

func (a *account) GetBucketEncryption(context.Context, *s3.GetBucketEncryptionInput,
	...func(*s3.Options)) (*s3.GetBucketEncryptionOutput, error) {
	if err := a.bucketFails("s3:GetEncryptionConfiguration", false, ""); err != nil {
		return nil, err
	}
	rule := s3types.ServerSideEncryptionRule{
		ApplyServerSideEncryptionByDefault: &s3types.ServerSideEncryptionByDefault{
			SSEAlgorithm: s3types.ServerSideEncryptionAes256,
		},
	}
	if a.key != "" {
		rule.ApplyServerSideEncryptionByDefault = &s3types.ServerSideEncryptionByDefault{
			SSEAlgorithm:   s3types.ServerSideEncryptionAwsKms,
			KMSMasterKeyID: &a.key,
		}
		rule.BucketKeyEnabled = &a.bucketKey
	}
	return &s3.GetBucketEncryptionOutput{
		ServerSideEncryptionConfiguration: &s3types.ServerSideEncryptionConfiguration{
			Rules: []s3types.ServerSideEncryptionRule{rule},
		},
	}, nil
}

// examine examines the account.
func (a *account) examine(t *testing.T) stackdoctor.Report {
	t.Helper()
	d := stackdoctor.Doctor{
		Stack:    "larder",
		Region:   "eu-central-1",
		Services: a.services(),
		Release:  "1.2.3",
		Now:      func() time.Time { return now },
	}
	report, err := d.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// found returns a line with the outcome and the name of each problem.
func found(report stackdoctor.Report) (lines []string) {
	for _, s := range report.Steps {
		if s.Outcome != doctor.OK && s.Outcome != doctor.Skipped {
			lines = append(lines, fmt.Sprintf("%s %s", s.Outcome, s.Name))
		}
	}
	return lines
}

// problems returns the texts of all problems. Each must have a fix.
func problems(t *testing.T, report stackdoctor.Report) string {
	t.Helper()
	var text strings.Builder
	for _, s := range report.Steps {
		healthy := s.Outcome == doctor.OK || s.Outcome == doctor.Skipped
		if (s.Fix == "") != healthy {
			t.Errorf("only problems must have a fix: %+v", s)
		}
		if !healthy {
			text.WriteString(s.Name + ": " + s.Result + "\n  fix: " + s.Fix + "\n")
		}
	}
	return text.String()
}

// sorted returns the keys of a map in order.
func sorted[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

// A healthy stack has no problems, and everything is examined. A stack without
// alarms and domain has no problems either.
func TestHealthy(t *testing.T) {
	t.Parallel()
	report := healthy().examine(t)
	var names []string
	for _, s := range report.Steps {
		if s.Outcome != doctor.OK || s.Fix != "" {
			t.Errorf("%+v", s)
		}
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{
		"stack", "release", "table keys", "table", "table deletion protection", "table expiry", "table recovery",
		"bucket versions", "bucket policy", "bucket public access", "bucket lifecycle", "bucket encryption",
		"function discovery", "function metadata", "function mirror", "function modules", "function providers",
		"function publish", "function pull", "throttle", "routes", "account concurrency", "account throttle",
		"alarms", "alarm subscribers", "certificate",
	}, names); diff != "" {
		t.Error(diff)
	}

	plain := healthy()
	for _, output := range []string{settings.OutputAlarms, settings.OutputAlarmTopic, settings.OutputCertificate} {
		delete(plain.stack.Outputs, output)
	}
	for _, action := range []string{
		"cloudwatch:DescribeAlarms", "sns:ListSubscriptionsByTopic", "acm:DescribeCertificate",
	} {
		plain.fails[action] = errors.New("nobody may call it")
	}
	report = plain.examine(t)
	if lines := found(report); len(lines) > 0 || report.Count(doctor.Skipped) != 2 {
		t.Errorf("%q, %d skipped", lines, report.Count(doctor.Skipped))
	}
}

// Each fault is reported, and nothing else.
func TestFaults(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	modules := func(do func(f *signedcall.Function)) func(*account) {
		return func(a *account) { do(a.functions["larder-modules-1"]) }
	}
	expires := func(in time.Duration) func(*account) {
		return func(a *account) { a.cert.NotAfter = float64(now.Add(in).Unix()) }
	}
	undeployed := func(status string) func(*account) {
		return func(a *account) { a.stack.Status, a.stack.Outputs = status, nil }
	}
	for name, test := range map[string]struct {
		do   func(*account)
		want string
	}{
		"a failed deploy":              {func(a *account) { a.stack.Status = "UPDATE_ROLLBACK_COMPLETE" }, "warning stack"},
		"a failed first deploy":        {undeployed("ROLLBACK_COMPLETE"), "wrong stack"},
		"a first deploy that is stuck": {undeployed("ROLLBACK_FAILED"), "wrong stack"},
		"a first deploy under way":     {undeployed("CREATE_IN_PROGRESS"), "unknown stack"},
		"a stack of a change set":      {undeployed("REVIEW_IN_PROGRESS"), "unknown stack"},
		"a failed rollback":            {func(a *account) { a.stack.Status = "UPDATE_ROLLBACK_FAILED" }, "wrong stack"},
		"a deploy under way":           {func(a *account) { a.stack.Status = "UPDATE_IN_PROGRESS" }, "warning stack"},
		"a stack of another kind":      {func(a *account) { a.stack.Outputs = nil }, "wrong stack"},
		"another release": {
			func(a *account) { a.stack.Outputs[settings.OutputRelease] = "v1.1.0" }, "warning release",
		},
		"no names of functions": {func(a *account) { a.stack.Outputs[settings.OutputFunctions] = "" }, "wrong stack"},
		"no table":              {func(a *account) { a.table = nil }, "wrong table"},
		"another key": {func(a *account) {
			a.table.KeySchema[1].AttributeName = aws.String("range")
			a.table.AttributeDefinitions[1].AttributeName = aws.String("range")
		}, "wrong table keys"},
		"a key of numbers": {func(a *account) {
			a.table.AttributeDefinitions[1].AttributeType = tabletypes.ScalarAttributeTypeN
		}, "wrong table keys"},
		"no sort key": {func(a *account) { a.table.KeySchema = a.table.KeySchema[:1] }, "wrong table keys"},
		"a table without its key": {
			func(a *account) { a.table.TableStatus = tabletypes.TableStatusInaccessibleEncryptionCredentials }, "wrong table",
		},
		"a table with another key":  {tableWith(otherKey), "wrong table"},
		"a table with a key of AWS": {tableWith(ofAWS), ""},
		"a table with a key that may not be read": {func(a *account) {
			tableWith(otherKey)(a)
			a.fails["kms:DescribeKey"] = apiError("AccessDeniedException", "not authorized")
		}, "warning table"},
		"a table with a key that cannot be read": {func(a *account) {
			tableWith(otherKey)(a)
			a.fails["kms:DescribeKey"] = apiError("ThrottlingException", "Rate exceeded")
		}, "unknown table"},
		"a stack with a key": {encrypted, ""},
		"a table without the stack's key": {func(a *account) {
			encrypted(a)
			a.table.SSEDescription = nil
		}, "warning table"},
		"a table with another key than the stack's": {func(a *account) {
			encrypted(a)
			tableWith(otherKey)(a)
		}, "wrong table"},
		"a bucket without the stack's key": {func(a *account) {
			encrypted(a)
			a.key = ""
		}, "warning bucket encryption"},
		"a bucket with the stack's key by its alias": {func(a *account) {
			encrypted(a)
			a.key, a.keys["alias/larder"] = "alias/larder", a.keys[ownKey]
		}, ""},
		"a bucket without a bucket key": {func(a *account) {
			encrypted(a)
			a.bucketKey = false
		}, "warning bucket encryption"},
		"a key that will be deleted": {func(a *account) {
			encrypted(a)
			a.keys[ownKey]["KeyState"] = "PendingDeletion"
		}, "wrong key"},
		"a key that is off": {func(a *account) {
			encrypted(a)
			a.keys[ownKey]["KeyState"] = "Disabled"
		}, "wrong key"},
		"a key of another account": {func(a *account) {
			const theirs = "arn:aws:kms:eu-central-1:111111111111:key/theirs"
			encrypted(a)
			a.keys[theirs] = a.keys[ownKey]
			a.keys[theirs]["Arn"] = theirs
			a.key, a.stack.Outputs[settings.OutputKey] = theirs, theirs
			tableWith(theirs)(a)
			a.keyPolicy = "{}"
		}, ""},
		"a key that was deleted": {func(a *account) {
			encrypted(a)
			delete(a.keys, ownKey)
		}, "wrong key"},
		"a key whose policy does not let IAM decide": {func(a *account) {
			encrypted(a)
			a.keyPolicy = strings.Replace(goodKeyPolicy, ":root", ":user/ada", 1)
		}, "wrong key"},
		"a key with which nobody may encrypt": {func(a *account) {
			encrypted(a)
			a.keyPolicy = strings.Replace(goodKeyPolicy, `"kms:*"`, `"kms:Decrypt"`, 1)
		}, "wrong key"},
		"a key that denies a role": {func(a *account) {
			encrypted(a)
			a.keyPolicy = strings.Replace(goodKeyPolicy, `[`, `[{"Effect": "Deny", "Principal": {"AWS":
				"arn:aws:iam::000000000000:role/larder-modules-1-role"}, "Action": "kms:Decrypt", "Resource": "*"}, `, 1)
		}, "wrong key"},
		"a key without the template": {func(a *account) {
			encrypted(a)
			a.fails["cloudformation:GetTemplate"] = apiError("AccessDenied", "not authorized")
		}, "unknown template, unknown key"},
		"a key without alarms": {func(a *account) {
			encrypted(a)
			a.template["Alarms0"] = object{"Type": "AWS::SNS::Topic"}
			a.keyPolicy = strings.Replace(goodKeyPolicy, `"cloudwatch.`, `"events.`, 1)
		}, "wrong key"},
		"a key without alarms, which go to an owner's topic": {func(a *account) {
			encrypted(a)
			a.keyPolicy = strings.Replace(goodKeyPolicy, `"cloudwatch.`, `"events.`, 1)
		}, ""},
		"a key without logs": {func(a *account) {
			encrypted(a)
			a.keyPolicy = strings.Replace(goodKeyPolicy, `"logs.`, `"events.`, 1)
		}, "wrong key"},
		"a key with a condition": {func(a *account) {
			encrypted(a)
			a.keyPolicy = strings.Replace(goodKeyPolicy, `"kms:*"`,
				`"kms:*", "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}`, 1)
		}, "unknown key"},
		"a key whose policy may not be read": {func(a *account) {
			encrypted(a)
			a.fails["kms:GetKeyPolicy"] = apiError("AccessDeniedException", "not authorized")
		}, "unknown key"},
		"no deletion protection": {
			func(a *account) { a.table.DeletionProtectionEnabled = aws.Bool(false) }, "wrong table deletion protection",
		},
		"another attribute": {func(a *account) { a.ttl.AttributeName = aws.String("ttl") }, "wrong table expiry"},
		"no expiry": {func(a *account) {
			a.ttl = &tabletypes.TimeToLiveDescription{TimeToLiveStatus: tabletypes.TimeToLiveStatusDisabled}
		}, "wrong table expiry"},
		"no recovery": {
			func(a *account) { a.recovery = tabletypes.PointInTimeRecoveryStatusDisabled }, "wrong table recovery",
		},
		"no bucket":   {func(a *account) { a.bucket = false }, "wrong bucket"},
		"no versions": {func(a *account) { a.versions = s3types.BucketVersioningStatusSuspended }, "wrong bucket versions"},
		"no policy":   {func(a *account) { a.policy = "" }, "wrong bucket policy"},
		"a policy of only TLS": {func(a *account) {
			a.policy = strings.Replace(goodPolicy, `"s3:PutObject"`, `"s3:PutObjectAcl"`, 1)
		}, "wrong bucket policy"},
		"a policy for some": {func(a *account) {
			a.policy = strings.ReplaceAll(goodPolicy, `{"AWS": "*"}`, `{"AWS": "arn:aws:iam::000000000000:root"}`)
		}, "wrong bucket policy"},
		"a policy with a condition more": {func(a *account) {
			a.policy = strings.Replace(goodPolicy, `"Null": {`, `"StringLike": {"aws:PrincipalArn": "x"}, "Null": {`, 1)
		}, "wrong bucket policy"},
		"a policy for some objects": {func(a *account) {
			a.policy = strings.Replace(goodPolicy, `"Resource": "arn:aws:s3:::larder-bucket/*"`,
				`"Resource": "arn:aws:s3:::larder-bucket/modules/*"`, 1)
		}, "wrong bucket policy"},
		"a policy of another bucket": {func(a *account) {
			a.policy = strings.ReplaceAll(goodPolicy, "larder-bucket", "other-bucket")
		}, "wrong bucket policy"},
		"a policy with a number": {func(a *account) {
			a.policy = strings.Replace(goodPolicy, `"Statement": [`,
				`"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", `+
					`"Condition": {"NumericLessThan": {"s3:TlsVersion": 1.2}}},`, 1)
		}, ""},
		"a policy with a boolean": {func(a *account) { a.policy = strings.ReplaceAll(goodPolicy, `"false"`, `false`) }, ""},
		"a policy of one statement": {func(a *account) {
			a.policy = `{"Statement": {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", ` +
				`"Condition": {"Bool": {"aws:SecureTransport": [false]}}}}`
		}, "wrong bucket policy"},
		"a policy with a strange statement": {func(a *account) {
			a.policy = strings.Replace(goodPolicy, `"Statement": [`, `"Statement": [{"Effect": 1, "Action": {}}, `, 1)
		}, ""},
		"a public bucket": {func(a *account) { a.public = nil }, "wrong bucket public access"},
		"a bucket that may be public": {
			func(a *account) { a.public.RestrictPublicBuckets = aws.Bool(false) }, "wrong bucket public access",
		},
		"no lifecycle": {func(a *account) { a.rules = nil }, "wrong bucket lifecycle"},
		"a rule that is off": {
			func(a *account) { a.rules[1].Status = s3types.ExpirationStatusDisabled }, "wrong bucket lifecycle",
		},
		"a rule that waits":     {func(a *account) { a.rules[1].Expiration.Days = aws.Int32(20) }, "wrong bucket lifecycle"},
		"no rule for leftovers": {func(a *account) { a.rules = a.rules[1:] }, "warning bucket lifecycle"},
		"a rule for archives": {func(a *account) {
			a.rules = append(a.rules, s3types.LifecycleRule{
				ID:         aws.String("old"),
				Status:     s3types.ExpirationStatusEnabled,
				Expiration: &s3types.LifecycleExpiration{Days: aws.Int32(365)},
			})
		}, "wrong bucket lifecycle"},
		"a rule that freezes archives": {func(a *account) {
			a.rules = append(a.rules, s3types.LifecycleRule{
				ID: aws.String("cold"), Status: s3types.ExpirationStatusEnabled,
				Filter:      &s3types.LifecycleRuleFilter{Prefix: aws.String("modules/acme/")},
				Transitions: []s3types.Transition{{StorageClass: s3types.TransitionStorageClassDeepArchive, Days: aws.Int32(90)}},
			})
		}, "wrong bucket lifecycle"},
		"a bucket with another key":  {func(a *account) { a.key = otherKey }, "wrong bucket encryption"},
		"a bucket with a key of AWS": {func(a *account) { a.key = ofAWS }, ""},
		"no function":                {func(a *account) { delete(a.functions, "larder-modules-1") }, "wrong function modules"},
		"a function that failed": {modules(func(f *signedcall.Function) {
			f.State, f.StateReason = "Failed", "the image is gone"
		}), "wrong function modules"},
		"an update that failed": {modules(func(f *signedcall.Function) {
			f.LastUpdateStatus, f.LastUpdateStatusReason = "Failed", "no role"
		}), "wrong function modules"},
		"a function under way": {
			modules(func(f *signedcall.Function) { f.LastUpdateStatus = "InProgress" }), "warning function modules",
		},
		"a function that is idle": {modules(func(f *signedcall.Function) { f.State = "Inactive" }), ""},
		"a function changed later": {modules(func(f *signedcall.Function) {
			f.LastModified = "2026-11-20T09:00:00.000+0000"
		}), "warning function modules"},
		"no alarm": {func(a *account) { delete(a.alarms, "larder-slow") }, "wrong alarm larder-slow"},
		"an alarm without action": {func(a *account) {
			a.alarms["larder-slow"] = signedcall.Alarm{Name: "larder-slow", ActionsEnabled: true}
		}, "wrong alarm larder-slow"},
		"an alarm that is muted": {func(a *account) {
			a.alarms["larder-slow"] = signedcall.Alarm{Name: "larder-slow", Actions: []string{topicARN}}
		}, "wrong alarm larder-slow"},
		"an alarm of another topic": {func(a *account) {
			a.alarms["larder-slow"] = signedcall.Alarm{
				Name: "larder-slow", ActionsEnabled: true, Actions: []string{topicARN + "-old"},
			}
		}, "wrong alarm larder-slow"},
		"no topic":                  {func(a *account) { a.topic = nil }, "wrong alarm subscribers"},
		"no subscriber":             {func(a *account) { a.topic = a.topic[:0] }, "warning alarm subscribers"},
		"an unconfirmed subscriber": {func(a *account) { a.topic[0].ARN = "PendingConfirmation" }, "wrong alarm subscribers"},
		"an unconfirmed one more": {func(a *account) {
			a.topic = append(a.topic, signedcall.Subscription{ARN: "PendingConfirmation", Endpoint: "other@example.com"})
		}, "warning alarm subscribers"},
		"no certificate": {func(a *account) { a.cert = nil }, "wrong certificate"},
		"a certificate of another host": {func(a *account) {
			a.cert.SubjectAlternativeNames = []string{"example.com", "*.registry.example.com"}
		}, "wrong certificate"},
		"a certificate of the host": {
			func(a *account) { a.cert.DomainName, a.cert.SubjectAlternativeNames = "registry.example.com", nil }, "",
		},
		"a certificate about to expire":  {expires(13*24*time.Hour + time.Hour), "warning certificate"},
		"a certificate with 14 days":     {expires(14 * 24 * time.Hour), ""},
		"a certificate that has expired": {expires(-time.Hour), "wrong certificate"},
		"a certificate that is not there yet": {
			func(a *account) { a.cert.Status, a.cert.NotAfter = "PENDING_VALIDATION", 0 }, "wrong certificate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, texts, test.do, test.want)
		})
	}
}

// check changes a healthy account and checks the findings, which are joined by
// commas. It returns the texts of the problems.
func check(t *testing.T, texts *golden.Texts, do func(*account), want string) string {
	t.Helper()
	a := healthy()
	do(a)
	report := a.examine(t)
	if diff := cmp.Diff(want, strings.Join(found(report), ", ")); diff != "" {
		t.Error(diff)
	}
	text := problems(t, report)
	if text != "" {
		texts.Text(t, text)
	}
	return text
}

// The outcome is unknown if the credentials may not read something, or if a
// service fails.
func TestUnknown(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for action, test := range map[string]struct {
		code  string
		steps []string
	}{
		"cloudformation:DescribeStacks":      {"AccessDenied", []string{"stack"}},
		"dynamodb:DescribeTable":             {"AccessDeniedException", []string{"table"}},
		"dynamodb:DescribeTimeToLive":        {"AccessDeniedException", []string{"table expiry"}},
		"dynamodb:DescribeContinuousBackups": {"AccessDeniedException", []string{"table recovery"}},
		"s3:GetBucketVersioning":             {"AccessDenied", []string{"bucket"}},
		"s3:GetBucketPolicy":                 {"AccessDenied", []string{"bucket policy"}},
		"s3:GetBucketPublicAccessBlock":      {"AccessDenied", []string{"bucket public access"}},
		"s3:GetLifecycleConfiguration":       {"AccessDenied", []string{"bucket lifecycle"}},
		"s3:GetEncryptionConfiguration":      {"AccessDenied", []string{"bucket encryption"}},
		"lambda:GetFunctionConfiguration": {
			"AccessDeniedException",
			[]string{"function discovery", "function metadata", "function mirror", "function modules", "function providers",
				"function publish", "function pull"},
		},
		"cloudformation:GetTemplate":        {"AccessDenied", []string{"template"}},
		"cloudformation:ListStackResources": {"AccessDenied", []string{"template"}},
		"lambda:GetFunctionConcurrency": {
			"AccessDeniedException",
			[]string{"function discovery concurrency", "function metadata concurrency", "function mirror concurrency",
				"function modules concurrency", "function providers concurrency", "function publish concurrency",
				"function pull concurrency"},
		},
		"lambda:GetAccountSettings":                        {"AccessDeniedException", []string{"account concurrency"}},
		"apigateway:GET /v2/apis/a1b2c3/stages/%24default": {"AccessDeniedException", []string{"throttle"}},
		"apigateway:GET /v2/apis/a1b2c3/routes":            {"AccessDeniedException", []string{"routes"}},
		"apigateway:GET /v2/apis/a1b2c3/integrations":      {"AccessDeniedException", []string{"routes"}},
		"apigateway:GET /account":                          {"AccessDeniedException", []string{"account throttle"}},
		"cloudwatch:DescribeAlarms":                        {"AccessDenied", []string{"alarms"}},
		"sns:ListSubscriptionsByTopic":                     {"AuthorizationError", []string{"alarm subscribers"}},
		"acm:DescribeCertificate":                          {"AccessDeniedException", []string{"certificate"}},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{apiError(test.code, "User is not authorized to perform "+
				"it"), apiError("ThrottlingException", "Rate exceeded"), errors.New("connection refused")} {
				a := healthy()
				a.fails[action] = err
				var want []string
				for _, step := range test.steps {
					want = append(want, "unknown "+step)
				}
				report := a.examine(t)
				if diff := cmp.Diff(want, found(report)); diff != "" {
					t.Error(diff)
				}
				for _, s := range report.Steps {
					if s.Outcome == doctor.Unknown {
						texts.Text(t, s.Result+"\n  fix: "+s.Fix+"\n")
					}
				}
			}
		})
	}
}

// A missing stack returns ErrNotFound. A canceled examination adds no step.
func TestNoStack(t *testing.T) {
	t.Parallel()
	d := stackdoctor.Doctor{Stack: "lader", Region: "eu-central-1", Services: healthy().services()}
	if _, err := d.Examine(t.Context()); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.Stack, d.Found = "larder", func(s doctor.Step) { t.Errorf("%+v", s) }
	if _, err := d.Examine(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A fatal error ends the examination, and adds no step.
func TestFatal(t *testing.T) {
	t.Parallel()
	expired := func(err error) bool {
		failed, ok := errors.AsType[smithy.APIError](err)
		return ok && failed.ErrorCode() == "ExpiredTokenException"
	}
	for action, steps := range map[string]int{"cloudformation:DescribeStacks": 0, "dynamodb:DescribeTimeToLive": 5} {
		a := healthy()
		a.fails[action] = apiError("ExpiredTokenException", "The security token included in the request is expired")
		got := 0
		d := stackdoctor.Doctor{
			Stack: "larder", Services: a.services(), Found: func(doctor.Step) { got++ }, Fatal: expired,
		}
		if _, err := d.Examine(t.Context()); !expired(err) || got != steps {
			t.Errorf("%s: %v after %d steps", action, err, got)
		}
	}
}

// Only released versions are compared with each other.
func TestReleases(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stack, own string
		want       doctor.Outcome
	}{
		{"v1.2.3", "1.2.3", doctor.OK},
		{"v1.2.3", "v1.2.3", doctor.OK},
		{"v1.2.3", "1.3.0", doctor.Warning},
		{"v1.2.3-4-gabcdef012345", "1.3.0", doctor.OK},
		{"v1.2.3", "v0.0.0-20261122085700-abcdef012345", doctor.OK},
		{"unknown", "unknown", doctor.OK},
	} {
		a := healthy()
		a.stack.Outputs[settings.OutputRelease] = test.stack
		d := stackdoctor.Doctor{
			Stack:    "larder",
			Services: a.services(),
			Release:  test.own,
			Now:      func() time.Time { return now },
		}
		report, err := d.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range report.Steps {
			if s.Name == "release" && s.Outcome != test.want {
				t.Errorf("%+v: %+v", test, s)
			}
		}
	}
}

// The subscribers of a topic in another account are skipped.
func TestTopicOfAnotherAccount(t *testing.T) {
	t.Parallel()
	const other = "arn:aws:sns:eu-central-1:111111111111:alarms"
	a := healthy()
	a.stack.Outputs[settings.OutputAlarmTopic] = other
	for name, alarm := range a.alarms {
		alarm.Actions = []string{other}
		a.alarms[name] = alarm
	}
	a.fails["sns:ListSubscriptionsByTopic"] = errors.New("nobody may call it")
	for _, s := range a.examine(t).Steps {
		if s.Name == "alarm subscribers" && s.Outcome != doctor.Skipped {
			t.Errorf("%+v", s)
		}
		if s.Outcome == doctor.Unknown || s.Outcome == doctor.Wrong {
			t.Errorf("%+v", s)
		}
	}
}

// The fix for a failed rollback is to continue it, not to deploy again.
func TestFailedRollback(t *testing.T) {
	t.Parallel()
	a := healthy()
	a.stack.Status = "UPDATE_ROLLBACK_FAILED"
	if do := a.examine(t).Steps[0].Fix; !strings.Contains(do,
		"aws cloudformation continue-update-rollback --stack-name larder") {
		t.Error(do)
	}
}

// Deploying the same template does not restore changed code. The fix is to
// restore the package of the release.
func TestAdviceOnStaleCode(t *testing.T) {
	t.Parallel()
	a := healthy()
	a.functions["larder-modules-1"].CodeSha256 = "old="
	for _, s := range a.examine(t).Steps {
		if s.Name != "function modules" {
			continue
		}
		for _, want := range []string{
			"release v1.2.3", "aws lambda update-function-code --function-name larder-modules-1 ",
			"fileb://../dist/arm64-packages/modules.zip", "digest-of-modules=",
		} {
			if !strings.Contains(s.Fix, want) {
				t.Errorf("%q is not in %s", want, s.Fix)
			}
		}
		if strings.Contains(s.Fix, "cdk deploy --revert-drift") {
			t.Error(s.Fix)
		}
	}
}
