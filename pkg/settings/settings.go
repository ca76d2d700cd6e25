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
)

// The names of the stack's outputs, by which the command line finds a deployed registry.
const (
	OutputURL            = "RegistryURL"
	OutputHost           = "RegistryHost"
	OutputTable          = "TableName"
	OutputBucket         = "BucketName"
	OutputOperatorPolicy = "OperatorPolicyArn"
	OutputUserPool       = "UserPoolId"
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
	// Access says who may read besides the holders of tokens: JSON, as access.ParseSettings reads it.
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
	s := Settings{Table: getenv(tableName), Bucket: getenv(bucketName), Access: Access(getenv)}
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

// Access reads Settings.Access alone, which is all that the function for discovery is told. Nobody may read besides the
// holders of tokens where it says nothing.
func Access(getenv func(string) string) string { return cmp.Or(getenv(accessRules), "{}") }

// AccessEnvironment returns the variable from which Access reads.
func AccessEnvironment(access string) map[string]string {
	return map[string]string{accessRules: access}
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
	env := AccessEnvironment(s.Access)
	env[tableName], env[bucketName] = s.Table, s.Bucket
	env[presignTime] = strconv.Itoa(int(s.PresignLifetime.Seconds()))
	if s.PathStyle {
		env[pathStyleName] = "true"
	}
	return env
}
