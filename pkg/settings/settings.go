// Package settings has the names and forms of what the stack tells others: the functions, by their environment, and the
// command line, by the stack's outputs. Nothing else is configured.
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
	loginName     = "LARDER_LOGIN"
	metricsName   = "LARDER_METRICS"

	publishFileBytes   = "LARDER_PUBLISH_FILE_BYTES"
	publishFiles       = "LARDER_PUBLISH_FILES"
	publishUploads     = "LARDER_PUBLISH_UPLOADS"
	publishInspections = "LARDER_PUBLISH_INSPECTIONS"
)

// The names of the stack's outputs, by which the command line finds a deployed registry.
const (
	OutputURL            = "RegistryURL"
	OutputHost           = "RegistryHost"
	OutputTable          = "TableName"
	OutputBucket         = "BucketName"
	OutputOperatorPolicy = "OperatorPolicyArn"
	OutputUserPool       = "UserPoolId"
	OutputAlarmTopic     = "AlarmTopicArn"
	OutputWithdrawPolicy = "WithdrawPolicyArn"
	// OutputRequestLogs names the log groups of the functions that clients read from, joined by commas, and OutputRequestLogDays
	// for how many days they keep what is logged.
	OutputRequestLogs    = "RequestLogs"
	OutputRequestLogDays = "RequestLogDays"
	// OutputRelease is the release that the stack was deployed from, such as
	// v1.2.3, or the last one before it.
	OutputRelease = "Release"
	// OutputFunctions has NAME=VALUE for each function, joined by commas. The
	// value is the function's name in Lambda. OutputFunctionCode has the digests
	// of their code in the same form, as Lambda returns them.
	OutputFunctions    = "FunctionNames"
	OutputFunctionCode = "FunctionDigests"
	// OutputAccess is the SHA-256 digest, in hexadecimal, of the access settings
	// of the functions. A stack with a user pool has none, since the settings
	// then name what CloudFormation makes.
	OutputAccess = "AccessDigest"
	// OutputAlarms names the alarms, joined by commas.
	OutputAlarms = "AlarmNames"
	// OutputCertificate is the ARN of the certificate of the registry's domain.
	OutputCertificate = "CertificateArn"
)

// TTLAttribute is the table's attribute by which it removes expired items.
const TTLAttribute = "expires"

// Settings of the functions that read the catalogue.
type Settings struct {
	// Table is the name of the DynamoDB table.
	Table string
	// Bucket is the name of the S3 bucket.
	Bucket string
	// PresignLifetime is how long presigned URLs hold, in whole seconds.
	PresignLifetime time.Duration
	// Access says who may read besides the holders of tokens: JSON, as access.ParseSettings reads it. Nobody may where it
	// says nothing.
	Access string
	// PathStyle puts the bucket into the path of S3's URLs, as emulators need it.
	PathStyle bool
}

// The bounds of PresignLifetime: an init must be able to reuse a URL, and no role's credentials sign for longer.
const (
	MinPresignLifetime = time.Minute
	MaxPresignLifetime = 12 * time.Hour
)

// FromEnvironment reads settings through getenv, which is os.Getenv. Its error names every variable that is wrong.
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
		errs = append(errs, fmt.Errorf("%s is %q, not a number of seconds from %.0f to %.0f", presignTime, getenv(presignTime), MinPresignLifetime.Seconds(), MaxPresignLifetime.Seconds()))
	}
	if s.PathStyle, err = PathStyle(getenv); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// Login reads how people log in, as openid.ParseLogin reads it, which is all that the function for discovery is told. It
// is empty where they do not.
func Login(getenv func(string) string) string { return getenv(loginName) }

// LoginEnvironment returns the variables from which Login reads.
func LoginEnvironment(login string) map[string]string {
	if login == "" {
		return nil
	}
	return map[string]string{loginName: login}
}

// MetricsNamespace returns the namespace of CloudWatch in which a function counts its requests. They are not counted where it
// is empty, as metrics are paid for.
func MetricsNamespace(getenv func(string) string) string { return getenv(metricsName) }

// MetricsEnvironment returns the variable from which MetricsNamespace reads.
func MetricsEnvironment(namespace string) map[string]string {
	if namespace == "" {
		return nil
	}
	return map[string]string{metricsName: namespace}
}

// PathStyle reads Settings.PathStyle alone, which the command line takes from its environment too.
func PathStyle(getenv func(string) string) (bool, error) {
	switch v := getenv(pathStyleName); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q, not true or false", pathStyleName, v)
	}
}

// Environment returns the variables from which FromEnvironment reads the same settings.
func (s Settings) Environment() map[string]string {
	env := map[string]string{
		tableName: s.Table, bucketName: s.Bucket, accessRules: s.Access,
		presignTime: strconv.Itoa(int(s.PresignLifetime.Seconds())),
	}
	if s.PathStyle {
		env[pathStyleName] = "true"
	}
	return env
}

// PublishLimits are what a publish through the registry's own endpoint, and an identity, may take.
type PublishLimits struct {
	// FileBytes is the size of the largest file.
	FileBytes int64
	// Files is how many one publish may have.
	Files int
	// Uploads is how many an identity may have under way.
	Uploads int
	// Inspections is how many inspections of an identity may run at once.
	Inspections int
}

// DefaultPublishLimits are those that nobody has set otherwise.
var DefaultPublishLimits = PublishLimits{FileBytes: 1 << 30, Files: 100, Uploads: 10, Inspections: 10}

// The bounds of PublishLimits. S3 takes no larger file in one request.
var (
	MinPublishLimits = PublishLimits{FileBytes: 1 << 20, Files: 1, Uploads: 1, Inspections: 1}
	MaxPublishLimits = PublishLimits{FileBytes: 5 << 30, Files: 500, Uploads: 100, Inspections: 100}
)

// PublishLimitsFromEnvironment reads limits through getenv, which is os.Getenv; one that is not set has its default. Its
// error names every variable that is wrong.
func PublishLimitsFromEnvironment(getenv func(string) string) (PublishLimits, error) {
	var errs []error
	read := func(name string, fallback, low, high int64) int64 {
		value := getenv(name)
		if value == "" {
			return fallback
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high || strconv.FormatInt(n, 10) != value {
			errs = append(errs, fmt.Errorf("%s is %q, not a number from %d to %d", name, value, low, high))
		}
		return n
	}
	standard, low, high := DefaultPublishLimits, MinPublishLimits, MaxPublishLimits
	l := PublishLimits{
		FileBytes:   read(publishFileBytes, standard.FileBytes, low.FileBytes, high.FileBytes),
		Files:       int(read(publishFiles, int64(standard.Files), int64(low.Files), int64(high.Files))),
		Uploads:     int(read(publishUploads, int64(standard.Uploads), int64(low.Uploads), int64(high.Uploads))),
		Inspections: int(read(publishInspections, int64(standard.Inspections), int64(low.Inspections), int64(high.Inspections))),
	}
	return l, errors.Join(errs...)
}

// Environment returns the variables from which PublishLimitsFromEnvironment reads the same limits.
func (l PublishLimits) Environment() map[string]string {
	return map[string]string{
		publishFileBytes:   strconv.FormatInt(l.FileBytes, 10),
		publishFiles:       strconv.Itoa(l.Files),
		publishUploads:     strconv.Itoa(l.Uploads),
		publishInspections: strconv.Itoa(l.Inspections),
	}
}
