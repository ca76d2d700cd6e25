package main

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
)

const (
	awsExpired = "the AWS credentials have expired"
	awsRefused = "AWS does not accept these credentials"
	awsNone    = "there are no AWS credentials"
	awsLost    = "cannot refresh the AWS credentials"

	// noRefresh begins an error of the AWS SDK that got no credentials. The
	// reason follows.
	noRefresh = "failed to refresh cached credentials, "
)

// credentialsCodes are the codes with which AWS refuses credentials.
var credentialsCodes = map[string]string{
	"ExpiredToken":                awsExpired,
	"ExpiredTokenException":       awsExpired,
	"InvalidGrantException":       awsExpired, // of IAM Identity Center
	"InvalidAccessKeyId":          awsRefused, // of S3
	"InvalidClientTokenId":        awsRefused,
	"UnrecognizedClientException": awsRefused,
	"SignatureDoesNotMatch":       awsRefused,
	"InvalidSignatureException":   awsRefused,
	"AuthFailure":                 awsRefused,
}

// credentialsTexts are parts of the AWS SDK's errors that have no type. The
// first match wins.
var credentialsTexts = []struct{ part, problem string }{
	{"cached SSO token", awsExpired}, // expired, not refreshed, or not there
	{"operation error SSO: GetRoleCredentials", awsExpired},
	{"no EC2 IMDS role found", awsNone},
	{noRefresh, awsLost},
}

// credentialsProblem returns what is wrong with the AWS credentials, or "" if err
// has another reason.
func credentialsProblem(err error) string {
	if failed, ok := errors.AsType[smithy.APIError](err); ok && credentialsCodes[failed.ErrorCode()] != "" {
		return credentialsCodes[failed.ErrorCode()]
	}
	if _, ok := errors.AsType[*ssocreds.InvalidTokenError](err); ok {
		return awsExpired
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

// explainCredentials replaces the AWS SDK's text in an error if the AWS
// credentials are the reason, and adds how to get others.
func explainCredentials(ctx context.Context, err error) error {
	problem := credentialsProblem(err)
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
	if problem == awsLost {
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
			login += " --profile " + quoted(profile)
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
