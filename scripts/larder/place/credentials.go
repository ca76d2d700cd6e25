package place

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// Problems of AWS credentials.
const (
	AWSExpired = "the AWS credentials have expired"
	AWSRefused = "AWS does not accept these credentials"
	awsNone    = "there are no AWS credentials"
	AWSLost    = "cannot refresh the AWS credentials"

	// noRefresh begins an error of the AWS SDK that got no credentials. The
	// reason follows.
	noRefresh = "failed to refresh cached credentials, "
)

// credentialsCodes are the codes with which AWS refuses credentials.
var credentialsCodes = map[string]string{
	"ExpiredToken":                AWSExpired,
	"ExpiredTokenException":       AWSExpired,
	"InvalidGrantException":       AWSExpired, // of IAM Identity Center
	"InvalidAccessKeyId":          AWSRefused, // of S3
	"InvalidClientTokenId":        AWSRefused,
	"UnrecognizedClientException": AWSRefused,
	"SignatureDoesNotMatch":       AWSRefused,
	"InvalidSignatureException":   AWSRefused,
	"AuthFailure":                 AWSRefused,
}

// credentialsTexts are parts of the AWS SDK's errors that have no type. The
// first match wins.
var credentialsTexts = []struct{ part, problem string }{
	{"cached SSO token", AWSExpired}, // expired, not refreshed, or not there
	{"operation error SSO: GetRoleCredentials", AWSExpired},
	{"no EC2 IMDS role found", awsNone},
	{noRefresh, AWSLost},
}

// CredentialsProblem returns what is wrong with the AWS credentials, or "" if err
// has another reason.
func CredentialsProblem(err error) string {
	if failed, ok := errors.AsType[smithy.APIError](err); ok && credentialsCodes[failed.ErrorCode()] != "" {
		return credentialsCodes[failed.ErrorCode()]
	}
	if _, ok := errors.AsType[*ssocreds.InvalidTokenError](err); ok {
		return AWSExpired
	}
	if err != nil {
		for _, text := range credentialsTexts {
			if strings.Contains(err.Error(), text.part) {
				return text.problem
			}
		}
	}
	return ""
}

// credentialsError is an error with the AWS credentials in plain words.
type credentialsError struct {
	text string
	error
}

func (e credentialsError) Error() string { return e.text }

func (e credentialsError) Unwrap() error { return e.error }

// ExplainCredentials replaces the AWS SDK's text in an error if the AWS
// credentials are the reason, and adds how to get others.
func ExplainCredentials(ctx context.Context, err error) error {
	problem := CredentialsProblem(err)
	if _, explained := errors.AsType[credentialsError](err); explained || problem == "" {
		return err
	}
	text := err.Error()
	refresh := strings.Index(text, noRefresh)
	start, end := refresh, len(text)
	if failed, ok := errors.AsType[*smithy.OperationError](err); ok {
		if at := strings.Index(text, failed.Error()); at >= 0 {
			end = at + len(failed.Error())
			if start < 0 || at < start {
				start = at
			}
		}
	}
	if problem == AWSLost {
		problem, end = problem+": ", refresh+len(noRefresh)
	}
	text = text[:max(start, 0)] + problem + text[end:]
	return registry.WithHint(credentialsError{text, err}, "%s", credentialsHint(ctx))
}

// credentialsHint returns how to get other AWS credentials, by the source of the
// current ones.
func credentialsHint(ctx context.Context) string {
	var sources []aws.CredentialSource
	configuration, err := config.LoadDefaultConfig(ctx)
	if from, ok := configuration.Credentials.(aws.CredentialProviderSource); ok && err == nil {
		sources = from.ProviderSources()
	}
	from := func(of ...aws.CredentialSource) bool {
		return slices.ContainsFunc(sources, func(s aws.CredentialSource) bool { return slices.Contains(of, s) })
	}
	switch profile := os.Getenv("AWS_PROFILE"); {
	case from(aws.CredentialSourceProfileSSO, aws.CredentialSourceSSO, aws.CredentialSourceProfileSSOLegacy,
		aws.CredentialSourceSSOLegacy):
		login := "aws sso login"
		if profile != "" {
			login += " --profile " + arguments.Quoted(profile)
		}
		return "Log in with `" + login + "`, and run the command again."
	case from(aws.CredentialSourceEnvVars):
		return "Set new ones in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. " +
			"To use a profile instead, unset these variables and set AWS_PROFILE."
	case from(aws.CredentialSourceProfile, aws.CredentialSourceProfileSourceProfile, aws.CredentialSourceProfileProcess):
		return "Get new ones for the profile, or set AWS_PROFILE to another one. " +
			"`aws sts get-caller-identity` shows whether they work."
	}
	return "Configure credentials as for the AWS command line, for example with AWS_PROFILE, or with `aws sso login` " +
		"for a profile of IAM Identity Center."
}
