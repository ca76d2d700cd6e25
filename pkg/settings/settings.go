// Package settings defines what the stack passes to other programs: environment
// variables for the functions, and stack outputs for the command line. There is
// no other configuration.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The names of environment variables.
const (
	tableName     = "LARDER_TABLE"
	bucketName    = "LARDER_BUCKET"
	presignTime   = "LARDER_PRESIGN_SECONDS"
	pathStyleName = "LARDER_S3_PATH_STYLE"
	accessRules   = "LARDER_ACCESS"
	ipv6Name      = "LARDER_IPV6"
	loginName     = "LARDER_LOGIN"
	readOnlyName  = "LARDER_READ_ONLY"
	metricsName   = "LARDER_METRICS"

	publishFileBytes   = "LARDER_PUBLISH_FILE_BYTES"
	publishFiles       = "LARDER_PUBLISH_FILES"
	publishUploads     = "LARDER_PUBLISH_UPLOADS"
	publishInspections = "LARDER_PUBLISH_INSPECTIONS"
	allInspections     = "LARDER_PUBLISH_ALL_INSPECTIONS"

	pullFunction = "LARDER_PULL_FUNCTION"
	pullFolder   = "LARDER_PULL_FOLDER"
	pullRelease  = "LARDER_PULL_RELEASE"
	pullCopies   = "LARDER_PULL_COPIES"
)

// The names of the stack's outputs, which the command line uses to find a
// deployed registry.
const (
	OutputURL            = "RegistryURL"
	OutputHost           = "RegistryHost"
	OutputTable          = "TableName"
	OutputBucket         = "BucketName"
	OutputOperatorPolicy = "OperatorPolicyArn"
	OutputUserPool       = "UserPoolId"
	OutputAlarmTopic     = "AlarmTopicArn"
	OutputWithdrawPolicy = "WithdrawPolicyArn"
	// OutputRelease is the release that the stack was deployed from, such as
	// v1.2.3, or the last release before it.
	OutputRelease = "Release"
	// OutputFunctions has NAME=VALUE for each function, joined by commas. The
	// value is the function's name in Lambda. OutputFunctionCode has the
	// digests of their code in the same form, as Lambda returns them.
	OutputFunctions    = "FunctionNames"
	OutputFunctionCode = "FunctionDigests"
	// OutputAlarms has the names of the alarms, joined by commas.
	OutputAlarms = "AlarmNames"
	// OutputReadOnly is "true" if the stack's table and bucket are copies, to which
	// nobody may write. Otherwise there is no such output.
	OutputReadOnly = "ReadOnly"
	// OutputCertificate is the ARN of the certificate of the registry's domain.
	OutputCertificate = "CertificateArn"
	// OutputTarget is the host that the record of the registry's domain points to.
	OutputTarget = "GatewayTarget"
	// OutputKey is the ARN of the KMS key that encrypts the stored data. The
	// stack's roles may use no other.
	OutputKey = "KmsKeyArn"
)

// TTLAttribute is the attribute that the table uses to remove expired items.
const TTLAttribute = "expires"

// Settings are the settings of the functions that read the catalog.
type Settings struct {
	// Table is the name of the DynamoDB table.
	Table string
	// Bucket is the name of the S3 bucket.
	Bucket string
	// PresignLifetime is how long presigned URLs are valid, in whole seconds.
	PresignLifetime time.Duration
	// Access defines who may read without a token. It is JSON that
	// access.ParseSettings parses. If it has no rules, only the holders of
	// tokens may read.
	Access string
	// PathStyle puts the bucket into the path of S3 URLs, as emulators require.
	PathStyle bool
	// IPv6 uses the hosts of S3 that have IPv6 addresses too.
	IPv6 bool
	// ReadOnly makes the registry refuse to publish.
	ReadOnly bool
}

// The bounds of PresignLifetime. An init must be able to reuse its first URL
// until it ends. The credentials of a role do not sign for longer.
const (
	MinPresignLifetime = time.Minute
	MaxPresignLifetime = 12 * time.Hour
)

// FromEnvironment reads settings through getenv, which is [os.Getenv]. Its
// error names every invalid variable.
func FromEnvironment(getenv func(string) string) (Settings, error) {
	s := Settings{Table: getenv(tableName), Bucket: getenv(bucketName), Access: cmp.Or(getenv(accessRules), "{}")}
	var errs []error
	for _, name := range []string{tableName, bucketName} {
		if getenv(name) == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	seconds, err := strconv.Atoi(getenv(presignTime))
	s.PresignLifetime = time.Duration(seconds) * time.Second
	if err != nil || s.PresignLifetime < MinPresignLifetime || s.PresignLifetime > MaxPresignLifetime {
		errs = append(errs, fmt.Errorf("%s is %q, not a number of seconds from %.0f to %.0f",
			presignTime, getenv(presignTime), MinPresignLifetime.Seconds(), MaxPresignLifetime.Seconds()))
	}
	if s.PathStyle, err = PathStyle(getenv); err != nil {
		errs = append(errs, err)
	}
	if s.IPv6, err = boolean(getenv, ipv6Name); err != nil {
		errs = append(errs, err)
	}
	if s.ReadOnly, err = boolean(getenv, readOnlyName); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// Login returns the settings for logging in, which openid.ParseLogin parses. It
// is the only setting of the discovery function. It is empty if users cannot
// log in.
func Login(getenv func(string) string) string { return getenv(loginName) }

// LoginEnvironment returns the variables that [Login] reads.
func LoginEnvironment(login string) map[string]string {
	if login == "" {
		return nil
	}
	return map[string]string{loginName: login}
}

// MetricsNamespace returns the CloudWatch namespace in which a function counts
// its requests. If empty, it does not count them, since metrics cost money.
func MetricsNamespace(getenv func(string) string) string { return getenv(metricsName) }

// MetricsEnvironment returns the variable that [MetricsNamespace] reads.
func MetricsEnvironment(namespace string) map[string]string {
	if namespace == "" {
		return nil
	}
	return map[string]string{metricsName: namespace}
}

// PullFunction returns the name or the ARN of the Lambda function that fetches
// providers for the mirror. If empty, the mirror serves only what it has.
func PullFunction(getenv func(string) string) string { return getenv(pullFunction) }

// PullFunctionEnvironment returns the variable that [PullFunction] reads.
func PullFunctionEnvironment(function string) map[string]string {
	return map[string]string{pullFunction: function}
}

// The function that fetches providers has PullStorageMiB of temporary storage.
// It fetches versions whose packages have at most PullBytes together, so that
// some of the storage is left for documents.
const (
	PullStorageMiB = 10240
	PullBytes      = 9 << 30
)

// Pull has the settings of the function that fetches providers, in addition to
// [Settings].
type Pull struct {
	// Folder is its temporary folder. The function removes everything in it when
	// it starts. If empty, it uses the folder of the system and removes nothing.
	Folder string
	// Release is the release that origins see in requests, such as v1.2.3.
	Release string
	// Copies is the maximum number of copies at once, in all processes that use the
	// table.
	Copies int
}

// The default and the bounds of [Pull.Copies].
const (
	DefaultCopies = 2
	MinCopies     = 1
	MaxCopies     = 1000
)

// PullFromEnvironment reads settings through getenv, which is [os.Getenv].
func PullFromEnvironment(getenv func(string) string) (Pull, error) {
	copies, err := strconv.Atoi(cmp.Or(getenv(pullCopies), strconv.Itoa(DefaultCopies)))
	if err != nil || copies < MinCopies || copies > MaxCopies {
		err = fmt.Errorf("%s is %q, not a number from %d to %d", pullCopies, getenv(pullCopies), MinCopies, MaxCopies)
	}
	return Pull{Folder: getenv(pullFolder), Release: getenv(pullRelease), Copies: copies}, err
}

// Environment returns the variables from which [PullFromEnvironment] reads the
// same settings.
func (p Pull) Environment() map[string]string {
	return map[string]string{
		pullFolder: p.Folder, pullRelease: p.Release, pullCopies: strconv.Itoa(cmp.Or(p.Copies, DefaultCopies)),
	}
}

// PathStyle reads only Settings.PathStyle, which the command line also takes
// from its environment.
func PathStyle(getenv func(string) string) (bool, error) { return boolean(getenv, pathStyleName) }

func boolean(getenv func(string) string, name string) (bool, error) {
	switch v := getenv(name); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q, not true or false", name, v)
	}
}

// Environment returns the variables from which [FromEnvironment] reads the same
// settings.
func (s Settings) Environment() map[string]string {
	env := map[string]string{
		tableName: s.Table, bucketName: s.Bucket, accessRules: s.Access,
		presignTime: strconv.Itoa(int(s.PresignLifetime.Seconds())),
	}
	if s.PathStyle {
		env[pathStyleName] = "true"
	}
	if s.IPv6 {
		env[ipv6Name] = "true"
	}
	if s.ReadOnly {
		env[readOnlyName] = "true"
	}
	return env
}

// EnoughConcurrency is the number of functions that an account runs at once, below
// which requests can fail when many clients come at once. New accounts may have 10,
// and most have 1,000.
const EnoughConcurrency = 100
